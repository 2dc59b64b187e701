"""From sampled answers to episodes, for tasks that a language model answers in text: one question, one answer, one
verified reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from oneiro.episode import Episode, FinishReason, Row, Tokens, given
from oneiro.runtime.clock import spent
from oneiro.sampling.engine import Sample
from oneiro.tasks.answering import AnsweringModel
from oneiro.tasks.base import Reward

CaseT = TypeVar("CaseT")


@dataclass(frozen=True)
class Judged:
    """An answer with what it earned."""

    task: str
    """Which case was asked about."""
    world: str
    turn: dict[str, Any]
    """What records and viewers show."""
    reward: Reward
    success: bool
    info: dict[str, Any]
    """What the means of a step are made of."""


def play(
    model: AnsweringModel[Any, CaseT],
    cases: Sequence[CaseT],
    group_size: int,
    seed: int,
    judge: Callable[[CaseT, str], Judged],
) -> list[Episode]:
    """`group_size` sampled answers to each case, one episode each; a case is a group."""
    samples = model.sample(cases, group_size, seed)
    with spent("scoring"):
        return [
            episode(judge(case, model.text(sample)), sample, model.prompt(case), group, member)
            for group, (case, answers) in enumerate(zip(cases, samples, strict=True))
            for member, sample in enumerate(answers)
        ]


def episode(judged: Judged, sample: Sample, prompt: Tokens, group: int = 0, member: int = 0) -> Episode:
    """The episode of one answer: its prompt was given, its tokens were sampled."""
    return Episode(
        rows=[Row([given(prompt), *sample.segments(turn=1)])],
        rewards=[judged.reward.value],
        terms={name: [value] for name, value in judged.reward.terms.items()},
        success=judged.success,
        finish_reason=FinishReason.LENGTH if sample.finish_reason is FinishReason.LENGTH else FinishReason.TURNS,
        member=member,
        group=group,
        task=judged.task,
        world=judged.world,
        info={"turns": [judged.turn], **judged.info},
    )
