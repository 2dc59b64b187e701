"""Freeze water and serve the ice before it melts: one object that is water or ice, and vanishes out of any vessel."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

ROOM_TEMPERATURE = 20
VESSELS = ("Tray", "Glass")


@needs(VESSELS, "Tap", carried=0)
def _can_fill(scene: Scene, tray: Thing, tap: Thing) -> str:
    return f"The {tray.name} is not empty." if tray.contains else ""


def _fill(scene: Scene, tray: Thing, tap: Thing) -> str:
    scene.add("water", "Water", tray, isMoveable=False, temperature=ROOM_TEMPERATURE)
    return f"You fill the {tray.name} with water."


class MakeIce(GameRules):
    name = "make-ice"
    task = "Your task is to put ice in the glass."
    max_score = 2
    root = ("bar", "Room")
    objects = f"""
Freezer: isContainer and isOpenable. Each time time passes while it is closed, water or ice anywhere in it gets colder
by its cools, down to its coldest.
==========
Water, Ice: one and the same object. Each time time passes outside a closed freezer, it gets 10 warmer, up to
{ROOM_TEMPERATURE}. At temperature 0 or below it is called ice, has type Ice and isMoveable; above 0 it is called
water, has type Water and is not isMoveable. Water that is directly in anything but a Tray or a Glass vanishes.
==========
Tray, Glass: isContainer and isMoveable. Tap: never dry.
"""
    scoring = "1 once there is ice; 2 and the game is won when there is ice in the glass."
    own_verbs = (
        Verb(
            "fill {} from {}",
            f"Water of temperature {ROOM_TEMPERATURE} comes into being in X, an empty Tray or Glass that the player "
            "carries. Y must be a Tap.",
            _can_fill,
            _fill,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        freezer = {"isContainer": True, "isOpenable": True, "isOpen": bool(rng.integers(2))}
        things: list[Spec] = [
            ("freezer", "Freezer", {**freezer, "cools": one_of(rng, (10, 20, 30)), "coldest": one_of(rng, (-30, -40))}),
            ("tap", "Tap", {}),
            ("tray", "Tray", {"isContainer": True, "isMoveable": True}),
            ("glass", "Glass", {"isContainer": True, "isMoveable": True}),
        ]
        place(scene, rng, scene.room, things + clutter(rng))

    def tick(self, scene: Scene) -> None:
        freezer = scene.the("Freezer")
        for water in scene.of_type("Water", "Ice"):
            if scene.within(water, freezer) and not freezer["isOpen"]:
                water["temperature"] = max(freezer["coldest"], water["temperature"] - freezer["cools"])
            else:
                water["temperature"] = min(ROOM_TEMPERATURE, water["temperature"] + 10)
            frozen = water["temperature"] <= 0
            water.noun, water.type, water["isMoveable"] = ("ice", "Ice", True) if frozen else ("water", "Water", False)
            holder = scene.parent(water)
            if not frozen and (holder is None or holder.type not in VESSELS):
                scene.remove(water)

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        if scene.contents_of_type(scene.the("Glass"), "Ice"):
            return 2, True, True
        return max(scene.score, int(bool(scene.of_type("Ice")))), False, False

    def useful(self, scene: Scene) -> set[str]:
        return {
            "take tray",
            "take glass",
            "fill tray from tap",
            "open freezer",
            "close freezer",
            "put tray in freezer",
            "take ice",
            "put ice in glass",
        }
