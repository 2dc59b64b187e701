"""WebRL's recipe: every setting, and the combinations that make no sense."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, ValidationInfo, field_validator, model_validator

from oneiro.agents.prompts import DialogueSettings
from oneiro.learning.algorithms import Grpo, Ppo, StateGrpo
from oneiro.learning.algorithms.webrl import Awr, Digirl, FilteredBc, Official, Paper, Rft, ValueReinforce
from oneiro.learning.settings import LearnerSettings, OptimiserSettings, SftContinuedSettings, SftSettings
from oneiro.models.settings import ModelSettings
from oneiro.recipe import Recipe, Settings
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.webrl.curriculum.growth import CurriculumSettings
from oneiro.worlds.registry import WorldChoice
from oneiro_web.env import TemplateKind, chosen_templates
from oneiro_web.sites import SITES
from oneiro_web.templates.base import Template

SPLITS = ("test-seen", "test-unseen")
SITE_SPLIT = "test-unseen-site"
AnyObjective = Annotated[
    Paper | Official | FilteredBc | Rft | Awr | Digirl | ValueReinforce | Grpo | StateGrpo | Ppo,
    Field(discriminator="name"),
]
"""WebRL's objective and its baselines. Those of groups are multi-turn RL on attempts at the same task: WebAgent-R1's
GRPO, GiGPO (`state-grpo`), PPO.
"""
GROUP_ALGORITHMS = (Grpo, StateGrpo, Ppo)
REPLAYING = (Paper, Official, Rft)
"""Learn from past successes again."""
OFFLINE = (FilteredBc, Awr)
"""All phases learn from the play of the first."""
FIXED_TASKS = (*OFFLINE, Digirl)
"""All phases have the tasks of the first."""


class TaskSettings(Settings):
    """Which templates are trained on and which are not."""

    sites: tuple[str, ...] = ()
    """Sites; all where none is named."""
    kind: TemplateKind = "written"
    """Templates written by hand, composed from the sites' schemas (hundreds that share their parts), or both. Named
    templates may be of either kind.
    """
    unseen_sites: tuple[str, ...] = ()
    """Sites of a third test split, which are never trained on."""
    demonstrated: tuple[str, ...] = ()
    """Templates that SFT sees; none named: all that may be trained on."""
    trained: tuple[str, ...] = ()
    """Templates that the curriculum may draw from; none named: all of the sites that are not held out."""
    unseen: tuple[str, ...] = ()
    """Templates of test-unseen; none named: the held-out ones of the sites."""
    demonstrations: int = Field(400, ge=1)
    """Tasks that the oracle demonstrates."""

    @model_validator(mode="after")
    def _apart(self) -> TaskSettings:
        both = set(self.unseen) & {*self.trained, *self.demonstrated}
        if both:
            raise OneiroError(f"tasks: {sorted(both)[0]} is named as unseen and as trained; take it out of one")
        self.trained_templates()
        return self

    def trained_templates(self) -> list[Template]:
        """Those that tasks may be drawn from."""
        named = chosen_templates(self.seen_sites(), self.trained, self.kind)
        trainable = [t for t in named if not t.held_out and t.name not in self.unseen_names()]
        if not trainable:
            raise OneiroError("tasks: no template is left to train on; name some in tasks.trained")
        return trainable

    def demonstrated_templates(self) -> list[Template]:
        """Those that SFT sees."""
        names = {template.name for template in self.trained_templates()}
        for name in self.demonstrated:
            if name not in names:
                raise OneiroError(f"tasks.demonstrated: {name} may not be trained on{nearest(name, names)}")
        return [t for t in self.trained_templates() if not self.demonstrated or t.name in self.demonstrated]

    def unseen_names(self) -> tuple[str, ...]:
        """Those of test-unseen."""
        here = chosen_templates(self.seen_sites(), (), self.kind)
        return self.unseen or tuple(t.name for t in here if t.held_out)

    def unseen_site_names(self) -> tuple[str, ...]:
        """Those of the sites that are never trained on."""
        return tuple(t.name for t in chosen_templates(self.unseen_sites, (), self.kind))

    def seen_sites(self) -> tuple[str, ...]:
        """Sites that may be trained on."""
        if not self.unseen_sites:
            return self.sites
        return tuple(site for site in self.sites or SITES if site not in self.unseen_sites)


class OutcomeSettings(Settings):
    """Who says whether a task was done."""

    name: Literal["oracle", "noisy", "features", "rules", "lm"] = "oracle"
    """`oracle`: the task's own grader. `noisy`: the grader, flipped at given rates. `features`: a logistic regression
    on what the trajectory shows. `rules`: visible evidence, nothing trained. `lm`: a language model that answers YES or
    NO.
    """
    false_positives: float = Field(0.2, ge=0, le=1)
    """Failures that `noisy` calls successes."""
    false_negatives: float = Field(0.2, ge=0, le=1)
    """Share of successes that `noisy` labels as failures."""
    threshold: float = Field(0.5, gt=0, lt=1)
    """P(YES) from which a trajectory is a success."""
    abstain: tuple[float, float] | None = None
    """P(YES) between these two, ends excluded: the trajectory is left out."""
    min_precision: float = Field(0.75, ge=0, le=1)
    """Training does not start with an outcome model whose precision on held-out trajectories is lower."""
    trajectories: int = Field(200, ge=8)
    """Tasks that trained outcome models learn from, each as done and as perturbed episodes."""
    max_tokens: int = Field(1024, ge=64)
    """Tokens of the judge's prompt; pages are cut, never what is asked."""
    compare: tuple[Literal["features", "rules"], ...] = ()
    """Outcome models that are only reported beside the one that labels."""
    sft: SftSettings = SftSettings(batch=16, epochs=2.0)
    """How `lm` is trained."""


class ReplaySettings(Settings):
    """Past successes that are learned from again."""

    EVERYTHING: ClassVar[tuple[float, float]] = (0.0, 1.0)
    enabled: bool = True
    """Learn from past successes again."""
    band: tuple[float, float] = (0.5, 0.95)
    """Geometric-mean probability of a reply's tokens under the actor (1 / perplexity): above the first, at most the
    second.
    """
    scored: int | None = Field(None, ge=1)
    """Stored steps that may be taken in a phase, drawn at random; None: all."""
    cap: float = Field(2.0, ge=0)
    """Replayed steps, at most so many times the new ones."""
    per_task: int = Field(1, ge=1)
    """Successful trajectories of one task that may be replayed."""


class TrainSettings(Settings):
    """How a network learns in a phase."""

    learner: LearnerSettings = LearnerSettings(optimiser=OptimiserSettings(lr=1e-6, weight_decay=0.01))
    batch: int = Field(128, ge=1)
    """Steps of an update."""
    epochs: int = Field(1, ge=1)
    """Passes over the steps of a phase."""


class WebrlEvaluationSettings(Settings):
    tasks: int = Field(100, ge=1)
    """Tasks of each test split; fewer where there are fewer."""
    first_seed: int = 0
    """Where the tasks are drawn from: choose settings with another one."""
    temperature: float = Field(0.0, ge=0)
    """Of the policy in evaluations; 0: greedy."""
    every: int = Field(1, ge=1)
    """Phases between two evaluations; the last phase always has one."""


class Variant(Settings):
    """What one more run in the same comparison does otherwise."""

    algorithm: AnyObjective | None = None
    curriculum: dict[str, Any] = Field(default_factory=dict)
    """Settings of the curriculum."""
    replay: bool | None = None


VARIANTS = {
    "no-curriculum": Variant(curriculum={"grow": False}),
    "random-tasks": Variant(curriculum={"choose": "random"}),
    "learnable-tasks": Variant(curriculum={"choose": "learnable"}),
    "no-replay": Variant(replay=False),
    "no-kl": Variant(algorithm=ValueReinforce()),
    "filtered-bc": Variant(algorithm=FilteredBc()),
}
"""The paper's ablations, new tasks that are not chosen, and the paper's weakest baseline."""


class WebrlRecipe(Recipe):
    """Everything WebRL does, in order."""

    pipeline: ClassVar[str] = "oneiro.systems.webrl.pipeline"
    world: WorldChoice = WorldChoice(name="web")
    model: ModelSettings = ModelSettings()
    """`linear` is an agent without a language model (`oneiro.agents.linear`)."""
    tasks: TaskSettings = TaskSettings()
    dialogue: DialogueSettings = DialogueSettings(
        context="actions", think=False, world_model=False, max_turns=30, actions_per_turn=1, format_penalty=0.0
    )
    response_prefix: str = "<answer>"
    """What each reply begins with."""
    sampling: SamplingSettings = SamplingSettings(max_tokens=128)
    max_batch_size: int = Field(256, ge=1)
    """Rows decoded at once."""
    concurrency: int = Field(64, ge=1)
    """Episodes under way at once. When one ends, the next attempt takes its place."""
    sft: SftSettings = SftSettings()
    page_weight: float = Field(0.0, ge=0)
    """Weight in SFT of a prompt's tokens, against 1 of a reply's. A model that starts from nothing learns to copy on
    pages, where names occur again and again; a pretrained one needs none.
    """
    algorithm: AnyObjective = Paper()
    phases: int = Field(8, ge=1)
    """Rounds of new tasks, play and learning."""
    group_size: int | None = Field(None, ge=1)
    """Rollouts of each task; None: 1, or 4 for objectives that compare attempts at a task."""
    curriculum: CurriculumSettings = CurriculumSettings()
    outcome: OutcomeSettings = OutcomeSettings()
    replay: ReplaySettings = ReplaySettings()
    critic: TrainSettings = TrainSettings()
    actor: TrainSettings = TrainSettings()
    variants: tuple[str, ...] = ()
    """Runs to compare with, from the same SFT start and with the same budget: names of `VARIANTS` or of objectives."""
    sft_continued: SftContinuedSettings | None = None
    """Train and measure SFT on the demonstrations for the seconds of the phases, too; None: no such control."""
    evaluation: WebrlEvaluationSettings = WebrlEvaluationSettings()

    @property
    def parameters(self) -> int | None:
        return self.model.parameters

    @property
    def weights(self) -> tuple[str, ...]:
        return (self.model.name,) if self.model.name != "linear" else ()

    @field_validator("variants")
    @classmethod
    def _known_variants(cls, names: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        for name in names:
            variant_named(name)
        return names

    @model_validator(mode="after")
    def _sensible(self) -> WebrlRecipe:
        if self.world.name.partition(":")[0] != "web":
            raise OneiroError(f"world: WebRL grows tasks of the world 'web', not of '{self.world.name}'")
        if "templates" in self.world.settings or "sites" in self.world.settings:
            raise OneiroError("world: sites and templates are named in tasks.sites, tasks.trained and tasks.unseen")
        if self.model.name == "linear" and (self.dialogue.context != "actions" or not self.dialogue.brief):
            raise OneiroError("model=linear reads past actions and the page: set dialogue.context=actions, brief=true")
        if self.model.name == "linear" and self.outcome.name == "lm":
            raise OneiroError("outcome=lm needs a language model; set model=tiny, or outcome=features")
        if self.model.name == "linear" and self.sft_continued is not None:
            raise OneiroError("sft_continued needs a language model; set model=tiny, or sft_continued=null")
        if self.dialogue.context == "full":
            raise OneiroError("dialogue.context=full: a step is one reply to one state; set actions, window or single")
        for name in ("", *self.variants):
            objective = self.of_variant(name).algorithm if name else self.algorithm
            if objective.name == "ppo" and self.model.name == "linear":
                raise OneiroError("algorithm=ppo needs a language model; set model=tiny")
            if objective.name in ("grpo", "state-grpo") and self.group_size == 1:
                raise OneiroError(f"algorithm={objective.name} compares attempts at one task; set group_size=4 or so")
        return self

    @property
    def splits(self) -> tuple[str, ...]:
        """The test splits."""
        return (*SPLITS, SITE_SPLIT) if self.tasks.unseen_sites else SPLITS

    @property
    def attempts(self) -> int:
        """Rollouts of each task."""
        return self.group_size or (4 if isinstance(self.algorithm, GROUP_ALGORITHMS) else 1)

    def of_variant(self, name: str) -> WebrlRecipe:
        """The recipe as a variant changes it."""
        variant = variant_named(name)
        changed: dict[str, Any] = {}
        if variant.algorithm is not None:
            changed["algorithm"] = variant.algorithm
        if variant.curriculum:
            changed["curriculum"] = self.curriculum.model_copy(update=variant.curriculum)
        if variant.replay is not None:
            changed["replay"] = self.replay.model_copy(update={"enabled": variant.replay})
        return self.model_copy(update=changed)

    def world_settings(self, split: str | None = None) -> dict[str, Any]:
        """The world, with no more actions than the dialogue has turns; of a test split, where one is named."""
        own = self.world.settings
        most = min(own.get("max_actions", self.dialogue.max_turns), self.dialogue.max_turns)
        return {**own, "max_actions": most, **(self.split_settings(split) if split else {})}

    def split_settings(self, split: str) -> dict[str, Any]:
        """Settings of the world that draw the tasks of a test split."""
        if split == SITE_SPLIT:
            return {"templates": list(self.tasks.unseen_site_names()), "test": "both"}
        if split == "test-unseen":
            return {"templates": list(self.tasks.unseen_names()), "test": "both"}
        return {"templates": [template.name for template in self.tasks.trained_templates()], "test": "both"}


OBJECTIVES = ("paper", "official", "filtered-bc", "rft", "awr", "digirl", "reinforce", "grpo", "state-grpo", "ppo")


def variant_named(name: str) -> Variant:
    """One of `VARIANTS`, or the variant that changes nothing but the objective."""
    if name in VARIANTS:
        return VARIANTS[name]
    if name not in OBJECTIVES:
        raise ValueError(f"no variant called '{name}'{nearest(name, [*VARIANTS, *OBJECTIVES])}")
    return Variant.model_validate({"algorithm": {"name": name}})
