"""Rulebook games: rules that nobody has seen before, given in words; bring a few objects into a wanted state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from oneiro.worlds.base import Step, World, WorldConfig, draw_level, in_split
from oneiro.worlds.rules.rulebook.drawing import RULES, Names, RulebookGame, RuleBounds, draw_game, draw_things
from oneiro.worlds.rules.rulebook.language import LARGEST, Machine, Things, Value, write

Goal = tuple[tuple[int, int, Value], ...]
"""Object, property and the value it must have, each by its place."""
Situation = tuple[Things, int]
"""The objects, and how many steps were taken."""
Act = Callable[[Situation, str], Situation]
"""What an action does, as far as somebody knows."""

PERIOD = 3
"""Steps after which clocks are where they were."""
MAX_SEARCH = 3000
"""Situations that a search opens before it gives up: the goals drawn here need a tenth of it."""
TRIES = 50
"""Walks from the start that are tried for a goal; then the level is drawn again."""


class RulebookConfig(WorldConfig):
    """What a game is like."""

    max_actions: int = Field(default=6, ge=1)
    names: Names = "new"
    """Invented names, other ones for evaluation; or few names that both splits share."""
    rules: RuleBounds = RULES
    """Fewest and most rules of a game."""
    distance: int = Field(default=2, ge=1, le=3)
    """Actions that the goal is away, by the shortest way."""


class RulebookWorld(World):
    """One game with its own rules. The reward is 1 in the step that reaches the goal."""

    name: ClassVar[str] = "rulebook"
    Config: ClassVar[type[WorldConfig]] = RulebookConfig
    views: ClassVar[tuple[str, ...]] = ("text", "json")

    def __init__(self, config: WorldConfig | None = None) -> None:
        super().__init__(config)
        assert isinstance(self.config, RulebookConfig)
        self.settings = self.config
        self.game: RulebookGame
        self.machine: Machine
        self.things: Things = ()
        self.goal: Goal = ()
        self._plans: dict[Situation, list[str] | None] = {}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.begin(seed, options)
        names, distance, rules = self.settings.names, self.settings.distance, self.settings.rules

        def draw(rng: np.random.Generator) -> tuple[RulebookGame, Things, Goal] | None:
            game = draw_game(rng, names, rules=rules)
            if not in_split(game.key, self.split):
                return None  # before the search for a goal, which takes long
            things = draw_things(rng, game)
            goal = draw_goal(rng, game, things, distance)
            return (game, things, goal) if goal else None

        (self.game, self.things, self.goal), key = draw_level(
            self.name, self.seed, self.split, draw, lambda level: level[0].key
        )
        self.machine, self._plans = Machine(self.game.book), {}
        return self.render(), {"key": key, "optimum": distance}

    def step(self, action: str) -> Step:
        if self.over:
            return self.ended(success=self.won)
        understood = self.game.understand(action)
        before = self.things
        if understood is not None:
            self.things = self.machine.step(before, self.taken, *understood).things
        return self.outcome(
            float(self.won),
            done=self.won,
            success=self.won,
            valid=understood is not None,
            effective=self.things != before,
        )

    @property
    def won(self) -> bool:
        return reached(self.things, self.goal)

    def render(self, view: str | None = None) -> str:
        if self.view_named(view) == "json":
            return json.dumps(self.state, separators=(",", ":"))
        lines = [self.game.describe(self.things, place) for place in range(len(self.things))]
        return "\n".join([*lines, f"Steps taken: {self.taken}", f"Goal: {self.goal_text}"])

    @property
    def goal_text(self) -> str:
        book = self.game.book
        return ", ".join(
            f"{self.game.objects[thing]}.{book.properties[place].name} = {write(value)}"
            for thing, place, value in self.goal
        )

    @property
    def state(self) -> Any:
        """All objects as the text games have them, and the steps taken as the last entry."""
        return [*self.game.state(self.things), {"step": self.taken}]

    def parse(self, text: str, view: str | None = None) -> Any | None:
        if self.view_named(view) != "json":
            return None
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return data if isinstance(data, list) else None

    @property
    def instruction(self) -> str:
        book = self.game.book
        verbs = ", ".join(f'"{verb.name} X Y"' if verb.objects == 2 else f'"{verb.name} X"' for verb in book.verbs)
        return "\n\n".join(
            [
                f"Bring the objects into the state that the goal names, within {self.config.max_actions} actions.",
                f"Actions: {verbs}. X and Y are objects, named in full, such as {self.game.objects[0]}.",
                f"The rules of this game, which holds no others:\n{self.level_rules}",
                "An action's rules apply in this order; then the rules for whatever has changed; then, every third "
                f"step, the rules of time, for each object. Numbers stay within 0 and {LARGEST}.",
            ]
        )

    @property
    def level_rules(self) -> str:
        return str(self.game.book)

    def random_action(self, rng: np.random.Generator) -> str:
        actions = self.game.actions()
        return actions[int(rng.integers(len(actions)))]

    def plan(self) -> list[str] | None:
        """A shortest plan from here, within the actions that are left; None: there is none, or none so near."""
        key = (self.things, self.taken)
        if key not in self._plans:
            plan = search(self.game, key, self.goal, self._act, min(self.remaining, self.settings.distance))
            self._remember(key, plan)
        return self._plans[key]

    def _remember(self, at: Situation, plan: list[str] | None) -> None:
        self._plans[at] = plan
        for place, action in enumerate(plan or ()):
            at = self._act(at, action)
            self._plans[at] = (plan or [])[place + 1 :]

    def _act(self, at: Situation, action: str) -> Situation:
        return follow(self.game, self.machine)(at, action)

    def oracle(self) -> str | None:
        plan = self.plan()
        return plan[0] if plan else None

    def ceiling(self) -> float | None:
        return float(self.plan() is not None)


def follow(game: RulebookGame, machine: Machine) -> Act:
    """What actions do by the rules of a machine; what is no action only takes a step."""

    def act(at: Situation, action: str) -> Situation:
        things, clock = at
        understood = game.understand(action)
        return (machine.step(things, clock, *understood).things if understood else things), clock + 1

    return act


def reached(things: Things, goal: Goal) -> bool:
    return all(things[thing][place] == value for thing, place, value in goal)


def draw_goal(rng: np.random.Generator, game: RulebookGame, things: Things, distance: int) -> Goal:
    """Values that a random walk leads to and no shorter way does; empty where no walk does."""
    machine, actions = Machine(game.book), game.actions()
    act = follow(game, machine)
    for _ in range(TRIES):
        at: Situation = (things, 0)
        for _ in range(distance):
            moves = [
                action
                for action in (actions[int(i)] for i in rng.permutation(len(actions)))
                if act(at, action)[0] != at[0]
            ]
            if not moves:
                return ()
            at = act(at, moves[0])
        goal = tuple(
            (thing, place, value)
            for thing, values in enumerate(at[0])
            for place, value in enumerate(values)
            if value != things[thing][place]
        )
        if goal and search(game, (things, 0), goal, act, distance - 1) is None:
            return goal
    return ()


def search(game: RulebookGame, start: Situation, goal: Goal, act: Act, depth: int) -> list[str] | None:
    """A shortest way to the goal by breadth-first search, at most `depth` actions long; None: none in reach."""
    if reached(start[0], goal):
        return []
    actions, seen, level, opened = game.actions(), {_key(start)}, [(start, list[str]())], 0
    for _ in range(depth):
        coming: list[tuple[Situation, list[str]]] = []
        for at, path in level:
            opened += 1
            if opened > MAX_SEARCH:
                return None
            for action in actions:
                after = act(at, action)
                if reached(after[0], goal):
                    return [*path, action]
                if _key(after) not in seen:
                    seen.add(_key(after))
                    coming.append((after, [*path, action]))
        level = coming
    return None


def _key(at: Situation) -> Situation:
    return at[0], at[1] % PERIOD
