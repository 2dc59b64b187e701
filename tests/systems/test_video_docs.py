"""The page on video works as printed: its Python runs, its commands are understood, its tables are the classes'."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.main import get_command

from oneiro import cli
from oneiro.learning.reconstruction import ReconstructionSettings
from oneiro.models.video.tokenizer import FrameTokenizerSettings
from oneiro.models.video.transformer import TransformerSettings
from oneiro.predictors.video.task import VideoRewardSettings
from oneiro.systems.rlvr.video.recipe import (
    LayoutSettings,
    PretrainSettings,
    RolloutSettings,
    VideoDataSettings,
    VideoEvaluationSettings,
)

PAGE = Path(__file__).parents[2] / "docs" / "video.md"
SECTIONS: dict[str, type[BaseModel]] = {
    "data": VideoDataSettings,
    "layout": LayoutSettings,
    "tokenizer": FrameTokenizerSettings,
    "reconstruction": ReconstructionSettings,
    "model": TransformerSettings,
    "pretrain": PretrainSettings,
    "reward": VideoRewardSettings,
    "rollout": RolloutSettings,
    "evaluation": VideoEvaluationSettings,
}


def test_the_documented_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert "'mae'" in capsys.readouterr().out


def test_every_command_of_the_page_is_understood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^(oneiro .*?)(?:  #.*)?$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) > 10
    for line in lines:
        words = shlex.split(line)[1:]
        if words[0] == "run":
            assert cli.main([*(word for word in words if word != "--dry-run"), "--dry-run"]) == 0, line
            continue
        command: Any = get_command(cli.app)
        context = command.make_context("oneiro", ["--help"], resilient_parsing=True)
        while hasattr(command, "resolve_command"):
            _, command, words = command.resolve_command(context, words)
        command.make_context(command.name, list(words))


@pytest.mark.parametrize(("section", "kind"), SECTIONS.items())
def test_the_settings_on_the_page_are_those_of_the_class(section: str, kind: type[BaseModel]) -> None:
    table = PAGE.read_text().partition(f"| setting of `{section}` | default |")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))
    defaults = {name: field.get_default(call_default_factory=True) for name, field in kind.model_fields.items()}
    assert set(shown) == set(defaults)
    for name, default in defaults.items():
        if isinstance(default, str | int | float):
            written = str(default).lower() if isinstance(default, bool) else str(default)
            assert shown[name].strip("`") == written, name
