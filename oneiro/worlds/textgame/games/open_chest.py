"""Find the key of a locked chest: a house of several rooms, doors with two sides, keys that fit or not."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, can_close, can_open, needs
from oneiro.worlds.textgame.scene import AGENT, Scene, Thing, clutter, one_of, place, some_of

ROOMS = ("hall", "attic", "cellar", "study", "pantry", "bedroom")
COLOURS = ("red", "blue", "green", "golden", "silver", "black")
HOLDERS = ("drawer", "vase", "cabinet", "jar")


def _other_side(scene: Scene, door: Thing) -> Thing:
    """The same door as an object of the room it leads to."""
    here = scene.parent(door)
    assert here is not None
    return next(
        other for other in scene.of_type("Door") if other["leadsTo"] == here.name and _leads(scene, door, other)
    )


def _leads(scene: Scene, door: Thing, other: Thing) -> bool:
    there = scene.parent(other)
    return there is not None and there.name == door["leadsTo"]


@needs("Door")
def _can_go(scene: Scene, door: Thing) -> str:
    return "" if door["isOpen"] else f"The {door.name} is closed."


def _go(scene: Scene, door: Thing) -> str:
    room = next(thing for thing in scene.of_type("Room") if thing.name == door["leadsTo"])
    scene.move(scene.agent, room)
    return f"You go to the {room.name}."


def _can_open(scene: Scene, thing: Thing) -> str:
    return f"The {thing.name} is locked." if thing["isLocked"] else can_open(scene, thing)


def _set_open(scene: Scene, thing: Thing, is_open: bool) -> None:
    thing["isOpen"] = is_open
    if thing.type == "Door":
        _other_side(scene, thing)["isOpen"] = is_open


def _open(scene: Scene, thing: Thing) -> str:
    _set_open(scene, thing, True)
    return f"You open the {thing.name}."


def _close(scene: Scene, thing: Thing) -> str:
    _set_open(scene, thing, False)
    return f"You close the {thing.name}."


def _can_unlock(scene: Scene, thing: Thing, key: Thing) -> str:
    if not thing["isLocked"] or key.type != "Key":
        return "That does not work."
    if not scene.is_carried(key):
        return f"You do not carry the {key.name}."
    return "" if key["colour"] == thing["colour"] else "The key does not fit."


def _unlock(scene: Scene, thing: Thing, key: Thing) -> str:
    thing["isLocked"] = False
    return f"You unlock the {thing.name}."


class OpenChest(GameRules):
    name = "open-chest"
    task = "Your task is to find the gem and hold it in your hands."
    max_score = 3
    root = ("house", "House")
    objects = """
Room: isContainer. The player can only touch what is in the same room.
==========
Door: one object in each of the two rooms it joins; leadsTo names the room behind it. Opening or closing one side does
the same to the other.
==========
Chest: isContainer and isOpenable; it holds the gem. It cannot be opened while it isLocked.
==========
Key: fits what has the same colour.
==========
Holder: isContainer and isOpenable; what is in it is out of reach while it is closed.
"""
    scoring = (
        "1 once the player has carried the key that fits the chest, 2 once the chest is not locked, 3 and the game "
        "is won when the player carries the gem."
    )
    own_verbs = (
        Verb("go through {}", "Moves the player to the room that X, an open Door, leads to.", _can_go, _go),
        Verb(
            "unlock {} with {}",
            "X must be isLocked and Y a Key of the same colour that the player carries: isLocked of X becomes false.",
            _can_unlock,
            _unlock,
        ),
        Verb(
            "open {}",
            "Sets isOpen of X, and of the other side of a Door, to true. X must be isOpenable, closed and not "
            "isLocked.",
            _can_open,
            _open,
        ),
        Verb(
            "close {}",
            "Sets isOpen of X, and of the other side of a Door, to false. X must be isOpenable and open.",
            can_close,
            _close,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        house = scene.room
        rooms = [
            scene.add(noun, "Room", house, isContainer=True) for noun in some_of(rng, ROOMS, int(rng.integers(2, 4)))
        ]
        for left, right in pairwise(rooms):
            is_open = bool(rng.integers(2))
            # A thing is in one place, so a door is one thing in each room.
            for here, there in ((left, right), (right, left)):
                scene.add("door", "Door", here, isOpenable=True, isOpen=is_open, leadsTo=there.name)
        right_colour, wrong_colour = some_of(rng, COLOURS, 2)
        lock = {"isContainer": True, "isOpenable": True, "isOpen": False, "isLocked": True, "colour": right_colour}
        chest = scene.add("chest", "Chest", one_of(rng, rooms), **lock)
        scene.add("gem", "Gem", chest, isMoveable=True)
        holder = scene.add(
            one_of(rng, HOLDERS), "Holder", one_of(rng, rooms), isContainer=True, isOpenable=True, isOpen=False
        )
        scene.add(f"{right_colour} key", "Key", holder, isMoveable=True, colour=right_colour)
        # A key that fits nothing, in plain sight: who takes the first key has learned no colours.
        scene.add(f"{wrong_colour} key", "Key", one_of(rng, rooms), isMoveable=True, colour=wrong_colour)
        place(scene, rng, one_of(rng, rooms), clutter(rng, 1))
        scene.move(scene.things[AGENT], one_of(rng, rooms))

    def tick(self, scene: Scene) -> None:
        """Nothing happens by itself in this house."""

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        chest, gem = scene.the("Chest"), scene.the("Gem")
        if scene.is_carried(gem):
            return 3, True, True
        if not chest["isLocked"]:
            return 2, False, False
        fits = any(scene.is_carried(key) and key["colour"] == chest["colour"] for key in scene.of_type("Key"))
        return max(scene.score, int(fits)), False, False  # a key that was put down again has been carried

    def useful(self, scene: Scene) -> set[str]:
        key, holder = f"{scene.the('Chest')['colour']} key", scene.the("Holder").noun
        doors = {"open door", "go through door"}
        return doors | {f"open {holder}", f"take {key}", f"unlock chest with {key}", "open chest", "take gem"}
