"""Plant a seed and harvest beans: time does most of the work; the seed changes its name and its type as it grows."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

SPROUTS_AT = 2
PLANTS = ("Seed", "Sprout", "BeanPlant")
FULL_CAN = 3
WET = 2
"""Moisture of a pot that has just been watered."""


def _can_fill(scene: Scene, thing: Thing, source: Thing) -> str:
    if (thing.type, source.type) not in (("Pot", "SoilBag"), ("WateringCan", "Barrel")):
        return "That does not work."
    if thing.type == "Pot":
        if not scene.is_carried(source):
            return f"You do not carry the {source.name}."
        return f"There is soil in the {thing.name} already." if thing["hasSoil"] else ""
    return "" if scene.is_carried(thing) else f"You do not carry the {thing.name}."


def _fill(scene: Scene, thing: Thing, source: Thing) -> str:
    if thing.type == "Pot":
        thing["hasSoil"] = True
        scene.remove(source)
        return f"You fill the {thing.name} with soil; the bag is empty and you throw it away."
    thing["water"] = FULL_CAN
    return f"You fill the {thing.name} with water."


@needs("Pot", "WateringCan", carried=1)
def _can_water(scene: Scene, pot: Thing, can: Thing) -> str:
    return "" if can["water"] else f"The {can.name} is empty."


def _water(scene: Scene, pot: Thing, can: Thing) -> str:
    can["water"] -= 1
    pot["moisture"] = WET
    return f"You water the {pot.name}."


class GrowBeans(GameRules):
    name = "grow-beans"
    task = "Your task is to grow a bean plant and hold its beans in your hands."
    max_score = 3
    root = ("garden", "Room")
    objects = f"""
Pot: isContainer. Each time time passes, moisture above 0 falls by 1.
==========
Seed, Sprout, BeanPlant: one and the same object as it grows. Each time time passes in a pot that hasSoil and whose
moisture is above 0 (before it falls), growth rises by 1, but not beyond ripeAt. At growth {SPROUTS_AT} the seed is
called sprout, its type becomes Sprout and isMoveable becomes false. At growth ripeAt it is called bean plant, its type
becomes BeanPlant, and beans come into being in the pot.
==========
WateringCan: water is the number of portions in it.
==========
SoilBag: enough soil for one pot. Barrel: never empty. Beans: isMoveable.
"""
    scoring = (
        "1 when there is a sprout, 2 when there is a bean plant, 3 and the game is won when the player carries beans."
    )
    own_verbs = (
        Verb(
            "fill {} from {}",
            "If X is a Pot without soil and Y a SoilBag that the player carries: hasSoil of X becomes true and Y "
            f"vanishes. If X is a WateringCan that the player carries and Y a Barrel: water of X becomes {FULL_CAN}.",
            _can_fill,
            _fill,
        ),
        Verb(
            "water {} with {}",
            "Y must be a WateringCan that the player carries with water above 0: it falls by 1, and moisture of the "
            f"Pot X becomes {WET}.",
            _can_water,
            _water,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        things: list[Spec] = [
            ("pot", "Pot", {"isContainer": True, "hasSoil": bool(rng.integers(2)), "moisture": 0}),
            ("watering can", "WateringCan", {"isMoveable": True, "water": int(rng.integers(2))}),
            ("barrel", "Barrel", {}),
            ("bag of soil", "SoilBag", {"isMoveable": True}),
            ("seed", "Seed", {"isMoveable": True, "growth": 0, "ripeAt": one_of(rng, (3, 4, 5))}),
        ]
        place(scene, rng, scene.room, things + clutter(rng))

    def tick(self, scene: Scene) -> None:
        pot = scene.the("Pot")
        if not pot["moisture"]:  # a dry pot neither dries nor grows
            return
        pot["moisture"] -= 1
        plants = [thing for thing in scene.inside(pot) if thing.type in PLANTS]
        if not pot["hasSoil"] or not plants or plants[0]["growth"] == plants[0]["ripeAt"]:
            return
        plant = plants[0]
        plant["growth"] += 1
        if plant["growth"] == SPROUTS_AT:
            plant.noun, plant.type, plant["isMoveable"] = "sprout", "Sprout", False
        if plant["growth"] == plant["ripeAt"]:
            plant.noun, plant.type = "bean plant", "BeanPlant"
            scene.add("beans", "Beans", pot, isMoveable=True)

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        if any(scene.is_carried(beans) for beans in scene.of_type("Beans")):
            return 3, True, True
        grown = 2 if scene.of_type("BeanPlant") else int(bool(scene.of_type("Sprout")))
        return max(scene.score, grown), False, False

    def useful(self, scene: Scene) -> set[str]:
        soil = {"take bag of soil", "fill pot from bag of soil"} if not scene.the("Pot")["hasSoil"] else set()
        return soil | {
            "take seed",
            "put seed in pot",
            "take watering can",
            "fill watering can from barrel",
            "water pot with watering can",
            "take beans",
        }
