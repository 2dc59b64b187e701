"""What a text game is: things, commands, the passing of time, a score and a way to win.

A step has three phases, as in ByteSized32: the command takes effect, time passes once for every thing, the score is
counted. A command that is understood but cannot be done (the drawer is closed) changes nothing, and time passes all the
same. A command that is not understood is no step at all.

First commands, what a verb is and those every game understands; then the rules of a game; then its solver.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import permutations, product
from typing import ClassVar

import numpy as np

from oneiro.worlds.textgame.scene import AGENT, ROOT, Scene, Thing
from oneiro.worlds.textgame.state import Situation

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


def needs(*types: str | tuple[str, ...], carried: int | None = None) -> Callable[[Check], Check]:
    """A check that begins with the types a command takes; `carried` is the place of the thing that must be in hand."""
    kinds = [(kind,) if isinstance(kind, str) else kind for kind in types]

    def decorate(check: Check) -> Check:
        def whole(scene: Scene, *things: Thing) -> str:
            if any(thing.type not in kind for thing, kind in zip(things, kinds, strict=True)):
                return "That does not work."
            if carried is not None and not scene.is_carried(things[carried]):
                return f"You do not carry the {things[carried].name}."
            return check(scene, *things)

        return whole

    return decorate


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


REACH = (
    "X and Y must be in reach: in the player's room or hands and in no closed container. A command that cannot be done "
    "changes nothing; time passes all the same."
)


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one command leads to."""

    after_action: Scene
    after: Scene
    reply: str
    understood: bool = True
    possible: bool = True
    """Whether the command could be done."""


class GameRules(ABC):
    """The rules of one game. It holds no state: scenes come in and go out."""

    name: ClassVar[str]
    task: ClassVar[str]
    """The player's task, one sentence; what differs between levels is written in the scene."""
    max_score: ClassVar[int]
    objects: ClassVar[str]
    """Rules of the objects, blocks separated by a line of ten `=`."""
    scoring: ClassVar[str]
    """Rule of the score."""
    own_verbs: ClassVar[tuple[Verb, ...]] = ()

    @abstractmethod
    def build(self, scene: Scene, rng: np.random.Generator) -> None:
        """Furnish a scene that so far holds the player and the outermost room."""

    @abstractmethod
    def tick(self, scene: Scene) -> None:
        """Let time pass once."""

    @abstractmethod
    def count(self, scene: Scene) -> tuple[int, bool, bool]:
        """The score, whether the game is over, and whether it is won. The score never falls."""

    @abstractmethod
    def useful(self, scene: Scene) -> set[str]:
        """Commands worth trying, without IDs: what the solver looks at, besides waiting."""

    root: ClassVar[tuple[str, str]] = ("room", "Room")
    """Noun and type of the outermost thing."""

    @cached_property
    def verbs(self) -> tuple[Verb, ...]:
        """The game's own verbs, then the common ones it does not replace."""
        own = {verb.pattern for verb in self.own_verbs}
        return self.own_verbs + tuple(verb for verb in COMMON if verb.pattern not in own)

    @property
    def rules(self) -> dict[str, str]:
        """The rules in the form of the data: of objects, of commands, of the score."""
        commands = [f"{verb.pattern.format('X', 'Y')}:\n{verb.rule}" for verb in self.verbs]
        return {
            "object": self.objects.strip(),
            "action": "\n\n".join([REACH, *commands]),
            "score": self.scoring.strip(),
        }

    def level(self, rng: np.random.Generator) -> Scene:
        """A new scene."""
        scene = Scene()
        agent = scene.add("player", "Agent", None, isContainer=True)
        root = scene.add(self.root[0], self.root[1], None, isContainer=True)
        assert (agent.uuid, root.uuid) == (AGENT, ROOT)
        scene.move(agent, root)
        self.build(scene, rng)
        return scene

    def scene_of(self, situation: Situation) -> Scene | None:
        """The scene that a predicted situation describes; None where there is no such scene, or where the rules cannot
        go on from it: an oven may be missing, its temperature a text.
        """
        scene = Scene.from_state(situation.state, situation.score, situation.uuid_base)
        if scene is None:
            return None
        # Tried out on a copy: whether the rules work on an imagined scene is only known by running them.
        ahead = scene.copy()
        try:
            self.tick(ahead)
            self.count(ahead)
        except Exception:  # rules rely on what true scenes have, and a prediction may lack or distort any of it
            return None
        return scene

    def step(self, scene: Scene, command: str) -> Stepped:
        """Carry out one command. The scene given stays as it is."""
        understood = self.understand(scene, command)
        if understood is None or scene.over:
            return Stepped(scene, scene, "That is no command of this game.", understood=False, possible=False)
        return self.do(scene, *understood)

    def do(self, scene: Scene, verb: Verb, named: Sequence[Thing]) -> Stepped:
        """Carry out a command that has been understood."""
        acted = scene.copy()
        things = [acted.things[thing.uuid] for thing in named]
        refusal = verb.check(acted, *things)
        reply = refusal or verb.act(acted, *things)
        after = acted.copy()
        self.tick(after)
        after.score, after.over, after.won = self.count(after)
        return Stepped(acted, after, reply, possible=not refusal)

    def situation(self, scene: Scene, command: str = "") -> Situation:
        """What a predictor may know before `command` is carried out."""
        return Situation(
            game=self.name,
            task=self.task,
            state=scene.state(),
            score=scene.score_json(),
            action=command,
            uuid_base=scene.next_uuid,
        )

    def understand(self, scene: Scene, command: str) -> tuple[Verb, list[Thing]] | None:
        """The verb and the things a command names; None where it is no command or names nothing in reach."""
        if len(command) > 300:
            return None
        reach = {thing.name: thing for thing in scene.reachable()}
        for verb in self.verbs:
            if (match := verb.regex.fullmatch(command.strip())) is not None:
                names = match.groups()
                if all(name in reach for name in names) and len(set(names)) == len(names):
                    return verb, [reach[name] for name in names]
        return None

    def commands(self, scene: Scene) -> Iterator[tuple[Verb, tuple[Thing, ...]]]:
        """Every command that is understood now, possible or not, in a fixed order."""
        reach = [thing for thing in scene.reachable() if thing.uuid != AGENT]
        for verb in self.verbs:
            for things in permutations(reach, verb.arity):
                yield verb, things


# Shortest winning plans, by breadth-first search over scenes ----------------------------------------------------------

# The search looks only at commands a game calls useful (and that can be done), which keeps it to a few hundred scenes;
# within those commands the plan is the shortest.

MAX_SCENES = 20_000
"""Scenes looked at before a level counts as unsolvable."""


def solve(game: GameRules, scene: Scene, max_length: int = 60) -> list[str] | None:
    """A shortest plan to win from `scene`, or None where there is none within `max_length` commands."""
    if scene.won:
        return []
    if scene.over:
        return None
    seen = {scene.key()}
    front: deque[tuple[Scene, tuple[str, ...]]] = deque([(scene, ())])
    while front and len(seen) < MAX_SCENES:
        here, path = front.popleft()
        if len(path) == max_length:
            continue
        for verb, things in useful_commands(game, here):
            there = game.do(here, verb, things).after
            if there.won:
                return [*path, verb.command(*things)]
            if not there.over and (key := there.key()) not in seen:
                seen.add(key)
                front.append((there, (*path, verb.command(*things))))
    return None


def useful_commands(game: GameRules, scene: Scene) -> Iterator[tuple[Verb, tuple[Thing, ...]]]:
    """Commands the game calls useful that can be done now, in a fixed order, and waiting."""
    by_noun: dict[str, list[Thing]] = {}
    for thing in scene.reachable():
        by_noun.setdefault(thing.noun, []).append(thing)
    for wanted in sorted(game.useful(scene)):
        verb, nouns = _parse_command(game, wanted)
        for things in product(*(by_noun.get(noun, ()) for noun in nouns)):
            if not verb.check(scene, *things):
                yield verb, things
    yield WAIT, ()


@lru_cache(maxsize=4096)
def _parse_command(game: GameRules, wanted: str) -> tuple[Verb, tuple[str, ...]]:
    """The verb and nouns of a command without IDs."""
    for verb in game.verbs:
        if (match := verb.noun_regex.fullmatch(wanted)) is not None:
            return verb, match.groups()
    raise ValueError(f"{game.name} calls '{wanted}' useful and has no such command")
