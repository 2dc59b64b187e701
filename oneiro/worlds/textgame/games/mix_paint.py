"""Mix the colour a note asks for and paint a canvas with it: two objects vanish and a third comes into being."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, always, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place

MIXTURES = {
    frozenset(("red", "yellow")): "orange",
    frozenset(("red", "blue")): "purple",
    frozenset(("yellow", "blue")): "green",
    frozenset(("red", "white")): "pink",
    frozenset(("blue", "white")): "azure",
    frozenset(("yellow", "white")): "cream",
    frozenset(("red", "green")): "maroon",
    frozenset(("white", "green")): "mint",
    frozenset(("white", "orange")): "peach",
    frozenset(("white", "purple")): "lilac",
}
BASES = ("red", "yellow", "blue", "white")
MUD = "brown"
"""What any other mixture gives."""


def mixture(first: str, second: str) -> str:
    return first if first == second else MIXTURES.get(frozenset((first, second)), MUD)


def _mix(scene: Scene, first: Thing, second: Thing) -> str:
    colour = mixture(first["colour"], second["colour"])
    scene.remove(first)
    scene.remove(second)
    scene.add(f"{colour} paint", "Paint", scene.room, isMoveable=True, colour=colour)
    return f"You get {colour} paint."


@needs("Canvas", "Paint")
def _can_paint(scene: Scene, canvas: Thing, paint: Thing) -> str:
    return "" if scene.is_carried(scene.the("Brush")) else "You carry no brush."


def _paint(scene: Scene, canvas: Thing, paint: Thing) -> str:
    canvas["colour"] = paint["colour"]
    scene.remove(paint)
    return f"The {canvas.name} is {canvas['colour']} now."


class MixPaint(GameRules):
    name = "mix-paint"
    task = "Your task is to paint the canvas in the colour that the note asks for."
    max_score = 2
    root = ("studio", "Room")
    objects = f"""
Note: wanted is the colour that the canvas should have.
==========
Paint: a pot of paint of one colour. Mixtures: {
        "; ".join(f"{' and '.join(sorted(pair))} give {mixed}" for pair, mixed in MIXTURES.items())
    }. A colour mixed with itself stays as it is. All other mixtures give {MUD}.
==========
Canvas: colour is "none" until it is painted. Brush: needed for painting.
==========
Cabinet: isOpenable; what is in it is out of reach while it is closed.
"""
    scoring = (
        "1 once there is paint of the wanted colour; 2 and the game is won when the canvas has the wanted colour. "
        "The game is over and lost when the canvas has any other colour."
    )
    own_verbs = (
        Verb(
            "mix {} with {}",
            "X and Y must be Paint: both vanish, and paint of the mixed colour comes into being in the room.",
            needs("Paint", "Paint")(always),
            _mix,
        ),
        Verb(
            "paint {} with {}",
            "X must be a Canvas and Y Paint, and the player must carry the Brush: X takes the colour of Y, and Y "
            "vanishes.",
            _can_paint,
            _paint,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        shut = {"isContainer": True, "isOpenable": True, "isOpen": bool(rng.integers(2))}
        things: list[Spec] = [
            ("note", "Note", {"wanted": one_of(rng, list(MIXTURES.values()))}),
            ("canvas", "Canvas", {"colour": "none"}),
            ("brush", "Brush", {"isMoveable": True}),
            ("cabinet", "Cabinet", shut),
        ]
        place(scene, rng, scene.room, things + clutter(rng, 1))
        paints: list[Spec] = [(f"{c} paint", "Paint", {"isMoveable": True, "colour": c}) for c in BASES]
        place(scene, rng, scene.the("Cabinet"), paints)

    def tick(self, scene: Scene) -> None:
        """Paint does not dry in this studio."""

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        wanted, colour = scene.the("Note")["wanted"], scene.the("Canvas")["colour"]
        if colour != "none":
            return (2, True, True) if colour == wanted else (scene.score, True, False)
        mixed = any(paint["colour"] == wanted for paint in scene.of_type("Paint"))
        return max(scene.score, int(mixed)), False, False

    def useful(self, scene: Scene) -> set[str]:
        wanted = scene.the("Note")["wanted"]
        colours = {paint["colour"] for paint in scene.of_type("Paint")}
        mixes = {f"mix {a} paint with {b} paint" for a in colours for b in colours if a < b and mixture(a, b) != MUD}
        return mixes | {"open cabinet", "take brush", f"paint canvas with {wanted} paint"}
