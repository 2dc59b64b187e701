"""Prompts, targets and reasons: what they hold, what they never hold, and what stays the same."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.tasks.textgame.parse import MARKER
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.prompt import (
    _edit,
    cut,
    describe_score,
    instructions,
    pick_examples,
    rationale,
    rules_text,
    sentences,
)
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl, own_rules
from oneiro.worlds.textgame.games import game_named
from oneiro.worlds.textgame.state import Transition

RULES = own_rules()
KINDS = ("full", "action", "tick", "score")


@pytest.fixture(scope="module")
def cases() -> list[Transition]:
    return list(crawl(["brew-tea", "mix-paint"], "train", CrawlConfig(levels=3, still=2)))


@pytest.fixture(scope="module")
def pour(cases: list[Transition]) -> Transition:
    """Hot water is poured into the cup that holds the tea bag: tea comes into being as time passes, and the game
    is won."""
    return next(case for case in cases if case.action.startswith("pour kettle") and case.score_after["gameWon"])


def content(task: TextGamePredictor, case: Transition) -> str:
    (message,) = task.prompt(case)
    assert message["role"] == "user"
    return message["content"]


def test_the_prompt_has_the_rules_the_state_the_base_and_the_command_in_this_order(pour: Transition) -> None:
    text = content(TextGamePredictor(rules=RULES), pour)
    parts = [
        "You simulate a text game",
        '"modified"',
        pour.task,
        "Stove: isContainer",
        "pour X into Y",
        "1 once water has reached",
        json.dumps({"game_state": [*pour.state, pour.score]}, separators=(",", ":")),
        f"UUID base: {pour.uuid_base}",
        f"Command: {pour.action}",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert "==========" not in text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("output", ["difference", "edits", "full"])
def test_the_prompt_does_not_depend_on_what_is_asked_for(cases: list[Transition], kind: str, output: str) -> None:
    task = TextGamePredictor(TextGamePredictorConfig(transition=kind, output=output), rules=RULES)
    for case in cases[::7]:
        other = replace(case, after=case.state, score_after=case.score)
        if kind == "score":
            other = replace(case, score_after={"score": 9, "gameOver": True, "gameWon": False})
        elif kind == "action":
            other = replace(other, after_action=case.state)
        assert task.prompt(case) == task.prompt(other)


def test_a_tick_shows_the_state_after_the_command_and_counts_its_new_objects(cases: list[Transition]) -> None:
    fill = next(case for case in cases if case.action.startswith("fill") and case.creates())
    task = TextGamePredictor(TextGamePredictorConfig(transition="tick"), rules=RULES)
    text = content(task, fill)
    assert json.dumps(fill.after_action, separators=(",", ":"))[:-1] in text
    assert f"UUID base: {fill.uuid_base + 1}" in text
    assert fill.action not in text


def test_prompts_of_one_game_share_everything_before_the_state(cases: list[Transition]) -> None:
    task = TextGamePredictor(rules=RULES)
    first, second = (content(task, case) for case in [c for c in cases if c.game == "mix-paint"][:2])
    assert first[: first.index("Current state:")] == second[: second.index("Current state:")]


def test_rules_can_be_left_out_and_missing_ones_are_named(pour: Transition) -> None:
    assert "Stove: isContainer" not in content(TextGamePredictor(TextGamePredictorConfig(rules="none")), pour)
    with pytest.raises(OneiroError, match="no llm rules for the game 'brew-tea'"):
        TextGamePredictor(TextGamePredictorConfig(rules="llm"), rules=RULES).prompt(pour)


def test_every_block_of_the_object_rules_is_shown() -> None:
    rules = {"human": {"x": {"object": "A: a\n==========\nB: b\n==========\nC: c", "action": "go:", "score": "none"}}}
    assert rules_text(rules, "human", "x") == "Objects:\nA: a\n\nB: b\n\nC: c\n\nCommands:\ngo:\n\nScore:\nnone"


def test_the_brief_prompt_has_no_instructions(pour: Transition) -> None:
    text = content(TextGamePredictor(TextGamePredictorConfig(brief=True, rules="none")), pour)
    assert text.startswith(f"The game: {pour.task}\n\nCurrent state: ")
    assert "You simulate" not in text


def test_the_public_layout_prints_data_as_python_does(pour: Transition) -> None:
    text = content(TextGamePredictor(TextGamePredictorConfig(layout="repr"), rules=RULES), pour)
    assert repr({"game_state": [*pour.state, pour.score]}) in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_block_shows_what_the_kind_is_about(cases: list[Transition], pour: Transition, kind: str) -> None:
    task = TextGamePredictor(TextGamePredictorConfig(example=True, transition=kind), rules=RULES, examples=cases)
    paint = next(case for case in cases if case.game == "mix-paint")
    shown = pick_examples(cases, kind)
    assert 1 <= len(shown) <= 2
    text = content(task, paint)
    assert text.count("Answer: ") == len(shown)
    assert text.index("An example of another game") < text.index(f"The game: {paint.task}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("output", ["difference", "edits", "full"])
@pytest.mark.parametrize("reasoning", [True, False])
def test_the_target_earns_the_most_under_every_setting(
    cases: list[Transition], kind: str, output: str, reasoning: bool
) -> None:
    config = TextGamePredictorConfig(transition=kind, output=output, reasoning=reasoning, reward="shaped", rules="none")
    task = TextGamePredictor(config)
    for case in cases[::5]:
        target = task.target(case)
        assert task.reward(target, case).value == task.reward_range[1]
        assert (MARKER in target) == reasoning


def test_the_reasons_tell_of_the_command_of_time_and_of_the_score(pour: Transition) -> None:
    text = rationale(pour, "full")
    kettle, cup, water = (next(o["name"] for o in pour.state if o["type"] == t) for t in ("Kettle", "Cup", "Water"))
    lines = text.splitlines()
    assert lines[0] == f'The command is: {pour.action}. The game replies: "{pour.observation}"'
    assert lines[1] == f"What it does: {water} moves from {kettle} to {cup}."
    assert f"tea (ID: {pour.uuid_base}) comes into being as a Tea with {{}}." in lines[2]
    assert f"{water} vanishes." in lines[2]
    assert lines[3] == "The score: 1 becomes 2, and the game is won."


def test_the_reasons_say_so_where_nothing_happens(cases: list[Transition]) -> None:
    still = next(case for case in cases if not case.changed)
    assert "What it does: nothing changes." in rationale(still, "action")
    assert rationale(still, "score") == "The score: it stays 0."
    assert rationale(still, "tick") == "Then time passes: nothing changes."


def test_a_situation_without_its_outcome_is_enough_for_prompt_and_parse(pour: Transition) -> None:
    game = game_named("brew-tea")
    situation = game.situation(game.level(generator("prompt")), "wait")
    task = TextGamePredictor(rules=RULES)
    assert task.prompt(situation)[0]["content"].endswith("Command: wait")
    assert task.parse(task.no_change(situation), situation).state == situation.state
    with pytest.raises(OneiroError, match="only be asked for where the next state is known"):
        TextGamePredictor(TextGamePredictorConfig(transition="score"), rules=RULES).prompt(situation)


def test_a_prompt_is_cut_before_its_command_and_nothing_is_lost(cases: list[Transition]) -> None:
    for kind in KINDS:
        task = TextGamePredictor(TextGamePredictorConfig(transition=kind, rules="none", brief=True))
        for case in cases[:10]:
            text = content(task, case)
            shared, own = cut(text)
            assert shared + own == text
            assert own.startswith(f"Command: {case.action}") if kind != "tick" else not own


def thing(uuid: int, name: str, contains: tuple[str, ...] = (), **properties: object) -> dict[str, object]:
    return {"uuid": uuid, "name": name, "type": name.title(), "properties": properties, "contains": list(contains)}


def test_every_difference_of_two_states_is_a_sentence() -> None:
    before = [
        thing(1, "box", ("pen", "cup")),
        thing(2, "bag", ("key",)),
        thing(3, "cup", hot=1, wet=True),
        thing(4, "fly"),
    ]
    after = [
        thing(1, "box", ("key",)),
        thing(2, "sack", ("pen", "pea")),
        thing(3, "cup", hot=2, full=False),
        thing(5, "pea"),
    ]
    assert sorted(sentences(before, after)) == sorted(  # type: ignore[arg-type]
        [
            "fly vanishes.",
            "pea comes into being as a Pea with {}.",
            "cup is no longer in box.",
            "key moves from bag to box.",
            "pea is now in sack.",
            "pen moves from box to sack.",
            'name of bag changes from "bag" to "sack".',
            'type of bag changes from "Bag" to "Sack".',
            "hot of cup changes from 1 to 2.",
            "cup loses wet.",
            "cup gains full false.",
        ]
    )


def test_a_score_is_told_in_one_sentence() -> None:
    def score(points: int, over: bool = False, won: bool = False) -> dict[str, object]:
        return {"score": points, "gameOver": over, "gameWon": won}

    assert describe_score(score(1), score(1)) == "it stays 1."
    assert describe_score(score(1), score(3)) == "1 becomes 3."
    assert describe_score(score(1), score(3, True, True)) == "1 becomes 3, and the game is won."
    assert describe_score(score(1), score(1, True)) == "the game is lost."
    assert describe_score(score(1, True), score(2, True)) == "1 becomes 2."
    assert describe_score(score(1, True, True), score(1, False, True)) == "its entries change."


def test_an_edit_holds_what_is_new_lost_added_and_dropped() -> None:
    old, new = thing(3, "cup", ("a", "a", "b"), hot=1, wet=True), thing(3, "mug", ("a", "c"), hot=1, full=True)
    assert _edit(old, new) == {
        "uuid": 3, "name": "mug", "type": "Mug", "properties": {"full": True}, "lost": ["wet"], "added": ["c"],
        "dropped": ["a", "b"],
    }  # fmt: skip
    assert _edit({}, thing(4, "pea")) == {"uuid": 4, "name": "pea", "type": "Pea"}
    assert _edit(old, old) == {"uuid": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_instructions_ask_for_the_form_and_for_a_score_only_with_whole_steps(kind: str) -> None:
    texts = {output: instructions(kind, output, False) for output in ("full", "edits", "difference")}  # type: ignore[arg-type]
    if kind == "score":
        assert set(texts.values()) == {texts["full"]} and "gameWon" in texts["full"]
        return
    assert len(set(texts.values())) == 3 and ('"edited"' in texts["edits"]) and ('"game_state"' in texts["full"])
    assert '"edited"' not in texts["full"] + texts["difference"] and '"game_state"' not in texts["edits"]
    assert {("gameWon" in texts["full"]), ('"score"' in texts["edits"])} == {kind == "full"}
    reasoned = instructions(kind, "full", True)  # type: ignore[arg-type]
    assert reasoned != texts["full"] and MARKER in reasoned
