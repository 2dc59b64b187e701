"""One small file per algorithm; `rl_settings.py` is how a recipe names them."""

from __future__ import annotations

from oneiro.learning.algorithms.base import Algorithm, Trajectory
from oneiro.learning.algorithms.grpo import DrGrpo, Grpo
from oneiro.learning.algorithms.gspo import Gspo
from oneiro.learning.algorithms.ppo import Ppo
from oneiro.learning.algorithms.reinforce import Reinforce
from oneiro.learning.algorithms.rloo import Rloo
from oneiro.learning.algorithms.state_grpo import StateGrpo
from oneiro.learning.algorithms.turn_grpo import TurnGrpo

__all__ = [
    "Algorithm",
    "DrGrpo",
    "Grpo",
    "Gspo",
    "Ppo",
    "Reinforce",
    "Rloo",
    "StateGrpo",
    "Trajectory",
    "TurnGrpo",
]
