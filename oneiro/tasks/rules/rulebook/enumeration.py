"""Rules by enumeration: a search without any model that explains observed steps, to compare written rules with.

Greedy: every change that the rules so far do not foretell suggests effects that would have made it, with no condition
or with one or two that held. The rule that lets most steps come out right is kept, of equals the shortest, until all do
or nothing helps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from oneiro.tasks.rules.rulebook.cases import Observed, run
from oneiro.worlds.rules.rulebook.drawing import Game
from oneiro.worlds.rules.rulebook.language import (
    LARGEST,
    Condition,
    Effect,
    Machine,
    Ref,
    Role,
    Rule,
    Rulebook,
    Things,
    Trigger,
    Value,
)

MAX_FOUND = 6
"""Rules that a search adds, at most: books have no more."""


def enumerate_rules(game: Game, seen: Sequence[Observed]) -> Rulebook:
    """A book over the game's words that explains what was seen, as far as the search finds one."""
    book = replace(game.book, rules=())
    best = _score(game, book, seen)
    for _ in range(MAX_FOUND):
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


def _score(game: Game, book: Rulebook, seen: Sequence[Observed]) -> tuple[int, int]:
    """Steps that come out right, and, less important, values that do not."""
    machine, right, wrong = Machine(book), 0, 0
    for one in seen:
        after = run(game, machine, one.things, one.clock, one.action).things
        right += after == one.after
        wrong += sum(a != b for row, true in zip(after, one.after, strict=True) for a, b in zip(row, true, strict=True))
    return right, -wrong


def _suggest(game: Game, book: Rulebook, one: Observed) -> Iterator[Rule]:
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
    """Effects that give a property its new value."""
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
