"""Validation during RL: the best weights are kept, a run that gets no better ends, and a killed one decides alike."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from oneiro.learning.algorithms import Grpo
from oneiro.learning.loop import Callbacks, reinforce
from oneiro.learning.stages import Selection, SelectionSettings
from oneiro.models.language import LanguageModel, load
from oneiro.models.locate import newest_weights
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny
from tests.learning.test_loop import play_with, scored, settings


def follow(
    folder: Path, scores: dict[int, float], steps: int = 6, stop_at: int | None = None, **chosen: object
) -> tuple[list[tuple[int, dict[str, float]]], str | None, LanguageModel, dict[int, torch.Tensor]]:
    """RL in which the weights after k steps validate as `scores[k]`; logged metrics are kept in a file, as runs do."""
    language, lines, weights = make_tiny(), folder / "metrics.jsonl", {}
    folder.mkdir(exist_ok=True)
    done = 0

    def validate() -> dict[str, float]:
        return {"validation_other": 0.0, "validation_success": scores[done]}

    how = SelectionSettings(every=2, **chosen)  # type: ignore[arg-type]
    selection = Selection(how, folder / "rl", language, validate, "validation_success")

    class Killed(Exception):
        pass

    def extra(step: int, episodes: object, learner: object) -> dict[str, float]:
        nonlocal done
        done = step - 1
        weights[done] = language.backbone.head_weight.detach().clone()
        if step == stop_at:
            raise Killed
        return selection.measure(step)

    def log(step: int, values: dict[str, float]) -> None:
        with lines.open("a") as file:
            file.write(json.dumps({"step": step, **values}, sort_keys=True) + "\n")

    def rewind(step: int) -> str | None:
        kept = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        kept = [row for row in kept if row["step"] <= step]
        lines.write_text("".join(json.dumps(row) + "\n" for row in kept))
        return selection.replay(kept)

    play = scored(play_with(language), lambda step, group, member: member)
    parts = Callbacks(play, log, rewind=rewind, should_stop=selection.see, extra_metrics=extra)
    note = None
    with contextlib.suppress(Killed):
        last = reinforce(language, settings(Grpo(), steps), folder / "rl", 0, parts)
        done = int(last.name[-6:])
        weights[done] = language.backbone.head_weight.detach().clone()
        note = selection.finish(done)
    logged = [json.loads(line) for line in lines.read_text().splitlines()]
    return [(row["step"], row) for row in logged], note, language, weights


def test_the_best_weights_are_kept_and_are_the_ones_that_go_on(tmp_path: Path) -> None:
    logged, note, language, weights = follow(tmp_path, {0: 0.1, 2: 0.5, 4: 0.3, 6: 0.4})
    assert [row.get("validation_success") for _, row in logged] == [0.1, None, 0.5, None, 0.3, None]
    assert note is not None and "after step 2 of 6" in note and "validation_success 0.5" in note
    assert newest_weights(tmp_path / "rl") == tmp_path / "rl" / "best" / "model"
    kept = load(str(tmp_path / "rl")).backbone.head_weight
    assert torch.equal(kept, weights[2]) and not torch.equal(kept, language.backbone.head_weight)


def test_the_last_weights_are_validated_too(tmp_path: Path) -> None:
    _, note, _, weights = follow(tmp_path, {0: 0.9, 2: 0.5, 4: 0.3, 6: 0.2}, mode="min")
    assert note is not None and "after step 6 of 6" in note
    assert torch.equal(load(str(tmp_path / "rl")).backbone.head_weight, weights[6])


def test_a_run_that_gets_no_better_ends(tmp_path: Path) -> None:
    scores = {0: 0.1, 2: 0.5, 4: 0.3, 5: 0.3, 6: 0.5, 7: 0.2, 8: 0.9}
    logged, note, _, _ = follow(tmp_path, scores, steps=10, patience=2)
    assert logged[-1][0] == 7  # before step 7 the second one in a row was no better than 0.5
    assert note is not None and "after step 2 of 7" in note
    again, note, _, _ = follow(tmp_path, scores, steps=10, patience=2)
    assert again == logged and note is not None and "after step 2 of 7" in note  # it had ended there


@pytest.mark.parametrize(
    "stop_at", [5, pytest.param(4, marks=pytest.mark.thorough), pytest.param(6, marks=pytest.mark.thorough)]
)
def test_a_killed_run_chooses_the_same(tmp_path: Path, stop_at: int) -> None:
    scores = {0: 0.1, 2: 0.2, 4: 0.6, 6: 0.5}
    whole, note, _, _ = follow(tmp_path / "whole", scores)
    follow(tmp_path / "cut", scores, stop_at=stop_at)
    assert follow(tmp_path / "cut", scores)[:2] == (whole, note)
    for name in ("model/model.safetensors", "selection.json"):
        a, b = ((tmp_path / run / "rl" / "best" / name).read_bytes() for run in ("whole", "cut"))
        assert a == b


def test_an_unknown_metric_is_named(tmp_path: Path) -> None:
    selection = Selection(SelectionSettings(), tmp_path, make_tiny(), lambda: {"validation_success": 1.0}, "sucess")
    with pytest.raises(OneiroError, match=r"no 'sucess' among .*validation_success"):
        selection.measure(1)


def test_the_better_value_and_patience_are_as_told(tmp_path: Path) -> None:
    def selection(**settings: Any) -> Selection:
        return Selection(SelectionSettings(**settings), tmp_path, make_tiny(), lambda: {"score": 1.0}, "score")

    found = selection(patience=2)
    said = [found.see(step, {"score": value}) for step, value in enumerate([1.0, 1.0, 2.0, 1.5, None, 1.9], start=1)]
    assert said[:-1] == [None] * 5 and said[-1] == "RL ended at step 6: 2 validations in a row were no better than 2"
    assert found.reason == said[-1] and (found.best, found.since) == (2.0, 2)
    rows = [{"step": 1, "score": 1.0}, {"step": 2}, {"step": 3, "score": 0.5}]
    assert found.replay(rows) is None and (found.best, found.since, found.reason) == (1.0, 1, None)
    least = selection(mode="min")
    assert [least.see(1, {"score": v}) for v in (3.0, 2.0, 2.0, 5.0)] == [None] * 4
    assert (least.best, least.since) == (2.0, 2)
    every = selection(every=4)
    assert [step for step in range(1, 11) if every.measure(step)] == [1, 5, 9]
    assert json.loads((tmp_path / "best" / "selection.json").read_text()) == {
        "step": 8,
        "metric": "score",
        "value": 1.0,
    }
