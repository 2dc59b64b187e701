"""RLVR's recipe for text games: every setting."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from oneiro.errors import OneiroError
from oneiro.learning.collapse import CollapseMonitorSettings
from oneiro.learning.loop import RlSettings
from oneiro.learning.sft import SftSettings
from oneiro.models.language import ModelSettings
from oneiro.predictors.textgame.task import TextGamePredictorConfig
from oneiro.recipe import Recipe, Settings
from oneiro.sampling.engine import SamplingSettings
from oneiro.sampling.server import ServerConfig
from oneiro.worlds.textgame.crawl import CrawlConfig
from oneiro.worlds.textgame.games import GAMES, game_named

OWN = "own"


class TextGameDataSettings(Settings):
    """Where the transitions come from."""

    name: str = OWN
    """`own`: our own games, recorded by the run itself; else a folder of imported transitions."""
    games: tuple[str, ...] = ()
    """Games to learn; none named: all there are."""
    held_out: tuple[str, ...] = ()
    """Games that training never sees; evaluation reports them by themselves."""
    crawl: CrawlConfig = CrawlConfig()
    """How much of our own games is recorded for training."""
    test_levels: int = Field(10, ge=1)
    """Unseen levels of each of our own games that evaluation steps come from."""

    @model_validator(mode="after")
    def _sensible(self) -> TextGameDataSettings:
        if self.own:
            for name in (*self.games, *self.held_out):
                game_named(name)
        if both := set(self.games) & set(self.held_out):
            raise OneiroError(f"the game '{min(both)}' stands in data.games and in data.held_out; choose one")
        return self

    @property
    def own(self) -> bool:
        return self.name == OWN

    @property
    def trained(self) -> list[str]:
        """The games of our own that are learnt."""
        return [name for name in self.games or GAMES if name not in self.held_out]


class SamplerSettings(Settings):
    """Which transition is learnt from next: a pure function of the seed and the number of the draw."""

    name: Literal["balanced", "gold-mix"] = "balanced"
    """Every game equally often, or the published mixture: all gold rows and a fresh draw of others each epoch."""
    changed_share: float = Field(0.5, ge=0, le=1)
    """balanced: part of the row_order that change something."""
    per_hundred: float = Field(40.0, ge=0)
    """gold-mix: other rows for each hundred gold ones."""


class SftDataSettings(Settings):
    """What SFT learns from."""

    rows: int = Field(20_000, ge=0)
    """Draws; 0: no SFT, RL starts from the model as it is."""
    rows_per_state: int = Field(1, ge=1)
    """Rows of one state that are learnt at once, as far as there are any: the state is then read once for all."""
    augment: float = Field(0.0, ge=0, le=1)
    """Part of the readings in which a state is told otherwise: its objects in another order, with other numbers and
    names (`worlds/textgame/retell.py`).
    """
    held_out: int = Field(64, ge=0)
    """Test rows on which the loss is measured at the end."""
    sampler: SamplerSettings | None = None
    """Which transitions SFT sees, where they are not those that RL row_order."""
    teacher: ServerConfig | None = None
    """A model whose right answers are learnt instead of the true ones (rejection sampling)."""
    samples: int = Field(4, ge=1)
    """Answers the teacher gives to each question; the first right one is learnt."""


class RolloutSettings(Settings):
    prompts_per_step: int = Field(32, ge=1)
    """Transitions in one step of RL."""
    group_size: int = Field(8, ge=1)
    """Answers sampled for each."""


class TextGameEvaluationSettings(Settings):
    """Greedy answers, but for `samples`."""

    rows: int = Field(0, ge=0)
    """Test rows that are answered, drawn evenly; 0: all."""
    samples: int = Field(0, ge=0)
    """Answers to each test row that are sampled as RL samples them, besides the greedy one."""
    every: int = Field(0, ge=0)
    """Steps of RL between looks at test rows on the way, the first before any update; 0: only at the end."""
    eval_subset: int = Field(128, ge=1)
    """Test rows in such a look."""
    trajectories: int = Field(32, ge=0)
    """Winning plans that are simulated, of unseen levels or among recorded steps: accuracy against depth."""
    depth: int = Field(8, ge=1)


class PlanningSettings(Settings):
    """Winning plans searched for inside the model and then played in the true game; for our own games."""

    levels: int = Field(12, ge=0)
    breadth: int = Field(4, ge=1)
    """Situations kept at each depth."""
    depth: int = Field(10, ge=1)


class RlvrRecipe(Recipe):
    """Everything RLVR on text games does, in order."""

    task: TextGamePredictorConfig = TextGamePredictorConfig(reward="shaped")
    data: TextGameDataSettings = TextGameDataSettings()
    model: ModelSettings = ModelSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=256)
    max_batch_size: int = Field(256, ge=1)
    """Rows decoded at once."""
    sampler: SamplerSettings = SamplerSettings()
    sft_data: SftDataSettings = SftDataSettings()
    sft: SftSettings = SftSettings()
    merge_lora: bool = True
    """Fold an adapter that SFT trained into the weights before RL, which then updates all of them."""
    rollout: RolloutSettings = RolloutSettings()
    rl: RlSettings = RlSettings()
    collapse_monitor: CollapseMonitorSettings = CollapseMonitorSettings(every=0)
    evaluation: TextGameEvaluationSettings = TextGameEvaluationSettings()
    planning: PlanningSettings = PlanningSettings()

    @model_validator(mode="after")
    def _sensible(self) -> RlvrRecipe:
        if self.model.name == "tiny" and not self.sft_data.rows:
            raise OneiroError("'tiny' knows nothing yet: set sft_data.rows to the row_order that SFT may learn from")
        published = "gold-mix" in (self.sampler.name, self.sft_data.sampler.name if self.sft_data.sampler else "")
        if published and self.task.transition != "full":
            raise OneiroError("gold-mix is a mixture of whole steps (task.transition=full); use sampler.name=balanced")
        return self
