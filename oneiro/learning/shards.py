"""The state of a sharded optimiser on disk: each rank writes its part, any number of ranks reads it.

`torch.distributed.checkpoint` places the parts; the files are safetensors, so that reading them runs no code. Where one
process wrote the checkpoint, the state lies in the learner's own file instead, and every rank takes its part of that.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.team import Team

PREFIX = "optimiser/"
"""Of the keys of the optimiser in a learner's own file."""


def folder_of(place: Path) -> Path:
    """Where the parts are of the learner at `place`, a path without a suffix."""
    return place.with_name(f"{place.name}-optimiser")


def write(team: Team, place: Path, state: dict[str, Any]) -> None:
    """Write what this rank keeps; called on every rank. Nothing is written before the first update."""
    if not any(team.everywhere(bool(state))):
        return
    import torch.distributed.checkpoint as dcp

    folder = folder_of(place)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writer = dcp.HuggingFaceStorageWriter(str(folder), save_distributed=True)
        with warnings.catch_warnings(action="ignore"):
            dcp.save(state, storage_writer=writer, process_group=team.orders)
    except (OSError, dcp.CheckpointException) as error:
        raise OneiroError(
            f"rank {team.rank} cannot write {folder}: {first_line(error)}; every rank needs the run's folder"
        ) from error


def listed(place: Path) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Type and whole shape of every tensor of a sharded state; empty where there is none."""
    if not folder_of(place).is_dir():
        return {}
    found = _reader(place).read_metadata().state_dict_metadata
    return {key: (entry.properties.dtype, tuple(entry.size)) for key, entry in found.items()}


def read_whole(place: Path, names: Collection[str] | None = None) -> dict[str, Tensor]:
    """The optimiser's state by parameter name and kind; of some parameters, or of all."""

    def wanted(key: str) -> bool:
        return names is None or key.rpartition("/")[0] in names

    if folder_of(place).is_dir():
        state = {key: torch.empty(shape, dtype=kind) for key, (kind, shape) in listed(place).items() if wanted(key)}
        load(place, state)
        return state
    from safetensors import safe_open

    with safe_open(place.with_suffix(".safetensors"), "pt") as file:
        keys = [key[len(PREFIX) :] for key in file.keys() if key.startswith(PREFIX)]  # noqa: SIM118
        return {key: file.get_tensor(PREFIX + key) for key in keys if wanted(key)}


def load(place: Path, state: dict[str, Any]) -> None:
    """Fill these tensors, of which some may be this rank's shards of larger ones."""
    import torch.distributed.checkpoint as dcp

    if not state:
        return
    try:
        with warnings.catch_warnings(action="ignore"):
            dcp.load(state, storage_reader=_reader(place), no_dist=True)
    except (OSError, dcp.CheckpointException) as error:
        raise OneiroError(
            f"optimiser state at {folder_of(place)} cannot be read ({first_line(error)}); delete it to start that "
            "stage again"
        ) from error


def _reader(place: Path) -> Any:
    import torch.distributed.checkpoint as dcp

    return dcp.HuggingFaceStorageReader(str(folder_of(place)))
