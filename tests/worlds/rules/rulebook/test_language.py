"""The language of rules: printing and parsing are inverse, and a step always ends, whatever the rules."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oneiro.runtime.seeds import generator
from oneiro.worlds.rules.rulebook.drawing import draw_game, draw_things
from oneiro.worlds.rules.rulebook.language import (
    MAX_CHARACTERS,
    MAX_RULES,
    Attempt,
    Machine,
    Outcome,
    Property,
    RuleError,
    Things,
    Verb,
    parse_rules,
)

PROPERTIES = (Property("heat", "number"), Property("open", "flag"), Property("tint", "word", ("red", "blue")))
VERBS = (Verb("zop", 2), Verb("mib", 1))


def step(rules: str, things: Things, *chosen: int, verb: str = "zop", clock: int = 0) -> Outcome:
    return Machine(parse_rules(rules, PROPERTIES, VERBS)).step(things, clock, verb, chosen)


def test_a_verb_changes_what_its_rule_says() -> None:
    rules = "zop X Y: if X.heat > 3 and not Y.open, Y.heat += X.heat"
    things = ((4, True, "red"), (7, False, "blue"))
    assert step(rules, things, 0, 1).things == ((4, True, "red"), (9, False, "blue")), "numbers end at 9"
    assert step(rules, things, 1, 0).things == things, "the second object is open"
    assert step(rules, ((3, True, "red"), things[1]), 0, 1).things[1] == things[1], "3 is not more than 3"


def test_a_change_sets_off_rules_in_a_chain_of_three() -> None:
    rules = "when X.open changes: if X.open, X.tint = red\nmib X: X.heat -= 2"
    rules += "\nwhen X.heat changes: if X.heat < 2, X.open flips"
    outcome = step(rules, ((1, False, "blue"),), 0, verb="mib")
    assert outcome.things == ((0, True, "red"),)
    assert [firing.rule for firing in outcome.firings] == [1, 2, 0] and outcome.rules == 3
    assert step(rules, ((5, False, "blue"),), 0, verb="mib").rules == 1, "3 degrees are too warm to open it"


def test_a_change_that_changes_nothing_sets_nothing_off() -> None:
    rules = "mib X: X.heat = 4\nwhen X.heat changes: X.open = yes"
    assert step(rules, ((4, False, "red"),), 0, verb="mib").firings == ()


def test_the_clock_strikes_every_third_step_for_each_object() -> None:
    rules = "every 3 steps: if X.tint = red, X.heat += 1\nwhen X.heat changes: X.open flips"
    things = ((1, False, "red"), (1, False, "blue"), (8, True, "red"))
    assert step(rules, things, 0, verb="mib", clock=1).things == things
    assert step(rules, things, 0, verb="mib", clock=2).things == (
        (2, True, "red"),
        (1, False, "blue"),
        (9, False, "red"),
    )


def test_a_step_remembers_every_rule_it_looked_at_with_the_values_it_found() -> None:
    rules = "mib X: if X.heat > 1 and X.open, X.heat -= 3\nmib X: X.heat += 2\nwhen X.heat changes: X.tint = red"
    attempts = step(rules, ((5, False, "red"),), 0, verb="mib").attempts
    assert attempts == (
        Attempt(0, (0,), ((5, 1), (False, True))),
        Attempt(1, (0,), (), (5, 2, 7)),
        Attempt(2, (0,), (), ("red", "red", "red")),
    )
    closed, *_ = step(rules, ((1, True, "red"),), 0, verb="mib").attempts
    assert closed.operands == ((1, 1),), "a condition behind one that fails is not looked at"


def test_rules_that_set_each_other_off_come_to_an_end() -> None:
    rules = "mib X: X.heat += 1\nwhen X.heat changes: X.open flips\nwhen X.open changes: X.heat += 1"
    assert step(rules, ((0, False, "red"),), 0, verb="mib").things == ((2, True, "red"),)


@pytest.mark.parametrize(
    "line",
    [
        "zop X: X.heat = 1",  # takes two objects
        "mib X: Y.heat = 1",
        "mib X: X.size = 1",
        "mib X: X.heat = red",
        "mib X: X.heat flips",
        "mib X: X.open += 1",
        "mib X: if X.heat, X.open flips",
        "mib X: if X.tint > red, X.open flips",
        "mib X: if X.open = yes, X.open flips",
        "mib X: X.heat = X.open",
        "mib X: X.heat = 10",
        "when Y.heat changes: X.open flips",
        "every 0 steps: X.open flips",
        "mib X: if X.open and X.open and X.open and X.open, X.heat = 1",
        "mib X: __import__('os')",
        "mib X",
        "mib X: ",
    ],
)
def test_what_is_no_rule_of_the_game_is_refused(line: str) -> None:
    with pytest.raises(RuleError):
        parse_rules(line, PROPERTIES, VERBS)


@pytest.mark.parametrize("text", ["mib X: X.heat = 1\n" * (MAX_RULES + 1), " " * (MAX_CHARACTERS + 1)])
def test_books_are_bounded(text: str) -> None:
    with pytest.raises(RuleError, match="at most"):
        parse_rules(text, PROPERTIES, VERBS)


@given(
    st.text(st.sampled_from("zop mib XY:.if and heat not open, +=-<> 0123 flips when changes every steps tint red\n"))
)
def test_any_text_is_a_book_or_a_rule_error(text: str) -> None:
    with suppress(RuleError):
        parse_rules(text, PROPERTIES, VERBS)


@given(st.integers(0, 10**6), st.integers(0, 8))
@settings(max_examples=60)
def test_every_drawn_book_reads_back_and_every_step_ends_within_bounds(seed: int, clock: int) -> None:
    rng = generator("test books", seed)
    game = draw_game(rng, "new" if seed % 2 else "shared")
    assert parse_rules(str(game.book), game.book.properties, game.book.verbs) == game.book
    things, machine = draw_things(rng, game), Machine(game.book)
    for action in game.actions():
        understood = game.understand(action)
        assert understood is not None
        outcome = machine.step(things, clock, *understood)
        assert outcome == machine.step(things, clock, *understood)
        for values in outcome.things:
            assert all(value in kind.values for value, kind in zip(values, game.book.properties, strict=True))
        now = [list(values) for values in things]
        for firing in outcome.firings:
            now[firing.thing][firing.property] = firing.value
        assert tuple(map(tuple, now)) == outcome.things, "firings tell all that changes"
