"""Commands: what a verb is, and those every game understands."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from oneiro.worlds.textgame.scene import Scene, Thing

Check = Callable[..., str]
"""`check(scene, *things)`: why the command cannot be done now, or an empty text."""
Act = Callable[..., str]
"""`act(scene, *things)`: change the scene and say in words what happened."""


@dataclass(frozen=True)
class Verb:
    """One kind of command. `pattern` has a `{}` for each thing; `rule` explains it in the rules of the game."""

    pattern: str
    rule: str
    check: Check
    act: Act

    @cached_property
    def arity(self) -> int:
        return self.pattern.count("{}")

    @cached_property
    def regex(self) -> re.Pattern[str]:
        pieces = [re.escape(piece) for piece in self.pattern.split("{}")]
        return re.compile(r"(.{1,80}?\(ID: \d{1,6}\))".join(pieces))

    @cached_property
    def noun_regex(self) -> re.Pattern[str]:
        """The same command with nouns only."""
        return re.compile("(.+)".join(re.escape(piece) for piece in self.pattern.split("{}")))

    def command(self, *things: Thing) -> str:
        return self.pattern.format(*(thing.name for thing in things))


def always(scene: Scene, *things: Thing) -> str:
    """The check of a command that can always be done."""
    return ""


def _describe(scene: Scene, thing: Thing) -> str:
    inside = ", ".join(inner.name for inner in scene.inside(thing))
    return f"It is a {thing.type}." + (f" In it: {inside}." if inside else "")


def _can_take(scene: Scene, thing: Thing) -> str:
    if not thing["isMoveable"]:
        return f"The {thing.name} cannot be taken."
    if scene.is_carried(thing):
        return f"You already carry the {thing.name}."
    return ""


def _take(scene: Scene, thing: Thing) -> str:
    scene.move(thing, scene.agent)
    return f"You take the {thing.name}."


def can_put(scene: Scene, thing: Thing, target: Thing) -> str:
    if not scene.is_carried(thing):
        return f"You do not carry the {thing.name}."
    if not target["isContainer"]:
        return f"Nothing can be put in the {target.name}."
    if target["isOpenable"] and not target["isOpen"]:
        return f"The {target.name} is closed."
    if scene.within(target, thing):
        return f"The {target.name} is inside the {thing.name}."
    return ""


def put(scene: Scene, thing: Thing, target: Thing) -> str:
    scene.move(thing, target)
    return f"You put the {thing.name} in the {target.name}."


def _can_drop(scene: Scene, thing: Thing) -> str:
    return "" if scene.is_carried(thing) else f"You do not carry the {thing.name}."


def _drop(scene: Scene, thing: Thing) -> str:
    scene.move(thing, scene.room)
    return f"You put down the {thing.name}."


def switch(able: str, flag: str, value: bool, verb: str, done: str, state: str) -> tuple[Check, Act]:
    """Check and act of a command that sets a flag of things that have it: `You open the box`, `cannot be opened`,
    `is already open`.
    """

    def check(scene: Scene, thing: Thing) -> str:
        if not thing[able]:
            return f"The {thing.name} cannot be {done}."
        return f"The {thing.name} is already {state}." if bool(thing[flag]) == value else ""

    def act(scene: Scene, thing: Thing) -> str:
        thing[flag] = value
        return f"You {verb} the {thing.name}."

    return check, act


can_open, open_ = switch("isOpenable", "isOpen", True, "open", "opened", "open")
can_close, _close = switch("isOpenable", "isOpen", False, "close", "closed", "closed")
can_turn_on, turn_on = switch("isActivatable", "isOn", True, "turn on", "turned on", "on")
_can_turn_off, _turn_off = switch("isActivatable", "isOn", False, "turn off", "turned off", "off")

WAIT = Verb("wait", "Does nothing; time passes.", always, lambda scene: "You wait.")

COMMON: tuple[Verb, ...] = (
    WAIT,
    Verb("look", "Changes nothing.", always, lambda scene: "You look around."),
    Verb("examine {}", "Changes nothing.", always, _describe),
    Verb("take {}", "Moves X to the player. X must be isMoveable and not yet carried.", _can_take, _take),
    Verb(
        "put {} in {}",
        "Moves X into Y. The player must carry X; Y must be isContainer, open if it is isOpenable, and not inside X.",
        can_put,
        put,
    ),
    Verb("drop {}", "Moves X from the player to the room the player is in.", _can_drop, _drop),
    Verb("open {}", "Sets isOpen of X to true. X must be isOpenable and closed.", can_open, open_),
    Verb("close {}", "Sets isOpen of X to false. X must be isOpenable and open.", can_close, _close),
    Verb("turn on {}", "Sets isOn of X to true. X must be isActivatable and off.", can_turn_on, turn_on),
    Verb("turn off {}", "Sets isOn of X to false. X must be isActivatable and on.", _can_turn_off, _turn_off),
)
