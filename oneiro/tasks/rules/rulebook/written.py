"""Write the world: from observed steps a model writes the rules, which are then executed.

Many tables of rules are right, and one check decides: the reward is the share of held-out steps that the executed rules
reproduce. What cannot be parsed earns nothing (`worlds.rules.rulebook.language`: bounded, total, never evaluated).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

from pydantic import Field

from oneiro.recipe import Settings
from oneiro.runtime import seeds
from oneiro.tasks.base import Flaw, Malformed, Messages, Predictor, Reward
from oneiro.tasks.rules.rulebook.cases import Observed, RuleBounds, observe, run
from oneiro.tasks.rules.rulebook.predictor import ARROW, describe_step, space, unspace
from oneiro.worlds.rules.rulebook.drawing import Names, RulebookGame, draw_game, draw_things
from oneiro.worlds.rules.rulebook.language import (
    LARGEST,
    Condition,
    Effect,
    Machine,
    Ref,
    Role,
    Rule,
    Rulebook,
    RuleError,
    Things,
    Trigger,
    Value,
    parse_rules,
)
from oneiro.worlds.rules.rulebook.world import Goal, Situation, draw_goal, follow, reached, search

RULES_LABEL = "Rules:"
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


class WrittenPredictorConfig(Settings):
    """What the prompt shows."""

    steps: int = Field(10, ge=1, le=32)
    """Observed steps; each verb that has rules in its turn."""
    spaced: bool = False
    """A space before every word and sign, in prompts and answers: for the tokenizer of `tiny`, as in `rlvr/rules`."""


@dataclass(frozen=True)
class WrittenCase:
    """A game of which some steps are seen, and others are to be reproduced."""

    id: str
    game: RulebookGame
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


def share_reproduced(case: WrittenCase, book: Rulebook) -> float:
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

    def __init__(self, config: WrittenPredictorConfig | None = None) -> None:
        self.config = config if config is not None else WrittenPredictorConfig()

    def pieces(self, case: WrittenCase) -> Iterator[tuple[str, bool]]:
        """The prompt in parts, each with whether it is an outcome; SFT learns all of these besides the rules."""
        for one in case.seen[: self.config.steps]:
            before, arrow, outcome = describe_step(case.game, one).rpartition(ARROW)
            yield self._write(f"{before}{arrow}"), False
            yield self._write(f"{outcome}\n"), True
        yield self._write(RULES_LABEL), False

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
        share = 0.0 if isinstance(book, Malformed) else share_reproduced(case, book)
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
            "enumerative search": self.enumerate_rules,
            "true rules": lambda case: str(case.game.book),
        }

    def enumerate_rules(self, case: WrittenCase) -> str:
        return str(enumerate_rules(case.game, case.seen[: self.config.steps])) or NO_RULES


# Rules by enumeration -------------------------------------------------------------------------------------------------

# Rules by enumeration: a search without any model that explains observed steps, to compare written rules with.
#
# Greedy: every change that the rules so far do not foretell suggests effects that would have made it, with no
# condition or with one or two that held. The rule that lets most steps come out right is kept, of equals the
# shortest, until all do or nothing helps.


MAX_RULES = 6
"""Rules that a search adds, at most: books have no more."""


def enumerate_rules(game: RulebookGame, seen: Sequence[Observed]) -> Rulebook:
    """A book over the game's words that explains what was seen, as far as the search finds one."""
    book = replace(game.book, rules=())
    best = _score(game, book, seen)
    for _ in range(MAX_RULES):
        if best[0] == len(seen):
            break
        candidates = dict.fromkeys(rule for one in seen for rule in _suggest(game, book, one))
        scored = [(_score(game, replace(book, rules=(*book.rules, rule)), seen), rule) for rule in candidates]
        if not scored:
            break
        score, rule = max(scored, key=lambda pair: (pair[0], -len(pair[1].conditions), -len(str(pair[1]))))
        if score <= best:
            break
        best, book = score, replace(book, rules=(*book.rules, rule))
    return book


def _score(game: RulebookGame, book: Rulebook, seen: Sequence[Observed]) -> tuple[int, int]:
    """Steps that come out right, and, less important, values that do not."""
    machine, right, wrong = Machine(book), 0, 0
    for one in seen:
        after = run(game, machine, one.things, one.clock, one.action).things
        right += after == one.after
        wrong += sum(a != b for row, true in zip(after, one.after, strict=True) for a, b in zip(row, true, strict=True))
    return right, -wrong


def _suggest(game: RulebookGame, book: Rulebook, one: Observed) -> Iterator[Rule]:
    """Rules that would make a change that the book does not foretell."""
    understood = game.understand(one.action)
    if understood is None:
        return
    verb, chosen = understood
    now = run(game, Machine(book), one.things, one.clock, one.action).things
    for thing, (row, true) in enumerate(zip(now, one.after, strict=True)):
        for place, (old, new) in enumerate(zip(row, true, strict=True)):
            if old == new:
                continue
            if thing in chosen:
                role: Role = "XY"[chosen.index(thing)]  # type: ignore[assignment]
                # The verb's rules see the objects before the step.
                effects = _effects(game.book, Ref(role, game.book.properties[place].name), one.things, chosen, new)
                yield from _with_conditions(Trigger("verb", verb, len(chosen)), effects, game.book, one.things, chosen)
            # Rules of changes see them afterwards, when the other changes have been made.
            after = list(one.after)
            after[thing] = (*true[:place], old, *true[place + 1 :])
            changed = [
                kind.name for kind, a, b in zip(game.book.properties, one.things[thing], true, strict=True) if a != b
            ]
            for name in changed:
                if name != game.book.properties[place].name:
                    effects = _effects(
                        game.book, Ref("X", game.book.properties[place].name), tuple(after), (thing,), new
                    )
                    yield from _with_conditions(Trigger("change", name), effects, game.book, tuple(after), (thing,))


def _effects(book: Rulebook, ref: Ref, things: Things, chosen: tuple[int, ...], new: Value) -> list[Effect]:
    places = book.places
    kind = book.properties[places[ref.property]]
    old = things[chosen["XY".index(ref.role)]][places[ref.property]]
    effects = [Effect(ref, "=", new)]
    if kind.kind == "flag":
        effects.append(Effect(ref, "flips"))
    if kind.kind == "number":
        # Beyond the ends nobody sees how far: the smallest step that reaches them.
        effects.append(Effect(ref, "+=", int(new) - int(old)) if new > old else Effect(ref, "-=", int(old) - int(new)))  # type: ignore[operator]
    for other in _refs(book, chosen):
        same = book.properties[places[other.property]]
        if (same.kind, same.words) == (kind.kind, kind.words) and other != ref:
            value = things[chosen["XY".index(other.role)]][places[other.property]]
            if value == new:
                effects.append(Effect(ref, "=", other))
            if kind.kind == "number" and min(LARGEST, int(old) + int(value)) == new != old:
                effects.append(Effect(ref, "+=", other))
            if kind.kind == "number" and max(0, int(old) - int(value)) == new != old:
                effects.append(Effect(ref, "-=", other))
    return effects


def _with_conditions(
    trigger: Trigger, effects: Sequence[Effect], book: Rulebook, things: Things, chosen: tuple[int, ...]
) -> Iterator[Rule]:
    """Each effect alone, and under one or two conditions that hold."""
    held = list(_conditions_that_hold(book, things, chosen))
    for effect in effects:
        yield Rule(trigger, (), effect)
        for condition in held:
            yield Rule(trigger, (condition,), effect)
    # Two conditions only of the simplest effects: the pool would be a hundred times as large.
    for effect in effects[:2]:
        for pair in combinations(held[::2], 2):
            if pair[0].ref != pair[1].ref:
                yield Rule(trigger, pair, effect)


def _conditions_that_hold(book: Rulebook, things: Things, chosen: tuple[int, ...]) -> Iterator[Condition]:
    for ref in _refs(book, chosen):
        kind = book.properties[book.places[ref.property]]
        value = things[chosen["XY".index(ref.role)]][book.places[ref.property]]
        if kind.kind == "number":
            yield from (Condition(ref, ">", bound) for bound in range(2, 6) if int(value) > bound)
            yield from (Condition(ref, "<", bound) for bound in range(4, 8) if int(value) < bound)
        else:
            yield Condition(ref, "=", value)
            yield from (Condition(ref, "!=", word) for word in kind.words if word != value)


def _refs(book: Rulebook, chosen: tuple[int, ...]) -> list[Ref]:
    roles: list[Role] = ["X", "Y"][: len(chosen)]  # type: ignore[assignment]
    return [Ref(role, kind.name) for role in roles for kind in book.properties]
