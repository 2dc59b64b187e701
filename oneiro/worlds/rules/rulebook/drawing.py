"""Games drawn from a seed: names, properties, rules that lead to one another, and objects.

Which split a game belongs to is decided by its rules. A link is a rule whose effect sets off another rule; its kind is
the pair of both effects (`+=` of a number sets off a flag that flips). A quarter of the pairs is held out: no training
game has such a link, and every evaluation game has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import permutations, product
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import AfterValidator

from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.base import DRAWS, level_key
from oneiro.worlds.rules.rulebook.language import (
    LARGEST,
    MAX_RULES,
    Condition,
    Effect,
    Operation,
    Property,
    Ref,
    Relation,
    Role,
    Rule,
    Rulebook,
    Things,
    Trigger,
    Value,
    Verb,
    write,
)

# What things are called: invented verbs, objects and properties -------------------------------------------------------

# `new` names are made of syllables, and no game of one split has a word of the other: verbs, objects and properties of
# evaluation games never occur in training. There are hundreds of each: a model that meets the same few property names
# in all training games learns to write those, and gets none right where the names are others. `shared` names come from
# a short list that both splits use, for a model that learns from nothing and can only know words it has seen; there
# only the combinations of rules are new.

Names = Literal["new", "shared"]
Item = TypeVar("Item")

SHARED_NUMBERS = ("heat", "size", "charge")
SHARED_FLAGS = ("open", "lit", "wet")
SHARED_WORDS = {"tint": ("red", "blue", "green"), "metal": ("iron", "gold", "tin"), "mood": ("calm", "sad", "glad")}
HELD_OUT = 4
"""One name in so many is for evaluation games alone."""
SHARED_VERBS, SHARED_OBJECTS = 6, 9
"""How many names the short lists have."""
VALUES = 3
"""Values that a property of words may have."""
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class Vocabulary:
    """The names that games of one split may draw."""

    verbs: Sequence[str]
    objects: Sequence[str]
    numbers: Sequence[str]
    flags: Sequence[str]
    words: Mapping[str, tuple[str, ...]]
    """Property -> its values."""

    def properties(self, rng: np.random.Generator) -> tuple[Property, ...]:
        """3 or 4 properties: a number and a flag at least, in any order."""
        kinds = ["number", "flag", *pick(rng, ["number", "flag", "word", "word"], int(rng.integers(1, 3)))]
        names = {
            "number": pick(rng, self.numbers, kinds.count("number")),
            "flag": pick(rng, self.flags, kinds.count("flag")),
        }
        drawn = [Property(name, "number") for name in names["number"]]
        drawn += [Property(name, "flag") for name in names["flag"]]
        drawn += [Property(name, "word", self.words[name]) for name in pick(rng, [*self.words], kinds.count("word"))]
        return tuple(pick(rng, drawn, len(drawn)))


@lru_cache(maxsize=4)
def vocabulary(names: Names, held_out: bool) -> Vocabulary:
    """The names of training games, or those of evaluation games."""
    spoken = invent(CONSONANTS, VOWELS, CONSONANTS)
    if names == "shared":
        verbs, objects = spoken[:SHARED_VERBS], spoken[SHARED_VERBS : SHARED_VERBS + SHARED_OBJECTS]
        return Vocabulary(verbs, objects, SHARED_NUMBERS, SHARED_FLAGS, SHARED_WORDS)
    verbs, objects = (_side(spoken[half::2], held_out) for half in (0, 1))
    longer = _side(invent(CONSONANTS, VOWELS, CONSONANTS, VOWELS), held_out)
    numbers, flags, words, values = (longer[part::4] for part in range(4))
    valued = {word: tuple(values[place * VALUES : (place + 1) * VALUES]) for place, word in enumerate(words)}
    return Vocabulary(verbs, objects, numbers, flags, {k: v for k, v in valued.items() if len(v) == VALUES})


def _side(pool: Sequence[str], held_out: bool) -> list[str]:
    return [word for place, word in enumerate(pool) if (place % HELD_OUT == HELD_OUT - 1) is held_out]


@lru_cache(maxsize=2)
def invent(*letters: str) -> list[str]:
    """Every word with one of these letters at each place, in an order that means nothing."""
    words = ["".join(chosen) for chosen in product(*letters)]
    return [words[i] for i in seeds.generator("rulebook", "syllables").permutation(len(words))]


def pick(rng: np.random.Generator, pool: Sequence[Item], count: int) -> list[Item]:
    return [pool[int(i)] for i in rng.permutation(len(pool))[:count]]


# Games ----------------------------------------------------------------------------------------------------------------

VERBS = 4
RULES = (4, 6)
"""Fewest and most rules of a book."""
EVERY = "3"
HELD_OUT_LINKS = 4
"""One kind of link in so many is never in a training game."""
EVAL, TRAIN = "0", "1"
"""The last digit of a game's key, as `worlds.base.in_split` reads it."""


def _check_bounds(rules: tuple[int, int]) -> tuple[int, int]:
    if not 2 <= rules[0] <= rules[1] <= MAX_RULES:
        raise ValueError(f"expected the fewest and the most rules of a book, from 2 to {MAX_RULES}")
    return rules


RuleBounds = Annotated[tuple[int, int], AfterValidator(_check_bounds)]


@dataclass(frozen=True)
class RulebookGame:
    """A rulebook and the names of the objects it is played with."""

    book: Rulebook
    objects: tuple[str, ...]

    @property
    def held_out(self) -> bool:
        return any(map(is_held_out, links(self.book)))

    @property
    def key(self) -> str:
        content = repr((self.book, self.objects))
        return level_key(content)[:-1] + (EVAL if self.held_out else TRAIN)

    def moves(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Everything that can be done: a verb and the places of its objects."""
        count = len(self.objects)
        for verb in self.book.verbs:
            for chosen in permutations(range(count), verb.objects):
                yield verb.name, chosen

    def write(self, verb: str, chosen: tuple[int, ...]) -> str:
        """A move in words."""
        return " ".join([verb, *(self.objects[place] for place in chosen)])

    def actions(self) -> list[str]:
        """Every action there is: a verb with its objects."""
        return [self.write(*move) for move in self.moves()]

    def understand(self, action: str) -> tuple[str, tuple[int, ...]] | None:
        """The verb and the places of its objects; None for what is no action of this game."""
        name, *chosen = action.split()[:4] or [""]
        verb = self.book.verb(name)
        if verb is None or len(chosen) != verb.objects or len({*chosen}) < verb.objects:
            return None
        if not all(thing in self.objects for thing in chosen):
            return None
        return name, tuple(map(self.objects.index, chosen))

    def state(self, things: Things) -> list[dict[str, Any]]:
        """The objects as JSON, in the form of the text games' states."""
        return [
            {
                "name": name,
                "uuid": place,
                "type": "thing",
                "properties": {kind.name: value for kind, value in zip(self.book.properties, values, strict=True)},
                "contains": [],
            }
            for place, (name, values) in enumerate(zip(self.objects, things, strict=True))
        ]

    def describe(self, things: Things, place: int) -> str:
        """One object in a line: `mib: heat 3 open no`."""
        pairs = zip(self.book.properties, things[place], strict=True)
        return f"{self.objects[place]}: {' '.join(f'{kind.name} {write(value)}' for kind, value in pairs)}"


def draw_game(
    rng: np.random.Generator, names: Names = "new", held_out: bool | None = None, rules: tuple[int, int] = RULES
) -> RulebookGame:
    """A game of training (`held_out` false) or of evaluation; None: of either, each as often as the other."""
    held_out = bool(rng.random() < 0.5) if held_out is None else held_out
    words = vocabulary(names, held_out)
    for _ in range(DRAWS):  # at least one book in four is of either side
        verbs = tuple(Verb(name, 1 if place < 2 else 2) for place, name in enumerate(pick(rng, words.verbs, VERBS)))
        book = draw_book(rng, words.properties(rng), tuple(pick(rng, verbs, VERBS)), rules)
        if any(map(is_held_out, links(book))) is held_out:
            return RulebookGame(book, tuple(pick(rng, words.objects, int(rng.integers(6, 10)))))
    raise OneiroError(f"no book of {rules[0]} to {rules[1]} rules in {DRAWS} draws; choose other numbers of rules")


def draw_things(rng: np.random.Generator, game: RulebookGame) -> Things:
    """Any values of all properties."""
    values = [kind.values for kind in game.book.properties]
    places = iter(rng.integers([len(own) for own in values] * len(game.objects)).tolist())
    return tuple(tuple(own[next(places)] for own in values) for _ in game.objects)


# Rules ----------------------------------------------------------------------------------------------------------------


def draw_book(
    rng: np.random.Generator,
    properties: tuple[Property, ...],
    verbs: tuple[Verb, ...],
    rules: tuple[int, int] = RULES,
) -> Rulebook:
    """Rules of verbs, one or two that changes set off, and often one of the clock; short books have no clock."""
    count, clocks, reactions = (
        int(rng.integers(rules[0], rules[1] + 1)),
        int(rng.random() < 0.5),
        int(rng.integers(1, 3)),
    )
    if count < RULES[0]:
        clocks, reactions = 0, 1
    used = pick(rng, verbs * 2, max(min(2, count - 1), count - clocks - reactions))  # a verb may have two rules
    drawn = [_draw_rule(rng, properties, Trigger("verb", verb.name, verb.objects)) for verb in used]
    for _ in range(reactions):
        # Set off by what an earlier rule does, most often the last one, so that chains of three come about.
        cause = drawn[-1] if rng.random() < 0.5 else drawn[int(rng.integers(len(drawn)))]
        drawn.append(_draw_rule(rng, properties, Trigger("change", cause.effect.ref.property)))
    drawn += [_draw_rule(rng, properties, Trigger("clock", EVERY)) for _ in range(clocks)]
    return Rulebook(properties, verbs, tuple(pick(rng, drawn, len(drawn))))


def _draw_rule(rng: np.random.Generator, properties: tuple[Property, ...], trigger: Trigger) -> Rule:
    # A clock looks at every object: with a condition it changes a few of them, without one all.
    fewest, most = {"verb": (0, 2), "change": (0, 1), "clock": (1, 2)}[trigger.kind]
    chances = {"verb": [0.2, 0.5, 0.3], "change": [0.5, 0.5], "clock": [0.3, 0.7]}[trigger.kind]
    count = int(rng.choice(np.arange(fewest, most + 1), p=chances))
    effect = _draw_effect(rng, [kind for kind in properties if kind.name != trigger.name], trigger.objects, properties)
    roles: tuple[Role, ...] = ("X", "Y") if trigger.objects == 2 else ("X",)
    refs = pick(rng, [Ref(role, kind.name) for role in roles for kind in properties], count)
    by_name = {kind.name: kind for kind in properties}
    return Rule(trigger, tuple(_draw_condition(rng, ref, by_name[ref.property]) for ref in refs), effect)


def _draw_condition(rng: np.random.Generator, ref: Ref, kind: Property) -> Condition:
    if kind.kind == "flag":
        return Condition(ref, "=", bool(rng.random() < 0.5))
    if kind.kind == "word":
        return Condition(ref, "=" if rng.random() < 0.7 else "!=", _value(rng, kind))
    if rng.random() < 0.5:
        return Condition(ref, ">", int(rng.integers(2, 6)))
    return Condition(ref, "<", int(rng.integers(4, 8)))


def _draw_effect(
    rng: np.random.Generator, kinds: list[Property], objects: int, properties: tuple[Property, ...]
) -> Effect:
    kind = kinds[int(rng.integers(len(kinds)))]
    role: Role = "Y" if objects == 2 and rng.random() < 0.7 else "X"
    ref, other = Ref(role, kind.name), _other(rng, role, kind, objects, properties)
    if kind.kind == "number":
        operations: tuple[Operation, ...] = ("+=", "-=", "=")
        operation = operations[int(rng.integers(3))]
        if other is not None and rng.random() < 0.4:
            return Effect(ref, operation, other)
        return Effect(
            ref, operation, int(rng.integers(0 if operation == "=" else 1, LARGEST + 1 if operation == "=" else 4))
        )
    if other is not None and rng.random() < 0.3:
        return Effect(ref, "=", other)
    if kind.kind == "flag" and rng.random() < 0.4:
        return Effect(ref, "flips")
    return Effect(ref, "=", _value(rng, kind))


def _other(
    rng: np.random.Generator, role: Role, kind: Property, objects: int, properties: tuple[Property, ...]
) -> Ref | None:
    """A property, of the other object or of the same one, that an effect can take its value from."""
    if objects == 2:
        return Ref("X" if role == "Y" else "Y", kind.name)
    alike = [one.name for one in properties if one.kind == kind.kind == "number" and one.name != kind.name]
    return Ref(role, alike[int(rng.integers(len(alike)))]) if alike else None


def _value(rng: np.random.Generator, kind: Property) -> Value:
    return kind.values[int(rng.integers(len(kind.values)))]


# Splits and counterfactuals -------------------------------------------------------------------------------------------


def links(book: Rulebook) -> Iterator[tuple[str, str]]:
    """Every pair of effects of which the first may set off the second, by kind."""
    for rule in book.rules:
        for cause in book.rules:
            if rule.trigger.kind == "change" and cause.effect.ref.property == rule.trigger.name:
                yield effect_kind(book, cause), effect_kind(book, rule)


def effect_kind(book: Rulebook, rule: Rule) -> str:
    """What a rule's effect does, without names: `number += 3` is `number +=`, `+= Y.size` is `number += property`."""
    effect = rule.effect
    kind = book.properties[book.places[effect.ref.property]].kind
    return f"{kind} {effect.operation}{' property' if isinstance(effect.value, Ref) else ''}"


def is_held_out(link: tuple[str, str]) -> bool:
    return seeds.derive("rulebook", "link", *link) % HELD_OUT_LINKS == 0


def alter(rng: np.random.Generator, book: Rulebook, number: int) -> Rulebook:
    """The same book with one rule changed: another effect on the same property, or a condition turned round."""
    rule, by_name = book.rules[number], {kind.name: kind for kind in book.properties}
    if rule.conditions and rng.random() < 0.4:
        at = int(rng.integers(len(rule.conditions)))
        turned = _turn(rule.conditions[at])
        new = replace(rule, conditions=(*rule.conditions[:at], turned, *rule.conditions[at + 1 :]))
    else:
        drawn = _draw_effect(rng, [by_name[rule.effect.ref.property]], rule.trigger.objects, book.properties)
        # On the same object: what changes is how, not where.
        if drawn.ref != rule.effect.ref:
            return book
        new = replace(rule, effect=drawn)
    return replace(book, rules=(*book.rules[:number], new, *book.rules[number + 1 :]))


def _turn(condition: Condition) -> Condition:
    """Nearly the opposite: what held, most often, no longer does."""
    if isinstance(condition.value, bool):
        return replace(condition, value=not condition.value)
    opposite: dict[Relation, Relation] = {"=": "!=", "!=": "=", "<": ">", ">": "<"}
    return replace(condition, relation=opposite[condition.relation])


def redraw(rng: np.random.Generator, book: Rulebook) -> Rulebook:
    """Another game's rules over the same words."""
    count = max(2, len(book.rules))
    return draw_book(rng, book.properties, book.verbs, (count, count))
