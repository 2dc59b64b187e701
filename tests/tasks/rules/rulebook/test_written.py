"""Rules written from observed steps: what a table earns, what plans in it reach, and a search without a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from oneiro.tasks.base import Flaw, Malformed, predictor_class
from oneiro.tasks.rules.rulebook.cases import Observed
from oneiro.tasks.rules.rulebook.written import (
    NO_RULES,
    WrittenCase,
    WrittenDataSettings,
    WrittenPredictor,
    WrittenPredictorConfig,
    draw_case,
    enumerate_rules,
    plan_succeeds,
)
from oneiro.worlds.rules.rulebook.drawing import RulebookGame
from oneiro.worlds.rules.rulebook.language import Property, Verb, parse_rules

KINDS = (Property("heat", "number"), Property("open", "flag"))
VERBS = (Verb("zop", 2), Verb("mib", 1))
RULES = "mib X: X.heat += 2\nwhen X.heat changes: if X.heat > 4, X.open = yes"
GAME = RulebookGame(parse_rules(RULES, KINDS, VERBS), ("tok", "vud"))
SEEN = (
    Observed(((1, False), (0, False)), 0, "mib tok", ((3, False), (0, False))),
    Observed(((4, False), (0, False)), 1, "mib tok", ((6, True), (0, False))),
    Observed(((0, False), (5, False)), 2, "mib vud", ((0, False), (7, True))),
    Observed(((1, False), (0, True)), 0, "zop tok vud", ((1, False), (0, True))),
)
CASE = WrittenCase("test-0", GAME, SEEN[:3], SEEN, ((0, False), (3, False)), ((1, 1, True),))


def test_the_prompt_shows_steps_and_the_answer_is_a_table_of_rules() -> None:
    predictor = WrittenPredictor(WrittenPredictorConfig(steps=2))
    first, second = (
        "tok: heat 1 open no. 1: mib tok -> tok.heat 3",
        "tok: heat 4 open no. 2: mib tok -> tok.heat 6; tok.open yes",
    )
    assert predictor.prompt(CASE) == [{"role": "user", "content": f"{first}\n{second}\nRules:"}]
    assert predictor.target(CASE) == RULES
    pieces = list(WrittenPredictor(WrittenPredictorConfig(steps=1)).pieces(CASE))
    assert pieces == [("tok: heat 1 open no. 1: mib tok ->", False), (" tok.heat 3\n", True), ("Rules:", False)]
    turned = replace(CASE, game=replace(GAME, book=replace(GAME.book, rules=GAME.book.rules[::-1])))
    assert predictor.target(turned) == RULES, "verbs first"
    spaced = WrittenPredictor(WrittenPredictorConfig(spaced=True))
    assert spaced.target(CASE).startswith(" mib X : X . heat += 2\n when X . heat changes")
    assert spaced.reward(spaced.target(CASE), CASE).value == 1.0
    quiet = WrittenCase("test-1", GAME, SEEN[3:], SEEN)
    assert predictor.target(quiet) == NO_RULES, "nothing was seen to change"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (RULES, 1.0),
        ("when X.heat changes: if X.heat > 5, X.open = yes\nmib X: X.heat += 2\n", 1.0),  # another right table
        ("mib X: X.heat += 2", 0.5),  # the first step and the last
        (NO_RULES, 0.25),
        ("zop X Y: X.open flips", 0.0),
        ("mib X: X.heat += 2\nmib X: X.colour = 2", 0.0),  # one line that is no rule
        ("import os", 0.0),
        ("", 0.0),
    ],
)
def test_the_reward_is_the_share_of_held_out_steps_that_the_executed_rules_reproduce(text: str, value: float) -> None:
    predictor = WrittenPredictor()
    assert predictor.reward(text, CASE).value == value
    assert predictor.metrics(text, CASE)["all"] == float(value == 1.0)


def test_a_text_that_is_no_table_says_why() -> None:
    read = WrittenPredictor().parse("mib X: X.size = 1", CASE)
    assert isinstance(read, Malformed) and read.flaw is Flaw.SHAPE and "size" in read.detail
    empty = WrittenPredictor().parse(" \n", CASE)
    assert isinstance(empty, Malformed) and empty.flaw is Flaw.EMPTY


def test_a_plan_in_right_rules_reaches_the_goal_and_one_in_wrong_rules_does_not() -> None:
    assert plan_succeeds(CASE, GAME.book)
    wrong = parse_rules("mib X: X.heat += 2\nzop X Y: Y.open = yes", KINDS, VERBS)
    assert not plan_succeeds(CASE, wrong), "zop opens nothing"
    assert not plan_succeeds(CASE, parse_rules("", KINDS, VERBS)), "there is no plan"


def test_a_search_without_a_model_explains_what_was_seen() -> None:
    book = enumerate_rules(GAME, SEEN)
    assert WrittenPredictor().reward(str(book), CASE).value == 1.0
    assert enumerate_rules(GAME, SEEN[3:]).rules == ()
    baselines = WrittenPredictor().baselines()
    earned = {name: WrittenPredictor().reward(answer(CASE), CASE).value for name, answer in baselines.items()}
    assert earned == {"no rules": 0.25, "enumerative search": 1.0, "true rules": 1.0}
    settings = WrittenDataSettings()
    cases = [draw_case(settings, 10, 0, "test", number, True) for number in range(6)]
    shares = [WrittenPredictor().reward(WrittenPredictor().enumerate_rules(case), case).value for case in cases]
    assert sum(shares) / len(shares) > 0.6


def test_games_are_drawn_from_seed_and_number() -> None:
    settings = WrittenDataSettings(quiet=0.5)
    assert draw_case(settings, 4, 1, "sft", 2, False) == draw_case(settings, 4, 1, "sft", 2, False)
    cases = [draw_case(settings, 4, 1, "sft", number, False) for number in range(40)]
    assert all(2 <= len(case.game.book.rules) <= 3 and not case.goal for case in cases)
    quiet = sum(WrittenPredictor().target(case) == NO_RULES for case in cases)
    assert 10 < quiet < 30
    assert predictor_class("written-rules") is WrittenPredictor
