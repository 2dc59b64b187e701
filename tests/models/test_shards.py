"""Checkpoints of verl's FSDP trainers become one folder, and nothing in them is run."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from oneiro import team as teams
from oneiro.errors import OneiroError
from oneiro.models.language import LanguageModel, merge
from tests.conftest import make_tiny
from tests.ranks import on_ranks


def _write(team: teams.Team, folder: str, state: dict[str, torch.Tensor], replicas: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor

    # verl's meshes: ranks in a row, or replicas of such rows (HSDP).
    if replicas > 1:
        mesh = init_device_mesh("cpu", (replicas, team.size // replicas), mesh_dim_names=("ddp", "fsdp"))
    else:
        mesh = init_device_mesh("cpu", (team.size,), mesh_dim_names=("fsdp",))
    places: list[Placement] = [Replicate()] * (mesh.ndim - 1) + [Shard(0)]
    sharded = {name: distribute_tensor(tensor, mesh, places) for name, tensor in state.items()}
    torch.save(sharded, Path(folder) / f"model_world_size_{team.size}_rank_{team.rank}.pt")


def sharded(language: LanguageModel, folder: Path, size: int, replicas: int = 1) -> Path:
    language.save(folder / "huggingface")
    (folder / "huggingface" / "model.safetensors").unlink()
    state = {name: tensor.clone() for name, tensor in language.model.state_dict().items()}

    def work() -> None:
        team = teams.current()
        assert team is not None
        team.together(_write, str(folder), state, replicas)

    on_ranks(size, work)
    return folder


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of 11, 11 and 10: not as many on each rank."""
    return sharded(make_tiny(), tmp_path_factory.mktemp("verl") / "actor", 3)


def logits(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(
            torch.arange(9)[None]
        ).logits
    return found


def test_shards_of_any_number_of_ranks_are_joined(three: Path, tmp_path: Path, tiny: LanguageModel) -> None:
    merged = merge(three.parent, tmp_path / "out")
    whole = tiny.save(tmp_path / "whole")
    assert torch.equal(logits(merged), logits(whole))
    assert (merged / "tokenizer.json").is_file() and not list(merged.glob("*.pt"))


def test_of_replicas_one_is_taken(tmp_path: Path, tiny: LanguageModel) -> None:
    folder = sharded(tiny, tmp_path / "actor", 2, replicas=2)
    assert torch.equal(logits(merge(folder, tmp_path / "out")), logits(tiny.save(tmp_path / "whole")))


@pytest.mark.parametrize("damage", ["missing", "cut", "stranger", "no config"])
def test_what_cannot_be_joined_is_one_line(three: Path, damage: str, tmp_path: Path) -> None:
    folder = shutil.copytree(three, tmp_path / "actor")
    second = folder / "model_world_size_3_rank_1.pt"
    if damage == "missing":
        second.unlink()
    elif damage == "cut":
        second.write_bytes(second.read_bytes()[:1000])
    elif damage == "stranger":
        for path in folder.glob("*.pt"):
            torch.save({**torch.load(path, weights_only=True), "score.weight": torch.zeros(2)}, path)
    else:
        (folder / "huggingface" / "config.json").unlink()
    with pytest.raises(OneiroError, match=r"rank 1 of 3|no file of tensors|score\.weight|no huggingface"):
        merge(folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_pickle_that_would_run_something_is_refused(three: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "sprung"),)

    folder = shutil.copytree(three, tmp_path / "actor")
    (folder / "model_world_size_3_rank_0.pt").write_bytes(pickle.dumps({"a": Trap()}))
    torch.save({"a": Trap()}, folder / "model_world_size_3_rank_1.pt")
    with pytest.raises(OneiroError, match="no file of tensors"):
        merge(folder, tmp_path / "out")
    shutil.copy(three / "model_world_size_3_rank_0.pt", folder)
    with pytest.raises(OneiroError, match="no file of tensors"):
        merge(folder, tmp_path / "out")
    assert not (tmp_path / "sprung").exists()
