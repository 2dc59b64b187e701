"""Mix dough and bake it: three things become one, the oven has to be hot, and bread left in it burns."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

INGREDIENTS = ("Flour", "Yeast", "Water")
COLD, HOT = 20, 200
BURNS_AFTER = 3
"""Times that bread may lie in a hot oven before it burns."""


@needs("Bowl")
def _can_mix(scene: Scene, bowl: Thing) -> str:
    inside = {thing.type for thing in scene.inside(bowl)}
    missing = [name.lower() for name in INGREDIENTS if name not in inside]
    return f"There is no {missing[0]} in the {bowl.name}." if missing else ""


def _mix(scene: Scene, bowl: Thing) -> str:
    for kind in INGREDIENTS:
        scene.remove(scene.contents_of_type(bowl, kind)[0])
    scene.add("dough", "Dough", bowl, isMoveable=True, baked=0)
    return "You knead it all to a dough."


class BakeBread(GameRules):
    name = "bake-bread"
    task = "Your task is to bake bread and take it out of the oven before it burns."
    max_score = 3
    root = ("bakery", "Room")
    objects = f"""
Bowl: isContainer. Flour, Yeast, Water: what dough is made of.
==========
Oven: isContainer and isOpenable. Each time time passes, its temperature rises by its heat while it isOn and closed,
up to {HOT}; otherwise it falls by its heat, down to {COLD}. After that, a closed oven of temperature {HOT} bakes what
is in it.
==========
Dough: each time it is baked, baked rises by 1. When baked reaches the oven's bakes, the dough vanishes and bread comes
into being in the oven.
==========
Bread: each time it is baked, extra rises by 1. When extra reaches {BURNS_AFTER}, isBurnt becomes true.
"""
    scoring = (
        "1 when there is dough, 2 when there is bread, 3 and the game is won when the player carries bread that is not "
        "burnt. The game is over and lost when bread burns."
    )
    own_verbs = (
        Verb(
            "mix {}",
            "X must be a Bowl that holds Flour, Yeast and Water: they vanish, and dough with baked 0 comes into "
            "being in X.",
            _can_mix,
            _mix,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        heat, bakes = one_of(rng, (90, 180)), one_of(rng, (1, 2, 3))
        oven = {"isContainer": True, "isOpenable": True, "isOpen": bool(rng.integers(2)), "isActivatable": True}
        things: list[Spec] = [
            ("bowl", "Bowl", {"isContainer": True}),
            ("oven", "Oven", {**oven, "isOn": False, "temperature": COLD, "heat": heat, "bakes": bakes}),
            ("flour", "Flour", {"isMoveable": True}),
            ("yeast", "Yeast", {"isMoveable": True}),
            ("water", "Water", {"isMoveable": True}),
        ]
        place(scene, rng, scene.room, things + clutter(rng, 1))
        for kind in INGREDIENTS:
            if rng.integers(2):
                scene.move(scene.the(kind), scene.the("Bowl"))

    def tick(self, scene: Scene) -> None:
        oven = scene.the("Oven")
        heats = oven["isOn"] and not oven["isOpen"]
        warmer = oven["temperature"] + (oven["heat"] if heats else -oven["heat"])
        oven["temperature"] = min(HOT, max(COLD, warmer))
        if oven["isOpen"] or oven["temperature"] < HOT:
            return
        for thing in scene.inside(oven):
            if thing.type == "Dough":
                thing["baked"] += 1
                if thing["baked"] == oven["bakes"]:
                    scene.remove(thing)
                    scene.add("bread", "Bread", oven, isMoveable=True, extra=0, isBurnt=False)
            elif thing.type == "Bread":
                thing["extra"] += 1
                thing["isBurnt"] = thing["extra"] >= BURNS_AFTER

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        bread = scene.of_type("Bread")
        if any(loaf["isBurnt"] for loaf in bread):
            return scene.score, True, False
        if any(scene.is_carried(loaf) for loaf in bread):
            return 3, True, True
        made = 2 if bread else int(bool(scene.of_type("Dough")))
        return max(scene.score, made), False, False

    def useful(self, scene: Scene) -> set[str]:
        made = {"take dough", "put dough in oven", "open oven", "close oven", "turn on oven", "take bread", "mix bowl"}
        parts = [name.lower() for name in INGREDIENTS]
        return made | {f"take {part}" for part in parts} | {f"put {part} in bowl" for part in parts}
