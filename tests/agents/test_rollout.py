from __future__ import annotations

import functools
import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pytest import MonkeyPatch

from oneiro import worlds
from oneiro.agents.evaluate import BANDS, lengths_row, measure
from oneiro.agents.game import Game
from oneiro.agents.policies import ExplorationPolicy, ModelPolicy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import write
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, FinishReason, Sample, Segment, describe_errors
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.episodes import record
from oneiro.runtime.collector import NEW_OBJECTS
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.worlds.base import World
from oneiro.worlds.baselines import mixture
from oneiro.worlds.grid.frozen_lake.world import FrozenLake
from tests.conftest import make_tiny
from tests.ranks import on_every_rank


def lake() -> World:
    return worlds.make("frozen-lake", view="spaced")


BRIEF = DialogueSettings(context="single", brief=True, max_turns=10, actions_per_turn=1)


class Fixed:
    """Says what it is told to."""

    def __init__(self, text: str, finish_reason: FinishReason = FinishReason.TOKEN) -> None:
        self.text, self.finish_reason = text, finish_reason

    def answer(self, turns: list[Game], seed: int) -> list[Sample]:
        return [Sample.of_text(self.text, self.finish_reason) for _ in turns]


def test_the_oracle_reaches_every_goal_and_random_play_does_not() -> None:
    best = play(lake, attempts(40, 1, "eval", 0), ScriptedPolicy(mixture(1.0)), BRIEF)
    assert all(e.success and e.finish_reason is FinishReason.GOAL and e.score == 1 for e in best)
    chance = play(lake, attempts(40, 2, "eval", 0), ScriptedPolicy(mixture(0.0)), BRIEF)
    assert 0.05 < np.mean([e.success for e in chance]) < 0.5


def test_while_it_plays_the_garbage_collector_looks_rarely() -> None:
    thresholds = set[tuple[int, int, int]]()

    class Looking(Fixed):
        def answer(self, turns: list[Game], seed: int) -> list[Sample]:
            thresholds.add(gc.get_threshold())
            return super().answer(turns, seed)

    before = gc.get_threshold()
    play(lake, attempts(1, 1, "train", 0), Looking("jump!"), BRIEF)
    assert thresholds == {(NEW_OBJECTS, *before[1:])} and gc.get_threshold() == before


def test_a_malformed_reply_costs_the_penalty_and_nothing_happens() -> None:
    (episode,) = play(lake, attempts(1, 1, "train", 0), Fixed("jump!"), BRIEF)
    assert episode.rewards == [-0.1] * 10 and episode.terms["world"] == [0.0] * 10
    assert episode.finish_reason is FinishReason.TURNS and not episode.success
    assert {t["state"] for t in episode.info["turns"]} == {t["next_state"] for t in episode.info["turns"]}


def test_success_counts_where_the_world_goes_on_after_it() -> None:
    """2048 does not end at its target, and turns may run out before actions do."""
    make = lambda: worlds.make("2048:3x3", target=8)  # noqa: E731
    settings = DialogueSettings(max_turns=20, actions_per_turn=1, think=False, world_model=False)
    played = play(make, attempts(4, 1, "eval", 0), ScriptedPolicy(mixture(1.0), (1, 1), False, False), settings)
    assert [(episode.success, episode.finish_reason) for episode in played] == [(True, FinishReason.TURNS)] * 4


def test_an_unknown_action_is_penalised_but_played_through() -> None:
    (episode,) = play(lake, attempts(1, 1, "train", 0), Fixed(write(["Fly"], "?", "?")), BRIEF)
    assert all(r == pytest.approx(-0.1) for r in episode.rewards)
    assert episode.finish_reason is FinishReason.BUDGET


def test_a_server_error_ends_the_episode_as_an_error() -> None:
    (episode,) = play(lake, attempts(1, 1, "train", 0), Fixed("", FinishReason.ERROR), BRIEF)
    assert episode.finish_reason is FinishReason.ERROR and episode.rewards == []


def test_states_described_exactly_earn_the_world_model_reward() -> None:
    world = lake()
    state, _ = world.reset(seed=0, options={"split": "train", "member": 0})
    settings = BRIEF.model_copy(update={"state_reward": 0.5, "max_turns": 1})
    (episode,) = play(lake, attempts(1, 1, "train", 0), Fixed(write(["Fly"], state, state)), settings)
    assert episode.terms["states"] == [1.0]
    strict = BRIEF.model_copy(update={"state_penalty": 0.25, "max_turns": 1})
    (episode,) = play(lake, attempts(1, 1, "train", 0), Fixed(write(["Fly"], state, "elsewhere")), strict)
    assert episode.terms["states"] == [-0.25]


@pytest.mark.parametrize("context", ["full", "window", "single"])
def test_tokens_are_never_made_again(tiny: LanguageModel, context: str) -> None:
    """Every row reads as the dialogue it came from, and its sampled tokens are the sampled ones."""
    settings = DialogueSettings(context=context, max_turns=3, actions_per_turn=2)  # type: ignore[arg-type]
    chat = ChatFormat(tiny.tokenizer)
    policy = ModelPolicy(Engine(tiny, 8), SamplingSettings(max_tokens=12))
    episodes = play(lake, attempts(2, 2, "train", 3), policy, settings, chat, seed=1, response_prefix="<think>")
    for episode in episodes:
        assert len(episode.rows) == (1 if context == "full" else 3)
        text = "".join(tiny.decode(row.tokens) for row in episode.rows)
        for number, turn in enumerate(episode.info["turns"], start=1):
            assert f"Turn {number}:" in text and turn["reply"] in text
        said = [tiny.decode(s.tokens[: -1 if s.tokens[-1] == chat.end else None]) for s in sampled_segments(episode)]
        assert said == [turn["reply"].removeprefix("<think>") for turn in episode.info["turns"]]
        for row in episode.rows:
            assert tiny.tokenizer.convert_ids_to_tokens([int(row.tokens[0])]) == ["<|im_start|>"]
    again = play(lake, attempts(2, 2, "train", 3), policy, settings, chat, seed=1, response_prefix="<think>")
    for a, b in zip(episodes, again, strict=True):
        assert all((x.tokens == y.tokens).all() for x, y in zip(a.rows, b.rows, strict=True))


def sampled_segments(episode: Episode) -> list[Segment]:
    return [segment for row in episode.rows for segment in row.segments if segment.sampled]


def test_a_growing_dialogue_is_what_the_template_would_render(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    messages = [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "world"},
        {"role": "user", "content": "hello 2"},
    ]
    rendered = tiny.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    reply = [*tiny.encode("world"), chat.end]
    grown = [*chat.opening("hello", "be good"), *reply, *chat.next_user("hello 2", ended=True)]
    assert tiny.decode(grown) == rendered
    cut = [*chat.opening("hello", "be good"), *reply[:-1], *chat.next_user("hello 2", ended=False)]
    assert cut == grown


def test_a_template_that_drops_old_thoughts_starts_new_rows(tiny: LanguageModel) -> None:
    tiny.tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    chat = ChatFormat(tiny.tokenizer)
    assert chat.rewrites
    policy = ModelPolicy(Engine(tiny, 8), SamplingSettings(max_tokens=5))
    (episode,) = play(lake, attempts(1, 1, "train", 3), policy, DialogueSettings(max_turns=3), chat)
    assert len(episode.rows) == 3
    assert all(row.sampled.sum() > 0 for row in episode.rows)


def test_measures_count_turns_within_levels() -> None:
    def turn(observed: str, effective: bool) -> dict:
        step = {"action": "Up", "valid": True, "effective": effective}
        return {"actions": [step], "observation": observed, "state": "a", "prediction": None, "next_state": "b"}

    episodes = [
        Episode([], success=True, group=0, info={"turns": [turn("a", True), turn("x", True)]}),
        Episode([], success=False, group=0, info={"turns": []}),
        Episode([], success=False, group=1, info={"turns": [turn("a", False)]}),
        Episode([], success=False, group=1, info={"turns": []}),
    ]
    found = measure(episodes, 2)
    assert found["success"].value == 0.25 and found["pass@k"].value == 0.5
    assert found["observation"].value == 0.75 and found["effective"].value == 0.5
    assert found["prediction"].value is None and found["malformed"].value == 0


def test_success_is_told_by_the_length_of_the_shortest_solution() -> None:
    def episode(group: int, optimum: int | None, success: bool) -> Episode:
        return Episode([], success=success, group=group, info={"turns": [], "optimum": optimum})

    episodes = [
        episode(0, 2, True),
        episode(0, 2, False),
        episode(1, 1, True),
        episode(1, 1, True),
        episode(2, 40, False),
    ]
    row = lengths_row("someone", episodes)
    assert row is not None and len(row) == 1 + len(BANDS)
    name, *cells = row
    assert name == "someone" and [cell.value for cell in cells] == [0.75, None, None, None, None, 0.0]
    assert cells[0].n == 2  # levels
    assert lengths_row("someone", [episode(0, None, True)]) is None


# Worlds that raise ----------------------------------------------------------------------------------------------------


class Fragile:
    """A lake that raises at one of its levels, in the method named; counts what is open."""

    open = 0

    def __init__(self, where: str, seed: int) -> None:
        self.__dict__.update(world=lake(), where=where, bad=seed, now=None)
        if where == "make" and seed < 0:
            raise RuntimeError("broken\nin two lines")
        Fragile.open += 1

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def _break(self, where: str) -> None:
        if where == self.where and self.now == self.bad:
            raise RuntimeError("broken\nin two lines")

    def reset(self, *, seed: int, options: dict[str, Any]) -> Any:
        self.now = seed
        self._break("reset")
        return self.world.reset(seed=seed, options=options)

    def step(self, action: str) -> Any:
        self._break("step")
        return self.world.step(action)

    def render(self, view: str | None = None) -> str:
        return self.world.render(view)

    def close(self) -> None:
        Fragile.open -= 1
        self._break("close")


@pytest.mark.parametrize("where", ["reset", "step", "close"])
def test_a_world_that_raises_costs_its_own_episode_and_every_world_is_closed(where: str) -> None:
    Fragile.open = 0
    policy = Fixed(write(["Right"], "a", "b"))
    episodes = play(lambda: Fragile(where, 1), attempts(3, 1, "train", 0), policy, BRIEF)  # type: ignore[arg-type]
    assert Fragile.open == 0
    broken = [episode.seed for episode in episodes if episode.finish_reason is FinishReason.ERROR]
    assert broken == ([] if where == "close" else [1])
    whole = play(lake, attempts(3, 1, "train", 0), policy, BRIEF)
    assert [record(e) for e in episodes if e.seed != 1] == [record(e) for e in whole if e.seed != 1]
    if where != "close":
        assert describe_errors(episodes) == "1 of 3 episodes lost to errors: RuntimeError: broken"
        assert record(episodes[1])["error"] == "RuntimeError: broken" and describe_errors(whole) is None


def test_a_text_that_cannot_be_encoded_costs_its_own_episode(tiny: LanguageModel, monkeypatch: MonkeyPatch) -> None:
    reset = FrozenLake.reset

    def broken(world: FrozenLake, *, seed: int, options: dict[str, Any]) -> Any:
        state, info = reset(world, seed=seed, options=options)
        return state + "\ud83d" * (seed == 1), info

    monkeypatch.setattr(FrozenLake, "reset", broken)
    chat = ChatFormat(tiny.tokenizer)
    episodes = play(lake, attempts(3, 1, "train", 0), Fixed(write(["Right"], "a", "b")), BRIEF, chat)
    assert [e.seed for e in episodes if e.finish_reason is FinishReason.ERROR] == [1]


def test_a_world_that_never_works_is_one_line_and_a_policy_that_raises_leaves_nothing_open() -> None:
    Fragile.open = 0
    with pytest.raises(OneiroError, match=r"raised in all of its episodes.*RuntimeError: broken"):
        play(lambda: Fragile("make", -1), attempts(3, 1, "train", 0), Fixed("x"), BRIEF)  # type: ignore[arg-type, return-value]

    class Raising:
        def answer(self, turns: list[Game], seed: int) -> list[Sample]:
            raise ValueError("no answer")

    with pytest.raises(ValueError, match="no answer"):
        play(lambda: Fragile("", 1), attempts(3, 1, "train", 0), Raising(), BRIEF)  # type: ignore[arg-type, return-value]
    assert Fragile.open == 0


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}{{ messages[0].content }}",
        "{{ messages | attr('__init__') | attr('__globals__') }}",
        "{% for m in messages %}{{ raise_exception('never') }}{% endfor %}",
        "{% for m in messages %}",
        "{{ messages[7].content.x }}",
        "{{ 1 / 0 }}",
    ],
)
def test_a_chat_template_that_cannot_be_used_is_one_line(tiny: LanguageModel, template: str) -> None:
    tiny.tokenizer.chat_template = template
    with pytest.raises(OneiroError, match=r"set another model\.chat_template") as caught:
        ChatFormat(tiny.tokenizer)
    assert "\n" not in str(caught.value)


def test_a_dialogue_that_outgrows_the_model_ends_with_the_turn_before(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    settings = DialogueSettings(max_turns=6, world_model=False)
    policy = ModelPolicy(Engine(tiny, 4), SamplingSettings(max_tokens=10, ignore_eos=True))
    (whole,) = play(lake, attempts(1, 1, "train", 0), policy, settings, chat)
    first = [int((whole.rows[0].turns <= turn).sum()) for turn in (1, 2, 3)]
    tiny.backbone.most_positions = first[2] - 1  # the third turn does not fit
    (cut,) = play(lake, attempts(1, 1, "train", 0), policy, settings, chat)
    assert cut.finish_reason is FinishReason.LENGTH and len(cut.rewards) == 2
    np.testing.assert_array_equal(cut.rows[0].tokens, whole.rows[0].tokens[: first[1]])
    tiny.backbone.most_positions = 20  # nothing fits: a mistake that a person can mend
    with pytest.raises(OneiroError, match="do not fit into the 20 positions"):
        play(lake, attempts(1, 1, "train", 0), policy, settings, chat)


class Waiting(FrozenLake):
    """A lake that waits for something elsewhere, so that the policy answers in a thread of its own."""

    waits = True


def play_share(make: Callable[[], World]) -> tuple[list[Any], int, int]:
    """The episodes, the worlds that were made for them here, and how far the progress came."""
    made, advanced, tiny = [], [], make_tiny()
    settings = DialogueSettings(context="full", max_turns=3, actions_per_turn=2)
    policy = ModelPolicy(Engine(tiny, 8), SamplingSettings(max_tokens=12))

    def counted() -> World:
        made.append(1)
        return make()

    planned = attempts(3, 2, "train", 3)
    played = play(counted, planned, policy, settings, ChatFormat(tiny.tokenizer), 1, advance=advanced.append)
    tokens = [[row.tokens.tolist() for row in episode.rows] for episode in played]
    episodes = [(e.seed, e.member, e.group, e.rewards, own) for e, own in zip(played, tokens, strict=True)]
    return episodes, sum(made), sum(advanced)


@pytest.mark.parametrize(("make", "method"), [(lake, "fork"), (Waiting, "forkserver")])
def test_each_rank_plays_its_share_and_has_the_episodes_of_all(make: Callable[[], World], method: str) -> None:
    whole, made, advanced = play_share(make)
    assert (made, advanced) == (6, 6)
    assert on_every_rank(2, functools.partial(play_share, make), method) == [(whole, 3, 6)] * 2


def test_every_rank_plays_all_where_the_policy_remembers() -> None:
    def work() -> tuple[list[float], dict[str, Any]]:
        policy = ExplorationPolicy()
        episodes = play(lake, attempts(3, 2, "train", 0), policy, BRIEF)
        return [episode.score for episode in episodes], policy.explorer.leads

    assert on_every_rank(2, work) == [work()] * 2


def test_a_share_may_be_lost_but_not_all() -> None:
    class Broken(FrozenLake):
        """Its first levels raise."""

        def reset(self, **given: Any) -> tuple[str, dict[str, Any]]:
            if given["seed"] < broken:
                raise RuntimeError("broken")
            return super().reset(**given)

    def work() -> list[str]:
        episodes = play(Broken, attempts(4, 1, "train", 0), ScriptedPolicy(mixture(1.0)), BRIEF)
        return [str(episode.finish_reason) for episode in episodes]

    broken = 2  # all of the first rank's share
    assert [reason == FinishReason.ERROR for reason in on_every_rank(2, work)[1]] == [True, True, False, False]
    broken = 4

    def refused() -> str:
        with pytest.raises(OneiroError) as error:
            work()
        return str(error.value)

    for words in on_every_rank(2, refused):
        assert "raised in all of its episodes" in words
