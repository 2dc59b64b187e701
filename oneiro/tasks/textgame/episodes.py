"""What a predicted next state earned, and what a step's answers were like."""

from __future__ import annotations

import json
from collections.abc import Sequence

from oneiro.episode import Episode, FinishReason
from oneiro.tasks.answers import Judged
from oneiro.tasks.base import Malformed
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.textgame.score import question
from oneiro.worlds.textgame.state import Score, State, Transition


def judged(task: TextGamePredictor, case: Transition, text: str) -> Judged:
    """One answer with what it earned. Success is exactness, whatever the reward is."""
    reward, told = task.reward(text, case), task.parse(text, case)
    asked = question(case, task.config.transition)
    after = None if isinstance(told, Malformed) else written(told.state, told.score)
    turn = {
        "state": written(asked.before, asked.score_before),
        "actions": [{"action": case.action}],
        "reply": text,
        "prediction": after,
        "next_state": written(asked.after, asked.score_after),
        "reward": reward.value,
    }
    return Judged(
        task=case.id,
        world=f"text game {case.game}",
        turn=turn,
        reward=reward,
        success=task.exact(text, case),
        info={"changed": task.changes(case), "malformed": after is None},
    )


def written(state: State, score: Score | None) -> str:
    """A state for reading: one object a line, in the order of their uuids, so that two states can be laid side by
    side.
    """
    things = sorted(state, key=lambda thing: thing["uuid"])
    shown = [{**thing, "contains": sorted(thing.get("contains", []))} for thing in things]
    return "\n".join(json.dumps(line) for line in [*shown, *([score] if score is not None else [])])


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a step's answers were like: exact on steps that change something, on those that do not, and unreadable."""
    parts = {
        "success_changed": [e.success for e in episodes if e.info["changed"]],
        "success_unchanged": [e.success for e in episodes if not e.info["changed"]],
        "malformed": [e.info["malformed"] for e in episodes],
        "truncated": [e.finish_reason is FinishReason.LENGTH for e in episodes],
    }
    return {name: sum(values) / len(values) for name, values in parts.items() if values}
