"""Buy what a note asks for from a machine: coins vanish and count up, and the snack comes into being."""

from __future__ import annotations

import numpy as np

from oneiro.worlds.textgame.game import GameRules, Verb, always, needs
from oneiro.worlds.textgame.scene import Scene, Spec, Thing, clutter, one_of, place, some_of

SNACKS = ("apple", "cookie", "pretzel", "muffin", "orange juice", "sandwich")
COINS = {5: "nickel", 10: "dime", 25: "quarter"}


def _insert(scene: Scene, coin: Thing, machine: Thing) -> str:
    machine["credit"] += coin["value"]
    scene.remove(coin)
    return f"The {machine.name} shows {machine['credit']}."


@needs("Button")
def _can_press(scene: Scene, button: Thing) -> str:
    return "" if scene.the("Machine")["credit"] >= button["price"] else "There is not enough credit."


def _press(scene: Scene, button: Thing) -> str:
    scene.the("Machine")["credit"] -= button["price"]
    scene.add(button["sells"], "Snack", scene.the("Hatch"), isMoveable=True)
    return f"The machine drops {button['sells']} into the hatch."


class BuySnack(GameRules):
    name = "buy-snack"
    task = "Your task is to buy the snack that the note asks for and hold it in your hands."
    max_score = 2
    root = ("station", "Room")
    objects = """
Note: wanted is the snack to buy.
==========
Machine: credit is the money that has been put in and not spent.
==========
Button: sells one kind of snack for its price.
==========
Hatch: isContainer; bought snacks drop into it.
==========
Coin: value is what it is worth. Purse: isOpenable; what is in it is out of reach while it is closed.
"""
    scoring = (
        "1 once the credit has been enough for the wanted snack, or it has been bought; 2 and the game is won when "
        "the player carries it."
    )
    own_verbs = (
        Verb(
            "insert {} into {}",
            "X must be a Coin that the player carries and Y a Machine: X vanishes, and credit of Y rises by its value.",
            needs("Coin", "Machine", carried=0)(always),
            _insert,
        ),
        Verb(
            "press {}",
            "X must be a Button whose price is not above the credit: the credit falls by the price, and the snack "
            "that X sells comes into being in the Hatch.",
            _can_press,
            _press,
        ),
    )

    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        kinds = some_of(rng, SNACKS, 2)
        purse = {"isContainer": True, "isMoveable": True, "isOpenable": True, "isOpen": bool(rng.integers(2))}
        values = [int(value) for value in rng.choice(list(COINS), size=3)]
        price = sum(values[: int(rng.integers(1, 4))])
        prices = (price, one_of(rng, (15, 20, 40)))
        things: list[Spec] = [
            ("machine", "Machine", {"credit": 0}),
            ("hatch", "Hatch", {"isContainer": True}),
            ("note", "Note", {"wanted": kinds[0]}),
            ("purse", "Purse", purse),
        ]
        for kind, cost in zip(kinds, prices, strict=True):
            things.append((f"{kind} button", "Button", {"sells": kind, "price": cost}))
        place(scene, rng, scene.room, things + clutter(rng, 1))
        coins: list[Spec] = [(COINS[value], "Coin", {"isMoveable": True, "value": value}) for value in values]
        place(scene, rng, scene.the("Purse"), coins)

    def tick(self, scene: Scene) -> None:
        """The machine is patient."""

    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        wanted, credit = scene.the("Note")["wanted"], scene.the("Machine")["credit"]
        bought = [snack for snack in scene.of_type("Snack") if snack.noun == wanted]
        if any(scene.is_carried(snack) for snack in bought):
            return 2, True, True
        price = next(button["price"] for button in scene.of_type("Button") if button["sells"] == wanted)
        return max(scene.score, int(bool(bought) or credit >= price)), False, False

    def useful(self, scene: Scene) -> set[str]:
        wanted = scene.the("Note")["wanted"]
        coins = set(COINS.values())
        moves = {f"take {coin}" for coin in coins} | {f"insert {coin} into machine" for coin in coins}
        return moves | {"open purse", f"press {wanted} button", f"take {wanted}"}
