"""How right a predicted next state is, soundly: everything that differs from the truth counts.

Both the truth and the prediction are written as edits of the present state (`worlds.textgame.state.edits`). The answer
is exact when the two sets of edits are equal: created, removed, renamed and retyped objects, invented keys and objects
and the score all count. The shaped reward is the overlap of the two sets, so it pays only for changes that happen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.textgame.parse import Prediction
from oneiro.worlds.textgame.state import Kind, Place, Score, State, Transition, edits, same, score_edits

EXACT_SHARE: Final = 0.5
"""The part of the shaped reward that only an exact answer gets."""
IMPOSSIBLE: Final = object()
"""What an answer claims where it takes away what is not there: never what happens."""


class Error(StrEnum):
    """What is wrong with an answer; one answer may show several kinds."""

    MISSED = "missed change"
    """Something changes, and the answer leaves it as it was."""
    INVENTED = "invented change"
    """Something stays, and the answer changes it."""
    VALUE = "wrong value"
    """Something changes, and the answer changes it to something else."""
    MALFORMED = "malformed"
    """There is no answer to compare."""


@dataclass(frozen=True, slots=True)
class AskedStep:
    """What one kind of transition asks: two states, and two scores where the score is asked for."""

    before: State
    after: State
    score_before: Score | None = None
    score_after: Score | None = None

    @property
    def scored(self) -> bool:
        return self.score_after is not None

    def truth(self) -> dict[Place, Any]:
        """The edits that really happen."""
        return edits(self.before, self.after) | self._scores(self.score_after)

    def edits_of(self, answer: Prediction) -> dict[Place, Any]:
        """The edits an answer claims. A score it leaves out counts as the claim that there is none."""
        claimed = edits(self.before, answer.state) | dict.fromkeys(answer.stray, IMPOSSIBLE)
        return claimed | self._scores(answer.score if answer.score is not None else {}) if self.scored else claimed

    def _scores(self, score: Score | None) -> dict[Place, Any]:
        return {} if self.score_before is None or score is None else score_edits(self.score_before, score)


def question(transition: Transition, kind: Kind) -> AskedStep:
    """The states and scores that a transition of this kind goes from and to."""
    return AskedStep(*transition.part(kind))


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """The comparison of one answer with the truth, counted in edits."""

    true: int
    claimed: int
    right: int
    errors: Mapping[Error, int]
    flaw: Flaw | None = None

    @property
    def exact(self) -> bool:
        return not self.errors

    @property
    def overlap(self) -> float:
        """Right edits over all edits, true or claimed (Jaccard); 1 where nothing changes and nothing is claimed."""
        if self.flaw is not None:
            return 0.0
        union = self.true + self.claimed - self.right
        return self.right / union if union else 1.0

    @property
    def shaped(self) -> float:
        """The shaped reward, in 0..1; 1 exactly for an exact answer.

        A change that is claimed and does not happen enlarges the union, a change that happens and is not claimed too,
        and a right place with a wrong value earns nothing. So on a step that changes something, "nothing changes" earns
        0, as does any answer that gets no true change right; on a step that changes nothing, every claim earns 0.
        """
        return EXACT_SHARE * self.exact + (1 - EXACT_SHARE) * self.overlap


def judge(step: AskedStep, answer: Prediction | Malformed) -> AnswerOutcome:
    """Compare an answer with the truth."""
    truth = step.truth()
    if isinstance(answer, Malformed):
        return AnswerOutcome(len(truth), 0, 0, {Error.MALFORMED: 1}, answer.flaw)
    claimed = step.edits_of(answer)
    shared = truth.keys() & claimed.keys()
    right = sum(same(truth[place], claimed[place]) for place in shared)
    counts = {
        Error.MISSED: len(truth) - len(shared),
        Error.INVENTED: len(claimed) - len(shared),
        Error.VALUE: len(shared) - right,
    }
    return AnswerOutcome(len(truth), len(claimed), right, {kind: count for kind, count in counts.items() if count})
