"""Who plays and learns in WebRL's phases: a language model or, as a baseline, the linear agent.

Both play as a `Policy`, say how likely they find a turn, and learn an algorithm's lessons. The language model learns by
`update.prepare` and `update.train`, as in the RL loop; its optimiser goes on from phase to phase.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.agents.linear import LinearCritic, LinearPolicy, fit
from oneiro.agents.linear.train import TurnDecision, slope_of
from oneiro.agents.policies import ModelPolicy, Policy
from oneiro.agents.reply import TAG_TOKENS
from oneiro.episode import Episode, Floats, Row, given
from oneiro.learning import checkpoint, loop, stages, update
from oneiro.learning.algorithms import Algorithm
from oneiro.learning.algorithms.base import StateValue
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.settings import FilterSettings
from oneiro.models import language as languages
from oneiro.models.backbone import Backbone
from oneiro.models.chat import ChatFormat
from oneiro.models.heads import OutcomeHead
from oneiro.models.language import LanguageModel
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.systems.webrl.episodes import Lesson, RowFormat, Turn, confidence, turns_of
from oneiro.systems.webrl.playing import metadata
from oneiro.systems.webrl.recipe import GROUP_ALGORITHMS, TrainSettings, WebrlRecipe

Log = Callable[[int, dict[str, float]], None]
LEARNER = "learner"
"""Beside a phase's actor: its optimiser, with what the compute type of the weights rounds away."""


def is_linear(recipe: WebrlRecipe) -> bool:
    return recipe.model.name == "linear"


def make_model(recipe: WebrlRecipe, run: Run, demonstrations: Sequence[Episode]) -> dict[str, Any]:
    """The stage `model`."""
    if is_linear(recipe):
        return {"parameters": len(LinearPolicy().weights)}
    return stages.make_base(run, recipe.model, lambda: create_tiny(recipe, demonstrations))


def create_tiny(recipe: WebrlRecipe, demonstrations: Sequence[Episode]) -> LanguageModel:
    """Random weights, and a tokenizer trained on the demonstrations' pages: an element's number is one token."""
    turns = [turn for episode in demonstrations for turn in turns_of(episode)]
    texts = [text for turn in turns for text in (turn["message"], turn["reply"])]
    texts += ["<|im_start|>user assistant\n<|im_end|>\n"] * 50
    lines = 1 + max(len(turn["state"].splitlines()) for turn in turns)
    tags = [*TAG_TOKENS, *(f"[{number}]" for number in range(lines + 20))]
    return languages.create_tiny(recipe.model, texts, seeds.derive(recipe.seed, "weights"), tags, "after")


def imitate(recipe: WebrlRecipe, run: Run, shown: Sequence[Episode], held_out: Sequence[Episode]) -> dict[str, Any]:
    """The stage `sft`."""
    seed, settings = seeds.derive(recipe.seed, "sft"), recipe.sft
    if is_linear(recipe):
        policy = LinearPolicy()
        run.rewind("sft", -1)
        lessons = [(turn, 1.0) for episode in (*shown, *held_out) for turn in turns_of(episode)]
        epochs, rate = max(1, round(settings.epochs)), settings.learner.optimiser.lr
        result = fit(policy, lessons, epochs, rate, seed, log=lambda epoch, values: run.log("sft", epoch, values))
        policy.save(run.path / "checkpoints" / "sft", metadata(recipe).model_dump(mode="json"))
        return {"updates": result["updates"]}
    language = metadata(recipe).write(stages.base_weights(run, recipe.model))
    form = row_format(recipe, language)
    rows = [row for episode in shown for row in form.rows(episode, recipe.page_weight)]
    aside = [row for episode in held_out for row in form.rows(episode)]  # held-out loss is that of replies
    return {"updates": stages.supervise(run, "sft", "SFT", language, rows, aside, settings, seed)}


def row_format(recipe: WebrlRecipe, language: LanguageModel) -> RowFormat:
    return RowFormat(ChatFormat(language.tokenizer), recipe.dialogue, recipe.response_prefix)


def agent_after(recipe: WebrlRecipe, run: Run, phase: Path | None) -> Agent:
    """The agent after the phase of this folder; None: after SFT."""
    if is_linear(recipe):
        folder = phase / "actor" if phase else run.path / "checkpoints" / "sft"
        return LinearAgent(recipe, LinearPolicy.load(folder))
    if phase is None:
        return LanguageAgent(recipe, stages.weights_after(run, ["sft"], recipe.model))
    named = recipe.model.model_copy(update={"name": str(phase / "actor"), "lora": None})
    return LanguageAgent(recipe, languages.load(named), phase / LEARNER)


def critic_after(recipe: WebrlRecipe, run: Run, phase: Path | None) -> OutcomeCritic:
    """The critic after the phase of this folder; None: a new one."""
    if is_linear(recipe):
        critic: OutcomeCritic = LinearCritic(recipe.critic.epochs, recipe.critic.learner.optimiser.lr)
    else:
        language = stages.weights_after(run, ["sft"], recipe.model)
        seed = seeds.derive(recipe.seed, "critic")
        critic = Critic(language.backbone, row_format(recipe, language), recipe.critic, seed)
    if phase:
        critic.load(phase / "critic")
    return critic


@dataclass
class LanguageAgent:
    """A language model, and where its optimiser stands after the phase before; None: nowhere yet."""

    recipe: WebrlRecipe
    language: LanguageModel
    state: Path | None = None
    learner: Learner | None = None
    """After `learn`; it goes on in the next phase."""

    @cached_property
    def engine(self) -> Engine:
        """One for all phases: its CUDA graphs read the weights where they lie."""
        return Engine(self.language, self.recipe.max_batch_size)

    @property
    def form(self) -> RowFormat:
        return row_format(self.recipe, self.language)

    def policy(self, temperature: float) -> tuple[Policy, ChatFormat | None]:
        """It as a player, and the chat format that its tokens need."""
        sampling = self.recipe.sampling.model_copy(update={"temperature": temperature})
        return ModelPolicy(self.engine, sampling), self.form.chat

    def confidences(self, turns: Sequence[tuple[Episode, int]]) -> list[float]:
        """Geometric-mean probability of each turn's reply, without its end token."""
        form = self.form
        examples = [Example.of(form.weigh((episode, [place])).rows[place]) for episode, place in turns]
        logprobs, _ = Learner(self.language.backbone, self.recipe.actor.learner, 1).logprobs(examples)
        return [confidence(own[e.weights["policy"] != 0][:-1]) for e, own in zip(examples, logprobs, strict=True)]

    def learn(
        self,
        algorithm: Algorithm,
        lessons: Sequence[Lesson],
        values: Sequence[StateValue] | None,
        numbers: Sequence[Floats],
        seed: int,
        log: Log,
    ) -> dict[str, Any]:
        """One phase of updates. `values` are an outcome critic's; `numbers`, made of them, are for the linear
        agent: a language model's are made again beside its tokens.
        """
        form, settings, steps = self.form, self.recipe.actor, sum(len(places) for _, places in lessons)
        episodes = [form.weigh(lesson) for lesson in lessons]
        learning = settings.learner
        if isinstance(algorithm, GROUP_ALGORITHMS):
            # A constant length normaliser: a token counts the same in long and short replies.
            loss = learning.loss.model_copy(update={"aggregate": "constant"})
            learning = learning.model_copy(update={"loss": loss})
        # Attempts at one task that all end alike have no advantage; their turns would only dilute the mean.
        chosen = FilterSettings(name="varied" if isinstance(algorithm, GROUP_ALGORITHMS) else "none")
        rl = RlSettings(learner=learning, epochs=settings.epochs, filter=chosen)
        rl = rl.model_copy(update={"algorithm": algorithm})  # recipes of other systems do not offer WebRL's
        own = loop.learner_settings(rl, self.recipe.sampling.max_tokens)
        if self.learner is not None and not algorithm.critic:
            learners = {"policy": self.learner}
        else:
            learners = loop.make_learners(self.language, rl, own, 1, seed)
            if self.state is not None:
                checkpoint.restore(self.state, None, {"policy": learners["policy"]})
        self.learner = learners["policy"]
        by_episode = dict(zip(map(id, episodes), values or (), strict=values is not None))
        valued = (lambda played: [by_episode[id(episode)] for episode in played]) if values is not None else None
        examples, statistics = update.prepare(episodes, rl, learners, state_values=valued)
        if not examples:
            return {"steps": steps, **statistics}
        rl = rl.model_copy(update={"minibatches": math.ceil(len(examples) / settings.batch)})
        for learner in learners.values():
            learner.steps, learner.updates = rl.updates_per_step, 0
        statistics |= update.train(examples, rl, learners, seed, log)
        result = {"steps": steps, "updates": rl.updates_per_step, **statistics}
        if algorithm.recompute:
            result["log_ratio"] = log_ratio(examples, self.learner)
        return result

    def save(self, folder: Path) -> None:
        """Into `folder/actor`."""
        self.language.metadata = metadata(self.recipe).model_dump(mode="json")
        self.language.save(folder / "actor", manifest=True)
        assert self.learner is not None
        self.state = folder / LEARNER
        checkpoint.save(self.state, 0, None, {"policy": self.learner})


def log_ratio(examples: Sequence[Example], learner: Learner) -> float:
    """Mean over replies of the mean log-ratio of their tokens to the policy before the phase."""
    now, _ = learner.logprobs(examples)
    ratios = [
        float((own - example.columns["old"])[example.weights["policy"] != 0].mean())
        for example, own in zip(examples, now, strict=True)
    ]
    return float(np.mean(ratios))


@dataclass
class LinearAgent:
    """The linear policy; a reply counts as one token."""

    recipe: WebrlRecipe
    own: LinearPolicy

    def policy(self, temperature: float) -> tuple[Policy, ChatFormat | None]:
        return LinearPolicy(temperature, self.own.weights), None

    def confidences(self, turns: Sequence[tuple[Episode, int]]) -> list[float]:
        return [TurnDecision.of(turns_of(episode)[place]).probability(self.own.weights) for episode, place in turns]

    def learn(
        self,
        algorithm: Algorithm,
        lessons: Sequence[Lesson],
        values: Sequence[StateValue] | None,
        numbers: Sequence[Floats],
        seed: int,
        log: Log,
    ) -> dict[str, Any]:
        settings = self.recipe.actor
        taught = [
            (turns_of(episode)[place], float(own[place]))
            for (episode, places), own in zip(lessons, numbers, strict=True)
            for place in places
        ]
        rate = settings.learner.optimiser.lr
        return {"steps": len(taught), **fit(self.own, taught, settings.epochs, rate, seed, slope_of(algorithm), log)}

    def save(self, folder: Path) -> None:
        self.own.save(folder / "actor", metadata(self.recipe).model_dump(mode="json"))


class Critic:
    """The learner with an outcome head on a body of its own, read where a reply would begin.

    It starts with the body of the SFT model and new heads; both learn the outcome of the episode in every state.
    """

    def __init__(self, body: Backbone, form: RowFormat, settings: TrainSettings, seed: int) -> None:
        self.form, self.settings = form, settings
        head = OutcomeHead(body.shape.width, seed, body.device)
        self.learner = Learner(copy.deepcopy(body), settings.learner, 1, head, has_lm_head=False, seed=seed)

    def values(self, turns: Sequence[Turn]) -> Floats:
        """[N] the probability of success in the state of each turn."""
        values = self.learner.values([self._example(turn) for turn in turns])
        return np.array([row[-1] for row in values], np.float32)

    def fit(self, turns: Sequence[Turn], outcomes: Sequence[float], seed: int, log: Log) -> dict[str, float]:
        """Cross-entropy of both heads on the outcome, in every state; the mean loss of the updates."""
        examples = [self._example(turn, outcome) for turn, outcome in zip(turns, outcomes, strict=True)]
        parts = max(1, -(-len(examples) // self.settings.batch))
        rl = RlSettings(epochs=self.settings.epochs, minibatches=parts)
        self.learner.steps, self.learner.updates = rl.updates_per_step, 0
        losses: list[float] = []

        def note(number: int, values: dict[str, float]) -> None:
            losses.append(values["loss"])
            log(number, values)

        if examples:
            update.train(examples, rl, {"critic": self.learner}, seed, note)
        return {"loss": float(np.mean(losses[-parts:])) if losses else 0.0}

    def _example(self, turn: Turn, outcome: float = 0.0) -> Example:
        """A batch gives the hidden state that predicts a token with loss: one of no meaning is put behind the state."""
        example = Example.of(Row([given(self.form.state(turn)), given([0], policy=1.0)]))
        example.columns |= {"returns": np.full(len(example), outcome, np.float32)}
        return example

    def save(self, folder: Path) -> None:
        checkpoint.save(folder, 0, None, {"critic": self.learner})

    def load(self, folder: Path) -> None:
        checkpoint.restore(folder, None, {"critic": self.learner})


def auc(values: Sequence[float], outcomes: Sequence[float]) -> float | None:
    """Probability that a success has a higher value than a failure, ties half; None without both."""
    good = np.array([v for v, o in zip(values, outcomes, strict=True) if o > 0])
    bad = np.array([v for v, o in zip(values, outcomes, strict=True) if o <= 0])
    if not len(good) or not len(bad):
        return None
    above = (good[:, None] > bad[None]).mean() + 0.5 * (good[:, None] == bad[None]).mean()
    return float(above)


Agent = LanguageAgent | LinearAgent
OutcomeCritic = Critic | LinearCritic
