"""Make a fire and roast a marshmallow: wood is chopped and burnt up, matches run out, and it is soon too late."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, always, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

GOLDEN = 2
"""Times over the fire that make a marshmallow golden; once more burns it."""


def _chop(scene: Scene, trunk: Thing, axe: Thing) -> str:
    burns = trunk["burns"]
    scene.remove(trunk)
    for _ in range(2):
        scene.add("log", "Log", scene.room, isMoveable=True, burns=burns)
    return "You chop the trunk into two logs."


@needs("FirePit", "Matches", carried=1)
def _can_light(scene: Scene, pit: Thing, matches: Thing) -> str:
    if pit["isBurning"]:
        return f"The {pit.name} is burning already."
    return "" if scene.contents_of_type(pit, "Log") else f"There is no wood in the {pit.name}."


def _light(scene: Scene, pit: Thing, matches: Thing) -> str:
    pit["isBurning"] = True
    matches["left"] -= 1
    if matches["left"] == 0:
        scene.remove(matches)
    return f"You light the wood in the {pit.name}."


@needs("Marshmallow", "FirePit", carried=0)
def _can_roast(scene: Scene, food: Thing, pit: Thing) -> str:
    return "" if pit["isBurning"] else f"The {pit.name} is not burning."


def _roast(scene: Scene, food: Thing, pit: Thing) -> str:
    food["roasted"] += 1
    return f"You hold the {food.name} over the fire."


@needs("Marshmallow", carried=0)
def _can_eat(scene: Scene, food: Thing) -> str:
    return "" if food["roasted"] == GOLDEN else f"The {food.name} is not golden."


def _eat(scene: Scene, food: Thing) -> str:
    scene.remove(food)
    return "It is delicious."


class RoastMarshmallow(GameRules):
    name = "roast-marshmallow"
    task = "Your task is to eat a golden marshmallow."
    max_score = 3
    root = ("clearing", "Room")
    objects = f"""
Trunk, Log: wood. burns says how long a log burns.
==========
FirePit: isContainer. Each time time passes while it isBurning, first every log in it vanishes and fuel rises by its
burns; then fuel falls by 1. At fuel 0 isBurning becomes false and ash comes into being in the pit.
==========
Matches: left is the number of them.
==========
Marshmallow: golden when roasted is {GOLDEN}; when roasted is greater, it is burnt.
"""
    scoring = (
        "1 once the pit is burning, 2 once a marshmallow is golden, 3 and the game is won when it is eaten. The game "
        "is over and lost when the marshmallow is burnt."
    )
    own_verbs = (
        Verb(
            "chop {} with {}",
            "X must be a Trunk and Y an Axe that the player carries: X vanishes, and two logs with its burns come into "
            "being in the room.",
            needs("Trunk", "Axe", carried=1)(always),
            _chop,
        ),
        Verb(
            "light {} with {}",
            "X must be a FirePit that is not burning and holds a Log, Y Matches that the player carries: isBurning "
            "of X becomes true, left of Y falls by 1, and Y vanishes at 0.",
            _can_light,
            _light,
        ),
        Verb(
            "roast {} over {}",
            "X must be a Marshmallow that the player carries and Y a burning FirePit: roasted of X rises by 1.",
            _can_roast,
            _roast,
        ),
        Verb("eat {}", "X must be a golden Marshmallow that the player carries: it vanishes.", _can_eat, _eat),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        things: list[Spec] = [
            ("fire pit", "FirePit", {"isContainer": True, "isBurning": False, "fuel": 0}),
            ("trunk", "Trunk", {"burns": one_of(rng, (2, 3, 4))}),
            ("axe", "Axe", {"isMoveable": True}),
            ("matches", "Matches", {"isMoveable": True, "left": one_of(rng, (1, 2, 3))}),
            ("marshmallow", "Marshmallow", {"isMoveable": True, "roasted": int(rng.integers(2))}),
        ]
        place(scene, rng, scene.room, things + clutter(rng))

    def tick(self, scene: Scene) -> None:
        pit = scene.the("FirePit")
        if not pit["isBurning"]:
            return
        # Logs first and then the loss, as the rules say: wood put in at the last moment keeps the fire alive.
        for log in scene.contents_of_type(pit, "Log"):
            pit["fuel"] += log["burns"]
            scene.remove(log)
        pit["fuel"] -= 1
        if pit["fuel"] == 0:
            pit["isBurning"] = False
            scene.add("ash", "Ash", pit)

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        food = scene.of_type("Marshmallow")
        if not food:
            return 3, True, True
        if food[0]["roasted"] > GOLDEN:
            return scene.score, True, False  # burnt: what was reached before stays reached
        made = 2 if food[0]["roasted"] == GOLDEN else int(scene.the("FirePit")["isBurning"])
        return max(scene.score, made), False, False

    def useful(self, scene: Scene) -> set[str]:
        return {
            "take axe",
            "chop trunk with axe",
            "take log",
            "put log in fire pit",
            "take matches",
            "light fire pit with matches",
            "take marshmallow",
            "roast marshmallow over fire pit",
            "eat marshmallow",
        }
