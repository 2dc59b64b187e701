"""Close a circuit: what is joined to what is a list inside the objects, and some wires are broken."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb
from oneiro.worlds.textgame.scene import Scene, Thing, clutter, place, some_of

COLOURS = ("red", "blue", "green", "black", "white", "yellow", "brown", "grey")
ENDS = 2
"""Every electrical part has two ends."""


def _electrical(thing: Thing) -> bool:
    return "joined" in thing.properties


def _can_connect(scene: Scene, first: Thing, second: Thing) -> str:
    if not _electrical(first) or not _electrical(second):
        return "That does not work."
    if "Wire" not in (first.type, second.type):
        return "Only a wire can be connected to another part."
    if second.name in first["joined"]:
        return "They are connected already."
    full = next((thing for thing in (first, second) if len(thing["joined"]) == ENDS), None)
    return f"The {full.name} has no free end." if full else ""


def _connect(scene: Scene, first: Thing, second: Thing) -> str:
    first["joined"] = sorted([*first["joined"], second.name])
    second["joined"] = sorted([*second["joined"], first.name])
    return f"You connect the {first.name} to the {second.name}."


def _can_disconnect(scene: Scene, first: Thing, second: Thing) -> str:
    joined = _electrical(first) and second.name in first["joined"]
    return "" if joined else "They are not connected."


def _disconnect(scene: Scene, first: Thing, second: Thing) -> str:
    first["joined"] = [name for name in first["joined"] if name != second.name]
    second["joined"] = [name for name in second["joined"] if name != first.name]
    return f"You disconnect the {first.name} from the {second.name}."


class LightBulb(GameRules):
    name = "light-bulb"
    task = "Your task is to make the light bulb shine."
    max_score = 1
    root = ("workshop", "Room")
    objects = """
Battery, Bulb, Wire: electrical parts with two ends each. joined lists the names of the parts they are connected to, in
alphabetical order.
==========
Bulb: as time passes, isLit becomes true if a closed loop of connected parts runs through the bulb and the battery and
no wire of the loop isBroken; otherwise it becomes false.
==========
Drawer: isOpenable; what is in it is out of reach while it is closed.
"""
    scoring = "1 and the game is won when the bulb isLit."
    own_verbs = (
        Verb(
            "connect {} to {}",
            "X and Y must be electrical parts that are not connected to each other; at least one is a Wire, and both "
            "have a free end. Each is added to joined of the other.",
            _can_connect,
            _connect,
        ),
        Verb(
            "disconnect {} from {}",
            "X and Y, connected so far, are taken out of joined of each other.",
            _can_disconnect,
            _disconnect,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        colours = some_of(rng, COLOURS, int(rng.integers(3, 5)))
        broken = set(colours[2:])
        drawer = scene.add(
            "drawer", "Drawer", scene.room, isContainer=True, isOpenable=True, isOpen=bool(rng.integers(2))
        )
        wires = [
            (f"{colour} wire", "Wire", {"isMoveable": True, "isBroken": colour in broken, "joined": []})
            for colour in colours
        ]
        parts = [
            ("battery", "Battery", {"isMoveable": True, "joined": []}),
            ("bulb", "Bulb", {"joined": [], "isLit": False}),
        ]
        place(scene, rng, scene.room, parts + wires + clutter(rng, 1))
        if rng.integers(2):
            scene.move(scene.the("Battery"), drawer)

    def tick(self, scene: Scene) -> None:
        bulb = scene.the("Bulb")
        bulb["isLit"] = self._is_closed(scene, bulb)

    def _is_closed(self, scene: Scene, bulb: Thing) -> bool:
        """Follow the parts from the bulb on; with two ends each there is only one way to go."""
        named = {thing.name: thing for thing in scene.things.values() if _electrical(thing)}
        before, here, powered = bulb, bulb, False
        for _ in range(len(named)):
            onward = [named[name] for name in here["joined"] if name != before.name and name in named]
            if not onward:
                return False
            before, here = here, onward[0]
            powered = powered or here.type == "Battery"
            if here["isBroken"]:
                return False
            if here is bulb:
                return powered
        return False

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        lit = bool(scene.the("Bulb")["isLit"])
        return int(lit), lit, lit

    def useful(self, scene: Scene) -> set[str]:
        good = [thing.noun for thing in scene.of_type("Wire") if not thing["isBroken"]]
        bad = [thing.noun for thing in scene.of_type("Wire") if thing["isBroken"] and thing["joined"]]
        return (
            {"open drawer"}
            | {f"connect {wire} to {part}" for wire in good for part in ("bulb", "battery")}
            | {f"disconnect {wire} from {part}" for wire in good for part in good if wire != part}
            | {f"disconnect {wire} from {part}" for wire in bad for part in ("bulb", "battery", *good)}
        )
