"""Questions about rulebook games: prompts, answers, rewards, lookups and controls, worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oneiro.tasks.base import Flaw, Malformed, predictor_class
from oneiro.tasks.rules.rulebook.cases import (
    Observed,
    RulebookDataSettings,
    RuleCase,
    Scenes,
    obey,
    run,
    twin,
    with_wrong_rules,
)
from oneiro.tasks.rules.rulebook.evaluation import DEPTH, acceptance, difference, exact_by_depth, measure, trajectories
from oneiro.tasks.rules.rulebook.predictor import (
    PromptLookup,
    RulebookPredictor,
    RulebookPredictorConfig,
    RuleTextLookup,
    VerbLookup,
    cut,
    pattern,
    space,
    transplant,
    unspace,
)
from oneiro.worlds.rules.rulebook.drawing import RulebookGame
from oneiro.worlds.rules.rulebook.language import Machine, Property, Things, Verb, parse_rules

KINDS = (Property("heat", "number"), Property("open", "flag"), Property("tint", "word", ("red", "blue", "green")))
VERBS = (Verb("zop", 2), Verb("mib", 1))
RULES = "zop X Y: if X.heat > 3, Y.heat += 2\nwhen X.heat changes: X.open flips\nmib X: X.tint = X.tint"
THINGS: Things = ((5, False, "red"), (1, True, "blue"))


def case_of(rules: str = RULES, action: str = "zop tok vud", things: Things = THINGS, **more: object) -> RuleCase:
    game = RulebookGame(parse_rules(rules, KINDS, VERBS), ("tok", "vud"))
    outcome = run(game, Machine(game.book), things, 1, action)
    return replace(RuleCase("test-0-0", game, things, 1, action, outcome), **more)  # type: ignore[arg-type]


SEEN = Observed(((9, False, "red"), (1, True, "green")), 4, "zop tok vud", ((9, False, "red"), (3, False, "green")))


def test_a_prompt_holds_the_rules_the_objects_and_the_action() -> None:
    task, case = RulebookPredictor(), case_of()
    (message,) = task.prompt(case)
    rows = "tok: heat 5 open no tint red\nvud: heat 1 open yes tint blue"
    assert message == {"role": "user", "content": f"Rules:\n{RULES}\n\nStep 2:\n{rows}\nDo: zop tok vud"}
    assert cut(message["content"])[1] == "Do: zop tok vud"
    assert task.target(case) == "vud.heat 3; vud.open no", "in the order of the rules"


REASONS = RulebookPredictorConfig(reason=True)


@pytest.mark.parametrize("spaced", [False, True])
def test_a_trace_copies_each_rule_and_shows_what_it_finds(spaced: bool) -> None:
    task, case = RulebookPredictor(REASONS.model_copy(update={"spaced": spaced})), case_of()
    trace = (
        "1 zop X Y: if 1 X.heat > 3, 1 Y.heat += 2 | tok vud: tok.heat 5 ok, vud.heat 1 -> 3; "
        "2 when X.heat changes: 2 X.open flips | vud: vud.open yes -> no => "
    )
    prompt = "Rules:\n1 zop X Y: if 1 X.heat > 3, 1 Y.heat += 2\n2 when X.heat changes: 2 X.open flips\n"
    assert task.shown(case).startswith(space(prompt) if spaced else prompt)
    expected = f"{trace}vud.heat 3; vud.open no"
    assert task.target(case) == (space(expected) if spaced else expected)
    assert task.reward(task.target(case), case).value == 1
    assert task.reward(task.target(case).replace("heat 5 ok", "heat 9 ok"), case).value == 1, "only the answer counts"
    assert task.reward("vud.heat 3; vud.open no", case).value == 1, "also without a trace"
    assert isinstance(task.parse(trace, case), Malformed), "a trace is no answer"


def test_a_trace_stops_at_a_condition_that_fails_and_copies_a_rule_once_for_all_objects() -> None:
    task = RulebookPredictor(REASONS)
    rules = "mib X: if X.heat > 3 and X.open, X.heat = 0\nevery 2 steps: if X.heat < 9, X.heat -= X.heat"
    trace = (
        "1 mib X: if 1 X.heat > 3 and 1 X.open, 1 X.heat = 0 | vud: vud.heat 1 fails; "
        "2 every 2 steps: if 2 X.heat < 9, 2 X.heat -= X.heat | tok: tok.heat 5 ok, tok.heat 5 tok.heat 5 -> 0; "
        "vud: vud.heat 1 ok, vud.heat 1 vud.heat 1 -> 0 => tok.heat 0; vud.heat 0"
    )
    assert task.target(case_of(rules, "mib vud")) == trace
    assert task.target(case_of("when X.heat changes: X.open flips", "mib vud")) == "=> nothing"


def test_a_context_may_be_examples_both_or_nothing() -> None:
    case = case_of(examples=(SEEN, SEEN))
    seen = "tok: heat 9 open no tint red; vud: heat 1 open yes tint green. 5: zop tok vud -> vud.heat 3; vud.open no"
    prompts = {
        context: RulebookPredictor(RulebookPredictorConfig(context=context, examples=1)).shown(case)
        for context in ("examples", "both", "none")
    }
    assert f"Seen:\n{seen}\n\nStep 2" in prompts["examples"] and "Rules" not in prompts["examples"]
    assert prompts["both"].startswith("Rules:") and prompts["both"].count(seen) == 1
    assert prompts["none"].startswith("Step 2:")
    named = RulebookPredictor(RulebookPredictorConfig(objects="named")).shown(replace(case, action="mib vud"))
    assert named == f"Rules:\n{RULES}\n\nStep 2\nDo: mib vud\nvud: heat 1 open yes tint blue"


def test_spaced_texts_have_one_form_of_every_name_and_are_read_alike() -> None:
    task, case = RulebookPredictor(RulebookPredictorConfig(objects="named", spaced=True)), case_of()
    shared, own = cut(task.shown(case))
    assert shared.startswith(" Rules :\n zop X Y : if X . heat > 3 , Y . heat += 2\n when X . heat changes")
    assert own.startswith(" Do : zop tok vud\n tok : heat 5 open no")
    assert task.target(case) == " vud . heat 3 ; vud . open no"
    assert task.reward(task.target(case), case).value == 1.0
    assert unspace(space(RULES)).split("\n") == [f" {line}" for line in RULES.split("\n")]


@pytest.mark.parametrize(
    ("text", "exact", "value"),
    [
        ("vud.heat 3; vud.open no", 1.0, 1.0),
        (" vud.open no;vud.heat 3 ", 1.0, 1.0),
        ("vud.open no; tok.heat 5; vud.heat 3", 1.0, 1.0),  # says what stays as it is
        ("vud.heat 3", 0.0, 0.25),  # one of two changes: half the overlap
        ("vud.heat 4; vud.open no", 0.0, 0.5 / 3),  # one right change of three, true or claimed
        ("vud.heat 3; vud.open no; tok.open yes", 0.0, 0.5 * 2 / 3),
        ("nothing", 0.0, 0.0),
        ("", 0.0, 0.0),
    ],
)
def test_rewards_are_worked_by_hand(text: str, exact: float, value: float) -> None:
    task, case = RulebookPredictor(), case_of()
    assert task.reward(text, case).value == pytest.approx(value)
    assert sum(task.reward(text, case).terms.values()) == pytest.approx(value)
    assert task.metrics(text, case)["exact"] == exact
    assert RulebookPredictor(RulebookPredictorConfig(reward="binary")).reward(text, case).value == exact


@pytest.mark.parametrize(
    ("text", "flaw"),
    [
        ("  ", Flaw.EMPTY),
        ("vud.heat", Flaw.SHAPE),
        ("rock.heat 3", Flaw.SHAPE),
        ("vud.size 3", Flaw.SHAPE),
        ("vud.heat red", Flaw.SHAPE),
        ("vud.heat 10", Flaw.SHAPE),
        ("vud.heat 3; vud.heat 4", Flaw.CONFLICT),
        ("vud.heat 3; " * 1000, Flaw.BROKEN),
    ],
)
def test_an_answer_that_is_none_says_why(text: str, flaw: Flaw) -> None:
    read = RulebookPredictor().parse(text, case_of())
    assert isinstance(read, Malformed) and read.flaw is flaw


@given(st.text(st.sampled_from("vudtok.heatopen 0129;yesnothing\n")))
def test_any_text_is_read_or_malformed(text: str) -> None:
    task = RulebookPredictor()
    assert 0.0 <= task.reward(text, case_of()).value <= 1.0


def test_cases_are_counted_by_the_rules_that_take_part() -> None:
    assert case_of().rules == 2
    assert case_of(things=((3, False, "red"), (1, True, "blue"))).rules == 0
    assert case_of(action="mib tok").rules == 0
    back = "mib X: X.open flips\nwhen X.open changes: X.open flips"
    assert case_of(back, "mib tok").rules == 0, "two rules fire, and in the end nothing has changed"


def test_scenes_are_pure_and_training_shares_no_word_with_test() -> None:
    settings = RulebookDataSettings()
    train, again = (Scenes(settings, 7, "sft", False, 8, 0) for _ in range(2))
    test = Scenes(settings, 7, "test", True, 6, 0)
    for number in range(6):
        assert train.draw(number) == again.draw(number)
        assert len({case.action for case in train.draw(number)}) == 8
        words = {verb.name for verb in train.draw(number)[0].game.book.verbs}
        assert not words & {verb.name for verb in test.draw(number)[0].game.book.verbs}
    assert train.draw(0)[0].game != Scenes(settings, 8, "sft", False, 8, 0).draw(0)[0].game
    counts = [case.rules for number in range(30) for case in train.draw(number)]
    assert all(counts.count(rules) > 15 for rules in range(4)), counts


def test_a_twin_has_one_other_rule_and_another_answer() -> None:
    scenes = Scenes(RulebookDataSettings(), 1, "test", True, 6, 4)
    made = 0
    for case in (case for number in range(8) for case in scenes.draw(number)):
        other = twin(case, 0)
        if other is None:
            continue
        made += 1
        pairs = list(zip(case.game.book.rules, other.game.book.rules, strict=True))
        assert sum(one != two for one, two in pairs) == 1
        assert (other.things, other.action, other.clock) == (case.things, case.action, case.clock)
        assert RulebookPredictor().metrics(RulebookPredictor().target(other), case)["exact"] == 0.0
        for one in other.examples:
            assert run(other.game, Machine(other.game.book), one.things, one.clock, one.action).things == one.after
    assert made > 20
    assert twin(case_of(action="mib tok"), 0) is None, "no rule took part"


def test_wrong_rules_are_shown_and_the_truth_stays() -> None:
    case = with_wrong_rules(case_of(), 0)
    assert case.shown is not None and case.shown != case.game.book
    shown = RulebookPredictor().shown(case)
    assert str(case.shown) in shown and RULES not in shown
    assert RulebookPredictor().target(case) == "vud.heat 3; vud.open no"
    assert {verb.name for verb in case.shown.verbs} == {"zop", "mib"}


def test_a_lookup_moves_the_changes_of_one_game_to_another() -> None:
    case = case_of()
    changes = pattern(case, case.outcome.things)
    assert changes == ((1, "number", 0, 2), (1, "flag", 0, False))
    game = RulebookGame(
        parse_rules("", (Property("wet", "flag"), Property("age", "number")), VERBS), ("dal", "pib", "gor")
    )
    there = RuleCase("x", game, ((True, 3), (True, 8), (False, 0)), 0, "zop gor pib", case.outcome)
    assert transplant(changes, there) == {(1, 1): "9", (1, 0): "no"}
    assert transplant(((0, "word", 0, 1),), there) == {}, "the other game has no words"


def test_each_lookup_answers_from_its_own_place() -> None:
    case, other = case_of(), case_of("mib X: X.open flips", "mib tok")
    assert PromptLookup(2)(replace(case, examples=(SEEN,))) == {(1, 0): "3", (1, 1): "no"}
    assert PromptLookup(2)(replace(case, action="mib tok", examples=(SEEN,))) == {}
    unlike = ((0, True, "green"), (7, False, "green"))
    warmer = Observed(unlike, 4, "zop tok vud", (unlike[0], (9, False, "green")))
    assert PromptLookup(2)(replace(case, examples=(warmer,))) == {(1, 0): "3"}, "nothing is alike but the verb"
    assert PromptLookup(2)(replace(case, examples=(warmer, SEEN))) == {(1, 0): "3", (1, 1): "no"}
    assert VerbLookup([case, case, other])(other) == {(0, 1): "yes"}
    unknown = replace(other, game=replace(other.game, book=replace(other.game.book, verbs=(Verb("fup", 1),))))
    assert VerbLookup([case, case, other])(replace(unknown, action="fup tok")) == {(1, 0): "3", (1, 1): "no"}
    text = RuleTextLookup([case, other], RulebookPredictor().shown)
    assert text(case) == {(1, 0): "3", (1, 1): "no"} and text(other) == {(0, 1): "yes"}


def test_baselines_have_every_row_of_the_table() -> None:
    case, task = case_of(examples=(SEEN,)), RulebookPredictor(RulebookPredictorConfig(context="both"))
    answers = {name: answer(case) for name, answer in task.baselines([case]).items()}
    assert list(answers) == [
        "no change",
        "lookup, whole text",
        "lookup, same verb",
        "lookup, in the prompt",
        "another game's rules, carried out",
        "perfect",
    ]
    assert answers["no change"] == "nothing" and answers["perfect"] == "vud.heat 3; vud.open no"
    assert "lookup, in the prompt" not in RulebookPredictor().baselines([case])
    assert predictor_class("rulebook") is RulebookPredictor


def test_measures_count_rules_pairs_and_books() -> None:
    task, one = RulebookPredictor(), case_of(id="test-0-0")
    two, still = case_of("mib X: X.open flips", "mib tok", id="test-1-0"), case_of(action="mib tok", id="test-0-1")
    other = case_of(RULES.replace("+= 2", "+= 3"), id="test-0-0-twin", pair="test-0-0")
    right = measure(task, [one, two, still], [other], task.target)
    assert [right[part]["value"] for part in ("changed", "1 rule", "2 rules", "unchanged", "pairs")] == [1.0] * 5
    assert right["3 rules"]["n"] == 0 and right["changed"]["n"] == 2
    half = measure(task, [one, two, still], [other], {"test-0-0": task.target(one), "test-0-0-twin": "nothing"})
    assert [half[part]["value"] for part in ("changed", "2 rules", "1 rule", "pairs")] == [0.5, 1.0, 0.0, 0.0]
    other_half = measure(task, [one, two, still], [other], {"test-0-0-twin": task.target(other)})
    assert other_half["pairs"]["value"] == 0.0
    assert difference(right, half, 1).value == 0.5 and difference(right, half, 2).value == 0.0


def test_acceptance_counts_conflicts_and_coverage() -> None:
    cases = [case_of(), case_of("mib X: X.open flips", "zop tok vud")]
    figures = acceptance(cases[:1], cases)
    differs = [obey(case, with_wrong_rules(case, 0).shown).things != case.outcome.things for case in cases]  # type: ignore[arg-type]
    assert figures == {"conflicts": sum(differs) / 2, "coverage": 1.0}, "rules left aside, both ask the same"
    assert acceptance([], cases)["coverage"] == 0.0
    settings = RulebookDataSettings()
    train, test = Scenes(settings, 0, "sft", False, 8, 0), Scenes(settings, 0, "test", True, 6, 0)
    drawn = acceptance(
        [case for number in range(40) for case in train.draw(number)],
        [case for number in range(40) for case in test.draw(number)],
    )
    assert drawn["conflicts"] >= 0.5 and drawn["coverage"] == 0.0


def test_rollouts_go_on_from_what_was_predicted() -> None:
    task = RulebookPredictor()
    rules = "mib X: X.heat += 1\nwhen X.heat changes: if X.heat > 3, X.open = yes"
    case = replace(case_of(rules, "mib tok", ((0, False, "red"), (0, False, "red"))), clock=0)
    (played,) = trajectories([case], 0)
    assert len(played.states) == DEPTH and all(action.startswith("mib") for action in played.actions)
    assert [cell["value"] for cell in exact_by_depth(task, lambda asked: list(map(task.target, asked)), [played])] == [
        1.0
    ] * 4
    asked: list[RuleCase] = []

    def wrong_once(cases: Sequence[RuleCase]) -> list[str]:
        asked.extend(cases)
        return ["nothing" if len(asked) == 2 else task.target(one) for one in cases]

    values = [cell["value"] for cell in exact_by_depth(task, wrong_once, [played])]
    assert values == [1.0, 0.0, 0.0, 0.0], "what was missed in the second step stays missed"
    assert asked[2].things == played.states[0] and asked[2].clock == 2


def test_shared_names_are_few() -> None:
    scenes = [Scenes(RulebookDataSettings(names="shared"), 0, name, name == "test", 1, 0) for name in ("sft", "test")]
    words = {verb.name for one in scenes for number in range(20) for verb in one.draw(number)[0].game.book.verbs}
    assert len(words) == 6
