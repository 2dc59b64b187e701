"""What an agent is told and allowed: actions, turns, rewards shown or not, thoughts on or off, how much of the past."""

from __future__ import annotations

import pytest

from oneiro import worlds
from oneiro.agents.game import Game
from oneiro.agents.policies import ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.reply import write
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, FinishReason, Sample
from oneiro.worlds.base import World
from oneiro.worlds.baselines import mixture


def sudoku() -> World:
    return worlds.make("sudoku", view="spaced")


def lake() -> World:
    return worlds.make("frozen-lake", frozen_probability=1.0, size=8)


class Saying:
    """Says the same every turn and remembers what it was shown."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.shown: list[list[dict[str, str]]] = []

    def answer(self, turns: list[Game], seed: int) -> list[Sample]:
        self.shown += [[dict(message) for message in turn.messages] for turn in turns]
        return [Sample.of_text(self.text) for _ in turns]


def played(policy: Saying, **settings: object) -> Episode:
    (episode,) = play(lake, attempts(1, 1, "train", 3), policy, DialogueSettings(**settings))  # type: ignore[arg-type]
    return episode


PLAIN = write(["Left"] * 4)


def test_surplus_actions_of_a_turn_are_not_executed() -> None:
    episode = played(Saying(PLAIN), world_model=False, actions_per_turn=3, max_turns=1)
    assert len(episode.info["turns"][0]["actions"]) == 3 and episode.finish_reason is FinishReason.TURNS


def test_the_worlds_budget_ends_an_episode_before_its_turns_do() -> None:
    episode = played(Saying(PLAIN), world_model=False, actions_per_turn=4, max_turns=9)
    assert [len(turn["actions"]) for turn in episode.info["turns"]] == [
        4,
        4,
        2,
    ] and episode.finish_reason is FinishReason.BUDGET


def test_turns_run_out() -> None:
    episode = played(Saying(write(["Left"])), world_model=False, max_turns=4)
    assert len(episode.rewards) == 4 and episode.finish_reason is FinishReason.TURNS and not episode.success


@pytest.mark.parametrize("context", ["full", "window"])
def test_rewards_are_shown_only_if_asked_for(context: str) -> None:
    for show in (True, False):
        policy = Saying(write(["Left"]))
        played(policy, world_model=False, max_turns=3, context=context, show_reward=show)
        assert ("Reward: 0" in policy.shown[-1][-1]["content"]) == show


def test_contexts_differ_in_how_much_of_the_past_a_turn_shows() -> None:
    seen = {}
    for context in ("full", "window", "single"):
        policy = Saying(write(["Left"]))
        played(policy, world_model=False, max_turns=4, context=context, window=2)
        seen[context] = policy.shown[-1]
    assert [message["role"] for message in seen["full"]] == ["system", *["user", "assistant"] * 3, "user"]
    window, single = (seen[context][-1]["content"] for context in ("window", "single"))
    assert len(seen["window"]) == len(seen["single"]) == 2
    assert "Turn 1:" not in window and "Turn 2:" in window and "Turn 3:" in window and window.count("You answered") == 2
    assert "Turn 3:" not in single and "Turn 4:" in single and "You answered" not in single


def test_a_brief_window_shows_the_last_states_and_what_was_done_in_them() -> None:
    policy = Saying(write(["Left", "Down"]))
    episode = played(policy, world_model=False, max_turns=4, context="window", window=2, brief=True)
    states = [turn["state"] for turn in episode.info["turns"]]
    shown = [messages[-1]["content"] for messages in policy.shown]
    assert [len(messages) for messages in policy.shown] == [1] * 4  # no system message
    assert shown[0] == states[0]
    assert shown[1] == f"{states[0]}\nLeft || Down\n\n{states[1]}"
    assert shown[3] == f"{states[1]}\nLeft || Down\n\n{states[2]}\nLeft || Down\n\n{states[3]}"
    silent = Saying("no answer")
    played(silent, world_model=False, max_turns=2, context="window", brief=True)
    assert "\nnothing valid\n\n" in silent.shown[1][-1]["content"]
    single = Saying(write(["Left"]))
    played(single, world_model=False, max_turns=3, context="single", brief=True)
    assert "Left" not in single.shown[-1][-1]["content"]


@pytest.mark.parametrize("name", ["physics", "rulebook"])
@pytest.mark.parametrize("context", ["single", "full"])
def test_a_brief_prompt_begins_with_the_rules_of_its_level(name: str, context: str) -> None:
    def make() -> World:
        return worlds.make(name)

    policy, world = Saying(write(["?"])), make()
    settings = DialogueSettings(context=context, world_model=False, max_turns=2, brief=True)  # type: ignore[arg-type]
    for episode in play(make, attempts(2, 1, "train", 3), policy, settings):
        state, _ = world.reset(seed=episode.seed, options={"split": "train"})
        assert world.level_rules in world.instruction
        assert episode.info["turns"][0]["message"] == f"{world.level_rules}\n\n{state}"
    first, other, second = (messages[-1]["content"] for messages in policy.shown[:3])  # two levels, then the next turn
    rules = first.partition("\n\n")[0]
    assert not other.startswith(rules)
    assert second.startswith(rules) == (context == "single")  # a growing dialogue shows them once


def test_without_thoughts_the_answer_alone_is_the_demanded_form() -> None:
    policy = Saying("<answer>Left</answer>")
    assert played(policy, think=False, world_model=False, max_turns=2).rewards == [0.0, 0.0]
    assert "<think>" not in policy.shown[0][-1]["content"]
    assert played(policy, think=True, world_model=False, max_turns=1).rewards == [-0.1]


def test_a_scripted_player_plays_worlds_whose_actions_are_free_text() -> None:
    settings = DialogueSettings(context="single", brief=True, max_turns=25, actions_per_turn=1)
    best = play(sudoku, attempts(5, 1, "train", 0), ScriptedPolicy(mixture(1.0)), settings)
    assert all(episode.success for episode in best)
    for name in ("countdown", "webshop", "math", "bandit"):
        chance = play(
            lambda name=name: worlds.make(name), attempts(3, 1, "train", 0), ScriptedPolicy(mixture(0.0)), settings
        )
        assert all(step["valid"] for episode in chance for turn in episode.info["turns"] for step in turn["actions"])
