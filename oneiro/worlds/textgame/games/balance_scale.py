"""Balance a scale with stones: sums of weights decide which way it tilts."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.clutter import Spec, clutter, place, some_of
from oneiro.worlds.textgame.game import GameRules
from oneiro.worlds.textgame.scene import Scene, Thing

COLOURS = ("grey", "white", "black", "red", "green", "yellow")


def _load(scene: Scene, pan: Thing) -> int:
    return sum(thing["weight"] for thing in scene.inside(pan) if thing["weight"])


class BalanceScale(GameRules):
    name = "balance-scale"
    task = "Your task is to make the scale level with something in both pans."
    max_score = 2
    root = ("market", "Room")
    objects = """
Pan: isContainer; one is left, one is right. Its load is the sum of the weights of what is directly in it.
==========
Scale: as time passes, tilt becomes "left" if the load of the left pan is greater, "right" if that of the right pan is
greater, and "level" if they are equal.
==========
Stone: isMoveable. Iron: has a weight and cannot be moved.
"""
    scoring = (
        "1 once the right pan has held a stone as time passed; 2 and the game is won when the scale is level and "
        "both pans are loaded."
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        pans: list[Spec] = [
            ("left pan", "LeftPan", {"isContainer": True}),
            ("right pan", "RightPan", {"isContainer": True}),
            ("scale", "Scale", {"tilt": "left"}),
        ]
        # Powers of two: no two sets of stones weigh the same, so the solution is unique.
        weights = [int(weight) for weight in rng.permutation([1, 2, 4, 8, 16])[:4]]
        colours = some_of(rng, COLOURS, len(weights))
        stones: list[Spec] = [
            (f"{colour} stone", "Stone", {"isMoveable": True, "weight": weight})
            for colour, weight in zip(colours, weights, strict=True)
        ]
        place(scene, rng, scene.room, pans + stones + clutter(rng, 1))
        chosen = weights[: int(rng.integers(1, 4))]
        scene.add("iron", "Iron", scene.the("LeftPan"), weight=sum(chosen))

    def tick(self, scene: Scene) -> None:
        left, right = _load(scene, scene.the("LeftPan")), _load(scene, scene.the("RightPan"))
        scene.the("Scale")["tilt"] = "left" if left > right else "right" if right > left else "level"

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        loaded = bool(scene.contents_of_type(scene.the("RightPan"), "Stone"))
        if loaded and scene.the("Scale")["tilt"] == "level":
            return 2, True, True
        return max(scene.score, int(loaded)), False, False

    def useful(self, scene: Scene) -> set[str]:
        stones = [stone.noun for stone in scene.of_type("Stone")]
        return {f"take {stone}" for stone in stones} | {f"put {stone} in right pan" for stone in stones}
