"""How a recipe names its algorithm: those shipped here, and those other packages offer."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from oneiro.learning.algorithms.dr_grpo import DrGrpo
from oneiro.learning.algorithms.grpo import Grpo
from oneiro.learning.algorithms.gspo import Gspo
from oneiro.learning.algorithms.ppo import Ppo
from oneiro.learning.algorithms.reinforce import Reinforce
from oneiro.learning.algorithms.rloo import Rloo
from oneiro.learning.algorithms.state_grpo import StateGrpo
from oneiro.learning.algorithms.turn_grpo import TurnGrpo

if TYPE_CHECKING:
    AnyAlgorithm = Grpo | TurnGrpo | StateGrpo | DrGrpo | Gspo | Rloo | Reinforce | Ppo
else:
    # Not in the package's __init__: an algorithm of another package imports that to be defined.
    offered = tuple(point.load() for point in entry_points(group="oneiro.algorithms"))
    AnyAlgorithm = Annotated[
        Union[(Grpo, TurnGrpo, StateGrpo, DrGrpo, Gspo, Rloo, Reinforce, Ppo, *offered)], Field(discriminator="name")
    ]
