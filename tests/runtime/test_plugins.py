"""Parts of other packages, installed as pip would: found by name, and never in the way when they are broken."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
import torch

from oneiro.learning import losses
from oneiro.learning.settings import LossSettings
from oneiro.runtime import plugins
from oneiro.runtime.errors import OneiroError

ROOT = Path(__file__).parents[2]

GOOD = {
    "good/__init__.py": "",
    "good/lake.py": """
        from oneiro.worlds.grid.frozen_lake.world import FrozenLake

        class Pond(FrozenLake):
            '''A pond.'''
            name = "pond"
        """,
    "good/best.py": """
        from typing import Literal
        from oneiro.learning.algorithms.base import Algorithm

        class Best(Algorithm):
            name: Literal["best"] = "best"
        """,
    "good/count.py": """
        from oneiro.recipe import Recipe

        class CountRecipe(Recipe):
            to: int = 3

        def run(recipe, run):
            for step in range(1, recipe.to + 1):
                run.log("count", step, {"value": step})
            run.summary({"tables": []})
        """,
    "good/task.py": """
        from oneiro.tasks.base import Predictor

        class Task(Predictor):
            name = "task"
        """,
    "good/lines.py": """
        class Lines:
            def __init__(self, path, recipe):
                self.file = (path / "lines.txt").open("w")

            def log(self, stage, step, values):
                self.file.write(f"{stage} {step} {values['value']:g}\\n")

            def close(self):
                self.file.close()
        """,
    "good/recipes/three.yaml": "system: count\nabout: Counts to three.\ntrack: [lines]\n",
    "good-1.dist-info/METADATA": "Name: good\nVersion: 1\n",
    "good-1.dist-info/entry_points.txt": """
        [oneiro.worlds]
        pond = good.lake:Pond
        frozen-lake = good.lake:Pond
        [oneiro.algorithms]
        best = good.best:Best
        [oneiro.losses]
        plain = good.plain:plain
        clip = good.plain:plain
        [oneiro.systems]
        count = good.count:CountRecipe
        [oneiro.tasks]
        task = good.task:Task
        [oneiro.trackers]
        lines = good.lines:Lines
        [oneiro.recipes]
        good = good.recipes
        """,
}
GOOD["good/plain.py"] = """
    def plain(log_ratio, advantages, settings):
        return -advantages * log_ratio

    def lost(log_ratio, advantages, settings):
        return plain(log_ratio, advantages, settings).sum()
    """
BROKEN = {
    "broken/__init__.py": "",
    "broken/part.py": "import sys\n\n1 / 0\n",
    "broken/leaves.py": "import sys\n\nsys.exit(3)\n",
    "broken/wrong.py": """
        from typing import Literal
        from oneiro.learning.algorithms.base import Algorithm

        class Nameless(Algorithm):
            name: str = "nameless"

        class Grpo(Algorithm):
            name: Literal["grpo"] = "grpo"
        """,
    "broken/recipes/bad.yaml": "system: [\n",
    "broken/recipes/odd.yaml": "system: spa\npresets: 3\n",
    "broken-1.dist-info/METADATA": "Name: broken\nVersion: 1\n",
    "broken-1.dist-info/entry_points.txt": """
        [oneiro.worlds]
        swamp = broken.part:Swamp
        exit = broken.leaves:Exit
        [oneiro.algorithms]
        worst = broken.part:Worst
        nameless = broken.wrong:Nameless
        again = broken.wrong:Grpo
        [oneiro.systems]
        stuck = broken.part:StuckRecipe
        [oneiro.tasks]
        lost = broken.part:Lost
        [oneiro.trackers]
        gone = broken.nowhere:Gone
        [oneiro.recipes]
        broken = broken.recipes
        absent = broken.absent
        """,
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder on the path with a good package and a broken one."""
    place = tmp_path_factory.mktemp("site")
    for name, text in (GOOD | BROKEN).items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(dedent(text).lstrip("\n"))
    return place


def python(site: Path, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}", "COLUMNS": "200"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd or site, env=environment, capture_output=True, text=True)


def oneiro(site: Path, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return python(site, "-m", "oneiro", *words, cwd=cwd)


def test_a_plugins_recipe_runs_its_system_with_its_tracker(site: Path, tmp_path: Path) -> None:
    done = oneiro(site, "run", "good/three", "--out", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/lines.txt").read_text() == "count 1 1\ncount 2 2\ncount 3 3\n"


def test_a_loss_of_another_package_is_learned_from_by_name_or_by_its_place(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Log-ratios 0.5 and 0 with weights 1 and 0.5 and advantages 2: -1 x 2 x 0.5, and its derivative by each token."""
    monkeypatch.syspath_prepend(str(site))
    # Names and what they stand for are looked up once in a process; here they differ from test to test.
    monkeypatch.setattr(plugins, "_find_installed", plugins._find_installed.__wrapped__)
    monkeypatch.setattr(losses, "policy_loss_named", losses.policy_loss_named.__wrapped__)
    columns = {"logprobs": torch.tensor([-1.0, -1.0]), "advantages": torch.full((2,), 2.0)}
    columns["policy"] = torch.tensor([1.0, 0.5])
    for name in ("plain", "good.plain:plain"):
        logprobs = torch.tensor([-0.5, -1.0], requires_grad=True)
        loss = losses.token_losses(logprobs, torch.zeros(2), columns, LossSettings(policy=name, ce=0))
        loss.backward()
        assert (loss.item(), logprobs.grad.tolist()) == (-1.0, [-2.0, -1.0])
    assert losses.policy_loss_named("clip") is losses.policy_loss  # no package can take that name
    mistakes = {
        "plane": "no policy loss called 'plane'; did you mean 'plain'?; or give module:function",
        "good.plain:gone": "policy loss 'good.plain:gone' cannot be loaded from good.plain:gone: AttributeError",
        "good.plain:lost": "policy loss 'good.plain:lost' gave () for 2 tokens; it must give one number for each",
    }
    for name, message in mistakes.items():
        with pytest.raises((OneiroError, ValueError), match=re.escape(message)):
            losses.token_losses(torch.zeros(2), torch.zeros(2), columns, LossSettings(policy=name))


def test_broken_packages_are_one_warning_each_in_the_list_of_worlds(site: Path) -> None:
    done = oneiro(site, "worlds")
    assert done.returncode == 0, done.stderr
    assert "pond" in done.stdout and "sokoban" in done.stdout and "swamp" not in done.stdout
    failed = f"ZeroDivisionError: division by zero ({site / 'broken/part.py'}, line 3)"
    assert sorted(done.stderr.splitlines()) == [
        f"world 'exit' cannot be loaded from broken.leaves:Exit: SystemExit: 3 ({site / 'broken/leaves.py'}, line 3) "
        "(skipped)",
        f"world 'swamp' cannot be loaded from broken.part:Swamp: {failed} (skipped)",
    ]


def test_broken_recipes_are_left_out_of_the_list(site: Path) -> None:
    done = oneiro(site, "recipes")
    assert done.returncode == 0, done.stderr
    assert "good/three" in done.stdout and "spa/frozen-lake" in done.stdout and "broken/bad" not in done.stdout
    assert [word in done.stderr for word in ("bad.yaml", "'absent' of package 'broken'")] == [True, True]


def test_what_is_broken_is_one_line_where_it_is_asked_for(site: Path, tmp_path: Path) -> None:
    asked = {
        ("check", "swamp"): "world 'swamp' cannot be loaded from broken.part:Swamp: ZeroDivisionError",
        ("check", "exit"): "world 'exit' cannot be loaded from broken.leaves:Exit: SystemExit",
        ("run", "good/three", "track=[gone]"): "tracker 'gone' cannot be loaded from broken.nowhere:Gone: ModuleNot",
        ("run", "good/three", "track=[line]"): "no tracker called 'line' (key 'track'); did you mean 'lines'?",
        ("run", "good/tree"): "no recipe called 'good/tree'; did you mean 'good/three'?",
    }
    code = f"from oneiro.cli import main\nfor words in {list(asked)}: assert main(words) == 2, words"
    done = python(site, "-W", "ignore", "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for printed, line in zip(done.stderr.splitlines(), asked.values(), strict=True):
        assert printed.startswith(line)


def test_algorithms_predictors_and_systems_are_found_beside_broken_ones(site: Path) -> None:
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from oneiro.learning.loop import RlSettings
for name in ("best", "grpo"):
    print(RlSettings.model_validate({"algorithm": {"name": name}}).algorithm)
for warning in caught:
    print(warning.category.__name__, str(warning.message).partition(" of package")[0])
from oneiro.runtime.errors import OneiroError
from oneiro.tasks import base
from oneiro.systems import recipe_class
print(base.names(), base.predictor_class("task").__module__, recipe_class("count").__module__)
for ask in (lambda: base.predictor_class("lost"), lambda: recipe_class("stuck")):
    try:
        ask()
    except OneiroError as error:
        print(str(error).partition(":")[0])
from oneiro.worlds.registry import world_class
print(world_class("frozen-lake").__module__)
"""
    done = python(site, "-c", code)
    assert done.stdout.splitlines() == [
        "name='best'",
        *[line for line in done.stdout.splitlines() if line.startswith("name='grpo'")],
        "PluginWarning oneiro.algorithms 'worst'",
        "PluginWarning oneiro.algorithms 'nameless'",
        "PluginWarning oneiro.algorithms 'again'",
        "['grid', 'lost', 'physics', 'rulebook', 'task', 'text-game', 'web-page', 'written-rules'] "
        "good.task good.count",
        "predictor 'lost' cannot be loaded from broken.part",
        "system 'stuck' cannot be loaded from broken.part",
        "oneiro.worlds.grid.frozen_lake.world",
    ], done.stdout + done.stderr
