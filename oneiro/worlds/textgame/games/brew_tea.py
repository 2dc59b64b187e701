"""Boil water and make tea: heat builds up with time; water and tea come into being, water and the tea bag vanish."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

VESSELS = ("Kettle", "Cup")
BOILING = 100
BREWS_FROM = 80


def _water(scene: Scene, vessel: Thing) -> Thing | None:
    return next(iter(scene.contents_of_type(vessel, "Water")), None)


@needs(VESSELS, "Sink", carried=0)
def _can_fill(scene: Scene, vessel: Thing, sink: Thing) -> str:
    return f"The {vessel.name} is not empty." if _water(scene, vessel) else ""


def _fill(scene: Scene, vessel: Thing, sink: Thing) -> str:
    scene.add("water", "Water", vessel, temperature=20)
    return f"You fill the {vessel.name} with water."


@needs(VESSELS, (*VESSELS, "Sink"), carried=0)
def _can_pour(scene: Scene, vessel: Thing, target: Thing) -> str:
    if not _water(scene, vessel):
        return f"There is no water in the {vessel.name}."
    return f"There is water in the {target.name} already." if _water(scene, target) else ""


def _pour(scene: Scene, vessel: Thing, target: Thing) -> str:
    water = _water(scene, vessel)
    assert water is not None
    if target.type == "Sink":
        scene.remove(water)
        return "The water runs off."
    scene.move(water, target)
    return f"You pour the water into the {target.name}."


class BrewTea(GameRules):
    name = "brew-tea"
    task = "Your task is to brew a cup of tea."
    max_score = 2
    root = ("kitchen", "Room")
    objects = f"""
Sink: never empty and never full.
==========
Stove: isContainer. While isOn, water in a kettle on the stove gets hotter by the stove's heat each time time passes, up
to {BOILING}.
==========
Kettle, Cup: vessels for one portion of water. New water has temperature 20. Water does not cool down.
==========
TeaBag: when a cup holds a tea bag and water of temperature {BREWS_FROM} or more as time passes, both vanish, and tea
comes into being in that cup.
==========
Cupboard: isOpenable; what is in it is out of reach while it is closed.
"""
    scoring = f"1 once water has reached temperature {BOILING}; 2 and the game is won when there is tea."
    own_verbs = (
        Verb(
            "fill {} from {}",
            "Water comes into being in X, a Kettle or Cup without water that the player carries. Y must be a Sink.",
            _can_fill,
            _fill,
        ),
        Verb(
            "pour {} into {}",
            "Moves the water from X, a Kettle or Cup that the player carries, into Y, a Kettle or Cup without water. "
            "If Y is a Sink, the water vanishes.",
            _can_pour,
            _pour,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        things: list[Spec] = [
            ("sink", "Sink", {}),
            (
                "stove",
                "Stove",
                {"isContainer": True, "isActivatable": True, "isOn": False, "heat": one_of(rng, (20, 40, 80))},
            ),
            ("kettle", "Kettle", {"isContainer": True, "isMoveable": True}),
            ("cup", "Cup", {"isContainer": True, "isMoveable": True}),
            ("cupboard", "Cupboard", {"isContainer": True, "isOpenable": True, "isOpen": bool(rng.integers(2))}),
        ]
        place(scene, rng, scene.room, things + clutter(rng))
        hidden = scene.the("Cupboard") if rng.integers(3) else scene.room  # hidden in two levels of three
        scene.add("tea bag", "TeaBag", hidden, isMoveable=True)

    def tick(self, scene: Scene) -> None:
        stove = scene.the("Stove")
        if stove["isOn"]:
            for kettle in scene.contents_of_type(stove, "Kettle"):
                if water := _water(scene, kettle):
                    water["temperature"] = min(BOILING, water["temperature"] + stove["heat"])
        for cup in scene.of_type("Cup"):
            water, bags = _water(scene, cup), scene.contents_of_type(cup, "TeaBag")
            if water and bags and water["temperature"] >= BREWS_FROM:
                scene.remove(water)
                scene.remove(bags[0])
                scene.add("tea", "Tea", cup)

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        if scene.of_type("Tea"):
            return 2, True, True
        boils = any(water["temperature"] >= BOILING for water in scene.of_type("Water"))
        return max(scene.score, int(boils)), False, False  # boiling water that was poured away counts

    def useful(self, scene: Scene) -> set[str]:
        return {
            "open cupboard",
            "take kettle",
            "take cup",
            "take tea bag",
            "fill kettle from sink",
            "put kettle in stove",
            "turn on stove",
            "pour kettle into cup",
            "pour cup into sink",
            "put tea bag in cup",
        }
