"""What a checkpoint may hold and what is refused, case by case; which steps stay and where `model` leads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oneiro.learning import checkpoint
from oneiro.models.locate import BEST
from oneiro.runtime.errors import OneiroError

NAN = float("nan")


@pytest.mark.parametrize(
    ("state", "step", "problem"),
    [
        ({"step": 3}, 3, None),
        ({"step": 0, "updates": {"policy": 0}, "applied": {}}, 0, None),
        ({"step": 3, "updates": {"policy": 2, "critic": 0}, "applied": {"policy": 2}}, 3, None),
        ([3], 3, "not of this step"),
        ({}, 3, "not of this step"),
        ({"step": 2}, 3, "not of this step"),
        ({"step": True}, 1, "not of this step"),
        ({"step": 3.0}, 3, "not of this step"),
        ({"step": -1}, -1, "not of this step"),
        ({"step": 3, "updates": [2]}, 3, "count updates"),
        ({"step": 3, "updates": {"policy": 2, "critic": -1}}, 3, "count updates"),
        ({"step": 3, "updates": {"policy": 2, "critic": True}}, 3, "count updates"),
        ({"step": 3, "updates": {"policy": 2, "critic": "2"}}, 3, "count updates"),
        ({"step": 3, "applied": 2}, 3, "count updates"),
        ({"step": 3, "applied": {"policy": 1.5}}, 3, "count updates"),
    ],
)
def test_the_state_of_a_step(tmp_path: Path, state: Any, step: int, problem: str | None) -> None:
    (tmp_path / "state.json").write_text(json.dumps(state))
    found = checkpoint.wrong_state(tmp_path, step)
    assert found is None if problem is None else problem in str(found)


def moments(name: str = "w", *shape: int, **more: torch.Tensor) -> dict[str, torch.Tensor]:
    full = {kind: torch.ones(shape or (2, 3)) for kind in ("exp_avg", "exp_avg_sq")} | {"step": torch.tensor(4.0)}
    return {f"{name}/{kind}": tensor for kind, tensor in (full | more).items()}


def without(state: dict[str, torch.Tensor], *keys: str) -> dict[str, torch.Tensor]:
    return {key: tensor for key, tensor in state.items() if key not in keys}


MASTER = {"w/master": torch.ones(2, 3)}


@pytest.mark.parametrize(
    ("tensors", "applied", "problem"),
    [
        (moments(), 1, None),
        (moments() | MASTER | moments("b", 2), 1, None),
        (moments() | {"b/master": torch.ones(2)}, 1, None),  # one of them was not part of an update yet
        ({}, 0, None),
        (MASTER, 0, None),
        (moments(), 0, None),
        ({"w/momentum_buffer": torch.ones(6)}, 1, None),  # Muon's, which is not checked against a shape
        ({"w/state1": torch.ones(6, dtype=torch.uint8), "w/step": torch.tensor(3)}, 1, None),  # eight bits
        ({}, 1, "is empty"),
        (MASTER, 1, "is empty"),
        (moments("other"), 1, "knows no 'other'"),
        (moments("w", 3, 2), 1, "another shape"),
        (moments() | {"w/master": torch.ones(6)}, 1, "another shape"),
        (moments(exp_avg=torch.tensor([[1.0, 1.0, NAN]] * 2)), 1, "not finite"),
        (moments(step=torch.tensor(NAN)), 1, "not finite"),
        (moments(exp_avg_sq=torch.ones(2, 3, dtype=torch.int32)), 1, "int32"),
        (moments() | {"w/master": torch.ones(2, 3, dtype=torch.int32)}, 1, "int32"),
        ({"w/step": torch.tensor(4.0)}, 1, "'w' is incomplete"),
        ({"w/step": torch.tensor(4.0)} | MASTER, 1, "'w' is incomplete"),
        (without(moments(), "w/step"), 1, "'w' is incomplete"),
        (without(moments(), "w/exp_avg"), 1, "'w' is incomplete"),
        (without(moments(), "w/exp_avg_sq"), 1, "'w' is incomplete"),
        (moments() | without(moments("b", 2), "b/exp_avg"), 1, "'b' is incomplete"),
    ],
)
def test_the_state_of_an_optimiser(tensors: dict[str, torch.Tensor], applied: int, problem: str | None) -> None:
    optimiser: Any = SimpleNamespace(shapes={"w": torch.Size([2, 3]), "b": torch.Size([2])})
    if problem is None:
        checkpoint.check_optimiser(Path("here"), optimiser, tensors, applied)
        return
    with pytest.raises(OneiroError, match=problem):
        checkpoint.check_optimiser(Path("here"), optimiser, tensors, applied)


@pytest.mark.parametrize(
    ("saved", "problem"),
    [
        ({"a": torch.ones(2), "n": torch.tensor([1])}, None),
        ({"a": torch.ones(2).bfloat16(), "n": torch.tensor([1])}, None),
        ({"a": torch.ones(2)}, "another model .see 'n'"),
        ({"a": torch.ones(2), "n": torch.tensor([1]), "z": torch.ones(1)}, "another model .see 'z'"),
        ({"a": torch.ones(3), "n": torch.tensor([1])}, "another model .see 'a'"),
        ({"a": torch.ones(2, dtype=torch.int64), "n": torch.tensor([1])}, "'a' holds torch.int64"),
        ({"a": torch.ones(2), "n": torch.tensor([1.0])}, "'n' holds torch.float32"),
        ({"a": torch.tensor([1.0, NAN]), "n": torch.tensor([1])}, "'a' holds .* not finite"),
    ],
)
def test_weights_of_a_model(saved: dict[str, torch.Tensor], problem: str | None) -> None:
    own = {"a": torch.zeros(2), "n": torch.tensor([0])}
    if problem is None:
        checkpoint.check_weights(Path("here"), own, saved)
        return
    with pytest.raises(OneiroError, match=problem):
        checkpoint.check_weights(Path("here"), own, saved)


def test_parts_of_a_file_go_by_their_names() -> None:
    one, two = torch.ones(1), torch.ones(2)
    tensors = {"optimiser/w/step": one, "value/weight": two, "values/x": one}
    assert checkpoint.part_of(tensors, "optimiser") == {"w/step": one}
    assert checkpoint.part_of(tensors, "value") == {"weight": two} and checkpoint.part_of(tensors, "backbone") == {}


def stepped(folder: Path, *steps: int) -> None:
    for step in steps:
        (folder / f"step-{step:06d}" / "model").mkdir(parents=True)
        (folder / f"step-{step:06d}" / "model" / "config.json").write_text(str(step))


def test_the_newest_steps_stay_by_number_and_other_names_are_no_steps(tmp_path: Path) -> None:
    stepped(tmp_path, 2, 999_999, 1_000_000, 7)
    (tmp_path / "step-old").mkdir()
    (tmp_path / ".step-000009.1.part").mkdir()
    assert list(checkpoint.checkpoints(tmp_path)) == [2, 7, 999_999, 1_000_000]
    (tmp_path / "step-000001").write_text("a file, which is left alone")
    checkpoint.drop_older(tmp_path, 2)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"step-999999", "step-1000000", "step-old", ".step-000009.1.part", "step-000001"}
    newest = checkpoint.latest(tmp_path)
    assert newest is not None and checkpoint.step_of(newest) == 1_000_000
    assert checkpoint.latest(tmp_path / "nowhere") is None


def test_model_leads_to_the_newest_weights_or_to_the_best(tmp_path: Path) -> None:
    stepped(tmp_path, 1, 2, 3)
    link = tmp_path / "model"
    checkpoint.point_to(tmp_path / "step-000002")
    assert link.is_symlink() and (link / "config.json").read_text() == "2"
    (tmp_path / ".model-link").symlink_to("nowhere")  # a process was killed between two steps of it
    checkpoint.point_to(tmp_path / "step-000003")
    assert (link / "config.json").read_text() == "3" and not (tmp_path / ".model-link").is_symlink()
    checkpoint.point_to(tmp_path / "step-000009")  # without weights it stays
    assert (link / "config.json").read_text() == "3"
    link.unlink()
    link.mkdir()
    (link / "config.json").write_text("a copy")
    best = tmp_path / BEST / "model"
    best.mkdir(parents=True)
    (best / "config.json").write_text("best")
    checkpoint.point_to(tmp_path / "step-000003")
    assert link.is_symlink() and (link / "config.json").read_text() == "best"
    assert checkpoint.last(tmp_path).name == "step-000003" and list(checkpoint.checkpoints(tmp_path)) == [3]
