"""Our text games behind the World interface: play them, let agents play them, compare a model with the truth."""

from __future__ import annotations

import json
from typing import Any, ClassVar

import numpy as np
from pydantic import Field, field_validator

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import Step, World, WorldConfig, draw_level, level_key
from oneiro.worlds.textgame.game import solve
from oneiro.worlds.textgame.games import GAMES, game_named
from oneiro.worlds.textgame.scene import ROOT, Scene, Thing
from oneiro.worlds.textgame.state import Situation

KEPT_PLANS = 4096  # states whose solution is remembered, which bounds memory

_HIDDEN_PROPERTIES = frozenset(("isContainer", "isMoveable", "isOpenable", "isActivatable"))
"""Properties that say what a thing is for; the readable view leaves them out."""


class TextGameConfig(WorldConfig):
    """Which game is played, and how it is shown."""

    max_actions: int = Field(default=40, ge=1)
    game: str = "brew-tea"
    """One of the games in `oneiro.worlds.textgame.games`."""

    @field_validator("game")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            return game_named(name).name
        except OneiroError as error:
            raise ValueError(str(error)) from error


class TextGame(World):
    """One episode of one of the games. The reward of a step is the share of the highest score that it gains."""

    name: ClassVar[str] = "textgame"
    Config: ClassVar[type[WorldConfig]] = TextGameConfig
    views: ClassVar[tuple[str, ...]] = ("text", "json")
    variants: ClassVar[dict[str, dict[str, Any]]] = {name: {"game": name} for name in GAMES}

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        assert isinstance(self.config, TextGameConfig)
        self.game = game_named(self.config.game)
        self.scene = Scene()
        self.reply = ""
        self._plans: dict[str, list[str] | None] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        self.scene, key = draw_level(
            self.game.name, self.seed, self.split, self.game.level, lambda scene: level_key(scene.key())
        )
        self.reply = ""
        return self.render(), {"key": key, "game": self.game.name}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.scene.won)
        stepped = self.game.step(self.scene, action)
        before, self.scene, self.reply = self.scene, stepped.after, stepped.reply
        gained = (self.scene.score - before.score) / self.game.max_score  # rewards of an episode add up to at most 1
        return self.outcome(
            gained,
            done=self.scene.over,
            success=self.scene.won,
            valid=stepped.understood,
            effective=self.scene.key() != before.key(),
            possible=stepped.possible,
        )

    def render(self, view: str | None = None) -> str:
        if self.view_named(view) == "json":
            return json.dumps({"game_state": [*self.scene.state(), self.scene.score_json()]}, separators=(",", ":"))
        lines = [self.reply] if self.reply else []
        lines += self._tree(self.scene.things[ROOT], 0)
        return "\n".join([*lines, f"Score: {self.scene.score} of {self.game.max_score}"])

    @property
    def state(self) -> Any:
        """All objects, and the score as the last entry."""
        return [*self.scene.state(), self.scene.score_json()]

    def parse(self, text: str, view: str | None = None) -> Any | None:
        if self.view_named(view) != "json":
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return data.get("game_state") if isinstance(data, dict) else None

    @property
    def instruction(self) -> str:
        rules = self.game.rules
        commands = ", ".join(f'"{verb.pattern.format("X", "Y")}"' for verb in self.game.verbs)
        return "\n\n".join(
            [
                self.game.task,
                f"Commands: {commands}. X and Y are objects, named in full, such as {self._some_name()}. After every "
                f"command time passes. You have {self.config.max_actions} commands.",
                f"Objects:\n{rules['object']}",
                f"What the commands do:\n{rules['action']}",
                f"Score: {rules['score']}",
            ]
        )

    def situation(self, action: str) -> Situation:
        """What a predictor may know before `action` is carried out."""
        return self.game.situation(self.scene, action)

    def commands(self) -> list[str]:
        """Every command that is understood now, possible or not."""
        return [verb.command(*things) for verb, things in self.game.commands(self.scene)]

    def random_action(self, rng: np.random.Generator) -> str:
        known = self.commands()
        return known[int(rng.integers(len(known)))]

    def plan(self) -> list[str] | None:
        """A shortest winning plan from here, or None. The rest of a plan that is being followed is remembered."""
        key = self.scene.key()
        if key not in self._plans:
            if len(self._plans) >= KEPT_PLANS:
                self._plans.clear()
            self._remember(self.scene, solve(self.game, self.scene))
        return self._plans[key]

    def oracle(self) -> str | None:
        plan = self.plan()
        return plan[0] if plan else None

    def ceiling(self) -> float | None:
        plan = self.plan()
        return float(plan is not None and len(plan) <= self.remaining)

    def _remember(self, scene: Scene, plan: list[str] | None) -> None:
        self._plans[scene.key()] = plan
        for place, command in enumerate(plan or ()):
            scene = self.game.step(scene, command).after
            # The rest of a shortest plan is a shortest plan, so an oracle that follows it need not search again.
            self._plans[scene.key()] = (plan or [])[place + 1 :]

    def _tree(self, thing: Thing, depth: int) -> list[str]:
        """A thing and all inside it, one line each, indented by depth."""
        lines = [f"{'  ' * depth}{thing.name}{_describe(thing)}"]
        if thing["isOpenable"] and not thing["isOpen"]:
            return lines
        return lines + [line for inner in self.scene.inside(thing) for line in self._tree(inner, depth + 1)]

    def _some_name(self) -> str:
        things = [thing for thing in self.scene.things.values() if thing.uuid > ROOT]
        return f'"{things[0].name}"' if things else '"cup (ID: 4)"'


def _describe(thing: Thing) -> str:
    """What a look tells about a thing: its states, not its uses."""
    parts = []
    for key, value in thing.properties.items():
        if key in _HIDDEN_PROPERTIES:
            continue
        if isinstance(value, bool):
            has, word = key.startswith("has"), key.removeprefix("is").removeprefix("has").lower()
            parts.append(word if value else f"{'no' if has else 'not'} {word}")
        else:
            parts.append(f"{key} {', '.join(map(str, value)) or 'nothing' if isinstance(value, list) else value}")
    return f": {'; '.join(parts)}" if parts else ""
