"""One state's change made to another state: which objects stand for each other, and what their edits become."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from oneiro.worlds.textgame.state import GONE, Object, Score, State, Transition, edits, same

ID = re.compile(r" \(ID: (\d{1,18})\)")
"""How names carry the uuid of their object; numbers differ from level to level, so facts leave them out."""

Facts = frozenset[tuple[Any, ...]]
Command = tuple[str, Facts, tuple[int, ...]]


class StateView:
    """A state with what comparing and pairing need."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.things: dict[int, Object] = {thing["uuid"]: thing for thing in state}
        self.uuids = {str(thing.get("name")): thing["uuid"] for thing in reversed(state)}
        self.agent = next((uuid for uuid, thing in self.things.items() if thing.get("type") == "Agent"), None)
        self._thing_facts: dict[int, Facts] = {}

    @cached_property
    def holder(self) -> dict[int, int]:
        """By object, the one it lies in."""
        inside = ((name, uuid) for uuid, thing in self.things.items() for name in thing.get("contains", ()))
        return {self.uuids[name]: uuid for name, uuid in inside if name in self.uuids}

    @cached_property
    def facts(self) -> Facts:
        """What is true of the state: of each object its type, its properties and what it contains."""
        return frozenset((_name(thing), *fact) for thing in self.state for fact in _facts(thing))

    def thing_facts(self, uuid: int) -> Facts:
        """What is true of one object, its name and its place among it."""
        if uuid not in self._thing_facts:
            thing = self.things.get(uuid, {})
            place = _name(self.things[self.holder[uuid]]) if uuid in self.holder else ""
            self._thing_facts[uuid] = frozenset((*_facts(thing), ("name", _name(thing)), ("in", place)))
        return self._thing_facts[uuid]

    def args(self, command: str) -> tuple[int, ...]:
        """The objects that a command names."""
        return self.command(command)[2]

    def command(self, text: str) -> Command:
        """A command's verb, its words without the names of objects, and those objects by uuid."""
        return _command(text, self._names)

    @cached_property
    def _names(self) -> tuple[tuple[str, int], ...]:
        """What objects are called in commands, longest first."""
        agent = {"yourself": self.agent} if self.agent is not None else {}
        known = {name: uuid for name, uuid in (self.uuids | agent).items() if name}
        return tuple(sorted(known.items(), key=lambda named: (-len(named[0]), named[0])))


@lru_cache(1 << 16)
def _command(text: str, names: tuple[tuple[str, int], ...]) -> Command:
    """See `View.command`. A word goes with the number of objects named before it: "terminal1" behind the first is not
    that behind the second. Adjectives in front of a name ("the clean shirt") stay words.
    """
    uuids, args = dict(names), list[int]()

    def take(match: re.Match[str]) -> str:
        args.append(uuids[match[0]] if match[0] in uuids else int(match[1]))
        return " # "

    split = _pattern(names).sub(take, text).split() or [""]
    counts = accumulate(word == "#" for word in split)
    return split[0], frozenset(zip(counts, split, strict=True)), tuple(args)


@lru_cache(1 << 12)
def _pattern(names: tuple[tuple[str, int], ...]) -> re.Pattern[str]:
    """Names of objects, each whole; and any "(ID: 7)", whatever it is called in the command."""
    known = "".join(rf"(?<!\w){re.escape(name)}(?!\w)|" for name, _ in names)
    return re.compile(rf"{known}\(ID: (\d{{1,18}})\)")


def _facts(thing: Object) -> Iterable[tuple[Any, ...]]:
    yield "type", str(thing.get("type"))
    for key, value in thing.get("properties", {}).items():
        yield key, ID.sub("", value if isinstance(value, str) else json.dumps(value, sort_keys=True))
    for name in thing.get("contains", ()):
        yield "contains", ID.sub("", str(name))


def _name(thing: Object) -> str:
    return ID.sub("", str(thing.get("name")))


class Pairing:
    """Which object of the asked state stands for which of the case's, and what names and values become."""

    def __init__(
        self,
        case: StateView,
        target: StateView,
        args: Sequence[int],
        named: Sequence[int],
        case_base: int,
        asked_base: int,
    ) -> None:
        self.uuids = pairs(case, target, args, named)
        self.case_base, self.asked_base = case_base, asked_base
        self.names = {str(case.things[a].get("name")): str(target.things[b].get("name")) for a, b in self.uuids.items()}

    def uuid(self, uuid: int) -> int | None:
        """The paired object, or the new one's place where the step creates it; None where there is none."""
        if uuid not in self.uuids and uuid >= self.case_base:
            return self.asked_base + uuid - self.case_base
        return self.uuids.get(uuid)

    def text(self, text: str) -> str:
        """A name as it is in the asked state; any other text with its object numbers exchanged."""

        def other(match: re.Match[str]) -> str:
            number = self.uuid(int(match[1]))
            return match[0] if number is None else f" (ID: {number})"

        return self.names[text] if text in self.names else ID.sub(other, text)

    def value(self, new: Any, old: Any = GONE, mine: Any = GONE) -> Any:
        """What `mine` becomes where the case's `old` became `new`: a number changes by as much, all else is new."""
        if isinstance(new, str):
            return self.text(new)
        if isinstance(new, list | tuple):
            return [self.value(part) for part in new]
        if isinstance(new, dict):
            old, mine = (each if isinstance(each, dict) else {} for each in (old, mine))
            named = {key: self.text(key) for key in new}
            return {named[key]: self.value(new[key], old.get(key, GONE), mine.get(named[key], GONE)) for key in new}
        if _number(new) and _number(old) and _number(mine) and not same(old, mine):
            try:
                return mine + (new - old)
            except OverflowError:  # whole numbers beyond all floats
                return new
        return new

    def score(self, case: Transition, mine: Score) -> Score:
        changed = {key: self.value(new, case.score.get(key), mine.get(key)) for key, new in case.score_after.items()}
        return {**mine, **changed}


def pairs(case: StateView, target: StateView, args: Sequence[int] = (), named: Sequence[int] = ()) -> dict[int, int]:
    """Objects of the case and of the asked state that stand for each other, by uuid, each at most once.

    First those that the commands name, then what holds them, then equal name and uuid, equal name, equal type.
    """
    partner: dict[int, int] = {}
    taken: set[int] = set()

    def pair(a: int | None, b: int | None) -> None:
        if a in case.things and b in target.things and a not in partner and b not in taken:
            partner[a] = b
            taken.add(b)

    for a, b in zip(args, named, strict=True):
        pair(a, b)
    for a, b in list(partner.items()):
        for _ in range(len(case.things)):  # a state may say that two objects hold each other
            if a not in case.holder or b not in target.holder:
                break
            a, b = case.holder[a], target.holder[b]
            pair(a, b)
    for uuid, thing in case.things.items():
        if target.things.get(uuid, {}).get("name") == thing.get("name"):
            pair(uuid, uuid)
    for alike in (_name, lambda thing: thing.get("type")):
        left = defaultdict(list)
        for uuid, thing in target.things.items():
            if uuid not in taken:
                left[alike(thing)].append(uuid)
        for uuid, thing in case.things.items():
            if uuid not in partner and left[alike(thing)]:
                pair(uuid, left[alike(thing)].pop(0))
    return partner


def transfer(before: State, after: State, pairing: Pairing, target: State) -> State | None:
    """The asked state with the edits that turn `before` into `after`; None where one of them cannot be made."""
    old, new, state = ({thing["uuid"]: thing for thing in each} for each in (before, after, target))
    todo = defaultdict(list)
    for place, value in sorted(edits(before, after).items(), key=repr):
        todo[place[0]].append((place[1:], value))
    for uuid, changes in todo.items():
        mine = pairing.uuid(uuid)
        if mine is None or (mine in state) != (uuid in old):
            return None
        if uuid not in new:
            del state[mine]
        elif uuid not in old:
            state[mine] = {**pairing.value(new[uuid]), "uuid": mine}
        elif (made := _edit(state[mine], old[uuid], changes, pairing)) is not None:
            state[mine] = made
        else:
            return None
    return list(state.values())


def _edit(
    thing: Object, old: Object, changes: Iterable[tuple[tuple[Any, ...], Any]], pairing: Pairing
) -> Object | None:
    """One object with its edits; None where it does not contain what they take out of it."""
    properties, contains = dict(thing.get("properties", {})), list(thing.get("contains", ()))
    made: Object = {**thing, "properties": properties, "contains": contains}
    for (field, *rest), value in changes:
        if field == "properties" and rest:
            was = old["properties"].get(rest[0], GONE)
            if value is GONE:
                properties.pop(rest[0], None)
            else:
                properties[rest[0]] = pairing.value(value, was, properties.get(rest[0], GONE))
        elif field == "contains" and rest:
            name = pairing.text(rest[0])
            if contains.count(name) < -value:
                return None
            contains += [name] * max(0, value)
            for _ in range(-value):
                contains.remove(name)
        elif value is not GONE:
            made[field] = pairing.value(value)
    return made


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
