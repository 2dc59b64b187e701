"""Checkpoints of verl's FSDP trainers become one folder, and nothing in them is run."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from oneiro.models import shards
from oneiro.models.language import LanguageModel, merge
from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError
from tests.conftest import make_tiny
from tests.ranks import on_ranks


def _write(folder: Path, state: dict[str, torch.Tensor], replicas: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Placement, Replicate, Shard, distribute_tensor

    rank, size = distributed.rank(), distributed.world_size()
    # verl's meshes: ranks in a row, or replicas of such rows (HSDP).
    if replicas > 1:
        mesh = init_device_mesh("cpu", (replicas, size // replicas), mesh_dim_names=("ddp", "fsdp"))
    else:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("fsdp",))
    # Vectors whole on every rank, matrices by rows.
    outer: list[Placement] = [Replicate()] * (mesh.ndim - 1)
    sharded = {
        name: distribute_tensor(tensor, mesh, [*outer, Replicate() if tensor.dim() == 1 else Shard(0)])
        for name, tensor in state.items()
    }
    torch.save(sharded, folder / f"model_world_size_{size}_rank_{rank}.pt")


def sharded(language: LanguageModel, folder: Path, size: int, replicas: int = 1) -> Path:
    language.save(folder / "huggingface")
    (folder / "huggingface" / "model.safetensors").unlink()
    state = {name: tensor.clone() for name, tensor in language.model.state_dict().items()}
    on_ranks(size, lambda: _write(folder, state, replicas))
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


def plain(language: LanguageModel, folder: Path) -> list[dict[str, torch.Tensor]]:
    """Two ranks' parts without anything that says how they were cut: vectors whole, matrices by rows."""
    language.save(folder / "huggingface")
    (folder / "huggingface" / "model.safetensors").unlink()
    state = language.model.state_dict()
    return [{k: t.clone() if t.dim() == 1 else t.chunk(2)[rank].clone() for k, t in state.items()} for rank in (0, 1)]


def save(parts: list[Any], folder: Path) -> Path:
    for rank, part in enumerate(parts):
        torch.save(part, folder / f"model_world_size_{len(parts)}_rank_{rank}.pt")
    return folder


def test_plain_tensors_are_joined_by_rows_unless_they_are_whole(tmp_path: Path, tiny: LanguageModel) -> None:
    folder = save(plain(tiny, tmp_path / "actor"), tmp_path / "actor")
    assert torch.equal(logits(merge(folder, tmp_path / "out")), logits(tiny.save(tmp_path / "whole")))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("missing", "rank 1 of 2"),
        ("cut", "no file of tensors"),
        ("list", "no list of named tensors"),
        ("numbers", "no list of named tensors"),
        ("stranger", r"score\.weight"),
        ("lacking", r"the shards have no 'model\.norm\.weight'"),
        ("rows", r"'model\.layers\.0\.mlp\.up_proj\.weight' do not make up its shape \(64, 32\)"),
        ("rank", r"'model\.norm\.weight' do not make up its shape"),
        ("adapter", "holds an adapter"),
        ("no config", "no huggingface"),
        ("odd config", "no language model can be made"),
        ("several", "several checkpoints"),
    ],
)
def test_what_cannot_be_joined_is_one_line(damage: str, said: str, tmp_path: Path, tiny: LanguageModel) -> None:
    folder = tmp_path / "run" / "actor"
    parts: list[Any] = list(plain(tiny, folder))
    up = "model.layers.0.mlp.up_proj.weight"
    if damage == "list":
        parts[1] = [torch.zeros(2)]
    elif damage == "numbers":
        parts[1] = {"a": 5, "b": torch.zeros(2)}
    elif damage == "stranger":
        parts[1]["score.weight"] = torch.zeros(2)
    elif damage == "lacking":
        parts = [{k: t for k, t in part.items() if k != "model.norm.weight"} for part in parts]
    elif damage == "rows":
        parts[1][up] = parts[1][up][:-1]
    elif damage == "rank":
        del parts[1]["model.norm.weight"]
    elif damage == "adapter":
        parts[0]["model.lora_A.weight"] = torch.zeros(2)
    save(parts, folder)
    if damage == "missing":
        (folder / "model_world_size_2_rank_1.pt").unlink()
    elif damage == "cut":
        os.truncate(folder / "model_world_size_2_rank_1.pt", 1000)
    elif damage == "no config":
        (folder / "huggingface" / "config.json").unlink()
    elif damage == "odd config":
        (folder / "huggingface" / "config.json").write_text('{"model_type": "vit"}')
    elif damage == "several":
        shutil.copytree(folder, folder.with_name("older"))
    with pytest.raises(OneiroError, match=said) as caught:
        merge(folder.parent, tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_sums_that_ranks_have_still_to_add_up_cannot_be_joined() -> None:
    from torch.distributed.tensor import Partial

    piece = SimpleNamespace(placements=[Partial()], _local_tensor=torch.zeros(2))
    with pytest.raises(OneiroError, match=r"the shards of 'w' are placed as .* which cannot be joined"):
        shards._join("w", [piece, piece], torch.Size([2]))


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


def test_the_weights_that_webrl_leaves_become_a_folder(tmp_path: Path) -> None:
    language, folder = make_tiny(), tmp_path / "step-400"
    language.save(folder)
    (folder / "model.safetensors").unlink()
    state = {name: tensor.clone() for name, tensor in language.model.state_dict().items()}
    torch.save(state, folder / "pytorch_actor.bin")
    torch.save({"value": torch.zeros(1)}, folder / "pytorch_critic.bin")  # is not looked at
    merged = merge(folder, tmp_path / "merged")
    language.save(tmp_path / "whole")
    assert torch.equal(logits(merged), logits(tmp_path / "whole"))
    (folder / "config.json").unlink()
    with pytest.raises(OneiroError, match="put the model"):
        merge(folder, tmp_path / "other")
