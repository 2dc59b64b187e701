"""Shortest winning plans, by breadth-first search over scenes.

The search looks only at commands a game calls useful (and that can be done), which keeps it to a few hundred scenes;
within those commands the plan is the shortest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from itertools import product

from oneiro.worlds.textgame.game import GameRules
from oneiro.worlds.textgame.scene import Scene, Thing
from oneiro.worlds.textgame.verbs import WAIT, Verb

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
