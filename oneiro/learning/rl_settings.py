"""Settings of RL; read without torch, as `settings.py` is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Union, get_args

from pydantic import Field

from oneiro.learning.algorithms import Algorithm, DrGrpo, Grpo, Gspo, Ppo, Reinforce, Rloo, StateGrpo, TurnGrpo
from oneiro.learning.settings import (
    KEPT_CHECKPOINTS,
    CorrectionSettings,
    FilterSettings,
    KlKind,
    LearnerSettings,
    OptimiserSettings,
    ReferenceSettings,
    SelectionSettings,
)
from oneiro.recipe import Settings
from oneiro.runtime import plugins
from oneiro.sampling.settings import FleetSettings

SHIPPED = (Grpo, TurnGrpo, StateGrpo, DrGrpo, Gspo, Rloo, Reinforce, Ppo)


def plugin_algorithms() -> list[type[Algorithm]]:
    """Algorithms of other packages. One that is broken, or has the name of another one, is left out with a warning."""
    algorithms: list[type[Algorithm]] = []
    for plugin, kind in plugins.load_all("algorithms"):
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
    AnyAlgorithm = Annotated[Union[(*SHIPPED, *plugin_algorithms())], Field(discriminator="name")]


class RolloutSettings(Settings):
    """How much one step of RL samples."""

    prompts_per_step: int = Field(32, ge=1)
    """Distinct prompts: levels, transitions or video segments."""
    group_size: int = Field(8, ge=1)
    """Samples for each prompt; their rewards are compared with each other."""


class RlSettings(Settings):
    steps: int = Field(50, ge=0)
    """Batches of episodes."""
    algorithm: AnyAlgorithm = Grpo()
    learner: LearnerSettings = LearnerSettings()
    critic: OptimiserSettings = OptimiserSettings(lr=1e-3)
    """The critic's optimiser, for algorithms that have one."""
    shared_backbone: bool = False
    """Put the value head on the policy's own body instead of a critic of its own."""
    filter: FilterSettings = FilterSettings()
    mask_truncated: bool = False
    """Leave episodes with a reply that was cut by the token limit out of the policy loss (overlong filtering, DAPO);
    their scores still count for their group.
    """
    correction: CorrectionSettings = CorrectionSettings()
    """What is done about a sampler that is not quite the policy."""
    reference: ReferenceSettings = ReferenceSettings()
    """Whether the reference of `kl` and `kl_in_reward` follows the policy."""
    epochs: int = Field(1, ge=1)
    """Passes over a batch of episodes."""
    minibatches: int = Field(1, ge=1)
    """Optimiser steps per epoch over a batch of episodes."""
    kl_in_reward: float = Field(0.0, ge=0)
    """Weight of the KL to the starting weights, subtracted from each token's reward."""
    kl_in_reward_kind: KlKind = "k1"
    """Its estimator."""
    environment_ce: float = Field(0.0, ge=0)
    """Weight of cross-entropy on tokens the environment wrote (ECHO), against the policy's loss; the first prompt is
    left out.
    """
    async_rollout: bool = False
    """Play the next step while the present one is learned, with weights one step old; worth it on a GPU."""
    servers: FleetSettings | None = None
    """vLLM or SGLang servers that sample the rollouts; None: the built-in engine does."""
    select: SelectionSettings | None = None
    """Validate during RL, keep the best weights, stop when they get no better; None: the last weights are kept."""
    checkpoint_every: int = Field(10, ge=1)
    """Steps between checkpoints."""
    keep_checkpoints: int = Field(KEPT_CHECKPOINTS, ge=1)
    """How many of the last checkpoints stay while the stage goes on; one at its end."""
    keep_episodes_every: int = Field(10, ge=1)
    """Steps between episodes written to `episodes/`."""

    def keeps(self, step: int) -> bool:
        """Whether the episodes of a step, from 1, are written down."""
        return step % self.keep_episodes_every == 0 or step == self.steps

    @property
    def updates_per_step(self) -> int:
        return self.epochs * self.minibatches
