"""SPA's recipe: the variants of a comparison, every setting, and what makes no sense together.

Variants are what SPA's paper calls
baselines and ablations: all go through the same stages with the same budget and differ in what their object says. A
recipe names them in `variants` and may `define` more.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from oneiro.agents.evaluate import AgentEvaluationSettings
from oneiro.agents.prompts import DialogueSettings
from oneiro.learning.rl_settings import RlSettings, RolloutSettings
from oneiro.learning.settings import CollapseMonitorSettings, SftSettings
from oneiro.models.settings import ModelSettings
from oneiro.recipe import Name, Recipe, Settings, Workers
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.sampling.server import ServerConfig
from oneiro.sampling.settings import SamplingSettings
from oneiro.worlds.registry import WorldChoice, config_for, world_class

PlayPolicy = Literal["self", "random", "exploration", "mixture", "oracle", "server"]
"""Who plays for data: the model itself, uniformly random actions, a player that tries what it has not tried, a
mixture with the oracle, the oracle, a model behind an address."""


class SpaVariant(Settings):
    """One variant."""

    world_model: bool = True
    """Replies carry the observed and the predicted state."""
    sft: bool = True
    rl: bool = True
    data: PlayPolicy | None = None
    """Who plays for this variant's data, where it is not the recipe's `self_play.policy`."""
    transfer: bool = False
    """Learn the dynamics in the recipe's `transfer_world`, and act in its `world`."""
    predict: Literal["next", "present", "shuffled"] = "next"
    """The state that takes the place of the predicted one in SFT. `present`, and `shuffled`, the next state of another
    turn at the same level, are controls: they write states too, and learn no dynamics.
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


VARIANTS: dict[str, SpaVariant] = {
    "spa": SpaVariant(),
    "base": SpaVariant(world_model=False, sft=False, rl=False, coordinates="plain"),
    "vanilla-rl": SpaVariant(world_model=False, sft=False, coordinates="plain"),
    "state-estimation": SpaVariant(sft=False, rl=False),
    "state-estimation-rl": SpaVariant(sft=False),
    "no-world-model": SpaVariant(world_model=False),
    "copy-state": SpaVariant(predict="present"),
    "shuffled-next": SpaVariant(predict="shuffled"),
    "sft-only": SpaVariant(rl=False),
    "masked-states": SpaVariant(mask_states=True),
    "self-belief": SpaVariant(true_states=False),
    "random-data": SpaVariant(data="random"),
    "unfiltered": SpaVariant(keep_malformed=True),
    "transfer": SpaVariant(transfer=True),
    "no-coordinates": SpaVariant(coordinates="none"),
    "wrong-coordinates": SpaVariant(coordinates="wrong"),
    "online-world-model": SpaVariant(sft=False, state_reward=0.5),
    "echo": SpaVariant(world_model=False, sft=False, environment_ce=0.1),
    **{f"epochs-{epochs}": SpaVariant(epochs=epochs) for epochs in range(1, 6)},
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


class SelfPlaySettings(Settings):
    """Where the world model's data comes from."""

    policy: PlayPolicy = "self"
    """Who plays. `tiny` cannot speak yet: random or mixture."""
    oracle_share: float = Field(0.5, ge=0, le=1)
    """Part of a mixture's actions that are the oracle's."""
    server: ServerConfig | None = None
    """The model that plays, for `policy: server`."""
    batches: int = Field(5, ge=1)
    """Batches of play; a batch on disk is not played again."""
    levels: int = Field(32, ge=1)
    """Levels in a batch."""
    group_size: int = Field(8, ge=1)
    """Attempts at each level."""
    workers: Workers = 1
    """Processes or actors that play, a batch each, where no model plays."""
    held_out: float = Field(0.05, ge=0, lt=1)
    """Part of the levels kept for measuring the loss; whole trajectories, never single turns."""
    keep_malformed: bool = False
    """Learn from replies without the demanded form too."""
    hindsight: float | None = Field(None, ge=0, le=1)
    """Learn every reply with the best action that all play knows of (`hindsight.py`), and this part of the others,
    each once; None: all replies alike, as often as they were given.
    """

    @property
    def scripted(self) -> bool:
        """Whether no model plays."""
        return self.policy not in ("self", "server")

    @model_validator(mode="after")
    def _whole(self) -> SelfPlaySettings:
        if self.policy == "server" and self.server is None:
            raise OneiroError("self_play.policy=server needs self_play.server.model=NAME (and its base_url)")
        return self


class SpaRecipe(Recipe):
    """Everything SPA does, in order."""

    pipeline: ClassVar[str] = "oneiro.systems.spa.pipeline"
    world: WorldChoice = WorldChoice(name="frozen-lake")
    transfer_world: WorldChoice | None = None
    """Where the variant `transfer` learns the dynamics, for instance a smaller version of `world`; seen as `world` is
    unless it has a `view` of its own.
    """
    model: ModelSettings = ModelSettings()
    define: dict[Name, SpaVariant] = Field(default_factory=dict)
    """Variants of your own, by name."""
    variants: list[str] = Field(["spa", "no-world-model"], min_length=1)
    """The variants to compare."""
    workers: int = Field(1, ge=1)
    """Variants trained at the same time, each in a process of its own."""
    dialogue: DialogueSettings = DialogueSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=400)
    response_prefix: str = "<think>"
    """What every reply is made to begin with; `{state}` stands for the state, so that
    `<think><observation>{state}</observation>` spares the agent writing down what it has just read.
    """
    max_batch_size: int = Field(256, ge=1)
    """Rows decoded at once."""
    self_play: SelfPlaySettings = SelfPlaySettings()
    sft: SftSettings = SftSettings()
    rollout: RolloutSettings = RolloutSettings()
    rl: RlSettings = RlSettings()
    collapse_monitor: CollapseMonitorSettings = CollapseMonitorSettings()
    evaluation: AgentEvaluationSettings = AgentEvaluationSettings()

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.model.name,)

    @property
    def parameters(self) -> int | None:
        return self.model.parameters

    def check_places(self) -> None:
        for world in (self.world, *([self.transfer_world] if self.transfer_world else [])):
            view, views = config_for(world.name, world.settings).view, world_class(world.name).views
            if view not in views:
                raise OneiroError(f"world '{world.name}' has no view '{view}'{nearest(view, views)}")

    @field_validator("variants")
    @classmethod
    def _known_variants(cls, names: list[str], info: ValidationInfo) -> list[str]:
        known = VARIANTS | info.data.get("define", {})
        for name in names:
            if name not in known:
                raise ValueError(f"no variant called '{name}'{nearest(name, known)}")
        return names

    @model_validator(mode="after")
    def _sensible(self) -> SpaRecipe:
        if not self.dialogue.think and self.response_prefix.startswith("<think>"):
            raise OneiroError(
                "dialogue.think=false leaves no thoughts to begin with; set response_prefix='<answer>' or ''"
            )
        if not self.dialogue.world_model:
            raise OneiroError(
                "dialogue.world_model=false is what a variant says: set variants=[no-world-model] (or vanilla-rl, base)"
            )
        for name in self.variants:
            self._check(name, self.variant(name))
        return self

    def _check(self, name: str, variant: SpaVariant) -> None:
        """One line for a variant that the other settings leave no room for."""
        if variant.world_model and not self.dialogue.think:
            raise OneiroError(f"variant '{name}' writes states into its thoughts; set dialogue.think=true")
        if variant.transfer and self.transfer_world is None:
            raise OneiroError(f"variant '{name}' needs transfer_world: where its dynamics are learned")
        if (variant.environment_ce or self.rl.environment_ce) and self.dialogue.context != "full":
            raise OneiroError(
                f"variant '{name}' learns from what the environment answers, which only a growing dialogue shows after "
                f"a reply; set dialogue.context=full (it is {self.dialogue.context})"
            )
        self.world_of(variant)
        _, recorded_play = self.sft_data_of(variant)
        if variant.sft and not variant.true_states and recorded_play.scripted:
            raise OneiroError(
                f"variant '{name}' learns what the player believes, and a script believes nothing; set "
                f"self_play.policy=self or server (it is {recorded_play.policy})"
            )

    @property
    def sft_variants(self) -> list[str]:
        """The variants that learn from recorded play."""
        return [name for name in self.variants if self.variant(name).sft]

    def variant(self, name: str) -> SpaVariant:
        return self.define[name] if name in self.define else VARIANTS[name]

    def world_of(self, variant: SpaVariant) -> WorldChoice:
        """Where a variant acts and is evaluated: the recipe's world in the variant's view."""
        return _in_view(self.world, variant)

    def sft_data_of(self, variant: SpaVariant) -> tuple[WorldChoice, SelfPlaySettings]:
        """Where a variant's data is played, and how."""
        world, settings = self.world, self.self_play
        if variant.transfer and self.transfer_world is not None:
            world = self.transfer_world.in_view_of(self.world)
        if variant.data is not None and variant.data != settings.policy:
            settings = SelfPlaySettings.model_validate({**settings.model_dump(), "policy": variant.data})
        return _in_view(world, variant), settings


def _in_view(world: WorldChoice, variant: SpaVariant) -> WorldChoice:
    view = config_for(world.name, world.settings).view
    shown = view_of(view, variant.coordinates)
    return world if shown == view else WorldChoice(name=world.name, **{**world.settings, "view": shown})
