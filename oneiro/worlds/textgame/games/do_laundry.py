"""Wash a shirt and dry it: a machine that runs for some time by itself, soap that is used up."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, can_turn_on, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

CLOTHES = ("shirt", "towel", "sock", "jacket", "blanket")
SOAKED = 2


@needs("Soap", "Washer", carried=0)
def _can_add(scene: Scene, soap: Thing, machine: Thing) -> str:
    return f"There is soap in the {machine.name} already." if machine["hasSoap"] else ""


def _add(scene: Scene, soap: Thing, machine: Thing) -> str:
    machine["hasSoap"] = True
    soap["doses"] -= 1
    if soap["doses"] == 0:
        scene.remove(soap)
        return "You add the last of the soap and throw the box away."
    return "You add some soap."


def _can_start(scene: Scene, thing: Thing) -> str:
    if thing.type == "Washer" and thing["isOpen"]:
        return f"The {thing.name} is open and does not start."
    return can_turn_on(scene, thing)


def _start(scene: Scene, thing: Thing) -> str:
    thing["isOn"] = True
    if thing.type == "Washer":
        thing["timer"] = thing["cycle"]
    return f"You turn on the {thing.name}."


class DoLaundry(GameRules):
    name = "do-laundry"
    task = "Your task is to get the dirty laundry clean and dry."
    max_score = 2
    root = ("laundry room", "Room")
    objects = f"""
Washer: isContainer and isOpenable. Turning it on sets its timer to its cycle. Each time time passes while it isOn,
timer falls by 1; at 0 isOn becomes false and what is washed gets wetness {SOAKED}, and is no longer isDirty if the
washer hasSoap; then hasSoap becomes false. If the washer is open at that time, only isOn and timer change.
==========
Laundry: on the line, wetness above 0 falls by 1 each time time passes.
==========
Line: isContainer; laundry dries on it.
==========
Soap: enough for as many washes as it has doses.
"""
    scoring = "1 once the laundry is not dirty; 2 and the game is won when it is not dirty and has wetness 0."
    own_verbs = (
        Verb(
            "add {} to {}",
            "X must be Soap that the player carries and Y a Washer without soap: hasSoap of Y becomes true, doses of X "
            "fall by 1, and X vanishes at 0.",
            _can_add,
            _add,
        ),
        Verb(
            "turn on {}",
            "Sets isOn of X to true. X must be isActivatable and off; a Washer must also be closed.",
            _can_start,
            _start,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        washer = {"isContainer": True, "isOpenable": True, "isOpen": bool(rng.integers(2)), "isActivatable": True}
        things: list[Spec] = [
            (
                "washer",
                "Washer",
                {**washer, "isOn": False, "hasSoap": False, "timer": 0, "cycle": one_of(rng, (1, 2, 3))},
            ),
            ("line", "Line", {"isContainer": True}),
            ("box of soap", "Soap", {"isMoveable": True, "doses": one_of(rng, (1, 2))}),
            (one_of(rng, CLOTHES), "Laundry", {"isMoveable": True, "isDirty": True, "wetness": int(rng.integers(2))}),
        ]
        place(scene, rng, scene.room, things + clutter(rng))

    def tick(self, scene: Scene) -> None:
        for laundry in scene.contents_of_type(scene.the("Line"), "Laundry"):
            laundry["wetness"] = max(0, laundry["wetness"] - 1)
        washer = scene.the("Washer")
        if not washer["isOn"]:
            return
        washer["timer"] -= 1
        if washer["timer"] > 0:
            return
        washer["isOn"] = False
        if washer["isOpen"]:
            return
        for laundry in scene.contents_of_type(washer, "Laundry"):
            laundry["wetness"] = SOAKED
            laundry["isDirty"] = laundry["isDirty"] and not washer["hasSoap"]
        washer["hasSoap"] = False

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        laundry = scene.the("Laundry")
        if laundry["isDirty"]:
            return 0, False, False
        dry = laundry["wetness"] == 0
        return (2, True, True) if dry else (1, False, False)

    def useful(self, scene: Scene) -> set[str]:
        noun = scene.the("Laundry").noun
        return {
            f"take {noun}",
            f"put {noun} in washer",
            f"put {noun} in line",
            "take box of soap",
            "add box of soap to washer",
            "open washer",
            "close washer",
            "turn on washer",
        }
