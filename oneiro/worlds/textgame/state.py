"""States as JSON, what changes between two of them, and one recorded step.

An object is `{"name", "uuid", "type", "properties", "contains"}`; `contains` lists the names of the objects directly
inside. A state is a list of objects whose order means nothing, as the order of `contains` means nothing. The score
stands beside it: `{"score", "gameOver", "gameWon"}`. States are shared between transitions: never change one in place.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final, Literal

Object = dict[str, Any]
State = list[Object]
Score = dict[str, Any]

Kind = Literal["full", "action", "tick", "score"]
"""What is predicted: the whole step with its score, the action alone, the passing of time alone, or the score alone."""

GONE: Final = object()
"""The new value of a property that a step takes away."""

Place = tuple[Any, ...]
"""Where an edit is: `(uuid, field)`, `(uuid, "properties", key)`, `(uuid, "contains", child)` or `("score", key)`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """All a predictor may know: the game, its state and score, and the command about to be carried out."""

    game: str
    task: str
    """The player's task, one sentence."""
    state: State
    score: Score
    action: str
    uuid_base: int
    """The uuid the first object created in this step will get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition(Situation):
    """One true step: the command takes effect (`after_action`), time passes (`after`), the score is counted."""

    id: str
    split: str
    after_action: State
    after: State
    score_after: Score
    duplicate: bool | None = False
    """The same state, score and command also occur on the other side of the train/test split; None: not known."""
    on_plan: bool = False
    """The command is the next one of the game's winning plan."""
    observation: str = ""
    """What the game answered in words, where that was recorded."""

    def part(self, kind: Kind) -> tuple[State, State, Score | None, Score | None]:
        """The states and the scores that a question of this kind goes from and to; no scores where none is asked."""
        if kind == "action":
            return self.state, self.after_action, None, None
        if kind == "tick":
            return self.after_action, self.after, None, None
        return self.state, self.state if kind == "score" else self.after, self.score, self.score_after

    def changes(self, kind: Kind) -> bool:
        """Whether the part that is asked changes anything: the division of every table and of every balanced draw."""
        before, after, score, score_after = self.part(kind)
        return not (same(score, score_after) and same_state(before, after))

    @property
    def changed(self) -> bool:
        """The whole step changes objects or the score. A change of the score alone is a change."""
        return self.changes("full")

    @property
    def gold(self) -> bool:
        """The published training filter: an object that stays has another property or other contents."""
        if self.after is self.state:  # states are shared, so that an unchanged one is the same object
            return False
        after = by_uuid(self.after)
        return any(
            not same(old["properties"], new["properties"]) or Counter(old["contains"]) != Counter(new["contains"])
            for old in self.state
            if (new := after.get(old["uuid"])) is not None
        )

    def creates(self, kind: Kind = "full") -> bool:
        before, after, *_ = self.part(kind)
        return not by_uuid(after).keys() <= by_uuid(before).keys()

    def removes(self, kind: Kind = "full") -> bool:
        before, after, *_ = self.part(kind)
        return not by_uuid(before).keys() <= by_uuid(after).keys()


def by_uuid(state: State) -> dict[int, Object]:
    return {thing["uuid"]: thing for thing in state}


def same(a: Any, b: Any) -> bool:
    """Equality of JSON values that never takes true for 1 and forgives the last bits of a float."""
    if a is b:
        return True
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(value, b[key]) for key, value in a.items())
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return False
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)
    return bool(a == b)


def same_state(a: State, b: State) -> bool:
    return a is b or (len(a) == len(b) and not edits(a, b))


def edits(before: State, after: State) -> dict[Place, Any]:
    """Every elementary difference between two states: the place and its new value.

    A vanished object is one edit; a new one is an edit for its existence and one for each thing known of it. Moving an
    object is two edits of `contains`, at its old container (-1) and at its new one (+1).
    """
    changes: dict[Place, Any] = {}
    old, new = by_uuid(before), by_uuid(after)
    for uuid in old:
        if uuid not in new:
            changes[uuid, "removed"] = True
    for uuid, thing in new.items():
        if uuid not in old:
            changes[uuid, "created"] = True
            _edit_object(changes, uuid, {}, thing)
        elif old[uuid] is not thing:
            _edit_object(changes, uuid, old[uuid], thing)
    return changes


def score_edits(before: Score, after: Score) -> dict[Place, Any]:
    """The score's entries that change, as edits."""
    keys = before.keys() | after.keys()
    return {
        ("score", key): after.get(key, GONE) for key in keys if not same(before.get(key, GONE), after.get(key, GONE))
    }


def _edit_object(changes: dict[Place, Any], uuid: int, old: Object, new: Object) -> None:
    for key in ("properties", "contains"):
        if key not in new and (key in old or not old):
            changes[uuid, key] = GONE  # a whole object says that it is empty
    for key in old.keys() | new.keys():
        if key == "contains":
            # Counted and not compared as lists: the order of contents means nothing.
            delta = Counter(map(_child, new.get(key, ())))
            delta.subtract(map(_child, old.get(key, ())))
            changes.update({(uuid, key, child): count for child, count in delta.items() if count})
        elif key == "properties":
            before, after = old.get(key, {}), new.get(key, {})
            for name in before.keys() | after.keys():
                if not same(before.get(name, GONE), value := after.get(name, GONE)):
                    changes[uuid, key, name] = value
        elif not same(old.get(key, GONE), value := new.get(key, GONE)):
            changes[uuid, key] = value


def _child(name: Any) -> str:
    """A contained object's name; anything that is no name is kept apart from all names."""
    return name if isinstance(name, str) else f"\0{name!r}"


@dataclass(frozen=True, slots=True)
class Difference:
    """The short answer: whole new versions of objects that change or appear, and the uuids of those that vanish."""

    modified: list[Object]
    removed: list[int]

    def apply(self, state: State) -> State:
        """The state after the change. Objects it names that were not there are added at the end."""
        new, gone = by_uuid(self.modified), set(self.removed)
        kept = [new.get(thing["uuid"], thing) for thing in state if thing["uuid"] not in gone]
        known = {thing["uuid"] for thing in state}
        return kept + [thing for uuid, thing in new.items() if uuid not in known]


def difference(before: State, after: State) -> Difference:
    """The smallest difference that turns `before` into `after`."""
    old, new = by_uuid(before), by_uuid(after)
    touched = {place[0] for place in edits(before, after)}
    return Difference(
        modified=[thing for thing in after if thing["uuid"] in touched],
        removed=sorted(uuid for uuid in old if uuid not in new),
    )
