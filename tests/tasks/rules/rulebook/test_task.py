"""RLVR on rulebook games: a whole small run, its rows and its tables."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from oneiro import recipe as recipes
from oneiro.episode import Row
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel, create_tiny
from oneiro.models.settings import ModelSettings
from oneiro.report import page
from oneiro.rundir.run import METRICS, Run
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.answering import true_rows
from oneiro.tasks.rules.recipe import RulebookRecipe
from oneiro.tasks.rules.rulebook.cases import RulebookDataSettings, RuleCase, Scenes, choose, edits
from oneiro.tasks.rules.rulebook.evaluation import PARTS, acceptance_table, depth_table, exact_table, measure
from oneiro.tasks.rules.rulebook.predictor import CONCLUSION, RulebookPredictor
from oneiro.tasks.rules.rulebook.task import WRONG, RulebookTask, SceneRows, verdict
from oneiro.worlds.rules.rulebook.drawing import RulebookGame
from oneiro.worlds.rules.rulebook.language import parse_rules
from tests.tasks.rules.rulebook.test_predictor import KINDS, VERBS, case_of


def test_rows_of_a_scene_share_rules_and_objects_and_equal_plain_rows() -> None:
    predictor, scenes = RulebookPredictor(), Scenes(RulebookDataSettings(), 0, "sft", False, 4, 0)
    cases = [case for number in range(3) for case in scenes.draw(number)]
    texts = [predictor.shown(case) for case in cases]
    chat = ChatFormat(create_tiny(ModelSettings(vocabulary=400), texts, 0).tokenizer)
    rows = SceneRows(predictor, chat, scenes, 10)
    assert rows.group_sizes == [4, 4, 2] and len(rows) == len(rows[:]) == 10
    for row, plain in zip(rows[:], true_rows(predictor, chat, cases), strict=False):
        assert np.array_equal(row.tokens, plain.tokens)
        assert np.array_equal(row.weights("ce"), plain.weights("ce"))
    assert np.array_equal(rows[0].prefix, rows[3].prefix) and not np.array_equal(rows[3].prefix, rows[4].prefix)
    assert len(rows[0].prefix) > 0.7 * len(rows[0].tokens)


@pytest.fixture(scope="module")
def smoke(finished: Callable[[str, str], Path]) -> Path:
    return finished("rlvr/rules", "smoke")


def test_a_small_run_learns_in_every_stage(smoke: Path) -> None:
    logged = [json.loads(line) for line in (smoke / METRICS).read_text().splitlines()]
    for stage in ("sft", "rl"):
        assert any(row.get("grad_norm", 0.0) > 0 for row in logged if row["stage"] == stage), stage


def test_its_tables_have_floors_controls_and_ceiling(smoke: Path) -> None:
    exact, wanted = page.tables(smoke)[:2]
    rows = {str(row[0].value): row for row in exact.rows}
    assert next(iter(rows)) == "no change" and list(rows)[-1] == "perfect"
    for name in ("SFT", "RLVR"):
        assert {name, f"{name}, another game's rules", f"{name}, no rules"} <= rows.keys()
    changed = list(exact.columns).index("changed")
    assert rows["no change"][changed].value == 0.0 and rows["perfect"][changed].value == 1.0
    conflicts, coverage = (row[1].value for row in wanted.rows)
    assert isinstance(conflicts, float) and conflicts >= 0.5 and coverage == 0.0


def test_the_recipe_for_a_pretrained_model_has_new_names() -> None:
    recipe = recipes.load("rlvr/rules", ["model=smollm2-135m"], RulebookRecipe)
    assert isinstance(recipe, RulebookRecipe)
    assert recipe.data.names == "new" and recipe.task.objects == "all" and recipe.data.rules == (4, 6)
    tiny = recipes.load("rlvr/rules", (), RulebookRecipe)
    assert isinstance(tiny, RulebookRecipe) and tiny.data.names == "shared"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("data.rules=[4,6]", "task.objects=named hides objects"),
        ("data.rules=[3,2]", "from 2 to 12"),
        ("data.rules=[1,1]", "from 2 to 12"),
        ("data.shares=[0,1,-1,0]", "data.shares"),
    ],
)
def test_settings_that_cannot_be_drawn_are_refused_in_a_line(change: str, message: str) -> None:
    with pytest.raises(OneiroError, match=re.escape(message)):
        recipes.load("rlvr/rules", [change], RulebookRecipe)


TRACED = "task.reason=true", "sft_data.rows=12", "sft.batch=4", "sampling.max_tokens=160"


def answers_of(rows: Sequence[Row], language: LanguageModel) -> list[str]:
    """What the loss is on, as text."""
    return [language.text(row.tokens[row.weights("ce") > 0][:-1]) for row in rows]


@pytest.mark.parametrize("learns", ["questions", "demonstrations", "outcomes"])
def test_the_control_learns_what_its_setting_says(learns: str, tmp_path: Path) -> None:
    changes = ["preset=smoke", *TRACED, f"sft_continued.learns={learns}"]
    recipe = recipes.load("rlvr/rules", changes, RulebookRecipe)
    assert isinstance(recipe, RulebookRecipe)
    with Run.open(tmp_path, recipe) as run:
        task = RulebookTask(recipe, run)
        language = task.create_tiny()
        chat = ChatFormat(language.tokenizer)
        case, (rows, group_sizes) = task.training_cases(chat), task.control_rows(language, 2)
        asked = [case(number) for number in range(2 * recipe.rollout.prompts_per_step)]
        answers, predictor = answers_of(rows[:], language), task.predictor
        if learns == "demonstrations":
            shown = [task.scenes("sft").draw(number) for number in range(3)]
            assert answers == [predictor.target(case) for scene in shown for case in scene] and group_sizes == [4] * 3
        else:
            prompts = [chat.opening(predictor.prompt(one)[0]["content"]) for one in asked]
            assert all(np.array_equal(row.tokens[: len(ids)], ids) for row, ids in zip(rows, prompts, strict=True))
            write = predictor.target if learns == "questions" else predictor.outcome
            assert answers == [write(one) for one in asked]
            assert any(CONCLUSION in answer for answer in answers) is (learns == "questions")


def test_a_control_of_demonstrations_needs_some() -> None:
    changes = ["model=smollm2-135m", "sft_data.rows=0"]
    with pytest.raises(OneiroError, match="learns=demonstrations: this recipe has none"):
        recipes.load("rlvr/rules", changes, RulebookRecipe)


def recorded_task() -> RulebookTask:
    made = object.__new__(RulebookTask)
    made.__dict__["predictor"] = RulebookPredictor()
    return made


def test_answers_are_counted_by_what_they_should_have_changed() -> None:
    changed, still = case_of(), case_of(action="mib tok")
    texts = {0: "vud.heat 3; vud.open no", 1: "nothing", 2: "nothing", 3: "vud.heat 9"}
    cases = [changed, changed, still, still]

    class Model:
        task = RulebookPredictor()

        def __call__(self, asked: list[RuleCase]) -> list[str]:
            return [texts[number] for number in range(len(asked))]

    found = recorded_task().accuracy(Model(), cases, "eval")  # type: ignore[arg-type]
    assert found == {"eval_changed": 0.5, "eval_unchanged": 0.5}
    assert recorded_task().accuracy(Model(), cases[:2], "x") == {"x_changed": 0.5}  # type: ignore[arg-type]


def test_an_answer_is_judged_and_counted_by_how_many_rules_take_part() -> None:
    task, case = recorded_task(), case_of()
    judged = task.judge(case, "vud.heat 3; vud.open no")
    assert judged.success and judged.reward.value == 1.0 and judged.parts == {"exact_2": 1.0}
    assert judged.turn["prediction"] == judged.turn["reply"] == judged.turn["next_state"] == "vud.heat 3; vud.open no"
    assert judged.turn["actions"] == [{"action": "zop tok vud"}] and judged.turn["reward"] == 1.0
    bad = task.judge(case, "?")
    assert not bad.success and bad.turn["prediction"] is None and bad.parts == {"exact_2": 0.0}


def test_a_verdict_is_the_paired_difference_where_rules_take_part() -> None:
    predictor, cases = RulebookPredictor(), [case_of(), case_of("mib X: X.open flips", "mib tok", id="test-1-0")]
    before, after = (
        measure(predictor, cases, [], lambda case: "nothing"),
        measure(predictor, cases, [], predictor.target),
    )
    half = measure(predictor, cases, [], lambda case: predictor.target(case) if case.rules == 2 else "nothing")
    (one, two, wrong) = verdict({"base": {"": before}, "SFT": {"": half}, "RLVR": {"": after, WRONG: half}})
    assert one.startswith("Exact answers of RLVR less those of base: +100.0%") and "+100.0%" in one.partition(",")[2]
    assert "less those of SFT: +50.0%" in two and two.endswith("+0.0% where 2 or more rules take part; over rulebooks.")
    assert wrong == "With another game's rules RLVR is right in 50.0% of changed questions."
    still = measure(predictor, [case_of(action="mib tok")], [], predictor.target)
    assert verdict({"SFT": {"": still}, "RLVR": {"": still}}) == []


def test_questions_follow_their_shares_as_long_as_there_are_such() -> None:
    game = RulebookGame(parse_rules("zop X Y: Y.heat += 1\nmib X: X.tint = X.tint", KINDS, VERBS), ("tok", "vud"))
    moves, things = len(list(game.moves())), ((5, False, "red"), (1, True, "blue"))
    rng = np.random.default_rng(0)
    only = choose(rng, game, things, 0, 2, (0.0, 1.0, 0.0, 0.0))
    assert [outcome.things != things for _, outcome in only] == [True, True]
    every = choose(rng, game, things, 0, 99, (0.0, 1.0, 0.0, 0.0))  # then whatever is left
    assert len(every) == len({action for action, _ in every}) == moves
    assert [outcome.things != things for _, outcome in every[:2]] == [True, True]
    assert edits(things, ((5, True, "red"), (2, True, "red"))) == {(0, 1): "yes", (1, 0): "2", (1, 2): "red"}


def test_tables_of_rulebooks_have_a_cell_for_every_part() -> None:
    cell = {"value": 0.25, "low": None, "high": None, "n": None}
    row = dict.fromkeys([*PARTS, "pairs"], cell) | {"pairs": {**cell, "value": 0.5}}
    (shown,) = exact_table({"SFT": row}).data()["rows"]
    assert (shown["3 rules"], shown["unchanged"], shown["pairs"]) == (0.25, 0.25, 0.5) and PARTS[1] == "1 rule"
    deep = depth_table({"SFT": [cell, {**cell, "value": 0.125}]}).data()["rows"]
    assert [(line["steps"], line["SFT"]) for line in deep] == [("1", 0.25), ("2", 0.125)]
    figures = acceptance_table({"conflicts": 0.75, "coverage": 0.0}).data()["rows"]
    assert [line["measured"] for line in figures] == [0.75, 0.0]
