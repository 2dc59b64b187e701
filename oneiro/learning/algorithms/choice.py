"""How a recipe names its algorithm: those shipped here, and those other packages offer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union, get_args

from pydantic import Field

from oneiro.learning.algorithms.base import Algorithm
from oneiro.learning.algorithms.dr_grpo import DrGrpo
from oneiro.learning.algorithms.grpo import Grpo
from oneiro.learning.algorithms.gspo import Gspo
from oneiro.learning.algorithms.ppo import Ppo
from oneiro.learning.algorithms.reinforce import Reinforce
from oneiro.learning.algorithms.rloo import Rloo
from oneiro.learning.algorithms.state_grpo import StateGrpo
from oneiro.learning.algorithms.turn_grpo import TurnGrpo
from oneiro.runtime import plugins

SHIPPED = (Grpo, TurnGrpo, StateGrpo, DrGrpo, Gspo, Rloo, Reinforce, Ppo)


def offered() -> list[type[Algorithm]]:
    """Algorithms of other packages. One that is broken, or has the name of another one, is left out with a warning."""
    algorithms: list[type[Algorithm]] = []
    for plugin, kind in plugins.loaded("algorithms"):
        taken = {name for known in (*SHIPPED, *algorithms) for name in _names(known)}
        if not _names(kind):
            plugins.skip(f"{plugin}: {plugin.target} is not an Algorithm with `name: Literal[...]`")
        elif taken.intersection(_names(kind)):
            plugins.skip(f"{plugin}: an algorithm of that name exists")
        else:
            algorithms.append(kind)
    return algorithms


def _names(kind: Any) -> tuple[str, ...]:
    """What a recipe may call an algorithm; nothing for what is no algorithm."""
    if not (isinstance(kind, type) and issubclass(kind, Algorithm)):
        return ()
    return get_args(kind.model_fields["name"].annotation)


if TYPE_CHECKING:
    AnyAlgorithm = Grpo | TurnGrpo | StateGrpo | DrGrpo | Gspo | Rloo | Reinforce | Ppo
else:
    # Not in the package's __init__: an algorithm of another package imports that to be defined.
    AnyAlgorithm = Annotated[Union[(*SHIPPED, *offered())], Field(discriminator="name")]
