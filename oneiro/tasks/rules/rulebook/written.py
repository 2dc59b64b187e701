"""Write the world: from observed steps a model writes the rules, which are then executed.

Many tables of rules are right, and one check decides: the reward is the share of held-out steps that the executed rules
reproduce. What cannot be parsed earns nothing (`worlds.rules.rulebook.language`: bounded, total, never evaluated).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict, Field

from oneiro.recipe import Settings
from oneiro.runtime import seeds
from oneiro.tasks.base import Flaw, Malformed, Messages, Predictor, Reward
from oneiro.tasks.rules.rulebook.cases import Observed, RuleBounds, observe, run
from oneiro.tasks.rules.rulebook.enumeration import enumerate_rules
from oneiro.tasks.rules.rulebook.predictor import ARROW, describe_step, space, unspace
from oneiro.worlds.rules.rulebook.drawing import Game, draw_game, draw_things
from oneiro.worlds.rules.rulebook.language import Machine, Rulebook, RuleError, Things, parse_rules
from oneiro.worlds.rules.rulebook.words import Names
from oneiro.worlds.rules.rulebook.world import Goal, Situation, draw_goal, follow, reached, search

ASKED = "Rules:"
NO_RULES = "none"
"""The answer that has no rules: nothing ever changes."""
DISTANCE = 2
"""Actions that the goals of test games are away."""
ATTEMPTS = 4
"""Actions that a player has for a goal: it plans again after each."""


class WrittenDataSettings(Settings):
    """Which games are drawn, and what is seen of them."""

    names: Names = "new"
    """Invented names, other ones for test games; or a few names that all games share."""
    rules: RuleBounds = (2, 3)
    """Fewest and most rules of a book."""
    quiet: float = Field(0.05, ge=0, lt=1)
    """Of the training games, those of which only verbs without rules are seen: the right table has no rules."""
    held_out_steps: int = Field(12, ge=1)
    """Steps of each game that are not shown: the reward is the share of them that the written rules reproduce."""
    test_books: int = Field(200, ge=1)
    """Test games, each with a goal to plan for."""
    validation_books: int = Field(128, ge=1)
    """Games with training names and links that are looked at during training."""


class WrittenPredictorConfig(BaseModel):
    """What the prompt shows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: int = Field(10, ge=1, le=32)
    """Observed steps; each verb that has rules in its turn."""
    spaced: bool = False
    """A space before every word and sign, in prompts and answers: for the tokenizer of `tiny`, as in `rlvr/rules`."""


@dataclass(frozen=True)
class WrittenCase:
    """A game of which some steps are seen, and others are to be reproduced."""

    id: str
    game: Game
    seen: tuple[Observed, ...]
    hidden: tuple[Observed, ...]
    start: Things = ()
    goal: Goal = ()
    """What a player is to reach from `start`; empty where nobody plans."""


def draw_case(
    settings: WrittenDataSettings, steps: int, seed: int, name: str, number: int, held_out: bool
) -> WrittenCase:
    """A pure function of its arguments; held-out games have a goal wherever one can be drawn."""
    rng = seeds.generator(seed, "written rules", name, number)
    game = draw_game(rng, settings.names, held_out, settings.rules)
    # Verbs without rules would fill half of the steps with nothing.
    verbs = sorted({rule.trigger.name for rule in game.book.rules if rule.trigger.kind == "verb"})
    if not held_out and rng.random() < settings.quiet:
        verbs = [verb.name for verb in game.book.verbs if verb.name not in verbs]
    seen, hidden = observe(rng, game, steps, verbs), observe(rng, game, settings.held_out_steps, verbs)
    start = draw_things(rng, game) if held_out else ()
    goal = draw_goal(rng, game, start, DISTANCE) if held_out else ()
    return WrittenCase(f"{name}-{number}", game, seen, hidden, start, goal)


def reproduced(case: WrittenCase, book: Rulebook) -> float:
    """The share of held-out steps that a book's rules lead to exactly."""
    machine = Machine(book)
    right = [run(case.game, machine, one.things, one.clock, one.action).things == one.after for one in case.hidden]
    return sum(right) / len(right)


def plan_succeeds(case: WrittenCase, book: Rulebook) -> bool:
    """Whether a player who searches in a book's rules, and plans again after each true step, reaches the goal."""
    imagined, true = follow(case.game, Machine(book)), follow(case.game, Machine(case.game.book))
    at: Situation = (case.start, 0)
    for _ in range(ATTEMPTS):
        plan = search(case.game, at, case.goal, imagined, DISTANCE)
        if not plan:
            return False
        at = true(at, plan[0])
        if reached(at[0], case.goal):
            return True
    return False


class WrittenPredictor(Predictor[WrittenCase, Messages, str, Rulebook]):
    """Rules from observed steps. A prediction is a rulebook."""

    name: ClassVar[str] = "written-rules"
    Config: ClassVar[type[WrittenPredictorConfig]] = WrittenPredictorConfig

    def __init__(self, config: WrittenPredictorConfig | None = None) -> None:
        self.config = config if config is not None else WrittenPredictorConfig()

    @property
    def reward_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def pieces(self, case: WrittenCase) -> Iterator[tuple[str, bool]]:
        """The prompt in parts, each with whether it is an outcome; SFT learns all of these besides the rules."""
        for one in case.seen[: self.config.steps]:
            before, arrow, outcome = describe_step(case.game, one).rpartition(ARROW)
            yield self._write(f"{before}{arrow}"), False
            yield self._write(f"{outcome}\n"), True
        yield self._write(ASKED), False

    def prompt(self, case: WrittenCase) -> Messages:
        return [{"role": "user", "content": "".join(text for text, _ in self.pieces(case))}]

    def _write(self, text: str) -> str:
        return space(text) if self.config.spaced else text

    def target(self, case: WrittenCase) -> str:
        """The rules that the game was drawn with: one right table among many. None where nothing was seen to change.

        Rules of verbs come first, in the order of the steps, so that an answer's order is no guess. The order of rules
        with different triggers changes nothing.
        """
        seen = any(one.things != one.after for one in case.seen)
        rules = sorted(case.game.book.rules, key=lambda rule: (rule.trigger.kind != "verb", rule.trigger.name))
        text = "\n".join(map(str, rules)) if seen else NO_RULES
        return self._write(text)

    def parse(self, text: str, case: WrittenCase) -> Rulebook | Malformed:
        text = unspace(text) if self.config.spaced else text
        if not text.strip():
            return Malformed(Flaw.EMPTY)
        book = case.game.book
        try:
            return parse_rules("" if text.strip() == NO_RULES else text, book.properties, book.verbs)
        except RuleError as error:
            return Malformed(Flaw.SHAPE, str(error))

    def reward(self, text: str, case: WrittenCase) -> Reward:
        book = self.parse(text, case)
        share = 0.0 if isinstance(book, Malformed) else reproduced(case, book)
        return Reward(share, {"reproduced": share})

    def metrics(self, text: str, case: WrittenCase) -> dict[str, float]:
        """The share of held-out steps, whether all of them, and whether the text is a table of rules."""
        share = self.reward(text, case).value
        parsed = not isinstance(self.parse(text, case), Malformed)
        return {"reproduced": share, "all": float(share == 1.0), "parsed": float(parsed)}

    def baselines(self, train: Sequence[WrittenCase] = ()) -> dict[str, Callable[[WrittenCase], str]]:
        """No rules at all, the shortest table that an enumerative search finds, and the true rules."""
        return {
            "no rules": lambda case: NO_RULES,
            "enumerative search": self.enumerated,
            "true rules": lambda case: str(case.game.book),
        }

    def enumerated(self, case: WrittenCase) -> str:
        return str(enumerate_rules(case.game, case.seen[: self.config.steps])) or NO_RULES
