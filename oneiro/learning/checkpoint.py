"""Checkpoints of a stage: a Hugging Face folder of weights, the optimisers beside it, and how far the stage had come.

Each save is a new folder `step-000120`, renamed into place when it is whole, with a manifest of its files and their
checksums; afterwards all but the last few go. A run killed at any moment goes on from the newest. One that is not what
was written is never loaded: the run goes on from the one before it, and says so.
"""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch

from oneiro.learning.learner import Learner
from oneiro.learning.optimiser import Optimiser
from oneiro.learning.settings import KEPT_CHECKPOINTS
from oneiro.models.language import LanguageModel, quiet, read_state, write_folder, write_state
from oneiro.models.locate import BEST
from oneiro.runtime import distributed, files
from oneiro.runtime.errors import OneiroError, first_line

NAME = re.compile(r"step-(\d+)")
TYPES = {
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls the types of tensors."""


def checkpoints(folder: Path) -> dict[int, Path]:
    """The checkpoints of a stage by their step, the newest last."""
    named = ((NAME.fullmatch(path.name), path) for path in folder.glob("step-*"))
    return dict(sorted((int(match[1]), path) for match, path in named if match))


def latest(folder: Path) -> Path | None:
    """The newest checkpoint of a stage."""
    return next(reversed(checkpoints(folder).values()), None)


def step_of(checkpoint: Path) -> int:
    """How many steps were done."""
    return int(checkpoint.name.rpartition("-")[2])


def drop_older(folder: Path, keep: int = KEPT_CHECKPOINTS) -> None:
    """Remove every state of a stage but the newest few."""
    for old in list(checkpoints(folder).values())[:-keep]:
        shutil.rmtree(old, ignore_errors=True)


def last(folder: Path) -> Path:
    """The checkpoint that a finished stage leaves, and the only one."""

    def settle() -> Path:
        drop_older(folder, 1)
        newest = latest(folder)
        assert newest is not None
        point_to(newest)
        return newest

    return distributed.on_main_process(settle)


class Stateful(Protocol):
    """What else a stage has to keep: tensors by name, nothing at times."""

    def state(self) -> dict[str, torch.Tensor]: ...

    def restore(self, tensors: dict[str, torch.Tensor]) -> None: ...


def write(folder: Path, step: int, fill: Callable[[Path], None], keep: int = KEPT_CHECKPOINTS) -> Path:
    """Write the state after `step` steps through `fill(path)`, whole and with a manifest; then drop old ones."""

    def replace_older() -> Path:
        target = write_folder(folder / f"step-{step:06d}", fill, {"step": step})
        point_to(target)
        drop_older(folder, keep)
        return target

    return distributed.on_main_process(replace_older)


def point_to(checkpoint: Path) -> None:
    """Let `model` beside a checkpoint be its weights, or the best ones where validation chose some: a link that
    `from_pretrained` follows.
    """
    folder = checkpoint.parent
    chosen = folder / BEST / "model"
    target = chosen if chosen.is_dir() else checkpoint / "model"
    link, part = folder / "model", folder / ".model-link"
    if target.is_dir():
        with suppress(OSError):  # a file system without links: the weights are found without
            if link.is_dir() and not link.is_symlink():
                shutil.rmtree(link)  # the run was copied with what its links led to
            part.unlink(missing_ok=True)
            part.symlink_to(target.relative_to(folder))
            part.replace(link)


def intact(folder: Path, say: Callable[[str], object] = warnings.warn) -> tuple[Path, dict[str, Any]] | None:
    """The newest checkpoint that is what was written, and its `state.json`; None where a stage has none yet.

    Damaged ones after it are removed, with a word to `say`. Where all are damaged, what to do is for a person to say.
    """
    problems: dict[Path, str] = {}
    for step, checkpoint in reversed(checkpoints(folder).items()):
        problem = files.damage(checkpoint, step=step) or wrong_state(checkpoint, step)
        if problem is None:
            for damaged, reason in problems.items():
                say(f"{damaged} is damaged ({reason}): removed, going on from {checkpoint.name}")
                shutil.rmtree(damaged)
            if problems:
                point_to(checkpoint)
            return checkpoint, files.read_json(checkpoint / "state.json")
        problems[checkpoint] = problem
    for newest, reason in problems.items():
        older = ": written by an older version?" if reason == f"no {files.MANIFEST}" else ""
        raise OneiroError(
            f"the checkpoint {newest} is damaged ({reason}{older}), and none before it is whole; "
            f"delete {folder} to start that stage again"
        )
    return None


def wrong_state(checkpoint: Path, step: int) -> str | None:
    """What `state.json` should not say; None where it is right."""
    try:
        state = files.read_json(checkpoint / "state.json")
    except OneiroError as error:
        return str(error)
    if not isinstance(state, dict) or not _is_count(state.get("step")) or state["step"] != step:
        return "state.json is not of this step"
    for counts in (state.get("updates", {}), state.get("applied", {})):
        if not isinstance(counts, dict) or not all(_is_count(value) for value in counts.values()):
            return "state.json does not count updates"
    return None


def save(
    folder: Path,
    step: int,
    language: LanguageModel | None,
    learners: dict[str, Learner],
    others: Mapping[str, Stateful] = MappingProxyType({}),
    keep: int = KEPT_CHECKPOINTS,
) -> Path:
    """Write the state after `step` steps and drop old states. Every rank calls it. Without a `language` the learners
    keep their weights.
    """
    # Before the main process is alone: a sharded optimiser is gathered from all ranks.
    own = None if language is None else language.backbone
    states = {name: learner_state(learner, learner.backbone is not own) for name, learner in learners.items()}

    def fill(part: Path) -> None:
        if language is not None:
            language.save(part / "model")
        for name, state in states.items():
            write_state(part / f"{name}.safetensors", {key: value.cpu().clone() for key, value in state.items()})
        for name, other in others.items():
            if state := other.state():
                write_state(part / f"{name}.safetensors", {key: value.cpu() for key, value in state.items()})
        updates = {name: learner.updates for name, learner in learners.items()}
        applied = {name: learner.optimiser.applied for name, learner in learners.items()}
        files.write_json(part / "state.json", {"step": step, "updates": updates, "applied": applied})

    return write(folder, step, fill, keep)


def restore(
    folder: Path,
    language: LanguageModel | None,
    learners: dict[str, Learner],
    others: Mapping[str, Stateful] = MappingProxyType({}),
    say: Callable[[str], object] = warnings.warn,
    keep: int = KEPT_CHECKPOINTS,
) -> int:
    """Load the newest state into the given objects; returns the step to go on with, 0 if there is none."""
    newest = distributed.on_main_process(lambda: intact(folder, say))
    if newest is None:
        return 0
    checkpoint, state = newest
    saved = {name: read_state(checkpoint / f"{name}.safetensors", "optimiser state") for name in learners}
    for name, learner in learners.items():
        if name not in state.get("updates", {}) or name not in state.get("applied", {}):
            raise unfit(checkpoint, f"state.json has no updates of '{name}'")
        check_learner(checkpoint, learner, saved[name], state["applied"][name])
    if language is not None:
        load_weights(checkpoint / "model", language)
    for name, learner in learners.items():
        restore_learner(learner, saved[name])
        learner.updates, learner.optimiser.applied = state["updates"][name], state["applied"][name]
    for name, other in others.items():
        if other.state():
            other.restore(read_state(checkpoint / f"{name}.safetensors", name))
    distributed.on_main_process(lambda: drop_older(folder, keep))
    return int(state["step"])


def adopt_masters(language: LanguageModel, learner: Learner) -> None:
    """Let a new stage go on from the float32 weights of the one before, which its model folder holds rounded."""
    optimiser = learner.optimiser
    rounded = any(master is not p for master, p in zip(optimiser.masters, optimiser.parameters, strict=True))
    newest = latest(language.trained_in) if language.trained_in is not None and rounded else None
    if newest is None or learner.settings.parallel != "data" or not (newest / "policy.safetensors").exists():
        return
    from safetensors import safe_open

    start, end = "optimiser/", "/master"
    with safe_open(newest / "policy.safetensors", "pt") as tensors:  # by key: the moments are twice as large
        names = [key for key in tensors.keys() if key.startswith(start) and key.endswith(end)]  # noqa: SIM118
        optimiser.adopt({key[len(start) : -len(end)]: tensors.get_tensor(key) for key in names})


def unfit(folder: Path, reason: str) -> OneiroError:
    return OneiroError(f"the checkpoint {folder} does not fit this model ({reason}); delete it, or use another --out")


def load_weights(folder: Path, language: LanguageModel) -> None:
    """Copy saved weights into a model of the same shape."""
    if (folder / "adapter_config.json").exists():
        from peft import get_peft_model_state_dict, set_peft_model_state_dict

        saved = read_state(folder / "adapter_model.safetensors", "checkpoint")
        check_weights(folder, get_peft_model_state_dict(language.model), saved)
        set_peft_model_state_dict(language.model, saved)
        return
    own = language.model.state_dict()
    saved = saved_weights(folder, language.model)
    check_weights(folder, own, saved)
    with torch.no_grad():
        for name, tensor in saved.items():
            own[name].copy_(tensor)


def saved_weights(folder: Path, model: Any) -> dict[str, torch.Tensor]:
    """The weights in a model folder, by the names that the model itself gives them.

    Files may name them otherwise, split what the model holds as one tensor, and come in several parts: the library
    that wrote them reads them.
    """
    from safetensors import SafetensorError

    types = {TYPES.get(tensor.dtype) for tensor in model.state_dict().values()}
    for path in folder.glob("*.safetensors"):
        for name, (kind, _) in files.tensors_of(path).items():
            if kind not in types:
                raise unfit(folder, f"'{name}' is {kind}")
    quiet()
    try:
        read, info = type(model).from_pretrained(
            folder, dtype=model.dtype, output_loading_info=True, local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise OneiroError(f"the checkpoint at {folder} cannot be read ({first_line(error)}); delete it") from error
    strangers = [*info["missing_keys"], *info["unexpected_keys"], *(str(key) for key in info["mismatched_keys"])]
    if strangers:
        raise unfit(folder, f"see '{sorted(strangers)[0]}'")
    return dict(read.state_dict())


def check_weights(folder: Path, own: dict[str, torch.Tensor], saved: dict[str, torch.Tensor]) -> None:
    """Same names, shapes and kinds of numbers, all of them finite."""
    for name in [*own, *saved]:
        if name not in saved or name not in own or own[name].shape != saved[name].shape:
            raise OneiroError(f"the checkpoint at {folder} is of another model (see '{name}'); use another --out")
        if own[name].is_floating_point() != saved[name].is_floating_point() or not finite(saved[name]):
            raise unfit(folder, f"'{name}' holds {saved[name].dtype} or numbers that are not finite")


def finite(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def learner_state(learner: Learner, with_weights: bool) -> dict[str, torch.Tensor]:
    """What a checkpoint keeps of a learner; called on every rank."""
    tensors = {f"optimiser/{key}": value for key, value in learner.optimiser.state().items()}
    if learner.value_head is not None:
        tensors |= {f"value/{key}": value for key, value in learner.value_head.state_dict().items()}
    if with_weights:
        tensors |= {f"backbone/{name}": p.detach() for name, p in learner.backbone.named_parameters()}
    return tensors


def part_of(tensors: dict[str, torch.Tensor], name: str) -> dict[str, torch.Tensor]:
    return {key[len(name) + 1 :]: value for key, value in tensors.items() if key.startswith(name + "/")}


MOMENTS = {"exp_avg", "exp_avg_sq"}
"""What AdamW remembers of a parameter, in its shape; beside them, a count of steps."""


def check_learner(folder: Path, learner: Learner, tensors: dict[str, torch.Tensor], applied: int) -> None:
    """Refuse a state that the learner could not have written."""
    check_optimiser(folder, learner.optimiser, part_of(tensors, "optimiser"), applied)
    if learner.value_head is not None:
        check_weights(folder, learner.value_head.state_dict(), part_of(tensors, "value"))
    if weights := part_of(tensors, "backbone"):
        check_weights(folder, {name: p.detach() for name, p in learner.backbone.named_parameters()}, weights)


def check_optimiser(folder: Path, optimiser: Optimiser, tensors: dict[str, torch.Tensor], applied: int) -> None:
    """Every part of a known parameter and in its shape, none missing, all finite; not empty after an update."""
    shapes = optimiser.shapes
    kept: dict[str, set[str]] = {}
    for key, tensor in tensors.items():
        name, _, kind = key.rpartition("/")
        if name not in shapes:
            raise unfit(folder, f"the optimiser knows no '{name}'")
        if kind in MOMENTS | {"master"} and tensor.shape != shapes[name]:
            raise unfit(folder, f"'{key}' of the optimiser has another shape")
        # Moments in eight bits go by other names, and their optimiser counts steps in whole numbers.
        if not finite(tensor) or (kind in MOMENTS | {"master"} and not tensor.is_floating_point()):
            raise unfit(folder, f"'{key}' of the optimiser holds {tensor.dtype} or numbers that are not finite")
        kept.setdefault(name, set()).add(kind)
    for name, kinds in kept.items():
        alone = kinds - {"master"} == {"step"}
        if alone or (kinds & MOMENTS and not kinds >= MOMENTS | {"step"}):
            raise unfit(folder, f"the optimiser state of '{name}' is incomplete")
    if applied and not any(kinds - {"master"} for kinds in kept.values()):
        raise unfit(folder, "the optimiser state is empty")


def restore_learner(learner: Learner, tensors: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        if learner.value_head is not None:
            learner.value_head.load_state_dict(part_of(tensors, "value"))
        weights = part_of(tensors, "backbone")
        for name, parameter in learner.backbone.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])
    learner.parallel.reload(learner)
    learner.optimiser.restore(part_of(tensors, "optimiser"))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
