"""The world in the documentation works as printed."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from oneiro.worlds import check, make, names
from oneiro.worlds.registry import WORLDS, register, world_class

PAGE = Path(__file__).parents[2] / "docs" / "worlds.md"


@pytest.fixture
def guess() -> Iterator[None]:
    source = next(
        block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class Guess" in block
    )
    module = types.ModuleType("documented_guess")
    exec(compile(source, str(PAGE), "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    register("guess", "documented_guess:Guess")
    yield
    del WORLDS["guess"], sys.modules["documented_guess"]


def test_the_documented_world_passes_the_check(guess: None) -> None:
    errors = [finding.message for finding in check("guess") if finding.status == "error"]
    assert errors == []
    assert make("guess:wide").config.highest == 1000


def test_every_variant_with_other_numbers_is_in_the_table() -> None:
    page = PAGE.read_text()
    for name in ("2048", "bandit", "countdown", "cube", "frozen-lake", "math", "sokoban", "sudoku", "webshop"):
        assert name in names() and f"| `{name}`" in page
        for setting in set(world_class(name).Config.model_fields) - {"max_actions", "view"}:
            assert f"`{setting}`" in page, f"{name}: {setting}"
        for view in make(name).views:
            assert f"`{view}`" in page
