"""RLVR on web pages: a whole small run, how its steps are divided and sampled, and its tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import oneiro
from oneiro import recipe as recipes
from oneiro.cli import main
from oneiro.models.chat import ChatFormat
from oneiro.models.settings import ModelSettings
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.answering import some, true_rows
from oneiro.tasks.webpage.data import StepSampler, open_data, short_enough
from oneiro.tasks.webpage.evaluation import distinct
from oneiro.tasks.webpage.model import create_tiny
from oneiro.tasks.webpage.parquet import read_parquet, write_parquet
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.recipe import WebPageRecipe
from oneiro.tasks.webpage.world import open_world
from tests.tasks.webpage.cases import recorded

ROWS = [
    *("no change", "delete all", "copy", "lookup", "slot model"),
    *("SFT", "SFT continued", "RLVR", "perfect"),
]


@pytest.fixture(scope="module")
def alone(finished: Callable[[str, str], Path]) -> Path:
    """A smoke run that was left alone."""
    return finished("rlvr/web-page", "smoke")


@pytest.fixture(scope="module")
def task() -> WebPagePredictor:
    return WebPagePredictor(recipes.load("rlvr/web-page", (), WebPageRecipe).task)


def test_a_run_ends_with_every_table_and_all_its_rows(alone: Path) -> None:
    tables = {table["title"]: table for table in json.loads((alone / "summary.json").read_text())["tables"]}
    changed, everything, sites, seen, failed, depth = tables.values()
    assert [row["answers"] for row in changed["rows"]] == ROWS
    assert changed["rows"][-1]["F1"]["value"] == 1.0 and changed["rows"][0]["F1"]["value"] == 0.0
    assert seen["columns"] == ["answers", "seen", "new"] and len(seen["rows"]) == len(ROWS)
    assert len(everything["rows"]) == len(ROWS) and "reddit" in sites["columns"] and "all" in failed["columns"]
    assert depth["columns"][1:] == ROWS
    kept = list((alone / "episodes").iterdir())
    assert any("evaluate-rlvr" in path.name for path in kept) and any(path.name.startswith("rl-") for path in kept)


def test_a_run_that_lost_its_last_stages_ends_as_before(alone: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    shutil.copytree(alone, again)
    info = json.loads((again / "run.json").read_text())
    for stage in ("rl", "evaluate-rlvr", "compare"):
        info["stages"].pop(stage)
    (again / "run.json").write_text(json.dumps({**info, "status": "running"}))
    shutil.rmtree(again / "checkpoints" / "rl")
    oneiro.run(str(again))
    assert (again / "summary.json").read_text() == (alone / "summary.json").read_text()


def test_the_model_of_a_run_answers_on_the_command_line_and_as_a_world(
    alone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = alone / "data", tmp_path / "scores.json"
    options = ["--data", f"{data}/test.parquet", "--train", f"{data}/train.parquet", "--rows", "3"]
    assert main(["eval", "web-page", "--model", str(alone), *options, "--json", str(out)]) == 0, capsys.readouterr()
    rows = [row["answers"] for row in json.loads(out.read_text())["tables"][0]["rows"]]
    assert rows[:5] == ROWS[:5] and rows[-1] == "perfect"
    world = open_world(str(alone), "web:reddit")
    world.reset(seed=0)
    assert "malformed" in world.step("click [2]")[4] and world.predictor.config.lines == 14
    world.close()


def test_validation_steps_share_no_episode_and_no_question_with_training(alone: Path) -> None:
    recipe = recipes.load("rlvr/web-page", ["preset=smoke"], WebPageRecipe)
    with Run.open(alone, recipe) as run:
        data = open_data(recipe, run)
    train, validation = ({case.episode for case in part} for part in (data.train, data.validation))
    assert train and validation and not train & validation
    asked = [{case.question for case in part} for part in (data.train, data.validation)]
    assert not asked[0] & asked[1] and len(asked[0]) == len(data.train)
    assert not {case.content for case in data.train} & {case.content for case in data.test}
    assert not {case.template for case in data.train} & {case.template for case in data.test}
    assert not any(case.stops for case in data.train)


def test_steps_are_sampled_with_their_share_and_every_one_before_any_twice(task: WebPagePredictor) -> None:
    cases = distinct(recorded())
    changed = [case for case in cases if task.changes(case)]
    sampler = StepSampler(task, cases, 0.75, seed=3)
    drawn = [sampler(number) for number in range(4 * len(changed))]
    assert sum(map(task.changes, drawn)) == 3 * len(changed)
    first = [case for case in drawn if task.changes(case)][: len(changed)]
    assert {case.id for case in first} == {case.id for case in changed}
    assert drawn == [StepSampler(task, cases, 0.75, seed=3)(number) for number in range(len(drawn))]
    assert drawn != [StepSampler(task, cases, 0.75, seed=4)(number) for number in range(len(drawn))]
    assert all(task.changes(StepSampler(task, changed, 0.5, 0)(number)) for number in range(9))


def test_the_tokenizer_of_tiny_is_short_and_loses_nothing(task: WebPagePredictor) -> None:
    cases = distinct(recorded())
    language = create_tiny(ModelSettings(layers=1, width=16, heads=1, mlp=16, vocabulary=1200), task, cases, seed=0)
    chat = ChatFormat(language.tokenizer)
    for case in cases:
        text = task.target(case)
        assert language.decode(chat.encode(text)) == text
        assert len(chat.encode(text)) < len(text) / 3
    rows = true_rows(task, chat, cases[:2])
    assert rows[0].weights("ce").sum() == len(chat.encode(task.target(cases[0]))) + 1
    lengths = sorted(len(chat.opening(task.prompt(case)[0]["content"])) for case in cases)
    assert len(short_enough(task, chat, cases, lengths[2])) == sum(length <= lengths[2] for length in lengths)


def test_files_of_steps_take_the_place_of_recording(tmp_path: Path, task: WebPagePredictor) -> None:
    path = tmp_path / "steps.parquet"
    write_parquet(path, recorded(), task)
    recipe = recipes.load("rlvr/web-page", [f"data.train={path}", f"data.test={path}"], WebPageRecipe)
    with Run.open(tmp_path / "run", recipe) as run:
        found = open_data(recipe, run)
    assert len(found.test) == len(distinct(read_parquet(path))) and len(some(found.test, 3, 0, "test steps")) == 3
    for wrong, words in ((f"data.train={path}", "go together"), ("sft_data.rows=0", "'tiny' knows nothing yet")):
        with pytest.raises(OneiroError, match=words):
            recipes.load("rlvr/web-page", [wrong])
    missing = recipes.load("rlvr/web-page", ["data.train=/nowhere", f"data.test={path}"])
    with pytest.raises(OneiroError, match=r"data\.train: nothing is at"):
        missing.check_places()
