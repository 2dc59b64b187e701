"""From a model's text to the next state it predicts. Total and bounded; the reading itself is `textgame_reader`'s."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from oneiro.tasks.base import Flaw, Malformed
from oneiro.tasks.textgame.reader import MAX_CHARACTERS, MAX_DEPTH, Unreadable, find_object
from oneiro.worlds.textgame.state import Difference, Object, Place, Score, State, by_uuid, same

Output = Literal["difference", "edits", "full"]
"""What is asked for: the objects that change, only what changes of them, or the whole next state."""

MARKER = "The final answer is:"
_MARKERS = ("final answer is:", "final state is:", "final game state is:")
_THOUGHT_END = "</think>"
MAX_UUID = 10**18
MAX_OBJECTS = 256
"""Objects, or removed uuids, in one answer; a state has at most a few dozen."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted next state, rebuilt on the present one.

    `score` is None where the answer names none. `stray` are the places where it takes away what is not
    there, which no state can show.
    """

    state: State
    score: Score | None
    stray: tuple[Place, ...] = ()


def answer_part(text: str) -> tuple[str, bool]:
    """The part of a reply that should hold the answer, and whether a marker announced it.

    That is what follows the end of the model's thinking and the last marker. Only its first (with a marker) or last
    characters up to the limit are looked at.
    """
    text = text.rpartition(_THOUGHT_END)[2]
    ends = [place + len(marker) for marker in _MARKERS if (place := text.rfind(marker)) >= 0]
    return (text[max(ends) :][:MAX_CHARACTERS], True) if ends else (text[-MAX_CHARACTERS:], False)


def parse_difference(text: str, before: State, score_before: Score | None) -> Prediction | Malformed:
    """Read `{"modified": [...], "removed": [...], "score": {...}}` as a change of the state `before`.

    `score_before` is None where no score is asked for; an empty score means that it stays.
    """
    claims = _claims(text, "modified", score_before)
    if isinstance(claims, Malformed):
        return claims
    objects, removed, score = claims
    return _foretold(before, objects, removed, score_before if score == {} else score)


def parse_edits(text: str, before: State, score_before: Score | None) -> Prediction | Malformed:
    """Read `{"edited": [{"uuid": 3, "properties": {...}, ...}], "removed": [...], "score": {...}}`.

    An entry says what changes of its object: a new name or type, new values of properties, the properties it has
    `lost`, and the names that were `added` to its contents or `dropped` from them. An entry for a uuid that is not
    there makes the object. The score has the entries that change; as in the other forms, an answer that leaves it out
    where it is asked for has none. Whoever takes and gives the same thing at once is in conflict.
    """
    claims = _claims(text, "edited", score_before)
    if isinstance(claims, Malformed):
        return claims
    entries, removed, score = claims
    known, objects, stray = by_uuid(before), list[Object](), list[Place]()
    for entry in entries:
        edited = _apply_edit(entry, known.get(entry["uuid"], {}))
        if isinstance(edited, Malformed):
            return edited
        objects.append(edited[0])
        stray += edited[1]
    if score is not None and score_before is not None:
        score = {**score_before, **score}
    return _foretold(before, objects, removed, score, stray)


def _claims(text: str, key: str, score_before: Score | None) -> tuple[list[Object], Any, Score | None] | Malformed:
    """What both short forms have: the entries under `key`, what is removed, and the score where it is asked for."""
    answer = _find(text, key)
    if isinstance(answer, Malformed):
        return answer
    entries = _objects(answer[key])
    if isinstance(entries, Malformed):
        return entries
    score = _score(answer.get("score")) if score_before is not None else None
    return score if isinstance(score, Malformed) else (entries, answer.get("removed"), score)


def _apply_edit(entry: Object, thing: Object) -> tuple[Object, list[Place]] | Malformed:
    """An object as an entry leaves it, and the places where the entry takes away what is not there."""
    entry, uuid = dict(entry), entry["uuid"]
    lists = [entry.pop(key, []) for key in ("lost", "added", "dropped")]
    if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in lists):
        return Malformed(Flaw.SHAPE, f"object {uuid}: lost, added and dropped must list names")
    lost, added, dropped = (Counter[str](names) for names in lists)
    if lost.keys() & entry.get("properties", {}).keys() or added & dropped or ("contains" in entry and added | dropped):
        return Malformed(Flaw.CONFLICT, f"object {uuid} gets what it loses, or has its contents told twice")
    properties = thing.get("properties", {})
    contains = Counter[str](entry.get("contains", thing.get("contains", [])))
    stray: list[Place] = [(uuid, "contains", name) for name in dropped - contains]
    stray += [(uuid, "properties", key) for key in lost if key not in properties]
    kept = {key: value for key, value in properties.items() if key not in lost}
    inside = list((contains - dropped + added).elements())
    return {**thing, **entry, "properties": kept | entry.get("properties", {}), "contains": inside}, stray


def _foretold(
    before: State, objects: list[Object], removed: Any, score: Score | None, stray: Sequence[Place] = ()
) -> Prediction | Malformed:
    """The state with these objects as they are here and without the removed ones."""
    removed = [removed] if isinstance(removed, int) else removed
    if not isinstance(removed, list) or len(removed) > MAX_OBJECTS:
        return Malformed(Flaw.SHAPE, "removed must be a short list")
    gone = [_uuid(entry) for entry in removed]
    if None in gone:
        return Malformed(Flaw.SHAPE, "removed must list uuids")
    known, away = {thing["uuid"] for thing in before}, {uuid for uuid in gone if uuid is not None}
    if away & {thing["uuid"] for thing in objects}:
        return Malformed(Flaw.CONFLICT, "an object is both modified and removed")
    state = Difference(objects, sorted(away)).apply(before)
    return Prediction(state, score, (*stray, *((uuid, "removed") for uuid in sorted(away - known))))


def parse_full(text: str) -> Prediction | Malformed:
    """Read `{"game_state": [objects..., score]}`."""
    answer = _find(text, "game_state")
    if isinstance(answer, Malformed):
        return answer
    listed = answer["game_state"]
    if not isinstance(listed, list):
        return Malformed(Flaw.SHAPE, "game_state must be a list")
    scores = [entry for entry in listed if isinstance(entry, dict) and "uuid" not in entry and "gameOver" in entry]
    if len(scores) > 1:
        return Malformed(Flaw.CONFLICT, "two scores")
    objects = _objects([entry for entry in listed if not any(entry is score for score in scores)])
    if isinstance(objects, Malformed):
        return objects
    score = _score(scores[0] if scores else None)
    return score if isinstance(score, Malformed) else Prediction(objects, score)


def parse_score(text: str, before: State) -> Prediction | Malformed:
    """Read `{"score": n, "gameOver": bool, "gameWon": bool}`; the state stays as it is."""
    answer = _find(text, "gameOver")
    score = answer if isinstance(answer, Malformed) else _score(answer)
    return score if isinstance(score, Malformed) else Prediction(before, score)


def _find(text: str, key: str) -> dict[str, Any] | Malformed:
    part, marked = answer_part(text)
    try:
        answer = find_object(part, key, last=not marked)
    except Unreadable:
        return Malformed(Flaw.BROKEN, f"the object with '{key}' cannot be read")
    if answer is None:
        return Malformed(Flaw.SHAPE if "{" in part else Flaw.EMPTY, f"no object with '{key}'")
    return answer


def _score(value: Any) -> Score | Malformed | None:
    """A checked score; None where there is none."""
    if value is None:
        return None
    if not isinstance(value, dict) or not _shallow(value, MAX_DEPTH):
        return Malformed(Flaw.SHAPE, "score must be a plain object")
    return value


def _objects(entries: Any) -> list[Object] | Malformed:
    """Checked objects, each uuid once; saying the same thing twice is no conflict."""
    if not isinstance(entries, list) or len(entries) > MAX_OBJECTS:
        return Malformed(Flaw.SHAPE, f"objects must be a list of at most {MAX_OBJECTS}")
    by_id: dict[int, Object] = {}
    for entry in entries:
        uuid = _uuid(entry.get("uuid")) if isinstance(entry, dict) else None
        if uuid is None:
            return Malformed(Flaw.SHAPE, "every object needs a whole uuid")
        properties, contains = entry.get("properties", {}), entry.get("contains", [])
        if not isinstance(properties, dict) or not isinstance(contains, list):
            return Malformed(Flaw.SHAPE, f"object {uuid}: properties must be an object and contains a list")
        if not all(isinstance(name, str) for name in contains):
            return Malformed(Flaw.SHAPE, f"object {uuid}: contains must list names")
        if not all(_shallow(value, MAX_DEPTH) for value in entry.values()):
            return Malformed(Flaw.SHAPE, f"object {uuid} is nested too deeply")
        thing = {**entry, "uuid": uuid}
        if uuid in by_id and not same(by_id[uuid], thing):
            return Malformed(Flaw.CONFLICT, f"object {uuid} is given twice")
        by_id[uuid] = thing
    return list(by_id.values())


def _uuid(value: Any) -> int | None:
    """A uuid, also where a model wrote it in quotes. A number beyond all reason is none: it could not be printed."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 19:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_UUID else None


def _shallow(value: Any, depth: int) -> bool:
    if isinstance(value, dict):
        return depth > 0 and all(_shallow(inner, depth - 1) for inner in value.values())
    if isinstance(value, list):
        return depth > 0 and all(_shallow(inner, depth - 1) for inner in value)
    return True
