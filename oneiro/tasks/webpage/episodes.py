"""What a predicted change earned, and what a step's answers were like."""

from __future__ import annotations

from collections.abc import Sequence

from oneiro.episode import Episode, FinishReason
from oneiro.tasks.answers import Judged
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.state import PageTransition, shown


def judged(task: WebPagePredictor, case: PageTransition, text: str) -> Judged:
    """One answer with what it earned. Success is an exact answer."""
    reward, score = task.reward(text, case), task.judge(text, case)
    turn = {
        "state": "\n".join(map(str, shown(case, task.config.lines))),
        "actions": [{"action": case.action}],
        "reply": text,
        "prediction": text if score.flaw is None else None,
        "next_state": task.write(task.truth(case), case),
        "reward": reward.value,
    }
    return Judged(
        task=case.id,
        world=f"web page {case.site}",
        turn=turn,
        reward=reward,
        success=score.f1 == 1.0,
        info={"changed": task.changes(case), "malformed": score.flaw is not None, "figures": score.figures()},
    )


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a step's answers were like: F1 on steps that change the page and on those that do not, and precision and
    recall.
    """
    changed = [e.info["figures"] for e in episodes if e.info["changed"]]
    still = [e.info["figures"] for e in episodes if not e.info["changed"]]
    parts = {
        "f1_changed": [row["f1"] for row in changed],
        "precision_changed": [row["precision"] for row in changed],
        "recall_changed": [row["recall"] for row in changed],
        "f1_unchanged": [row["f1"] for row in still],
        "malformed": [float(e.info["malformed"]) for e in episodes],
        "truncated": [float(e.finish_reason is FinishReason.LENGTH) for e in episodes],
    }
    return {name: sum(values) / len(values) for name, values in parts.items() if values}
