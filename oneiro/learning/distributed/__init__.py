"""How the ranks of a run share an update: data parallel, or FSDP2 for models whose training outgrows a GPU."""

from __future__ import annotations

from oneiro.learning.distributed.data_parallel import DataParallel
from oneiro.learning.settings import LearnerSettings
from oneiro.runtime import distributed
from oneiro.runtime.errors import OneiroError

__all__ = ["DataParallel", "strategy_of"]


def strategy_of(settings: LearnerSettings) -> DataParallel:
    """What a learner of these settings uses in this process."""
    if settings.parallel == "data":
        return DataParallel()
    if not distributed.is_launched():
        raise OneiroError(
            "parallel=fsdp shards the weights over processes; start it with torchrun --nproc-per-node N -m oneiro "
            "run ..., or set sft.learner.parallel=data and rl.learner.parallel=data"
        )
    from oneiro.learning.distributed.fsdp import FullySharded

    return FullySharded()
