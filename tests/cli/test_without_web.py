"""Where the web sandbox is not installed, what needs it says so in one line, and nothing else minds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "oneiro_web":
            raise ModuleNotFoundError("No module named 'oneiro_web'", name=name)

sys.meta_path.insert(0, Missing())
from oneiro import cli
from oneiro.runtime import plugins

plugins._installed = lambda: ()  # nor its entry points
for command in json.loads(sys.argv[1]):
    print(cli.main(command), file=sys.stderr, flush=True)
"""
COMMANDS = {
    "play web": "world 'web' needs oneiro_web",
    "eval agent --world miniwob --policy random": "world 'miniwob' needs oneiro_web",
    "run webrl/sandbox --dry-run": "system 'webrl' needs oneiro_web",
    "run rlvr/web-page --dry-run": "system 'rlvr/web-page' needs oneiro_web",
    "eval web-tasks --agent oracle": "oneiro_web is not installed",
    "web serve": "oneiro_web is not installed",
    "bench web": "oneiro_web is not installed",
}


@pytest.mark.slow
def test_what_needs_the_sandbox_says_so_and_nothing_else_minds() -> None:
    commands = [*(command.split() for command in COMMANDS), ["run", "spa/frozen-lake", "preset=smoke", "--dry-run"]]
    done = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps(commands)], capture_output=True, text=True)
    install = "the web sandbox is a package of its own: pip install 'oneiro[web]', in a clone `pip install -e web`"
    expected = [line for reason in COMMANDS.values() for line in (f"{reason}; {install}", "2")]
    assert done.stderr.splitlines() == [*expected, "0"]
