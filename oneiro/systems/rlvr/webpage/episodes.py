"""From sampled answers to episodes: one question, one answer, one verified reward."""

from __future__ import annotations

from collections.abc import Sequence

from oneiro.clock import spent
from oneiro.episode import Episode, FinishReason, Row, Tokens, given
from oneiro.predictors.webpage.model import WebPageModel
from oneiro.predictors.webpage.state import PageTransition, shown
from oneiro.predictors.webpage.task import WebPagePredictor
from oneiro.sampling.engine import Sample


def play(model: WebPageModel, cases: Sequence[PageTransition], group_size: int, seed: int) -> list[Episode]:
    """`group_size` sampled answers to each case, one episode each; a case is a group."""
    samples = model.sample(cases, group_size, seed)
    with spent("scoring"):
        return [
            episode(model.task, case, model.text(sample), sample, model.prompt(case), group, member)
            for group, (case, answers) in enumerate(zip(cases, samples, strict=True))
            for member, sample in enumerate(answers)
        ]


def episode(
    task: WebPagePredictor,
    case: PageTransition,
    text: str,
    sample: Sample,
    prompt: Tokens,
    group: int = 0,
    member: int = 0,
) -> Episode:
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
    return Episode(
        rows=[Row([given(prompt), *sample.segments(turn=1)])],
        rewards=[reward.value],
        terms={name: [value] for name, value in reward.terms.items()},
        success=score.f1 == 1.0,
        finish_reason=FinishReason.LENGTH if sample.finish_reason is FinishReason.LENGTH else FinishReason.TURNS,
        member=member,
        group=group,
        task=case.id,
        world=f"web page {case.site}",
        info={
            "turns": [turn],
            "changed": task.changes(case),
            "malformed": score.flaw is not None,
            "figures": score.figures(),
        },
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
