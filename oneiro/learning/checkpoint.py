"""Checkpoints of a stage: a Hugging Face folder of weights, the optimisers beside it, and how far the stage had come.

Each save is a new folder `step-000120`, renamed into place when it is whole; older ones go afterwards. A run killed
at any moment finds the newest whole one, and clears away older ones that it had no time to remove.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import torch

from oneiro import files
from oneiro.errors import OneiroError
from oneiro.learning.learner import Learner
from oneiro.models.language import LanguageModel, read_state, write_folder, write_state


def latest(folder: Path) -> Path | None:
    """The newest whole checkpoint of a stage."""
    found = sorted(folder.glob("step-*"))
    return found[-1] if found else None


def step_of(checkpoint: Path) -> int:
    """How many steps were done."""
    return int(checkpoint.name.rpartition("-")[2])


def drop_older(folder: Path, newest: Path) -> None:
    """Remove every state of a stage but the newest."""
    for old in folder.glob("step-*"):
        if old != newest:
            shutil.rmtree(old, ignore_errors=True)


class Stateful(Protocol):
    """What else a stage has to keep: tensors by name, nothing at times."""

    def state(self) -> dict[str, torch.Tensor]: ...

    def restore(self, tensors: dict[str, torch.Tensor]) -> None: ...


def save(
    folder: Path,
    step: int,
    language: LanguageModel,
    learners: dict[str, Learner],
    others: Mapping[str, Stateful] = MappingProxyType({}),
) -> Path:
    """Write the state after `step` steps and drop older states."""

    def write(part: Path) -> None:
        language.save(part / "model")
        for name, learner in learners.items():
            write_state(
                part / f"{name}.safetensors",
                learner_state(learner, with_weights=learner.backbone is not language.backbone),
            )
        for name, other in others.items():
            if state := other.state():
                write_state(part / f"{name}.safetensors", {key: value.cpu() for key, value in state.items()})
        updates = {name: learner.updates for name, learner in learners.items()}
        files.write_json(part / "state.json", {"step": step, "updates": updates})

    target = write_folder(folder / f"step-{step:06d}", write)
    drop_older(folder, target)
    return target


def restore(
    folder: Path,
    language: LanguageModel,
    learners: dict[str, Learner],
    others: Mapping[str, Stateful] = MappingProxyType({}),
) -> int:
    """Load the newest state into the given objects; returns the step to go on with, 0 if there is none."""
    checkpoint = latest(folder)
    if checkpoint is None:
        return 0
    state = files.read_json(checkpoint / "state.json")
    load_weights(checkpoint / "model", language)
    for name, learner in learners.items():
        tensors = read_state(checkpoint / f"{name}.safetensors", "optimiser state")
        restore_learner(learner, tensors)
        learner.updates = int(state["updates"][name])
    for name, other in others.items():
        if other.state():
            other.restore(read_state(checkpoint / f"{name}.safetensors", name))
    drop_older(folder, checkpoint)
    return int(state["step"])


def load_weights(folder: Path, language: LanguageModel) -> None:
    """Copy saved weights into a model of the same shape."""
    path = folder / ("adapter_model.safetensors" if (folder / "adapter_config.json").exists() else "model.safetensors")
    saved = read_state(path, "checkpoint")
    if path.name.startswith("adapter"):
        from peft import set_peft_model_state_dict

        set_peft_model_state_dict(language.model, saved)
        return
    own = language.model.state_dict()
    missing = [name for name in own if name not in saved and name != "lm_head.weight"]
    wrong = [name for name, tensor in saved.items() if name not in own or own[name].shape != tensor.shape]
    if missing or wrong:
        raise OneiroError(
            f"the checkpoint at {folder} is of another model (see '{(missing + wrong)[0]}'); use another --out"
        )
    with torch.no_grad():
        for name, tensor in saved.items():
            own[name].copy_(tensor)


def learner_state(learner: Learner, with_weights: bool) -> dict[str, torch.Tensor]:
    tensors = {f"optimiser/{key}": value for key, value in learner.optimiser.state().items()}
    if learner.value_head is not None:
        tensors |= {f"value/{key}": value for key, value in learner.value_head.state_dict().items()}
    if with_weights:
        tensors |= {f"backbone/{name}": p.detach() for name, p in learner.backbone.named_parameters()}
    return {key: value.cpu().clone() for key, value in tensors.items()}


def restore_learner(learner: Learner, tensors: dict[str, torch.Tensor]) -> None:
    def part(name: str) -> dict[str, torch.Tensor]:
        return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(name + "/")}

    learner.optimiser.restore(part("optimiser"))
    with torch.no_grad():
        if learner.value_head is not None:
            learner.value_head.load_state_dict(part("value"))
        weights = part("backbone")
        for name, parameter in learner.backbone.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
