"""The things of a text game and where they are: plain data that is copied, changed and compared, without rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from oneiro.worlds.textgame.state import Object, Score, State

AGENT = 0
"""The player's uuid in every game."""
ROOT = 1
"""The uuid of the outermost thing in every game."""

MAX_SCORE = 1e9
"""No score of a possible scene is as high."""

_NAME = re.compile(r"(.{1,80}) \(ID: (\d{1,9})\)")


@dataclass(slots=True)
class Thing:
    """An object of the game. Property values are never changed in place, only replaced."""

    uuid: int
    noun: str
    type: str
    properties: dict[str, Any]
    contains: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.noun} (ID: {self.uuid})"

    def __getitem__(self, key: str) -> Any:
        """A property; one that the thing does not have is false."""
        return self.properties.get(key, False)

    def __setitem__(self, key: str, value: Any) -> None:
        self.properties[key] = value

    def copy(self) -> Thing:
        return Thing(self.uuid, self.noun, self.type, dict(self.properties), list(self.contains))


@dataclass(slots=True)
class Scene:
    """All things of a game, the next free uuid and the score."""

    things: dict[int, Thing] = field(default_factory=dict)
    next_uuid: int = 0
    score: int = 0
    over: bool = False
    won: bool = False

    def copy(self) -> Scene:
        things = {uuid: thing.copy() for uuid, thing in self.things.items()}
        return Scene(things, self.next_uuid, self.score, self.over, self.won)

    @classmethod
    def from_state(cls, state: State, score: Score, next_uuid: int) -> Scene | None:
        """The scene that a JSON state describes, e.g. a predicted one; None where it describes no possible scene.

        A possible scene has the player and a root, every other thing is in exactly one place, nothing is inside
        itself, and the score and all other numbers are of reasonable size. Whether a game's rules can go on from it
        is for `Game.imagined` to say.
        """
        points = score.get("score", 0)
        if not is_points(points):
            return None
        scene = cls(next_uuid=next_uuid, score=points, over=score.get("gameOver") is True)
        scene.won = score.get("gameWon") is True
        uuids = {str(thing.get("name")): thing["uuid"] for thing in state}
        for thing in state:
            match = _NAME.fullmatch(str(thing.get("name")))
            names = thing.get("contains", [])
            inside = [uuids[name] for name in names if name in uuids]
            if match is None or int(match[2]) != thing["uuid"] or len(inside) != len(names):
                return None
            if not _reasonable(thing.get("properties", {})):
                return None
            scene.things[thing["uuid"]] = Thing(
                thing["uuid"], match[1], str(thing.get("type")), dict(thing.get("properties", {})), inside
            )
        return scene if scene._is_tree() else None

    def _is_tree(self) -> bool:
        """Whether every thing is reached exactly once from the root, the player among them."""
        if AGENT not in self.things or ROOT not in self.things:
            return False
        seen, front = {ROOT}, [ROOT]
        while front:
            for uuid in self.things[front.pop()].contains:
                if uuid in seen:
                    return False
                seen.add(uuid)
                front.append(uuid)
        return seen == self.things.keys()

    @property
    def agent(self) -> Thing:
        return self.things[AGENT]

    @property
    def room(self) -> Thing:
        """The room the player is in."""
        room = self.parent(self.agent)
        assert room is not None, "the player is always somewhere"
        return room

    def add(self, noun: str, type_: str, inside: Thing | None, **properties: Any) -> Thing:
        """A new thing, with the next free uuid."""
        thing = Thing(self.next_uuid, noun, type_, properties)
        self.things[thing.uuid] = thing
        self.next_uuid += 1
        if inside is not None:
            inside.contains.append(thing.uuid)
        return thing

    def remove(self, thing: Thing) -> None:
        """Take a thing out of the game, with everything in it."""
        for inner in self.inside(thing):
            self.remove(inner)
        if (holder := self.parent(thing)) is not None:
            holder.contains.remove(thing.uuid)
        del self.things[thing.uuid]

    def move(self, thing: Thing, target: Thing) -> None:
        if (holder := self.parent(thing)) is not None:
            holder.contains.remove(thing.uuid)
        target.contains.append(thing.uuid)

    def inside(self, thing: Thing) -> list[Thing]:
        """What a thing directly contains."""
        return [self.things[uuid] for uuid in thing.contains]

    def parent(self, thing: Thing) -> Thing | None:
        """What a thing is directly in."""
        return next((other for other in self.things.values() if thing.uuid in other.contains), None)

    def within(self, thing: Thing, container: Thing) -> bool:
        """Whether `thing` is somewhere inside `container`."""
        holder = self.parent(thing)
        return holder is not None and (holder.uuid == container.uuid or self.within(holder, container))

    def is_carried(self, thing: Thing) -> bool:
        return thing.uuid in self.agent.contains

    def reachable(self) -> list[Thing]:
        """What the player can touch: all in the room and in the player's hands that no closed container hides."""
        return list(self._open_inside(self.room))

    def of_type(self, *types: str) -> list[Thing]:
        return [thing for thing in self.things.values() if thing.type in types]

    def the(self, type_: str) -> Thing:
        """The only thing of a type."""
        (only,) = self.of_type(type_)
        return only

    def contents_of_type(self, thing: Thing, type_: str) -> list[Thing]:
        return [inner for inner in self.inside(thing) if inner.type == type_]

    def state(self) -> State:
        """Every object as JSON, outermost first."""
        return [self._object(thing) for thing in self._all_inside(self.things[ROOT])]

    def score_json(self) -> Score:
        return {"score": self.score, "gameOver": self.over, "gameWon": self.won}

    def key(self) -> str:
        """A text that is equal exactly for scenes that are equal in every respect but the order of contents."""
        things = [
            (t.uuid, t.noun, t.type, sorted(t.properties.items()), sorted(t.contains)) for t in self.things.values()
        ]
        return json.dumps([sorted(things, key=lambda row: row[0]), self.next_uuid, self.score, self.over])

    def _object(self, thing: Thing) -> Object:
        return {
            "name": thing.name,
            "uuid": thing.uuid,
            "type": thing.type,
            "properties": dict(thing.properties),
            "contains": [inner.name for inner in self.inside(thing)],
        }

    def _all_inside(self, thing: Thing) -> Iterator[Thing]:
        yield thing
        for inner in self.inside(thing):
            yield from self._all_inside(inner)

    def _open_inside(self, thing: Thing) -> Iterator[Thing]:
        for inner in self.inside(thing):
            yield inner
            if not inner["isOpenable"] or inner["isOpen"]:
                yield from self._open_inside(inner)


def _reasonable(value: Any) -> bool:
    """Whether all numbers in a JSON value can be counted on with."""
    if isinstance(value, dict | list):
        return all(map(_reasonable, value.values() if isinstance(value, dict) else value))
    return not isinstance(value, int | float) or isinstance(value, bool) or is_points(value)


def is_points(value: Any) -> bool:
    """Whether a score's value is a number of reasonable size: a model may have written anything."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_SCORE
