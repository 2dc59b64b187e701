"""The page of the robot works as printed, and names every player."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oneiro.worlds.robot.policies import PERTURBATIONS
from tests.test_docs import commands, snippets, understand

PAGE = Path(__file__).parents[3] / "docs" / "robot.md"


def test_the_documented_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in snippets(PAGE):
        block.run(names)


def test_the_documented_commands_are_understood() -> None:
    found = commands(PAGE, "oneiro")
    assert len(found) > 5
    for line in found:
        understand(line.split()[1:])


def test_every_player_is_on_the_page() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert set(PERTURBATIONS) <= set(listed)
