"""The games of this package, one file each. A new one is: copy the smallest, fill in, and name it here."""

from __future__ import annotations

from oneiro.runtime.errors import OneiroError, nearest
from oneiro.worlds.textgame.game import GameRules
from oneiro.worlds.textgame.games.bake_bread import BakeBread
from oneiro.worlds.textgame.games.balance_scale import BalanceScale
from oneiro.worlds.textgame.games.brew_tea import BrewTea
from oneiro.worlds.textgame.games.buy_snack import BuySnack
from oneiro.worlds.textgame.games.do_laundry import DoLaundry
from oneiro.worlds.textgame.games.grow_beans import GrowBeans
from oneiro.worlds.textgame.games.light_bulb import LightBulb
from oneiro.worlds.textgame.games.make_ice import MakeIce
from oneiro.worlds.textgame.games.mix_paint import MixPaint
from oneiro.worlds.textgame.games.open_chest import OpenChest
from oneiro.worlds.textgame.games.roast_marshmallow import RoastMarshmallow

GAMES: dict[str, GameRules] = {
    game.name: game
    for game in (
        BakeBread(),
        BalanceScale(),
        BrewTea(),
        BuySnack(),
        DoLaundry(),
        GrowBeans(),
        LightBulb(),
        MakeIce(),
        MixPaint(),
        OpenChest(),
        RoastMarshmallow(),
    )
}
"""Every game by its name."""


def game_named(name: str) -> GameRules:
    if name not in GAMES:
        raise OneiroError(f"no text game is called '{name}'{nearest(name, GAMES)}")
    return GAMES[name]
