"""RLVR's recipe for text games: every setting."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import require_path
from oneiro.sampling.server import ServerConfig
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.recipe import AnswerEvaluationSettings, AnsweringRecipe, SftDataSettings
from oneiro.tasks.textgame.predictor import TextGamePredictorConfig
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
        """The games of our own that are learned."""
        return [name for name in self.games or GAMES if name not in self.held_out]


class SamplerSettings(Settings):
    """Which transition is learned from next: a pure function of the seed and the sample's number."""

    name: Literal["balanced", "gold-mix"] = "balanced"
    """Every game equally often, or the published mixture: all gold rows and a fresh draw of others each epoch."""
    changed_share: float = Field(0.5, ge=0, le=1)
    """balanced: share of the sampled rows that change something."""
    per_hundred: float = Field(40.0, ge=0)
    """gold-mix: other rows for each hundred gold ones."""


class TextGameSftDataSettings(SftDataSettings):
    """What SFT learns from."""

    rows: int = Field(20_000, ge=0)
    """Rows sampled for SFT; 0: no SFT, RL starts from the model as it is."""
    rows_per_state: int = Field(1, ge=1)
    """Rows of one state that are learned together, where there are as many: the state is then computed once for all."""
    sampler: SamplerSettings | None = None
    """Which transitions SFT sees, where they are not those that RL sees."""
    teacher: ServerConfig | None = None
    """A model whose right answers are learned instead of the true ones (rejection sampling)."""
    samples: int = Field(4, ge=1)
    """Answers the teacher gives to each question; the first right one is learned."""


class TextGameEvaluationSettings(AnswerEvaluationSettings):
    """Greedy answers, but for `samples`."""

    eval_subset: int = Field(128, ge=1)
    """Validation rows of an evaluation on the way."""
    samples: int = Field(0, ge=0)
    """Answers to each test row that are sampled as RL samples them, besides the greedy one."""
    own_steps: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Held-out games are asked again, the lookup knowing so many of each game's own steps; for imported data."""
    depth: int = Field(8, ge=1)
    """Steps of a winning plan that are simulated; plans are of unseen levels, or among recorded steps."""


class PlanningSettings(Settings):
    """Winning plans searched for inside the model and then played in the true game; for our own games."""

    levels: int = Field(12, ge=0)
    """Levels for which a plan is searched."""
    breadth: int = Field(4, ge=1)
    """Situations kept at each depth."""
    depth: int = Field(10, ge=1)
    """Longest plan."""


class TextGameRecipe(AnsweringRecipe):
    """Everything RLVR on text games does, in order."""

    task_class: ClassVar[str] = "oneiro.tasks.textgame.task:TextGameTask"
    task: TextGamePredictorConfig = TextGamePredictorConfig(reward="shaped")
    data: TextGameDataSettings = TextGameDataSettings()
    sampling: SamplingSettings = SamplingSettings(max_tokens=256)
    sampler: SamplerSettings = SamplerSettings()
    sft_data: TextGameSftDataSettings = TextGameSftDataSettings()
    evaluation: TextGameEvaluationSettings = TextGameEvaluationSettings()
    planning: PlanningSettings = PlanningSettings()

    def check_places(self) -> None:
        if not self.data.own:
            require_path("data.name", self.data.name)

    @model_validator(mode="after")
    def _sensible(self) -> TextGameRecipe:
        published = "gold-mix" in (self.sampler.name, self.sft_data.sampler.name if self.sft_data.sampler else "")
        if published and self.task.transition != "full":
            raise OneiroError("gold-mix is a mixture of whole steps (task.transition=full); use sampler.name=balanced")
        if self.evaluation.own_steps and (self.data.own or not self.data.held_out):
            raise OneiroError(
                "evaluation.own_steps asks held-out games of an imported folder; set data and data.held_out"
            )
        return self
