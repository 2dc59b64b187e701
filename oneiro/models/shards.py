"""Checkpoints of other trainers into one model: of verl's FSDP trainers one file per rank,
`model_world_size_8_rank_3.pt`; of WebRL one file of all weights, `pytorch_actor.bin`, without a configuration.

The files are pickles. They are read with torch's restricted loader, which builds tensors and nothing else.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneiro.models.language import quiet, write_folder
from oneiro.runtime.errors import OneiroError, first_line

NAME = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
WEBRL = "pytorch_actor.bin"
CONFIG = "huggingface"
"""The folder beside the shards that holds configuration and tokenizer."""


def find(source: Path) -> Path | None:
    """The folder of shards at or below `source`; None where there is none."""
    shards = [path for path in source.rglob("model_world_size_*_rank_*.pt") if NAME.fullmatch(path.name)]
    folders = sorted({path.parent for path in [*shards, *source.rglob(WEBRL)]})
    actors = [folder for folder in folders if "critic" not in folder.name]
    if len(actors) > 1:
        raise OneiroError(f"{source} holds several checkpoints ({', '.join(str(f) for f in actors[:3])}); name one")
    return actors[0] if actors else None


def merge(folder: Path, target: Path) -> Path:
    model = _skeleton(folder)
    state = _tie_head(_whole(folder, model.state_dict()), model)
    quiet()

    def write(part: Path) -> None:
        model.save_pretrained(part, state_dict=state)
        for file in (folder / CONFIG).iterdir() if (folder / CONFIG).is_dir() else ():
            if not (part / file.name).exists() and file.suffix != ".safetensors" and file.is_file():
                shutil.copyfile(file, part / file.name)

    return write_folder(target, write)


def _skeleton(folder: Path) -> Any:
    """The model of the configuration, without memory for its weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    place = folder / CONFIG if (folder / CONFIG / "config.json").is_file() else folder
    if not (place / "config.json").is_file():
        raise OneiroError(f"{folder} has shards and no {CONFIG}/config.json; put the model's config.json there")
    try:
        config = AutoConfig.from_pretrained(place, trust_remote_code=False)
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # every library raises its own kind; the person needs one line
        raise OneiroError(f"{place}: no language model can be made of its config.json: {first_line(error)}") from error


def _whole(folder: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Every weight in one piece, by the names of the model."""
    ranks = _files(folder)
    parts = [_read(ranks[0])]
    parts += [_read(path) for path in ranks[1 : _shards(parts[0], len(ranks))]]
    if any(".lora_" in name for name in parts[0]):
        raise OneiroError(
            f"{folder} holds an adapter; merge its lora_adapter folder instead: oneiro merge {folder}/..."
        )
    tensors: dict[str, Tensor] = {}
    for name, tensor in expected.items():
        pieces = [part.pop(name) for part in parts if name in part]
        if pieces:
            tensors[name] = _join(name, pieces, tensor.shape)
            if tensors[name].shape != tensor.shape or len(pieces) != len(parts):
                raise OneiroError(f"{folder}: the shards of '{name}' do not make up its shape {tuple(tensor.shape)}")
    if strangers := sorted({name for part in parts for name in part}):
        raise OneiroError(f"{folder}: the model of its config.json has no '{strangers[0]}'")
    return tensors


def _files(folder: Path) -> list[Path]:
    """The file of every rank, in order."""
    if (folder / WEBRL).is_file():
        return [folder / WEBRL]
    named = {match: path for path in folder.iterdir() if (match := NAME.fullmatch(path.name))}
    size = int(next(iter(named))[1])
    ranks = {int(match[2]): path for match, path in named.items() if int(match[1]) == size}
    missing = [rank for rank in range(size) if rank not in ranks]
    if missing or len(ranks) != len(named):
        raise OneiroError(f"{folder}: the shard of rank {missing[0] if missing else '?'} of {size} is missing")
    return [ranks[rank] for rank in range(size)]


def _read(path: Path) -> dict[str, Any]:
    import torch.distributed.tensor  # lets the restricted loader build sharded tensors

    try:
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:
        raise OneiroError(f"{path} is no file of tensors: {first_line(error)}") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise OneiroError(f"{path} is no list of named tensors")
    return dict(state)


def _shards(part: Mapping[str, Any], ranks: int) -> int:
    """How many ranks hold all: with replicas (HSDP), the first ones."""
    meshes = [tensor.device_mesh.mesh for tensor in part.values() if hasattr(tensor, "device_mesh")]
    return int(meshes[0].shape[-1]) if meshes else ranks


def _join(name: str, pieces: list[Any], shape: torch.Size) -> Tensor:
    local = [getattr(piece, "_local_tensor", piece) for piece in pieces]
    if not hasattr(pieces[0], "placements"):
        return local[0] if local[0].shape == shape else torch.cat(local)
    place = pieces[0].placements[-1]
    if place.is_replicate():
        return local[0]
    if not place.is_shard():
        raise OneiroError(f"the shards of '{name}' are placed as {place}, which cannot be joined")
    return torch.cat([piece for piece in local if piece.numel()], dim=place.dim)


def _tie_head(state: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    """Complete but for a head that is the embedding."""
    missing = [name for name in model.state_dict() if name not in state]
    tied = model.config.tie_word_embeddings
    if left := [name for name in missing if not (tied and name == "lm_head.weight")]:
        raise OneiroError(f"the shards have no '{left[0]}'")
    if tied:
        state.pop("lm_head.weight", None)
    return {name: tensor.contiguous() for name, tensor in state.items()}
