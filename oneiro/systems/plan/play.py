"""Random play: where a world model's data comes from, and what it can be learned as."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from oneiro.agents.prompts import DialogueSettings
from oneiro.episode import FinishReason, Row
from oneiro.models.chat import ChatFormat
from oneiro.runtime import seeds
from oneiro.tasks.grid.predictor import GridTransition
from oneiro.tasks.grid.world import understood
from oneiro.worlds.base import World

POLICY_DIALOGUE = DialogueSettings(
    context="single", brief=True, think=False, world_model=False, max_turns=10, actions_per_turn=1
)
"""How small policies without thoughts are asked: the state alone; the answer is an action."""


def random_play(world: World, level_seeds: Iterable[int], split: str, seed: int) -> Iterator[dict[str, Any]]:
    """Episodes of uniformly random actions, in the form of recorded episodes."""
    for level in level_seeds:
        state, info = world.reset(seed=level, options={"split": split})
        rng, turns, ended = seeds.generator(seed, "random play", level), [], False
        while not ended:
            action = world.random_action(rng)
            after, reward, terminated, truncated, step = world.step(action)
            turns.append({"state": state, "actions": [action], "next_state": after, "reward": reward})
            state, ended = after, terminated or truncated
        success = bool(step["success"])
        reason = FinishReason.GOAL if success else FinishReason.FAILED if terminated else FinishReason.BUDGET
        yield {
            "world": world.name,
            "task": info["key"],
            "seed": level,
            "success": success,
            "score": sum(turn["reward"] for turn in turns),
            "finish_reason": str(reason),
            "turns": turns,
        }


def transitions(records: Iterable[dict[str, Any]]) -> list[GridTransition]:
    """Every distinct step of one action that the lake understands, in the order of first appearance."""
    steps = (
        GridTransition(turn["state"], word, turn["next_state"])
        for record in records
        for turn in record["turns"]
        if len(turn["actions"]) == 1 and (word := understood(turn["actions"][0])) is not None
    )
    return list(dict.fromkeys(steps))


def steps_in(records: Sequence[dict[str, Any]]) -> int:
    """Actions taken in the true world."""
    return sum(len(record["turns"]) for record in records)


def policy_row(chat: ChatFormat, state: str, action: str) -> Row:
    """A state, and the action to be learned in it."""
    return chat.answered(chat.opening(state), f"<answer>{action}</answer>")
