"""Kinds of agents that the loop can train: a language model, or the linear agent; and their critics.

Both are made, loaded and saved by a backend, play as a policy, say how likely a reply is, and learn an objective.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from oneiro.agents.policies import ModelPolicy, Policy
from oneiro.agents.reply import TAG_TOKENS
from oneiro.episode import Floats
from oneiro.learning import stages
from oneiro.learning.algorithms.webrl import StepObjective
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.systems.webrl.actor import LanguageActor
from oneiro.systems.webrl.critic import Critic
from oneiro.systems.webrl.linear import LinearAgent, LinearCritic
from oneiro.systems.webrl.playing import metadata
from oneiro.systems.webrl.recipe import TrainSettings, WebrlRecipe
from oneiro.systems.webrl.samples import Sample, Valued
from oneiro.systems.webrl.trajectories import RowFormat, Step, Trajectory

Log = Callable[[int, dict[str, float]], None]


class Agent(Protocol):
    """Who plays and learns."""

    def policy(self, temperature: float) -> tuple[Policy, ChatFormat | None]:
        """It as a player, and the chat format that its tokens need."""
        ...

    def confidences(self, steps: Sequence[Step]) -> list[float]:
        """Geometric-mean probability of each reply's tokens."""
        ...

    def regress(
        self,
        objective: StepObjective,
        samples: Sequence[Sample],
        critic: Valued | None,
        settings: TrainSettings,
        seed: int,
        log: Log,
    ) -> tuple[dict[str, Any], list[list[float]]]:
        """Learn; what happened, and the number of every step."""
        ...

    def save(self, folder: Path, metadata: dict[str, Any]) -> None: ...


class OutcomeCritic(Valued, Protocol):
    """A critic that learns."""

    def train(
        self, steps: Sequence[Step], outcomes: Sequence[float], settings: TrainSettings, seed: int, log: Log
    ) -> dict[str, float]: ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Backend(Protocol):
    """Makes agents and critics."""

    def create(self, demonstrations: Sequence[Trajectory]) -> dict[str, Any]:
        """The stage `model`."""
        ...

    def imitate(self, shown: Sequence[Trajectory], held_out: Sequence[Trajectory]) -> dict[str, Any]:
        """The stage `sft`."""
        ...

    def after_sft(self) -> Agent: ...

    def load(self, folder: Path) -> Agent: ...

    def critic(self) -> OutcomeCritic:
        """A new one, as before the first phase."""
        ...


def backend_of(recipe: WebrlRecipe, run: Run) -> Backend:
    """As `model.name` says."""
    return LinearBackend(recipe, run) if recipe.model.name == "linear" else LanguageBackend(recipe, run)


# Language models ------------------------------------------------------------------------------------------------------


class LanguageCritic:
    """A critic of a language model's body, asked about steps."""

    def __init__(self, critic: Critic, form: RowFormat) -> None:
        self.own, self.form = critic, form

    def values(self, steps: Sequence[Step]) -> Floats:
        return self.own.values([self.form.prompt(step.message) for step in steps])

    def train(
        self, steps: Sequence[Step], outcomes: Sequence[float], settings: TrainSettings, seed: int, log: Log
    ) -> dict[str, float]:
        prompts = [self.form.prompt(step.message) for step in steps]
        return self.own.train(prompts, outcomes, settings.learner, settings.batch, settings.epochs, seed, log)

    def save(self, folder: Path) -> None:
        self.own.save(folder / "critic.safetensors")

    def load(self, folder: Path) -> None:
        self.own.load(folder / "critic.safetensors")


class LanguageAgent(LanguageActor):
    """A language model that plays."""

    def __init__(self, recipe: WebrlRecipe, language: LanguageModel) -> None:
        form = RowFormat(ChatFormat(language.tokenizer), recipe.dialogue, recipe.response_prefix)
        super().__init__(language, form, recipe.actor.learner, recipe.sampling)
        self.recipe = recipe

    def policy(self, temperature: float) -> tuple[Policy, ChatFormat | None]:
        sampling = self.recipe.sampling.model_copy(update={"temperature": temperature})
        return ModelPolicy(Engine(self.language, self.recipe.max_batch_size), sampling), self.form.chat

    def save(self, folder: Path, metadata: dict[str, Any]) -> None:
        self.language.metadata = metadata
        self.language.save(folder, manifest=True)


class LanguageBackend:
    """`tiny`, or any pretrained model."""

    def __init__(self, recipe: WebrlRecipe, run: Run) -> None:
        self.recipe, self.run = recipe, run

    def create(self, demonstrations: Sequence[Trajectory]) -> dict[str, Any]:
        return stages.make_base(self.run, self.recipe.model, lambda: create_tiny(self.recipe, demonstrations))

    def imitate(self, shown: Sequence[Trajectory], held_out: Sequence[Trajectory]) -> dict[str, Any]:
        recipe = self.recipe
        language = metadata(recipe).write(stages.base_weights(self.run, recipe.model))
        form = LanguageAgent(recipe, language).form
        rows = [form.row(step, recipe.page_weight, ce=1.0) for t in shown for step in t.steps]
        aside = [form.row(step, ce=1.0) for t in held_out for step in t.steps]  # held-out loss is that of replies
        seed = seeds.derive(recipe.seed, "sft")
        return {"updates": stages.supervise(self.run, "sft", "SFT", language, rows, aside, recipe.sft, seed)}

    def after_sft(self) -> LanguageAgent:
        return LanguageAgent(self.recipe, stages.weights_after(self.run, ["sft"], self.recipe.model))

    def load(self, folder: Path) -> LanguageAgent:
        named = self.recipe.model.model_copy(update={"name": str(folder), "lora": None})
        return LanguageAgent(self.recipe, languages.load(named))

    def critic(self) -> LanguageCritic:
        agent = self._sft
        return LanguageCritic(Critic(agent.language.backbone, seeds.derive(self.recipe.seed, "critic")), agent.form)

    @cached_property
    def _sft(self) -> LanguageAgent:
        return self.after_sft()


def create_tiny(recipe: WebrlRecipe, demonstrations: Sequence[Trajectory]) -> LanguageModel:
    """Random weights, and a tokenizer trained on the demonstrations' pages: an element's number is one token."""
    texts = [text for t in demonstrations for step in t.steps for text in (step.message, step.reply)]
    texts += ["<|im_start|>user assistant\n<|im_end|>\n"] * 50
    most = 1 + max(len(step.state.splitlines()) for t in demonstrations for step in t.steps)
    tags = [*TAG_TOKENS, *(f"[{number}]" for number in range(most + 20))]
    return languages.create_tiny(recipe.model, texts, seeds.derive(recipe.seed, "weights"), tags, "after")


# The linear agent -----------------------------------------------------------------------------------------------------


class LinearBackend:
    """`linear`: no language model at all."""

    def __init__(self, recipe: WebrlRecipe, run: Run) -> None:
        self.recipe, self.run = recipe, run

    @property
    def _sft(self) -> Path:
        return self.run.path / "checkpoints" / "sft"

    def create(self, demonstrations: Sequence[Trajectory]) -> dict[str, Any]:
        return {"parameters": len(LinearAgent().weights)}

    def imitate(self, shown: Sequence[Trajectory], held_out: Sequence[Trajectory]) -> dict[str, Any]:
        settings, agent = self.recipe.sft, LinearAgent()
        self.run.rewind("sft", -1)
        steps = [step for t in (*shown, *held_out) for step in t.steps]
        rate, seed = settings.learner.optimiser.lr, seeds.derive(self.recipe.seed, "sft")
        updates = agent.imitate(steps, settings.epochs, rate, seed, lambda step, v: self.run.log("sft", step, v))
        agent.save(self._sft, metadata(self.recipe).model_dump(mode="json"))
        return {"updates": updates}

    def after_sft(self) -> LinearAgent:
        return self.load(self._sft)

    def load(self, folder: Path) -> LinearAgent:
        return LinearAgent.load(folder)

    def critic(self) -> LinearCritic:
        return LinearCritic()
