"""How right a predicted next state is, soundly: everything that differs from the truth counts.

Both the truth and the prediction are written as edits of the present state (`worlds.textgame.state.edits`). The answer
is exact when the two sets of edits are equal: created, removed, renamed and retyped objects, invented keys and objects
and the score all count. The shaped reward is the overlap of the two sets, so it pays only for changes that happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.textgame.parse import Prediction, Unreadable, only_object
from oneiro.worlds.textgame.state import (
    Kind,
    Object,
    Place,
    Score,
    State,
    Transition,
    by_uuid,
    edits,
    same,
    score_edits,
)

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
        # Removing what is not there leaves no trace in the state, yet it is a false claim.
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
        # A right place with a wrong value is in both sets and counts twice here: it is missed and invented at once.
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
    truth = step.truth()
    if isinstance(answer, Malformed):
        # Not also missed: a table of kinds should say that the form was the trouble.
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


# The published scorer -------------------------------------------------------------------------------------------------

# For numbers that can be laid beside the paper's (RLVR-World, text games), not for training.
#
# It differs from the strict one on purpose: objects an answer creates are thrown away, so a step that creates one can
# never be answered; objects that should vanish, invented objects and keys, names and types are never looked at; true
# counts as 1; what is removed must stand in a list. The answer is the only object of its text, whatever prose is around
# it: there two of them, or one in a list, are a list and no answer. The task-specific reward is 0 for an invented
# property of an object and otherwise `0.09 items + 0.01 score + 0.2 exact + changed keys`. Where the original hands
# broken JSON to a repair library, this one uses the bounded reader of this package: the library takes seconds for some
# texts of a few thousand characters, and what it makes of broken text differs from version to version.


MARKERS = ("The final answer is:", "The final state is:", "The final game state is:")
FENCE = "```json"
MAX_TASK_REWARD = 1.3


@dataclass(frozen=True, slots=True)
class OfficialScore:
    """The published figures of one answer."""

    items: float = 0.0
    """Properties and contents that are right, of all those of the true next state."""
    score: float = 0.0
    """Entries of the score that are right, of three."""
    changed: float | None = None
    """Changed properties and contents that are right; None where nothing of that sort changes."""
    void: bool = False
    """The task-specific reward is 0 whatever else is right."""

    @property
    def exact(self) -> bool:
        return self.items == 1 and self.score == 1

    @property
    def task_specific(self) -> float:
        """In 0..0.3 where nothing changes, in 0..1.3 where something does."""
        if self.void:
            return 0.0
        return 0.09 * self.items + 0.01 * self.score + 0.2 * self.exact + (self.changed or 0.0)


def official_score(text: str, truth: Transition) -> OfficialScore:
    """Score an answer to a full transition in the difference form as the published code does."""
    try:
        answer = _read(text)
        if answer is None:
            return OfficialScore()
        predicted, score = _rebuild(truth, answer)
        return _compare(truth, predicted, score)
    except (TypeError, KeyError, AttributeError, ValueError):
        # The published scorer turns every exception into no reward; an answer of odd types raises some here as well.
        return OfficialScore()


def official_score_of(prediction: Prediction | Malformed, truth: Transition) -> OfficialScore:
    """The same figures for a next state that was told in another form, as if it had been told as a difference."""
    if isinstance(prediction, Malformed):
        return OfficialScore()
    present = by_uuid(truth.state)
    predicted = {uuid: thing for uuid, thing in by_uuid(prediction.state).items() if uuid in present}
    return _compare(truth, predicted, prediction.score or {})


def _read(text: str) -> dict[str, Any] | None:
    """The answer's object, or None where it lacks the two keys. Words are replaced everywhere, also inside names."""
    part = _answer_part(text)
    for word, json_word in (("True", "true"), ("False", "false"), ("None", "null")):
        part = part.replace(word, json_word)  # as the published code does, names like "Trueman" included
    try:
        answer = only_object(part)
    except Unreadable:
        return None
    return answer if answer is not None and "modified" in answer and "removed" in answer else None


def _answer_part(text: str) -> str:
    """What follows the last marker, by a fixed order of markers; else the last fenced block; else everything."""
    for marker in MARKERS:
        for form in (marker, marker[0].lower() + marker[1:]):
            if form in text:
                return text.rpartition(form)[2]
    block = text
    start = text.find(FENCE)
    while start >= 0 and (end := text.find("```", start + len(FENCE))) >= 0:
        block = text[start + len(FENCE) : end].strip()
        start = text.find(FENCE, end + 3)
    return block if len(block) >= 10 else text


def _rebuild(truth: Transition, answer: dict[str, Any]) -> tuple[dict[int, Object], dict[str, Any]]:
    """The predicted objects, only those that exist now, and the predicted score."""
    modified = {}
    for entry in answer["modified"] if isinstance(answer["modified"], list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("uuid"), int | float):
            modified[entry["uuid"]] = entry
    removed = answer["removed"] if isinstance(answer["removed"], list) else []
    kept = {uuid: modified.get(uuid, thing) for uuid, thing in by_uuid(truth.state).items() if uuid not in removed}
    score = answer.get("score", {"absent": True})
    if not score or not isinstance(score, dict | list | str):
        return kept, truth.score
    if not isinstance(score, dict):
        if "uuid" in score or "score" in score:
            raise TypeError("a score that is no object")
        return kept, {}
    if "uuid" in score:
        return {**kept, score["uuid"]: score}, {}  # it passes for an object
    return kept, score if "score" in score else {}


def _compare(truth: Transition, predicted: dict[int, Object], score: dict[str, Any]) -> OfficialScore:
    before = by_uuid(truth.state)
    pairs = [(thing, predicted.get(thing["uuid"])) for thing in truth.after]
    items = [hit for thing, answer in pairs for hit in _items(thing, answer)]
    hits = sum(key in score and score[key] == value for key, value in truth.score_after.items())
    partial = OfficialScore(sum(items) / len(items), hits / len(truth.score_after))
    try:
        changed, void = _changes(before, pairs)
    except (TypeError, KeyError):
        return partial  # properties of an odd type end the comparison of changed keys and nothing else
    return replace(partial, changed=sum(changed) / len(changed) if changed else None, void=void)


def _changes(before: dict[int, Object], pairs: Sequence[tuple[Object, Object | None]]) -> tuple[list[bool], bool]:
    """Right or wrong for each change of an object that stays, and whether a property is invented."""
    changed: list[bool] = []
    void = False
    for thing, answer in pairs:
        old = before.get(thing["uuid"])
        if old is not None and answer is not None:
            known = {**old["properties"], **thing["properties"]}
            void |= any(key not in known for key in answer["properties"])
            changed += _score_changes(old, thing, answer)
    return changed, void


def _items(thing: Object, answer: Object | None) -> Iterator[bool]:
    """Right or wrong, for each property of a true object and for its contents; one wrong for a missing object."""
    if answer is None:
        yield False
        return
    if "properties" in answer:
        properties = answer["properties"]
        yield from (key in properties and properties[key] == value for key, value in thing["properties"].items())
    else:
        yield False
    yield "contains" in answer and sorted(thing["contains"]) == sorted(answer["contains"])


def _score_changes(old: Object, thing: Object, answer: Object) -> Iterator[bool]:
    """Right or wrong, for each property that changes and for changed contents.

    A property that should vanish counts only where the answer keeps it, and then as wrong.
    """
    before, after, claimed = old["properties"], thing["properties"], answer["properties"]
    for key in before.keys() | after.keys():
        if key in after and (key not in before or before[key] != after[key]):
            yield key in claimed and claimed[key] == after[key]
        elif key not in after and key in claimed:
            yield False
    if sorted(old["contains"]) != sorted(thing["contains"]):
        yield sorted(thing["contains"]) == sorted(answer.get("contains", []))
