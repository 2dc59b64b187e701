"""The code in the documentation works as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from oneiro.worlds.textgame.games import GAMES

PAGE = Path(__file__).parents[2] / "docs" / "text-games.md"


def test_the_documented_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    shown = capsys.readouterr().out
    assert "You simulate a text game" in shown
    assert "The final answer is: " in shown
    assert "'answers': 'no change'" in shown


def test_every_game_is_on_the_page() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \|", PAGE.read_text(), re.MULTILINE)
    assert sorted(set(listed) & set(GAMES)) == sorted(GAMES)
