"""One small file per algorithm; the union below is how a recipe names them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from oneiro.learning.algorithms.base import Algorithm, Estimate, Trajectory
from oneiro.learning.algorithms.dr_grpo import DrGrpo
from oneiro.learning.algorithms.grpo import Grpo
from oneiro.learning.algorithms.ppo import Ppo
from oneiro.learning.algorithms.reinforce import Reinforce
from oneiro.learning.algorithms.rloo import Rloo

AnyAlgorithm = Annotated[Grpo | DrGrpo | Rloo | Reinforce | Ppo, Field(discriminator="name")]

__all__ = ["Algorithm", "AnyAlgorithm", "DrGrpo", "Estimate", "Grpo", "Ppo", "Reinforce", "Rloo", "Trajectory"]
