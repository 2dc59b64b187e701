"""What a text game is: things, commands, the passing of time, a score and a way to win.

A step has three phases, as in ByteSized32: the command takes effect, time passes once for every thing, the score is
counted. A command that is understood but cannot be done (the drawer is closed) changes nothing, and time passes all the
same. A command that is not understood is no step at all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import ClassVar

import numpy as np

from oneiro.worlds.textgame.scene import AGENT, ROOT, Scene, Thing
from oneiro.worlds.textgame.state import Situation
from oneiro.worlds.textgame.verbs import COMMON, Verb

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
