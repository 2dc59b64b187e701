"""Who computes an update: this process alone, or the ranks of a team (`distributed.py`, `fsdp.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from oneiro.episode import Floats
from oneiro.learning import shards
from oneiro.learning.batch import Batch
from oneiro.learning.example import Example
from oneiro.learning.optimiser import Optimiser
from oneiro.learning.settings import LearnerSettings
from oneiro.runtime import team as teams
from oneiro.runtime.errors import OneiroError

if TYPE_CHECKING:
    from oneiro.learning.learner import Learner, Statistics
    from oneiro.models.backbone import Backbone

Measure = Callable[..., tuple[list[Floats], ...]]
"""(learner, examples, backbone, ...) -> lists of arrays, each one [T] per example; a method of `Learner`."""


class Parallel(Protocol):
    """How a learner's work is shared. All methods are called by who leads."""

    packed: bool | None
    """Whether every micro-batch must be one forward (`batch.batches`)."""

    def equip(self, learner: Learner) -> None:
        """Give a new learner its optimiser, here and on the other ranks."""
        ...

    def accumulate(self, learner: Learner, scaled: Sequence[Example], seed: int) -> Statistics:
        """Gather the gradients of all examples."""
        ...

    def step(self, learner: Learner, rate: float) -> float:
        """Apply the gradients; returns their norm."""
        ...

    def score(
        self, learner: Learner, measure: Measure, examples: Sequence[Example], backbone: Backbone | None = None
    ) -> tuple[list[Floats], ...]:
        """What `measure` finds for the examples, in their order."""
        ...

    def padded(self, learner: Learner, batches: Iterable[Batch]) -> Iterable[Batch]:
        """The micro-batches that this process computes: where every rank must compute as many, some are empty."""
        ...

    def write(self, learner: Learner, place: Path) -> bool:
        """Write the optimiser's state in parts (`shards.py`); False where the learner's own file is to hold it."""
        ...

    def restore(self, learner: Learner, place: Path, saved: dict[str, Tensor]) -> None:
        """Take the optimiser's state from a checkpoint, whatever the number of ranks was. `saved` is what the learner's
        own file holds of it.
        """
        ...

    def changed(self, learner: Learner) -> None:
        """The weights were changed by others than the learner: a checkpoint was loaded."""
        ...


class Alone:
    """This process does everything."""

    packed: bool | None = None

    def equip(self, learner: Learner) -> None:
        named = learner.named(learner.backbone)
        learner.optimiser = Optimiser(named, learner.settings.optimiser, learner.hidden(named))

    def accumulate(self, learner: Learner, scaled: Sequence[Example], seed: int) -> Statistics:
        return learner.accumulate(scaled, seed)

    def step(self, learner: Learner, rate: float) -> float:
        return learner.optimiser.step(rate)

    def score(
        self, learner: Learner, measure: Measure, examples: Sequence[Example], backbone: Backbone | None = None
    ) -> tuple[list[Floats], ...]:
        return measure(learner, examples, backbone)

    def padded(self, learner: Learner, batches: Iterable[Batch]) -> Iterable[Batch]:
        return batches

    def write(self, learner: Learner, place: Path) -> bool:
        return False

    def restore(self, learner: Learner, place: Path, saved: dict[str, Tensor]) -> None:
        learner.optimiser.restore(saved or shards.read_whole(place))

    def changed(self, learner: Learner) -> None:
        pass


def of(settings: LearnerSettings) -> Any:
    """What a learner of these settings uses in this process."""
    team = teams.current()
    if settings.parallel == "fsdp":
        if team is None:
            raise OneiroError(
                "parallel=fsdp shards the weights over processes; start it with torchrun --nproc-per-node N -m oneiro "
                "run ..., or set sft.learner.parallel=data and rl.learner.parallel=data"
            )
        from oneiro.learning.fsdp import FullySharded

        return FullySharded(team)
    if team is None or team.size == 1 or settings.parallel == "none":
        return Alone()
    from oneiro.learning.distributed import DataParallel

    return DataParallel(team)
