"""A small language for the rules of a game: printed, parsed and executed; total and bounded.

    zop X Y: if X.heat > 3 and Y.open, Y.count += X.size
    when X.count changes: if not X.open, X.tint = red
    every 3 steps: if X.tint = red, X.heat -= 1

A rule has a trigger, up to `MAX_CONDITIONS` conditions and one effect. The first kind fires when the verb is used, on
the named objects X and Y. The second fires for an object whose property has just changed, whatever changed it. The
third fires in every third step, for each object in turn, after everything else. Rules fire in the order of the book,
and each sees what earlier ones did. In one step a rule of the second or third kind fires at most once for an object, so
a step always ends. Numbers stay within 0 and 9.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Value = bool | int | str
Values = tuple[Value, ...]
"""The values of one object, in the order of the book's properties."""
Things = tuple[Values, ...]
"""All objects of a game."""
Role = Literal["X", "Y"]
Relation = Literal["=", "!=", "<", ">"]
Operation = Literal["=", "+=", "-=", "flips"]

LARGEST = 9
"""Numbers are single digits, which any tokenizer can split into the same tokens."""
MAX_CONDITIONS = 3
MAX_RULES = 12
MAX_CHARACTERS = 4000  # twelve rules of the longest form have 1,200


class RuleError(ValueError):
    """A text that is no rule of this book, with the reason."""


@dataclass(frozen=True, slots=True)
class Property:
    """What every object has: a flag, a number or one of a few words."""

    name: str
    kind: Literal["flag", "number", "word"]
    words: tuple[str, ...] = ()

    @property
    def values(self) -> tuple[Value, ...]:
        if self.kind == "flag":
            return False, True
        return tuple(range(LARGEST + 1)) if self.kind == "number" else self.words


@dataclass(frozen=True, slots=True)
class Verb:
    name: str
    objects: int
    """How many it takes, 1 or 2."""


@dataclass(frozen=True, slots=True)
class Ref:
    """A property of one of the objects that a rule speaks of."""

    role: Role
    property: str

    def __str__(self) -> str:
        return f"{self.role}.{self.property}"


@dataclass(frozen=True, slots=True)
class Condition:
    ref: Ref
    relation: Relation
    value: Value | Ref

    def __str__(self) -> str:
        if isinstance(self.value, bool):
            return f"{self.ref}" if self.value else f"not {self.ref}"
        return f"{self.ref} {self.relation} {write(self.value)}"


@dataclass(frozen=True, slots=True)
class Effect:
    ref: Ref
    operation: Operation
    value: Value | Ref | None = None

    def __str__(self) -> str:
        return f"{self.ref} flips" if self.value is None else f"{self.ref} {self.operation} {write(self.value)}"


@dataclass(frozen=True, slots=True)
class Trigger:
    kind: Literal["verb", "change", "clock"]
    name: str
    """The verb, the property that changes, or the number of steps."""
    objects: int = 1

    def __str__(self) -> str:
        if self.kind == "verb":
            return f"{self.name} X Y" if self.objects == 2 else f"{self.name} X"
        return f"when X.{self.name} changes" if self.kind == "change" else f"every {self.name} steps"


@dataclass(frozen=True, slots=True)
class Rule:
    trigger: Trigger
    conditions: tuple[Condition, ...]
    effect: Effect

    def __str__(self) -> str:
        return self.show()

    def show(self, number: int | None = None) -> str:
        """Its text; with a number before each part: what was copied of it so far then says what comes next, also where
        other rules have the same words.
        """
        mark = "" if number is None else f"{number} "
        conditions = " and ".join(f"{mark}{condition}" for condition in self.conditions)
        return f"{mark}{self.trigger}: {f'if {conditions}, ' if conditions else ''}{mark}{self.effect}"


@dataclass(frozen=True)
class Rulebook:
    """What the objects of a game have, what can be done, and what happens then."""

    properties: tuple[Property, ...]
    verbs: tuple[Verb, ...]
    rules: tuple[Rule, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.rules))

    @property
    def places(self) -> dict[str, int]:
        return {kind.name: place for place, kind in enumerate(self.properties)}

    def verb(self, name: str) -> Verb | None:
        return next((verb for verb in self.verbs if verb.name == name), None)


def write(value: Value | Ref) -> str:
    """A value as rules, states and answers show it."""
    return ("no", "yes")[value] if isinstance(value, bool) else str(value)


# Execution ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Firing:
    """A rule that changed something: its place in the book, the object, the property's place and its new value."""

    rule: int
    thing: int
    property: int
    value: Value


@dataclass(frozen=True, slots=True)
class Attempt:
    """A rule that was looked at for some objects, and what it found: a trace of a step is a list of these."""

    rule: int
    chosen: tuple[int, ...]
    operands: tuple[tuple[Value, Value], ...]
    """Both sides of each condition, up to the first that does not hold."""
    effect: tuple[Value, Value, Value] | None = None
    """The old value, the value in the effect and the new one; None where a condition does not hold."""


@dataclass(frozen=True, slots=True)
class Outcome:
    things: Things
    firings: tuple[Firing, ...]
    attempts: tuple[Attempt, ...] = ()

    @property
    def rules(self) -> int:
        """How many different rules changed something."""
        return len({firing.rule for firing in self.firings})


class Machine:
    """A rulebook made ready: what a step does to objects. Pure, total and bounded."""

    def __init__(self, book: Rulebook) -> None:
        self.book, self.places = book, book.places
        self.rules: dict[tuple[str, str], list[int]] = {}
        """The rules of each trigger, by its kind and name."""
        for number, rule in enumerate(book.rules):
            self.rules.setdefault((rule.trigger.kind, rule.trigger.name), []).append(number)
        self.clocks = [name for kind, name in self.rules if kind == "clock"]

    def step(self, things: Things, clock: int, verb: str, chosen: tuple[int, ...]) -> Outcome:
        """What using a verb on the chosen objects does, as step number `clock + 1`."""
        step = _Step(self, list(things))
        for number in self.rules.get(("verb", verb), ()):
            if self.book.rules[number].trigger.objects == len(chosen):
                step.fire(number, chosen)
        step.react()
        for every in self.clocks:
            if (clock + 1) % int(every) == 0:
                for thing in range(len(things)):
                    for number in self.rules["clock", every]:
                        step.fire(number, (thing,))
                step.react()
        return Outcome(tuple(step.now) if step.firings else things, tuple(step.firings), tuple(step.attempts))


class _Step:
    """A step under way."""

    def __init__(self, machine: Machine, now: list[Values]) -> None:
        self.machine, self.now = machine, now
        self.firings: list[Firing] = []
        self.attempts: list[Attempt] = []
        self.changed: list[tuple[int, str]] = []
        """Objects and properties whose changes have had no consequences yet."""
        self.seen: set[tuple[int, int]] = set()
        """Rules that changes have set off, each with its object."""

    def react(self) -> None:
        """Let changes have their consequences, first come, first served."""
        while self.changed:
            thing, name = self.changed.pop(0)
            for number in self.machine.rules.get(("change", name), ()):
                if (number, thing) not in self.seen:
                    self.seen.add((number, thing))
                    self.fire(number, (thing,))

    def fire(self, number: int, chosen: tuple[int, ...]) -> None:
        rule, places = self.machine.book.rules[number], self.machine.places
        operands: list[tuple[Value, Value]] = []
        for condition in rule.conditions:
            operands.append((self._value(condition.ref, chosen), self._value(condition.value, chosen)))
            if not holds(condition.relation, *operands[-1]):
                self.attempts.append(Attempt(number, chosen, tuple(operands)))
                return
        effect, place = rule.effect, places[rule.effect.ref.property]
        thing = chosen[effect.ref.role == "Y"]
        row = self.now[thing]
        old, value = row[place], self._value(effect.value, chosen)
        by = value
        if effect.operation == "flips":
            value = not old
        elif effect.operation != "=":
            value = min(LARGEST, max(0, int(old) + (int(by) if effect.operation == "+=" else -int(by))))
        self.attempts.append(Attempt(number, chosen, tuple(operands), (old, by, value)))
        if value != old:
            self.now[thing] = (*row[:place], value, *row[place + 1 :])
            self.firings.append(Firing(number, thing, place, value))
            self.changed.append((thing, effect.ref.property))

    def _value(self, term: Value | Ref | None, chosen: tuple[int, ...]) -> Value:
        if isinstance(term, Ref):
            return self.now[chosen[term.role == "Y"]][self.machine.places[term.property]]
        return False if term is None else term


def holds(relation: Relation, left: Value, right: Value) -> bool:
    if relation in "<>":
        return int(left) < int(right) if relation == "<" else int(left) > int(right)
    return (left == right) is (relation == "=")


# Parsing --------------------------------------------------------------------------------------------------------------

_NAME = "[a-z]{1,12}"
_HEAD = re.compile(rf"when X\.({_NAME}) changes|every ([2-9]) steps|({_NAME}) X( Y)?")
_TERM = rf"[XY]\.{_NAME}|[0-9]|{_NAME}"
_CONDITION = re.compile(rf"(not )?([XY])\.({_NAME})|([XY])\.({_NAME}) (=|!=|<|>) ({_TERM})")
_ROLES: dict[str, Role] = {"X": "X", "Y": "Y"}
_RELATIONS: dict[str, Relation] = {"=": "=", "!=": "!=", "<": "<", ">": ">"}
_OPERATIONS: dict[str, Operation] = {"=": "=", "+=": "+=", "-=": "-="}
_EFFECT = re.compile(rf"([XY])\.({_NAME}) (?:(flips)|(=|\+=|-=) ({_TERM}))")


def parse_rules(text: str, properties: Sequence[Property], verbs: Sequence[Verb]) -> Rulebook:
    """A rulebook from one rule a line; empty lines do not count. Anything else is a `RuleError`."""
    if len(text) > MAX_CHARACTERS:
        raise RuleError(f"a book has at most {MAX_CHARACTERS} characters")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if len(lines) > MAX_RULES:
        raise RuleError(f"a book has at most {MAX_RULES} rules")
    signature = {kind.name: kind for kind in properties}
    return Rulebook(
        tuple(properties),
        tuple(verbs),
        tuple(parse_rule(line, signature, {verb.name: verb.objects for verb in verbs}) for line in lines),
    )


def parse_rule(line: str, properties: Mapping[str, Property], verbs: Mapping[str, int]) -> Rule:
    """One rule. Every name and every value must fit the properties and verbs of the game."""
    head, colon, rest = line.partition(": ")
    opening = _HEAD.fullmatch(head)
    if not colon or opening is None:
        raise RuleError(f"no rule begins with '{head[:40]}'")
    prop, every, verb, second = opening.groups()
    if prop:
        trigger = Trigger("change", _known(prop, properties).name)
    elif every:
        trigger = Trigger("clock", every)
    else:
        trigger = Trigger("verb", verb, 2 if second else 1)
        if verbs.get(verb) != trigger.objects:
            raise RuleError(f"no verb is used as '{head}'")
    conditions: tuple[Condition, ...] = ()
    if rest.startswith("if "):
        listed, comma, rest = rest[3:].partition(", ")
        parts = listed.split(" and ")
        if not comma or len(parts) > MAX_CONDITIONS:
            raise RuleError(f"'{listed[:40]}' must be at most {MAX_CONDITIONS} conditions and a comma")
        conditions = tuple(_condition(part, properties) for part in parts)
    rule = Rule(trigger, conditions, _effect(rest, properties))
    if trigger.objects == 1 and any(ref.role == "Y" for ref in refs(rule)):
        raise RuleError("there is no Y where one object is named")
    return rule


def refs(rule: Rule) -> Iterator[Ref]:
    """Every property that a rule speaks of."""
    parts: list[Condition | Effect] = [*rule.conditions, rule.effect]
    for part in parts:
        yield part.ref
        if isinstance(part.value, Ref):
            yield part.value


def _condition(text: str, properties: Mapping[str, Property]) -> Condition:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise RuleError(f"no condition reads '{text[:40]}'")
    negated, flag_role, flag, role, name, relation, term = match.groups()
    if flag:
        if _known(flag, properties).kind != "flag":
            raise RuleError(f"'{flag}' is not yes or no: compare it with something")
        return Condition(Ref(_ROLES[flag_role], flag), "=", negated is None)
    kind = _known(name, properties)
    if kind.kind == "flag" or (kind.kind == "word" and relation in "<>"):
        raise RuleError(f"'{name}' cannot be compared by {relation}")
    return Condition(Ref(_ROLES[role], name), _RELATIONS[relation], _term(term, kind, properties))


def _effect(text: str, properties: Mapping[str, Property]) -> Effect:
    match = _EFFECT.fullmatch(text)
    if match is None:
        raise RuleError(f"no effect reads '{text[:40]}'")
    role, name, flips, operation, term = match.groups()
    kind = _known(name, properties)
    if flips:
        if kind.kind != "flag":
            raise RuleError(f"'{name}' cannot flip: it is not yes or no")
        return Effect(Ref(_ROLES[role], name), "flips")
    if operation != "=" and kind.kind != "number":
        raise RuleError(f"'{name}' is no number that {operation} could change")
    return Effect(Ref(_ROLES[role], name), _OPERATIONS[operation], _term(term, kind, properties))


def _term(text: str, kind: Property, properties: Mapping[str, Property]) -> Value | Ref:
    """A value of the property `kind`, or another property whose values are the same."""
    if text[:2] in ("X.", "Y."):
        other = _known(text[2:], properties)
        if (other.kind, other.words) != (kind.kind, kind.words):
            raise RuleError(f"'{other.name}' and '{kind.name}' have different values")
        return Ref(_ROLES[text[0]], other.name)
    for value in kind.values:
        if write(value) == text:
            return value
    raise RuleError(f"'{text}' is no value of '{kind.name}'")


def _known(name: str, properties: Mapping[str, Property]) -> Property:
    if name not in properties:
        raise RuleError(f"no property is called '{name}'")
    return properties[name]
