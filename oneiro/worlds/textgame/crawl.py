"""Transitions of our own games: along winning plans and off them, every command tried or a fair sample of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from oneiro.runtime.seeds import generator
from oneiro.worlds.base import draw_level, level_key
from oneiro.worlds.textgame.dataset import Rules, write_dataset
from oneiro.worlds.textgame.game import GameRules, solve
from oneiro.worlds.textgame.games import GAMES, game_named
from oneiro.worlds.textgame.scene import Scene
from oneiro.worlds.textgame.state import Transition

UNSEEN = "unseen"
"""The split of held-out games in a folder of our own."""


class CrawlConfig(BaseModel):
    """How much of each game is recorded."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    levels: int = Field(20, ge=1)
    """Levels of each game."""
    still: int = Field(4, ge=0)
    """Commands tried in each state that cannot be done or only look; those that can be done are all tried."""
    wander: float = Field(0.3, ge=0, le=1)
    """How often the path leaves the plan for a random command that can be done."""
    max_steps: int = Field(24, ge=1)
    """Longest path through a level."""
    seed: int = 0
    """Draws the levels and the steps."""


def crawl(names: Iterable[str], split: str, config: CrawlConfig) -> Iterator[Transition]:
    """Transitions of the named games, from levels of one split ("train" or "eval"; they share no level)."""
    for name in names:
        game = game_named(name)
        for number in range(config.levels):
            yield from _crawl_level(game, number, split, config)


def _crawl_level(game: GameRules, number: int, split: str, config: CrawlConfig) -> Iterator[Transition]:
    rng = generator(config.seed, "crawl", game.name, split, number)
    level_seed = int(rng.integers(2**62))
    scene, _ = draw_level(game.name, level_seed, split, game.level, lambda level: level_key(level.key()))
    plan = solve(game, scene)
    for step in range(config.max_steps):
        if scene.over or plan is None:
            return
        planned = plan[0] if plan else "wait"  # a finished plan whose game goes on
        possible, still = _sorted_commands(game, scene)
        # Most commands cannot be done; all of them would drown the steps that change something.
        chosen = [still[i] for i in sorted(rng.permutation(len(still))[: config.still])]
        for count, command in enumerate(dict.fromkeys([planned, *possible, *chosen])):
            yield record(
                game, scene, command, f"{game.name}/{split}-{number}/{step}.{count}", split, command == planned
            )
        # Plans alone would never show what happens beside them.
        stray = bool(possible) and rng.random() < config.wander
        taken = possible[int(rng.integers(len(possible)))] if stray else planned
        scene = game.step(scene, taken).after
        plan = solve(game, scene) if taken != planned else plan[1:]  # the rest of a shortest plan is one


def _sorted_commands(game: GameRules, scene: Scene) -> tuple[list[str], list[str]]:
    """The commands that change something by themselves, and the others."""
    possible: list[str] = []
    still: list[str] = []
    for verb, things in game.commands(scene):
        moves = not verb.check(scene, *things) and verb.pattern not in ("wait", "look", "examine {}")
        (possible if moves else still).append(verb.command(*things))
    return possible, still


def record(game: GameRules, scene: Scene, command: str, id_: str, split: str, on_plan: bool = False) -> Transition:
    """One step of a game as a transition."""
    stepped = game.step(scene, command)
    return Transition(
        id=id_,
        split=split,
        game=game.name,
        task=game.task,
        state=scene.state(),
        score=scene.score_json(),
        action=command,
        uuid_base=scene.next_uuid,
        after_action=stepped.after_action.state(),
        after=stepped.after.state(),
        score_after=stepped.after.score_json(),
        on_plan=on_plan,
        observation=stepped.reply,
    )


def own_rules() -> Rules:
    """The rules of our games, in the form of the data."""
    return {"human": {name: game.rules for name, game in GAMES.items()}}


def own_dataset(
    out: str | Path,
    config: CrawlConfig,
    held_out: Iterable[str] = (),
    *,
    games: Iterable[str] = GAMES,
    test_levels: int = 0,
) -> dict[str, int]:
    """Record our games into the folder `out`: splits "train", "test" (unseen levels) and "unseen" (held-out games).

    `test_levels` of each game are for evaluation; 0: a quarter as many as for training.
    """
    aside = [game_named(name).name for name in held_out]
    kept = [name for name in games if name not in aside]
    tests = config.model_copy(update={"levels": test_levels or max(1, config.levels // 4)})

    def rows() -> Iterator[Transition]:
        seen = set()
        for transition in crawl(kept, "train", config):
            seen.add(_identity(transition))
            yield transition
        for split, names in (("test", kept), (UNSEEN, aside)):
            for transition in crawl(names, "eval", tests):
                # Two levels can meet in one state, e.g. once the drawer that told them apart is open.
                yield replace(transition, split=split, duplicate=_identity(transition) in seen)

    return write_dataset(out, "oneiro-games", rows(), own_rules())


def _identity(transition: Transition) -> str:
    """What makes two transitions the same question."""
    return json.dumps([transition.game, transition.state, transition.score, transition.action])
