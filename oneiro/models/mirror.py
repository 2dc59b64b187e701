"""The same model on every rank: made by rank 0, mirrored by the others.

A model is sent as its structure with numbered places for tensors, and then storage by storage, so that tied weights
and views stay tied. What rank 0 changes afterwards outside of shared work (a checkpoint that is loaded, a reference
put in place) is sent again before the model is used.
"""

from __future__ import annotations

import io
import pickle
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from oneiro.runtime import team as teams
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.team import Team

Spec = tuple[bool, bool, int, torch.dtype, tuple[int, ...], tuple[int, ...], int]
"""Parameter or not, requires_grad, number of its storage, type, size, stride, offset."""


@dataclass
class Mirror:
    """What rank 0 knows of a model that the others hold too."""

    number: int
    model: weakref.ref[Any]
    tensors: list[tuple[Tensor, int]]
    """Every tensor and the number of its storage."""
    versions: list[int]
    """Of each storage, when it was last sent."""

    def present(self) -> list[int]:
        """A number for each storage that grows when one of its tensors is written to."""
        found = [0] * len(self.versions)
        for tensor, storage in self.tensors:
            found[storage] += tensor._version
        return found


_mirrors: dict[int, Mirror] = {}
"""By the identity of the model; an entry goes with its model."""


def number_of(team: Team, model: Any) -> int:
    """The number under which every rank keeps this model, after sending what has changed. Called by rank 0."""
    known = _mirrors.get(id(model))
    if known is None:
        known = _mirrors[id(model)] = _send(team, model)
        weakref.finalize(model, _forget, team, id(model), known.number)
    changed = [s for s, (now, then) in enumerate(zip(known.present(), known.versions, strict=True)) if now != then]
    if changed:
        team.together(_renew, known.number, changed)
        known.versions = known.present()
    return known.number


def held(team: Team, number: int) -> Any:
    """The model of a number, on any rank."""
    if team.rank:
        return team.kept[number]
    return next(known.model() for known in _mirrors.values() if known.number == number)


def changed(model: Any) -> None:
    """The weights were written to through views of them, which leaves no trace: send all again."""
    if (known := _mirrors.get(id(model))) is not None:
        known.versions = [-1] * len(known.versions)


def updated(model: Any) -> None:
    """Every rank has made the same change."""
    if (known := _mirrors.get(id(model))) is not None:
        known.versions = known.present()


def _forget(team: Team, identity: int, number: int) -> None:
    _mirrors.pop(identity, None)
    team.kept.pop(-number, None)
    team.drop(number)


def _send(team: Team, model: Any) -> Mirror:
    specs: list[Spec] = []
    places: dict[int, int] = {}
    storages: dict[int, int] = {}
    tensors: list[tuple[Tensor, int]] = []

    def place(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return None
        if type(value) not in (Tensor, nn.Parameter):
            raise OneiroError(f"a model with weights of type {type(value).__name__} cannot be shared by several ranks")
        if id(value) not in places:
            storage = storages.setdefault(value.untyped_storage().data_ptr() or -len(storages) - 1, len(storages))
            places[id(value)] = len(specs)
            tensors.append((value, storage))
            specs.append(
                (
                    isinstance(value, nn.Parameter),
                    value.requires_grad,
                    storage,
                    value.dtype,
                    tuple(value.shape),
                    tuple(value.stride()),
                    int(value.storage_offset()),
                )
            )
        return places[id(value)]

    structure = teams.pickled(model, place)
    sizes = [(0, "cpu")] * len(storages)
    for tensor, storage in tensors:
        sizes[storage] = tensor.untyped_storage().nbytes(), tensor.device.type
    number = team.number()
    mirror = Mirror(number, weakref.ref(model), tensors, [0] * len(storages))
    team.kept[number] = model
    team.kept[-number] = _flat(tensors, len(storages))
    team.together(_receive, number, structure, specs, sizes)
    # Rank 0 must not keep the model alive on behalf of the others.
    del team.kept[number]
    mirror.versions = mirror.present()
    return mirror


def _flat(tensors: list[tuple[Tensor, int]], count: int) -> list[Tensor]:
    """Every storage as bytes."""
    found = [torch.empty(0)] * count
    for tensor, storage in tensors:
        whole = torch.empty(0, dtype=torch.uint8, device=tensor.device)
        found[storage] = whole.set_(tensor.untyped_storage())
    return found


def _receive(team: Team, number: int, structure: bytes, specs: list[Spec], sizes: list[tuple[int, str]]) -> None:
    if team.rank != 0:
        flat = [torch.empty(size, dtype=torch.uint8, device=device) for size, device in sizes]
        tensors = [_tensor(flat[spec[2]], spec) for spec in specs]

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, place: Any) -> Any:
                return tensors[place]

        team.kept[number] = Unpickler(io.BytesIO(structure)).load()
        team.kept[-number] = flat
    _broadcast(team.kept[-number])


def _tensor(flat: Tensor, spec: Spec) -> Tensor:
    parameter, learns, _, dtype, size, stride, offset = spec
    found = torch.empty(0, dtype=dtype, device=flat.device)
    found.set_(flat.untyped_storage(), offset, size, stride)
    return nn.Parameter(found, requires_grad=learns) if parameter else found.requires_grad_(learns)


def _renew(team: Team, number: int, storages: list[int]) -> None:
    _broadcast([team.kept[-number][storage] for storage in storages])


def _broadcast(flat: list[Tensor]) -> None:
    import torch.distributed as dist

    for storage in flat:
        if len(storage):
            dist.broadcast(storage, src=0)
