"""Settings that messages name exist: a person who follows one must not get the next error."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import oneiro
from tests.docs.settings import recipes, sections, takers

NAMED = re.compile(r"(?<![\w./-])([a-z_]+(?:\.[a-z_0-9]+)+)=")


def named_settings() -> dict[str, str]:
    """Every `section.key=` in a text of the package, with one place where it stands."""
    package = Path(oneiro.__file__).parent
    found = {}
    for path in sorted(package.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {name: f"{path.relative_to(package)}:{node.lineno}" for name in NAMED.findall(node.value)}
    return {name: place for name, place in found.items() if name.partition(".")[0] in sections()}


def test_every_setting_that_a_message_names_is_one_of_some_recipe() -> None:
    named = named_settings()
    assert {"rl.learner.parallel", "sft.learner.parallel"} <= set(named) and len(recipes()) > 20
    assert {name: place for name, place in named.items() if not takers(name)} == {}
