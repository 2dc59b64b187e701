"""The variants of a comparison: what SPA's paper calls baselines and ablations, each one small object.

All variants go through the same stages with the same budget and differ in what their object says. A recipe names them
in `variants` and may `define` more.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError

PlayPolicy = Literal["self", "random", "exploration", "mixture", "oracle", "server"]
"""Who plays for data: the model itself, uniformly random actions, a player that tries what it has not tried, a
mixture with the oracle, the oracle, a model behind an address."""


class Variant(Settings):
    """One variant."""

    world_model: bool = True
    """Replies carry the observed and the predicted state."""
    sft: bool = True
    rl: bool = True
    data: PlayPolicy | None = None
    """Who plays for this variant's data, where it is not the recipe's `self_play.policy`."""
    transfer: bool = False
    """Learn the dynamics in the recipe's `transfer_world`, and act in its `world`."""
    predict: Literal["next", "present"] = "next"
    """The state that takes the place of the predicted one in SFT. `present` is the control that writes as many tokens
    and learns no dynamics.
    """
    true_states: bool = True
    """Put the true states in place of the imagined ones; without it the model learns its own beliefs."""
    mask_states: bool = False
    """Leave the true states out of the SFT loss (the paper's ablation, and what the released code does)."""
    keep_malformed: bool | None = None
    """Learn from replies without the demanded form too; None: as `self_play.keep_malformed` says."""
    epochs: float | None = Field(None, gt=0)
    """Passes over the data, where they are not the recipe's `sft.epochs`."""
    coordinates: Literal["as chosen", "none", "wrong", "plain"] = "as chosen"
    """Take the coordinates out of the world's view, or show wrong ones; `plain`: take them out where there are any."""
    state_reward: float = Field(0.0, ge=0)
    """Reward during RL for each state described exactly (online world modelling)."""
    environment_ce: float = Field(0.0, ge=0)
    """Weight of cross-entropy on what the environment answers during RL (ECHO)."""


VARIANTS: dict[str, Variant] = {
    "spa": Variant(),
    "base": Variant(world_model=False, sft=False, rl=False, coordinates="plain"),
    "vanilla-rl": Variant(world_model=False, sft=False, coordinates="plain"),
    "state-estimation": Variant(sft=False, rl=False),
    "state-estimation-rl": Variant(sft=False),
    "no-world-model": Variant(world_model=False),
    "copy-state": Variant(predict="present"),
    "sft-only": Variant(rl=False),
    "masked-states": Variant(mask_states=True),
    "self-belief": Variant(true_states=False),
    "random-data": Variant(data="random"),
    "unfiltered": Variant(keep_malformed=True),
    "transfer": Variant(transfer=True),
    "no-coordinates": Variant(coordinates="none"),
    "wrong-coordinates": Variant(coordinates="wrong"),
    "online-world-model": Variant(sft=False, state_reward=0.5),
    "echo": Variant(world_model=False, sft=False, environment_ce=0.1),
    **{f"epochs-{epochs}": Variant(epochs=epochs) for epochs in range(1, 6)},
}


def view_of(view: str, coordinates: str) -> str:
    """The view a variant sees in place of `view`: `grid+coordinates` without its coordinates is `text`, and so on."""
    grid, plus, _ = view.partition("+")
    if coordinates == "as chosen" or (coordinates == "plain" and not plus):
        return view
    if not plus:
        raise OneiroError(
            f"the view '{view}' has no coordinates to take away or to get wrong; set world.view=grid+coordinates "
            "(or spaced+coordinates)"
        )
    return f"{grid}+wrong-coordinates" if coordinates == "wrong" else {"grid": "text"}.get(grid, grid)
