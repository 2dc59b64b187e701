"""Places that never stand empty: what is played together changes no episode."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from oneiro import worlds
from oneiro.agents.game import Attempt, Game
from oneiro.agents.policies import ModelPolicy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import MAX_FAILED_EPISODES, attempts, play
from oneiro.episode import Episode, FinishReason, Sample, describe_errors
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.episodes import record
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.worlds.base import Step, World, WorldLost
from oneiro.worlds.baselines import mixture
from oneiro.worlds.grid.frozen_lake.world import FrozenLake

PLAIN = DialogueSettings(context="single", brief=True, think=False, world_model=False, max_turns=8, actions_per_turn=2)


def lake() -> World:
    return worlds.make("frozen-lake", success_rate=0.7)


class Watching(ScriptedPolicy):
    """Half oracle, half random; notes how many turns it is asked at a time, and of which numbers."""

    def __init__(self, share: float = 0.5) -> None:
        super().__init__(mixture(share), (1, 2), False, False)
        self.sizes: list[int] = []
        self.numbers: list[set[int]] = []

    def answer_each(self, turns: Sequence[Game], seeds: Sequence[int]) -> list[Sample]:
        self.sizes.append(len(turns))
        self.numbers.append({turn.turn for turn in turns})
        return [self.answer([turn], seed)[0] for turn, seed in zip(turns, seeds, strict=True)]


def records(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    return [record(episode) for episode in episodes]


def filled(lengths: Sequence[int], places: int) -> list[int]:
    """How many turns are asked at a time, if each place takes the next episode when its own has ended."""
    coming, under_way, sizes = list(lengths), list[int](), list[int]()
    while coming or under_way:
        while coming and len(under_way) < places:
            under_way.append(coming.pop(0))
        sizes.append(len(under_way))
        under_way = [left - 1 for left in under_way if left > 1]
    return sizes


@pytest.mark.parametrize("places", [1, 3, 5, 40])
def test_a_place_takes_the_next_attempt_as_soon_as_its_episode_ends(places: int) -> None:
    planned = attempts(10, 2, "train", 0)
    whole, policy, ended = play(lake, planned, Watching(), PLAIN, seed=4), Watching(), list[int]()
    found = play(lake, planned, policy, PLAIN, seed=4, advance=ended.append, concurrency=places)
    assert records(found) == records(whole)
    lengths = [len(episode.rewards) for episode in whole]
    assert len(set(lengths)) > 2
    assert policy.sizes == filled(lengths, places)
    assert sum(ended) == 20 and len(ended) == len(policy.sizes)
    if places == 5:  # a turn of all at a time would leave places empty between batches of five
        waves = sum(max(lengths[i : i + 5]) for i in range(0, 20, 5))
        assert len(policy.sizes) < waves and any(len(numbers) > 1 for numbers in policy.numbers)


@pytest.mark.parametrize("context", ["full", "single"])
def test_a_model_says_the_same_whatever_is_played_beside_it(tiny: LanguageModel, context: str) -> None:
    settings = PLAIN.model_copy(update={"context": context, "max_turns": 3})
    policy, chat = ModelPolicy(Engine(tiny, 4), SamplingSettings(max_tokens=8)), ChatFormat(tiny.tokenizer)
    planned = attempts(3, 2, "train", 3)
    whole, *others = (
        play(lake, planned, policy, settings, chat, 1, "<answer>", concurrency=places) for places in (None, 1, 3)
    )
    replies = {turn["reply"] for episode in whole for turn in episode.info["turns"]}
    assert len(replies) == 18  # members of a group, turns and levels are drawn apart
    for other in others:
        assert records(other) == records(whole)
        for mine, theirs in zip(other, whole, strict=True):
            for a, b in zip(mine.rows, theirs.rows, strict=True):
                np.testing.assert_array_equal(a.tokens, b.tokens)
                for x, y in zip(a.segments, b.segments, strict=True):
                    if x.logprobs is not None and y.logprobs is not None:
                        np.testing.assert_allclose(x.logprobs, y.logprobs, atol=1e-5)
    again = play(lake, planned, policy, settings, chat, 2, "<answer>")
    assert records(again) != records(whole)


class Fragile(FrozenLake):
    """Raises at one level, at the start or at its second step."""

    bad, where = 2, "step"
    open = 0

    def __init__(self) -> None:
        super().__init__()
        type(self).open += 1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        if seed == self.bad and self.where == "reset":
            raise WorldLost("gone")
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> Step:
        if self.seed == self.bad and self.taken == 1:
            raise WorldLost("gone")
        return super().step(action)

    def close(self) -> None:
        type(self).open -= 1


@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_lost_world_costs_one_episode_and_its_place_goes_to_the_next(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fragile, "where", where)
    monkeypatch.setattr(Fragile, "open", 0)
    planned, most = attempts(7, 1, "train", 0), 0

    class Counting(Watching):
        def answer_each(self, turns: Sequence[Game], seeds: Sequence[int]) -> list[Sample]:
            nonlocal most
            most = max(most, Fragile.open)
            return super().answer_each(turns, seeds)

    found, ended = list[Episode](), list[int]()
    found = play(Fragile, planned, Counting(), PLAIN, advance=ended.append, concurrency=2)
    whole = play(FrozenLake, planned, Watching(), PLAIN)
    assert [episode.seed for episode in found if episode.finish_reason is FinishReason.ERROR] == [2]
    assert describe_errors(found) == "1 of 7 episodes lost to errors: WorldLost: gone"
    assert [r for r in records(found) if r["seed"] != 2] == [r for r in records(whole) if r["seed"] != 2]
    assert most == 2 and Fragile.open == 0 and sum(ended) == 7


def test_a_world_that_never_works_ends_the_rollout_early() -> None:
    made = 0

    class Broken(FrozenLake):
        def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
            nonlocal made
            made += 1
            raise RuntimeError("broken")

    with pytest.raises(OneiroError, match="raised in all of its episodes"):
        play(Broken, attempts(500, 1, "train", 0), Watching(), PLAIN, concurrency=4)
    assert MAX_FAILED_EPISODES <= made < MAX_FAILED_EPISODES + 4


def test_worlds_that_wait_are_stepped_while_the_policy_answers_the_other_half() -> None:
    """The second and the third answer end only after a world was stepped, which waits until they have begun."""
    began, stepped = ({number: threading.Event() for number in (1, 2)} for _ in range(2))
    answered, met, steppers = 0, list[bool](), set[str]()

    class Waiting(FrozenLake):
        """A lake that waits for something elsewhere."""

        waits = True

        def step(self, action: str) -> Step:
            steppers.add(threading.current_thread().name)
            if answered in began and not stepped[answered].is_set():
                met.append(began[answered].wait(60))
                stepped[answered].set()
            return super().step(action)

    class Blind:
        """Walks by the turn's number, without a look at the world."""

        reads_worlds = False

        def __init__(self, overlapped: bool) -> None:
            self.overlapped, self.sizes = overlapped, list[int]()

        def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
            nonlocal answered
            self.sizes.append(len(turns))
            if self.overlapped and answered in began:
                began[answered].set()
                met.append(stepped[answered].wait(60))
            answered += 1
            return [
                Sample.of_text(f"<answer>{('Right', 'Down')[(turn.turn + turn.seed) % 2]}</answer>") for turn in turns
            ]

        def answer_each(self, turns: Sequence[Game], seeds: Sequence[int]) -> list[Sample]:
            return self.answer(turns, seeds[0])

    planned = [Attempt(seed) for seed in range(12)]
    whole = play(FrozenLake, planned, Blind(overlapped=False), PLAIN)
    answered, policy = 0, Blind(overlapped=True)
    found = play(Waiting, planned, policy, PLAIN, concurrency=5)
    assert records(found) == records(whole)
    assert max(policy.sizes) == 3 and policy.sizes[:2] == [3, 2]
    assert steppers == {threading.current_thread().name}
    assert met == [True] * 4
