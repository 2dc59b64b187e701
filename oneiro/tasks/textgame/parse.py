"""From a model's text to the next state it predicts. Total and bounded.

The JSON object that a model meant is read out of anything it may write: JSON as it is, and Python's way of printing the
same data (single quotes, True, None, tuples, a comma too many), since prompts in the public layout show it. Nothing is
evaluated and nothing is guessed: text that is neither stays unread. With `repair`, containers left open at the end of
the text are closed, as lenient readers do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Literal

from oneiro.tasks.base import Flaw, Malformed
from oneiro.worlds.textgame.state import Difference, Object, Place, Score, State, by_uuid, same

MAX_CHARACTERS = 32_768
"""Seven times the longest whole state of ByteSized32; what lies beyond is not looked at."""
MAX_TOKENS = 6_000
"""Work of the loose reader for one text, over all its attempts: again seven times the longest state."""
MAX_DEPTH = 32
MAX_BRACES = 8
"""Opening braces tried for one place that names the key."""
ATTEMPTS = 32
"""Opening braces tried in all before a text counts as broken."""

_TOKEN = re.compile(
    r"""\s*+(?:
        (?P<mark>[{}\[\]():,])
      | (?P<text>"[^"\\]*+(?:\\.[^"\\]*+)*+"|'[^'\\]*+(?:\\.[^'\\]*+)*+')
      | (?P<number>-?\d{1,400}(?:\.\d{1,400})?(?:[eE][+-]?\d{1,3})?)
      | (?P<word>true|false|null|True|False|None)\b
    )""",
    re.VERBOSE | re.DOTALL,
)
_OPENING = re.compile(r"""\[|\{(?=\s*+["'}])""")
"""Where a list or an object begins; a brace before anything else is prose."""
_WORDS: Final = {"true": True, "True": True, "false": False, "False": False, "null": None, "None": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0"}


class Unreadable(ValueError):
    """The text at this place is no value, or the work allowed is used up."""


def _refuse(word: str) -> None:
    raise Unreadable(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # NaN and Infinity are no JSON


def find_object(text: str, key: str, *, last: bool) -> dict[str, Any] | None:
    """The first or last object in `text` that has `key`, None if none names it; may raise `Unreadable`.

    Only where `key` stands as the key of a member does it count, so prose may speak of it. The last such place must be
    in an object that can be read: what comes before one that was cut off is a draft. Of the first ones, those in
    objects that cannot be read are passed over.
    """
    member = re.compile(rf"""[{{,]\s*+((["']){re.escape(key)}\2)\s*+:""")
    places = [match.start(1) for match in member.finditer(text)]
    if not places:
        return None
    reader = _LooseReader(text)
    # The key's own place says where to look; a search from every brace would be quadratic.
    for start, place in islice(_openings(text, places[-1:] if last else places), ATTEMPTS):
        value, end = _read(text, start, reader)
        if isinstance(value, dict) and key in value and end > place:
            return value
    raise Unreadable


def only_object(text: str) -> dict[str, Any] | None:
    """The object in a text that has no other list or object, read with `repair`; may raise `Unreadable`."""
    text = text.rstrip()
    opening = _OPENING.search(text)
    if opening is None or opening[0] == "[":
        return None
    part = text[opening.start() : opening.start() + MAX_CHARACTERS]
    value, end = _read(part, 0, _LooseReader(part, repair=True))
    rest = text[opening.start() + end :]
    if not isinstance(value, dict):
        raise Unreadable
    return value if "{" not in rest and "[" not in rest else None


def _openings(text: str, places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The opening braces left of each place, nearest first: the object that holds a key opens at one of them."""
    for place in places:
        start = place
        for _ in range(MAX_BRACES):
            start = text.rfind("{", 0, start)
            if start < 0:
                break
            yield start, place


def _read(text: str, start: int, loose: _LooseReader) -> tuple[Any, int]:
    """The value at a place and where it ends; None where it cannot be read."""
    try:
        return _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        pass  # not JSON, or nested beyond all reason; the loose reader has its own limit
    try:
        return loose.value_at(start), loose.place
    except Unreadable:
        return None, start


class _LooseReader:
    """A recursive reader of JSON or Python literals that counts its work."""

    def __init__(self, text: str, repair: bool = False) -> None:
        self.text, self.repair = text, repair
        self.place = 0
        # Never set back: all attempts at one text share it, so that hostile text costs a bounded time.
        self.left = MAX_TOKENS

    def value_at(self, start: int) -> Any:
        self.place = start
        return self._value(*self._next(), depth=0)

    def _next(self) -> tuple[str, str]:
        """The kind and text of the next token; ("end", "") when nothing readable follows."""
        self.left -= 1
        token = _TOKEN.match(self.text, self.place) if self.left > 0 else None
        if token is None:
            if self.repair and self.left > 0 and not self.text[self.place :].strip():
                return "end", ""
            raise Unreadable
        self.place = token.end()
        kind = str(token.lastgroup)
        return kind, token[kind]

    def _value(self, kind: str, token: str, depth: int) -> Any:
        if kind == "text":
            return _unescape(token[1:-1])
        if kind == "number":
            return float(token) if any(mark in token for mark in ".eE") else int(token)
        if kind == "word":
            return _WORDS[token]
        if depth >= MAX_DEPTH:
            raise Unreadable
        if token == "{":
            return self._object(depth + 1)
        if token in ("[", "("):
            return self._list("]" if token == "[" else ")", depth + 1)
        raise Unreadable

    def _list(self, close: str, depth: int) -> list[Any]:
        items: list[Any] = []
        kind, token = self._next()
        while token != close and kind != "end":
            items.append(self._value(kind, token, depth))
            kind, token = self._after_item(close)
        return items

    def _object(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        kind, token = self._next()
        while token != "}" and kind != "end":
            if kind != "text":
                raise Unreadable
            key = _unescape(token[1:-1])
            if self._next()[1] != ":":
                raise Unreadable
            members[key] = self._value(*self._next(), depth)
            kind, token = self._after_item("}")
        return members

    def _after_item(self, close: str) -> tuple[str, str]:
        """The token that starts the next item or closes the container."""
        kind, token = self._next()
        if token == ",":
            return self._next()
        if token != close and kind != "end":
            raise Unreadable
        return kind, token


def _unescape(body: str) -> str:
    return _ESCAPE.sub(_unescape_code, body) if "\\" in body else body


def _unescape_code(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPES.get(code, code)


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
    # Thoughts may hold drafts of the answer.
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
    return _build_prediction(before, objects, removed, score_before if score == {} else score)


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
        # This form names what changes and nothing else; the rest of the score stays.
        score = {**score_before, **score}
    return _build_prediction(before, objects, removed, score, stray)


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
    # Which of the two would come last is not said, so any reading would be a guess.
    if lost.keys() & entry.get("properties", {}).keys() or added & dropped or ("contains" in entry and added | dropped):
        return Malformed(Flaw.CONFLICT, f"object {uuid} gets what it loses, or has its contents told twice")
    properties = thing.get("properties", {})
    contains = Counter[str](entry.get("contains", thing.get("contains", [])))
    stray: list[Place] = [(uuid, "contains", name) for name in dropped - contains]
    stray += [(uuid, "properties", key) for key in lost if key not in properties]
    kept = {key: value for key, value in properties.items() if key not in lost}
    inside = list((contains - dropped + added).elements())
    return {**thing, **entry, "properties": kept | entry.get("properties", {}), "contains": inside}, stray


def _build_prediction(
    before: State, objects: list[Object], removed: Any, score: Score | None, stray: Sequence[Place] = ()
) -> Prediction | Malformed:
    """The state with these objects as they are here and without the removed ones."""
    # A model may write a single uuid without brackets; what is meant is plain.
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
    # The public layout has the score as one more entry of the list.
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
