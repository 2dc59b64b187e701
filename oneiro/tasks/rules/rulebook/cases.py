"""Questions about rulebook games: drawn from a seed and a number, whole scenes at a time.

A scene is one game in one state; its questions are actions. Training scenes and evaluation scenes have no rulebook, no
link of rules and, with new names, no word in common (`worlds.rules.rulebook.drawing`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated

import numpy as np
from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime import seeds
from oneiro.worlds.rules.rulebook.drawing import (
    RULES,
    Names,
    RulebookGame,
    RuleBounds,
    alter,
    draw_game,
    draw_things,
    redraw,
)
from oneiro.worlds.rules.rulebook.language import Machine, Outcome, Rulebook, Things, write

MOST_RULES = 3
"""Cases in which more rules take part are counted with those of three."""
CLOCK = 9
"""Steps are numbered from 1 to this: one digit, three of them of the clock."""
ALTERATIONS = 40
"""Changes of one rule that are tried for a counterfactual."""
EXAMPLE_TRIES = 12
"""Actions that are tried for an example in which something changes."""


Share = Annotated[float, Field(ge=0)]


class RulebookDataSettings(Settings):
    """Which games are drawn, and what is asked about them."""

    names: Names = "new"
    """Invented names, other ones for test games; or a few names that all games share, for models made from nothing."""
    rules: RuleBounds = RULES
    """Fewest and most rules of a book."""
    questions: int = Field(8, ge=1, le=32)
    """Actions asked about in each training scene; they share one reading of rules and objects."""
    shares: tuple[Share, Share, Share, Share] = (0.15, 0.3, 0.3, 0.25)
    """Of the questions, those in which 0, 1, 2 and at least 3 rules change something, where the scene has such."""
    test_books: int = Field(300, ge=1)
    """Test games, one scene each."""
    test_questions: int = Field(6, ge=1, le=32)
    """Questions of each test scene; besides, one counterfactual."""
    validation_books: int = Field(64, ge=1)
    """Games with training names and links that are looked at during training."""


@dataclass(frozen=True)
class Observed:
    """A step that was seen: what was done, where, and what came of it."""

    things: Things
    clock: int
    action: str
    after: Things


@dataclass(frozen=True)
class RuleCase:
    """One question with its true answer."""

    id: str
    game: RulebookGame
    things: Things
    clock: int
    """Steps taken before this one."""
    action: str
    outcome: Outcome
    examples: tuple[Observed, ...] = ()
    shown: Rulebook | None = None
    """The rules in the prompt where they are not the game's own: a control."""
    pair: str = ""
    """Two cases of one pair differ in one rule, and have different answers."""

    @property
    def changed(self) -> bool:
        return self.outcome.things != self.things

    @property
    def rules(self) -> int:
        """How many rules took part, up to `MOST_RULES`; 0: nothing changes."""
        return min(MOST_RULES, self.outcome.rules) if self.changed else 0

    @property
    def chosen(self) -> tuple[int, ...]:
        """The objects that the action names."""
        understood = self.game.understand(self.action)
        return understood[1] if understood else ()

    @property
    def key(self) -> tuple[str, ...]:
        """The question without its rules: objects, clock and action."""
        rows = [self.game.describe(self.things, place) for place in range(len(self.things))]
        return (*rows, str(self.clock), self.action)


class Scenes:
    """An endless list of scenes: a pure function of the settings, the seed, the list's name and a number."""

    def __init__(
        self, settings: RulebookDataSettings, seed: int, name: str, held_out: bool, questions: int, examples: int
    ) -> None:
        self.settings, self.seed, self.name, self.held_out = settings, seed, name, held_out
        self.questions, self.examples = questions, examples
        self.cached = lru_cache(maxsize=4096)(self.draw)

    def draw(self, number: int) -> list[RuleCase]:
        rng = seeds.generator(self.seed, "rulebooks", self.name, number)
        game = draw_game(rng, self.settings.names, self.held_out, self.settings.rules)
        things, clock = draw_things(rng, game), int(rng.integers(CLOCK))
        seen = observe(rng, game, self.examples) if self.examples else ()
        first = f"{self.name}-{number}"
        cases = [
            RuleCase(f"{first}-{place}", game, things, clock, action, outcome, seen)
            for place, (action, outcome) in enumerate(
                choose(rng, game, things, clock, self.questions, self.settings.shares)
            )
        ]
        return cases


def choose(
    rng: np.random.Generator, game: RulebookGame, things: Things, clock: int, count: int, shares: Sequence[float]
) -> list[tuple[str, Outcome]]:
    """Different actions with what they do, as `shares` of the number of rules ask, where there are such."""
    machine, moves = Machine(game.book), list(game.moves())
    untried, groups = iter(rng.permutation(len(moves))), [list[tuple[int, Outcome]]() for _ in range(MOST_RULES + 1)]
    open_groups = set(range(min(MOST_RULES, len(game.book.rules)) + 1))
    chosen: list[tuple[str, Outcome]] = []
    while len(chosen) < count and open_groups:
        chances = np.array([share * (rules in open_groups) for rules, share in enumerate(shares)])
        if not chances.any():
            chances = np.array([float(rules in open_groups) for rules in range(MOST_RULES + 1)])
        rules = int(rng.choice(len(chances), p=chances / chances.sum()))
        # There are a hundred moves: those are carried out that it takes to find one.
        while not groups[rules] and (place := next(untried, None)) is not None:
            outcome = machine.step(things, clock, *moves[place])
            groups[min(MOST_RULES, outcome.rules) if outcome.things != things else 0].append((place, outcome))
        if groups[rules]:
            place, outcome = groups[rules].pop()
            chosen.append((game.write(*moves[place]), outcome))
        else:
            open_groups.remove(rules)
    return chosen


def run(game: RulebookGame, machine: Machine, things: Things, clock: int, action: str) -> Outcome:
    """What an action does by a machine's rules; what is no action does nothing."""
    understood = game.understand(action)
    return machine.step(things, clock, *understood) if understood else Outcome(things, ())


def observe(
    rng: np.random.Generator, game: RulebookGame, count: int, verbs: Sequence[str] = ()
) -> tuple[Observed, ...]:
    """Steps of the same game in other states, each verb (of `verbs`, where given) in its turn; in most of them
    something changes.
    """
    machine, actions, seen = Machine(game.book), game.actions(), list[Observed]()
    verbs = verbs or [verb.name for verb in game.book.verbs]
    for number in range(count):
        verb = verbs[number % len(verbs)]
        known = [action for action in actions if action.split()[0] == verb]
        for _ in range(EXAMPLE_TRIES):
            things, clock = draw_things(rng, game), int(rng.integers(CLOCK))
            action = known[int(rng.integers(len(known)))]
            after = run(game, machine, things, clock, action).things
            if after != things:
                break
        seen.append(Observed(things, clock, action, after))
    return tuple(seen)


# Controls -------------------------------------------------------------------------------------------------------------


def twin(case: RuleCase, seed: int) -> RuleCase | None:
    """The same question under a book in which one rule that took part is another, so that the answer is another."""
    rng = seeds.generator(seed, "rulebook twin", case.id)
    parts = sorted({firing.rule for firing in case.outcome.firings})
    for _ in range(ALTERATIONS if parts else 0):
        book = alter(rng, case.game.book, parts[int(rng.integers(len(parts)))])
        game = replace(case.game, book=book)
        machine = Machine(book)
        outcome = run(game, machine, case.things, case.clock, case.action)
        if outcome.things != case.outcome.things:
            seen = tuple(
                replace(one, after=run(game, machine, one.things, one.clock, one.action).things)
                for one in case.examples
            )
            return replace(case, id=f"{case.id}-twin", game=game, outcome=outcome, examples=seen)
    return None


def with_wrong_rules(case: RuleCase, seed: int) -> RuleCase:
    """The same question and answer beside another game's rules in the same words; its examples are that game's too."""
    rng = seeds.generator(seed, "wrong rules", case.game.key)
    book = redraw(rng, case.game.book)
    other = replace(case.game, book=book)
    return replace(case, shown=book, examples=observe(rng, other, len(case.examples)))


def obey(case: RuleCase, book: Rulebook) -> Outcome:
    """What the action would do by other rules."""
    return run(case.game, Machine(book), case.things, case.clock, case.action)


def edits(before: Things, after: Things) -> dict[tuple[int, int], str]:
    """Object and property, by their places, and the new value in words, in the order of the objects."""
    return {
        (thing, place): write(new)
        for thing, (old_row, new_row) in enumerate(zip(before, after, strict=True))
        for place, (old, new) in enumerate(zip(old_row, new_row, strict=True))
        if old != new
    }
