"""`oneiro bench web --rollouts`: episodes of a web agent with its model in the loop, and how busy the model is.

Every loop plays the same 64 episodes with the same weights. `synchronous` plays a batch of episodes to the end of its
longest before the next batch begins. `continuous` (`oneiro.agents.rollout.play`) gives a free place to the next episode
at once. The model samples a reply of fixed length to every page. What is done on the page was recorded before, from the
templates' scripts with a random action now and then, which leads them astray: so episodes differ in length as an
agent's do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean, median
from typing import Any

import torch
from pydantic import Field

from bench.measure import Contestant, median_and_range, take_turns, wait
from oneiro.agents.game import Attempt, Game
from oneiro.agents.policies import ModelPolicy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import TAG_TOKENS
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, Sample, describe_errors
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.settings import ModelSettings
from oneiro.recipe import Settings, Workers
from oneiro.report.table import Cell, Table
from oneiro.runtime import threads
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.worlds.baselines import mixture
from oneiro.worlds.registry import WorldChoice

TINY = ModelSettings(name="tiny", layers=3, width=96, heads=3, mlp=288, vocabulary=1400)
"""As in the recipe `webrl/sandbox`."""


class RolloutBenchSettings(Settings):
    """What is played."""

    episodes: int = Field(64, ge=2)
    concurrency: int = Field(16, ge=1)
    """Episodes under way at once, in every loop."""
    max_actions: int = Field(15, ge=1)
    lines: int = Field(24, ge=1)
    """Of a page, in a prompt."""
    new_tokens: int = Field(24, ge=1)
    """Tokens of a reply."""
    rounds: int = Field(3, ge=1)
    workers: Workers = 0
    """One more row: worlds in so many processes or actors, each with one episode."""
    oracle_share: float = Field(0.95, ge=0, le=1)
    """Part of the actions that are the script's. After a random one it gives up: the episode runs out of actions."""
    seed: int = 0


class Recorder(ScriptedPolicy):
    """Plays by script, and keeps what it says by turn."""

    def __init__(self, share: float) -> None:
        super().__init__(mixture(share), (1, 1), think=False, world_model=False)
        self.said: dict[int, str] = {}

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        answers = super().answer(turns, seed)
        self.said.update((turn.seed, answer.text) for turn, answer in zip(turns, answers, strict=True))
        return answers


@dataclass
class TimedModel:
    """Samples as the model does, and says what was recorded; keeps the seconds and the rows of every call."""

    model: ModelPolicy
    said: dict[int, str]
    seconds: float = 0.0
    rows: list[int] = field(default_factory=list)
    reads_worlds: bool = False

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        return self.answer_each(turns, [seed] * len(turns))

    def answer_each(self, turns: Sequence[Game], batch_seeds: Sequence[int]) -> list[Sample]:
        began = time.perf_counter()
        sampled = self.model.answer_each(turns, batch_seeds)
        wait()
        self.seconds += time.perf_counter() - began
        self.rows.append(len(turns))
        return [replace(one, text=self.said[turn.seed]) for turn, one in zip(turns, sampled, strict=True)]


@dataclass
class Loop:
    """One way to play, and what its rounds measured."""

    name: str
    play: Callable[[TimedModel], list[Episode]]
    policy: Callable[[], TimedModel]
    busy: list[float] = field(default_factory=list)
    filled: list[float] = field(default_factory=list)
    steps: int = 0
    broken: str | None = None

    def go(self, number: int) -> None:
        policy, began = self.policy(), time.perf_counter()
        episodes = self.play(policy)
        self.busy.append(policy.seconds / (time.perf_counter() - began))
        self.filled.append(mean(policy.rows))
        self.steps = sum(len(episode.rewards) for episode in episodes)
        self.broken = describe_errors(episodes)


def compare(model: str | None, **options: Any) -> list[Table]:
    """Rounds in which all loops take turns."""
    settings = RolloutBenchSettings(**options)
    dialogue = DialogueSettings(
        context="actions",
        compact=True,
        brief=True,
        think=False,
        world_model=False,
        max_turns=settings.max_actions,
        actions_per_turn=1,
    )
    choice = WorldChoice(name="web", lines=settings.lines, max_actions=settings.max_actions, workers=settings.workers)
    planned = attempts(settings.episodes, 1, "train", settings.seed)
    recorder = Recorder(settings.oracle_share)
    shown = play(choice.maker(), planned, recorder, dialogue)
    if broken := describe_errors(shown):
        raise OneiroError(f"bench web --rollouts: {broken}")
    language = agent(model, shown)
    torch.set_num_threads(threads.by_size(language.backbone.shape.parameters))  # as a run does
    chat = ChatFormat(language.tokenizer)
    sampling = SamplingSettings(max_tokens=settings.new_tokens, ignore_eos=True)
    engine = Engine(language, settings.concurrency)

    def policy() -> TimedModel:
        return TimedModel(ModelPolicy(engine, sampling), recorder.said)

    def run(some: Sequence[Attempt], own: TimedModel, workers: bool = False) -> list[Episode]:
        made = choice.episode_maker() if workers else choice.maker()
        return play(made, some, own, dialogue, chat, 0, "<answer>", concurrency=settings.concurrency)

    def synchronous(own: TimedModel) -> list[Episode]:
        size = settings.concurrency
        return [e for first in range(0, len(planned), size) for e in run(planned[first : first + size], own)]

    loops = [Loop("synchronous", synchronous, policy), Loop("continuous", lambda own: run(planned, own), policy)]
    if settings.workers:
        name = f"continuous, worlds in workers ({settings.workers})"
        loops.append(Loop(name, lambda own: run(planned, own, workers=True), policy))
    contestants = [Contestant(loop.name, loop.go) for loop in loops]
    take_turns("rollouts", contestants, settings.rounds)
    return [table(settings, language, [len(e.rewards) for e in shown], loops, contestants)]


def agent(model: str | None, shown: Sequence[Episode]) -> LanguageModel:
    """The model in the loop; `tiny` is made, with a tokenizer of the pages that were shown, and not trained."""
    if model not in (None, "tiny"):
        return languages.load(ModelSettings(name=str(model)))
    texts = [text for e in shown for turn in e.info["turns"] for text in (turn["message"], turn["reply"])]
    texts += [languages.ROLES] * 50
    return languages.create_tiny(TINY, texts, 0, list(TAG_TOKENS), "after")


def table(
    settings: RolloutBenchSettings,
    language: LanguageModel,
    lengths: Sequence[int],
    loops: Sequence[Loop],
    contestants: Sequence[Contestant],
) -> Table:
    found = Table(
        f"Web rollouts: {settings.episodes} episodes of {language.name}, {settings.concurrency} at a time",
        ["loop", "seconds", "steps/s", "sampler busy, % of time", "rows of a call", "times the synchronous steps/s"],
        note=(
            f"Text browser; episodes of {min(lengths)} to {max(lengths)} steps, on average {mean(lengths):.1f}; "
            f"replies of {settings.new_tokens} tokens. Medians of {settings.rounds} rounds in which all took turns; in "
            "brackets the smallest and the largest. A row of a call is one episode's turn."
        ),
    )
    plain = contestants[0].seconds
    for loop, done in zip(loops, contestants, strict=True):
        if loop.broken:
            found.add(f"{loop.name}: {loop.broken}", None, None, None, None, None)
            continue
        rounds = done.seconds
        busy = [100 * share for share in loop.busy[-len(rounds) :]]
        found.add(
            loop.name,
            median_and_range(rounds),
            median_and_range([loop.steps / seconds for seconds in rounds]),
            median_and_range(busy),
            Cell(median(loop.filled)),
            median_and_range([theirs / own for theirs, own in zip(plain, rounds, strict=True)]),
        )
    return found
