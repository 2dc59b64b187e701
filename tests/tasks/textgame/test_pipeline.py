"""RLVR on text games: the pipeline through the command line, what a killed run becomes, and its parts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro import cli
from oneiro import recipe as recipes
from oneiro.episode import Episode, FinishReason
from oneiro.learning.batch import Example, RowsAfterPrefix, batches
from oneiro.models.language import (
    LanguageModel,
    LoraSettings,
    ModelSettings,
    create_tiny,
    load,
    merge_adapters,
    with_lora,
)
from oneiro.report.episodes import record
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.answering import describe, episode, play
from oneiro.tasks.base import Malformed
from oneiro.tasks.textgame.command import open_evaluation
from oneiro.tasks.textgame.data import (
    TextGameData,
    data_stage,
    open_data,
    row_order,
    training_rows,
    true_rows,
)
from oneiro.tasks.textgame.data import record as record_games
from oneiro.tasks.textgame.evaluation import (
    StepEvaluation,
    beyond,
    by_own_steps,
    levels,
    own_steps_table,
    tables,
)
from oneiro.tasks.textgame.lookup import TextGameLookup
from oneiro.tasks.textgame.model import TextGameModel, pieces
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.recipe import SamplerSettings, TextGameDataSettings, TextGameRecipe
from oneiro.tasks.textgame.rollout import Predict, find_plans, possible
from oneiro.tasks.textgame.task import judge_answer, verdict, write_state
from oneiro.worlds.textgame.crawl import CrawlConfig, crawl
from oneiro.worlds.textgame.dataset import Dataset, open_dataset, write_dataset
from oneiro.worlds.textgame.game import solve
from oneiro.worlds.textgame.games import GAMES
from tests.interruption import fingerprint, kill_in
from tests.sampling.test_server import Host, choice, send

COMMAND = [sys.executable, "-m", "oneiro"]
ENVIRONMENT = {**os.environ, "COLUMNS": "200"}


def start(out: Path, *overrides: str) -> subprocess.Popen[bytes]:
    command = [*COMMAND, "run", "rlvr/text-game", "preset=smoke", *overrides, "--out", str(out)]
    return subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="module")
def alone(finished: Callable[[str, str], Path]) -> Path:
    """A smoke run that was left alone."""
    return finished("rlvr/text-game", "smoke")


# The pipeline ---------------------------------------------------------------------------------------------------------


def test_task_specific_answers_have_room_for_whole_objects() -> None:
    """SmolLM2 needs a token for at least every two characters of an answer; other models keep their own limits."""
    wanted = {"smollm2-135m": 1024, "tiny": 120, "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": 4096}
    for model, tokens in wanted.items():
        recipe = recipes.load("rlvr/text-game", [f"model={model}", "preset=task-specific"], TextGameRecipe)
        assert isinstance(recipe, TextGameRecipe) and recipe.sampling.max_tokens == tokens
        assert recipe.task.output == "difference" and recipe.task.reward == "task"
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", brief=True, output="difference", reward="task"))
    longest = max(len(task.target(case)) for case in crawl(sorted(GAMES), "train", CrawlConfig(levels=1)))
    assert 640 < longest < 2 * 1024  # the limit of 320 without the preset would cut the longest


def test_a_run_ends_with_every_table_and_all_its_rows(alone: Path) -> None:
    tables = json.loads((alone / "summary.json").read_text())["tables"]
    titles = [table["title"] for table in tables]
    assert titles == [
        "Text games: exact next states",
        "Text games: exact next states, held-out games",
        "Game by game: RLVR",
        "Wrong answers by what is wrong",
        "Exact answers to test rows, 2 sampled to each",
        "Simulating winning plans: right at every step so far",
        "Planning inside the model",
    ]
    assert [row["answers"] for row in tables[0]["rows"]] == ["no change", "lookup", "perfect", "SFT", "RLVR"]
    changed = [row["changed (strict)"]["value"] for row in tables[0]["rows"]]
    assert (changed[0], changed[2]) == (0.0, 1.0) and "changed (official)" in tables[0]["rows"][0]
    drawn = {row["answers"]: row["changed"] for row in tables[4]["rows"]}
    assert list(drawn) == ["SFT", "RLVR"] and all(0 <= cell["low"] <= cell["high"] <= 1 for cell in drawn.values())
    assert [row["model"] for row in tables[6]["rows"]] == ["no change", "lookup", "perfect", "SFT", "RLVR"]
    assert (alone / "report.html").stat().st_size > 10_000


def test_every_sampled_answer_can_be_read_later(alone: Path) -> None:
    rows = list(read_lines(alone / "episodes" / "rl-000002.jsonl.gz"))
    assert len(rows) == 4 * 4
    for row in rows:
        (turn,) = row["turns"]
        assert turn["state"].startswith('{"name": "player (ID: 0)"') and turn["next_state"] and turn["actions"]
        assert sum(sum(values) for values in row["terms"].values()) == pytest.approx(row["score"])


def test_a_step_logs_changed_and_unchanged_answers_apart(alone: Path) -> None:
    steps = [line for line in read_lines(alone / "metrics.jsonl") if line["stage"] == "rl"]
    assert [line["step"] for line in steps] == [1, 2]
    assert all({"success_changed", "reward_exact", "reward_overlap", "malformed"} <= line.keys() for line in steps)
    assert [line["step"] for line in steps if "eval_changed" in line] == [1]


def test_the_model_of_a_run_is_asked_as_it_was_taught(alone: Path, tmp_path: Path) -> None:
    language = load(str(alone))
    assert language.metadata["task"]["brief"] and language.metadata["held_out"] == ["grow-beans"]
    out, kept = tmp_path / "scores.json", tmp_path / "answers.jsonl"
    command = ["eval", "text-game", "--data", str(alone / "data"), "--model", str(alone), "--rows", "8"]
    assert cli.main([*command, "--json", str(out), "--keep", str(kept)]) == 0
    scores = json.loads(out.read_text())
    assert list(scores["rows"]) == ["no change", "lookup", "perfect", alone.name]
    assert scores["rows"][alone.name]["all"]["overall"]["cases"] == 8
    assert cli.main([*command, "--settings", "retrieve=true"]) == 0  # suggestions of the folder
    assert len(kept.read_text().splitlines()) == 16  # eight of known games, eight of the held-out one
    assert scores["tables"][-1]["title"] == "Simulating winning plans: right at every step so far"
    assert list(scores["depth"]) == ["no change", "perfect", alone.name]
    assert scores["depth"]["perfect"][1]["unbroken"]["accuracy"] == 100.0


@pytest.mark.thorough
def test_a_run_killed_in_its_stages_ends_like_one_left_alone(alone: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    stages = ("data", "sft", "rl", "evaluate-rlvr")
    assert kill_in(stages, killed, lambda: start(killed)) >= 2
    assert start(killed).wait(300) == 0
    assert fingerprint(killed, ["data"]) == fingerprint(alone, ["data"])


# Its parts ------------------------------------------------------------------------------------------------------------

SMALL = TextGameDataSettings(
    games=("bake-bread", "do-laundry"),
    held_out=("grow-beans",),
    crawl=CrawlConfig(levels=1, max_steps=4),
    test_levels=1,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("games")
    record_games(SMALL, out)
    return out


@pytest.fixture(scope="module")
def data(folder: Path) -> TextGameData:
    return TextGameData(open_dataset(folder, "train"), open_dataset(folder, "test"), open_dataset(folder, "unseen"), [])


def make_answerer(data: TextGameData, **settings: object) -> TextGameModel:
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", brief=True, **settings))
    texts = [text for case in data.train for text in (task.prompt(case)[0]["content"], task.target(case))]
    sizes = ModelSettings(layers=2, width=32, heads=2, mlp=64, vocabulary=600)
    language = create_tiny(sizes, texts, 1, pieces(texts))
    return TextGameModel(task, Engine(language, 16), SamplingSettings(max_tokens=12))


def test_games_are_split_as_asked_and_test_rows_that_training_has_are_marked(data: TextGameData) -> None:
    assert data.train.games == data.test.games == ["bake-bread", "do-laundry"]
    assert data.unseen is not None and data.unseen.games == ["grow-beans"]
    asked = {json.dumps([case.state, case.score, case.action]) for case in data.train}
    for case in data.test:
        assert case.duplicate == (json.dumps([case.state, case.score, case.action]) in asked)


def test_draws_are_the_same_after_a_restart(data: TextGameData) -> None:
    for settings in (SamplerSettings(), SamplerSettings(name="gold-mix", per_hundred=50)):
        first, again = row_order(data.train, settings, "full", 7), row_order(data.train, settings, "full", 7)
        late = [first.row(i) for i in range(300)][200:]
        assert [again.row(i) for i in range(200, 300)] == late
        assert [row_order(data.train, settings, "full", 8).row(i) for i in range(200, 300)] != late


@pytest.mark.parametrize("reward", ["binary", "task", "shaped"])
def test_reward_terms_sum_to_the_reward_and_success_is_exactness(data: TextGameData, reward: str) -> None:
    answerer = make_answerer(data, reward=reward)
    task, seen = answerer.task, set()
    (sample,) = answerer.greedy(data.train[:1])
    for case in data.train[:30]:
        for text in (task.target(case), task.no_change(case), task.target(case)[:-3], "nonsense"):
            told = episode(judge_answer(task, case, text), sample, answerer.prompt(case))
            assert sum(sum(values) for values in told.terms.values()) == pytest.approx(told.score)
            assert told.score == pytest.approx(task.reward(text, case).value)
            assert told.info["parts"]["malformed"] == isinstance(task.parse(text, case), Malformed)
            assert told.success == (text == task.target(case) or (text == task.no_change(case) and not case.changed))
            seen.add(told.success)
    assert seen == {True, False}


def test_an_episode_is_one_question_with_what_was_sampled(data: TextGameData) -> None:
    answerer = make_answerer(data)
    cases = data.train[:3]
    episodes = play(answerer, cases, 2, 0, partial(judge_answer, answerer.task))
    assert [(e.group, e.member, e.task) for e in episodes] == [(g, m, cases[g].id) for g in range(3) for m in range(2)]
    for told in episodes:
        (row,) = told.rows
        assert row.sampled.sum() == told.sampled_tokens > 0
        assert np.array_equal(row.prefix, answerer.prompt(cases[told.group]))
        assert told.finish_reason is (
            FinishReason.LENGTH if told.sampled_tokens == 12 and row.tokens[-1] != 2 else FinishReason.TURNS
        )
        assert json.dumps(record(told))
    assert [e.rows[0].tokens.tolist() for e in play(answerer, cases, 2, 0, partial(judge_answer, answerer.task))] == [
        e.rows[0].tokens.tolist() for e in episodes
    ]


def test_a_steps_answers_are_described_by_what_they_should_have_changed() -> None:
    def answered(success: bool, changed: bool, malformed: bool, reason: FinishReason) -> Episode:
        part = "success_changed" if changed else "success_unchanged"
        info = {"parts": {part: float(success), "malformed": float(malformed)}}
        return Episode([], success=success, finish_reason=reason, info=info)

    ended, cut_off = FinishReason.TURNS, FinishReason.LENGTH
    episodes = [
        answered(True, True, False, ended),
        answered(False, True, True, cut_off),
        answered(False, True, False, ended),
        answered(True, False, False, ended),
    ]
    found = describe(episodes)
    assert found == {"success_changed": 1 / 3, "success_unchanged": 1.0, "malformed": 0.25, "truncated": 0.25}
    assert "success_unchanged" not in describe(episodes[:3])


def test_sft_rows_put_the_loss_on_the_answer_and_its_end(data: TextGameData) -> None:
    answerer = make_answerer(data)
    rows = true_rows(answerer.task, answerer.chat, data.train, [[0, 1], [2, 3, 4]])
    assert len(rows) == 5 and len(list(rows)) == 5
    for number, row in enumerate(rows):
        case = data.train[number]
        learned = row.weights("ce") > 0
        assert answerer.language.decode(row.tokens[learned]) == answerer.task.target(case) + "<|im_end|>"
        assert np.array_equal(row.tokens[~learned], answerer.prompt(case))


def test_rows_of_one_state_share_all_that_stands_before_the_command(data: TextGameData) -> None:
    answerer = make_answerer(data)
    settings = ["sft_data.rows=40", "sft_data.rows_per_state=6", "sampler.changed_share=0.5"]
    recipe = recipes.load("rlvr/text-game", settings, TextGameRecipe)
    assert isinstance(recipe, TextGameRecipe)
    rows = training_rows(recipe, None, data, answerer.task, answerer.chat)  # type: ignore[arg-type]
    assert len(rows) == 40 and max(map(len, rows.groups)) == 6
    made = iter(rows)
    by_group = [[next(made) for _ in group] for group in rows.groups]
    for group, own in zip(rows.groups, by_group, strict=True):
        prefixes = {row.prefix.tobytes() for row in own}
        commands = {data.train[number].action for number in group}
        assert len(prefixes) == 1 and len(commands) == len(group)
    shared = list(map(Example.of, max(by_group, key=len)))
    (batch,) = batches(shared, 100_000)
    assert isinstance(batch, RowsAfterPrefix) and len(batch.prefixes) == 1


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_sft_rows_come_from_a_sampler_of_their_own(data: TextGameData, share: float) -> None:
    settings = ["sft_data.rows=8", f"sft_data.sampler.changed_share={share}", f"sampler.changed_share={1 - share}"]
    recipe, answerer = recipes.load("rlvr/text-game", settings, TextGameRecipe), make_answerer(data)
    assert isinstance(recipe, TextGameRecipe)
    rows = training_rows(recipe, None, data, answerer.task, answerer.chat)  # type: ignore[arg-type]
    assert {data.train[number].changes("full") for group in rows.groups for number in group} == {bool(share)}


def test_a_teacher_is_asked_over_http_and_its_right_answers_are_learnt(data: TextGameData, tmp_path: Path) -> None:
    answerer, host = make_answerer(data), Host()
    known = {answerer.task.prompt(case)[0]["content"]: answerer.task.perfect(case) for case in data.train}

    def reply(body: dict[str, Any], handler: BaseHTTPRequestHandler) -> None:
        right = known[body["messages"][-1]["content"]]
        send(handler, {"choices": [choice(text) for text in ("?", "no", right)[: body["n"]]]})

    host.answer = reply
    teacher = ["sft_data.teacher.model=m", f"sft_data.teacher.base_url=http://127.0.0.1:{host.http.server_port}/v1"]
    settings = ["sft_data.rows=12", "sft_data.samples=3", "sft_data.teacher.retries=0", *teacher]
    recipe = recipes.load("rlvr/text-game", settings, TextGameRecipe)
    assert isinstance(recipe, TextGameRecipe)
    run = Run.open(tmp_path / "run", recipe)
    rows = training_rows(recipe, run, data, answerer.task, answerer.chat)
    learned = {answerer.language.decode(row.tokens[row.weights("ce") > 0]) for row in rows}
    assert len(rows) == 12 and learned <= {f"{text}<|im_end|>" for text in known.values()}
    assert {body["n"] for body in host.bodies} == {3}
    assert "teacher: 12 of 12 questions answered right in 3 tries" in (tmp_path / "run" / "log.txt").read_text()
    host.http.shutdown()
    host.http.server_close()
    more = recipe.model_copy(update={"seed": 5})
    with pytest.raises(OneiroError, match="the teacher does not reply: connection failed"):
        training_rows(more, run, data, answerer.task, answerer.chat)


def test_pieces_of_json_make_questions_short_and_change_no_text(data: TextGameData) -> None:
    answerer = make_answerer(data)
    plain = create_tiny(ModelSettings(layers=1, width=8, heads=1, mlp=8, vocabulary=600), _texts(answerer, data), 1)
    pieced = [answerer.language.encode(text) for text in _texts(answerer, data)]
    assert [answerer.language.decode(tokens) for tokens in pieced] == _texts(answerer, data)
    assert sum(map(len, pieced)) * 3 < sum(len(plain.encode(text)) for text in _texts(answerer, data))


def _texts(answerer: TextGameModel, data: TextGameData) -> list[str]:
    return [answerer.task.prompt(case)[0]["content"] for case in data.test[:20]]


def test_greedy_answers_do_not_depend_on_their_neighbours(data: TextGameData) -> None:
    answerer = make_answerer(data)
    together = answerer(data.test[:6])
    assert together == [answerer([case])[0] for case in data.test[:6]]
    counts: list[int] = []
    samples = answerer.greedy(data.test[:6], counts.append)
    assert sum(counts) == 6
    assert [answerer.text(sample) for sample in samples] == together


def test_held_out_games_are_counted_by_themselves(data: TextGameData) -> None:
    task = TextGamePredictor(TextGamePredictorConfig(rules="none"))
    evaluation = StepEvaluation.of(data.test, data.unseen, ["grow-beans"], 0, 0)
    right = {case.id: task.perfect(case) for case in evaluation.cases}
    found = evaluation.measure(task, right, "strict")
    assert found["all"]["overall"]["accuracy"] == 100.0 and found["all"]["overall"]["cases"] == len(data.test)
    assert found["held_out"]["overall"] == {
        **found["held_out"]["overall"],
        "accuracy": 0.0,
        "cases": len(evaluation.unseen),
    }
    assert found["errors"]["answers to nothing"] == 0
    everything = evaluation.measure(task, task.perfect, "strict")
    assert everything["held_out"]["changed"]["accuracy"] == 100.0


def test_games_that_the_author_of_some_answers_held_out_can_be_named(folder: Path) -> None:
    evaluation, task = (
        open_evaluation(folder, "train", held_out=["bake-bread"]),
        TextGamePredictor(TextGamePredictorConfig(rules="none")),
    )
    answers = {row.id: task.perfect(row) for row in evaluation.cases if row.game != "bake-bread"}
    found = evaluation.measure(task, answers, "strict")["held_out"]["overall"]
    assert found["accuracy"] == 0.0 and found["cases"] == sum(row.game == "bake-bread" for row in evaluation.cases) > 0
    with pytest.raises(OneiroError, match="did you mean 'bake-bread'"):
        open_evaluation(folder, held_out=["bake-bred"])
    open_evaluation(folder, held_out=["grow-beans"])  # it has a split of its own


def from_folder(folder: Path, *more: str) -> TextGameRecipe:
    settings = [f"data.name={folder}", "data.games=[]", "data.held_out=[]", "task.rules=none", *more]
    recipe = recipes.load("rlvr/text-game", settings)
    assert isinstance(recipe, TextGameRecipe)
    return recipe


def test_a_held_out_game_that_an_imported_folder_does_not_have_is_named(folder: Path, tmp_path: Path) -> None:
    for games in ("data.games=[]", "data.games=[do-laundry]"):
        recipe = from_folder(folder, games, "data.held_out=[bake-bred]")
        with Run.open(tmp_path / games, recipe) as run, pytest.raises(OneiroError, match="did you mean 'bake-bread'"):
            data_stage(recipe, run)
    recipe = from_folder(folder, "data.held_out=[bake-bread,grow-beans]")  # one of them has a split of its own
    with Run.open(tmp_path / "right", recipe) as run:
        assert open_data(recipe.data, run).train.games == ["do-laundry"]


def test_the_lookup_may_know_some_steps_of_a_held_out_game(folder: Path, tmp_path: Path) -> None:
    """Nothing is trained on them, and the more it knows the more it gets right; the table has a column for each."""
    recipe = from_folder(folder, "data.held_out=[bake-bread]", "evaluation.own_steps=[0,4,9999]", "task.retrieve=true")
    with Run.open(tmp_path / "run", recipe) as run:
        data = open_data(recipe.data, run)
    assert data.own is not None and data.own.games == ["bake-bread"] and data.train.games == ["do-laundry"]
    memories = data.memories(recipe)
    known = {count: len(memory.index.cases) - len(data.train) for count, memory in memories.items()}
    assert known == {0: 0, 4: 4, 9999: len(data.own)}  # each at most once
    curve = by_own_steps(recipe, data, memories, lambda memory: lambda cases: [*map(memory, cases)])
    assert curve[0]["value"] < curve[9999]["value"] and {row["n"] for row in curve.values()} == {curve[0]["n"]}

    def copies(memory: TextGameLookup) -> Predict:
        """Answers with the suggestion that its prompt shows."""
        task = data.predictor(recipe.task).with_memory(memory)
        return lambda cases: [task.prompt(case)[0]["content"].rsplit("Suggestion: ", 1)[1] for case in cases]

    assert by_own_steps(recipe, data, memories, copies) == curve
    table = own_steps_table({"lookup": curve, "model": json.loads(json.dumps(curve))})
    assert table.columns == ["answers", "0", "4", "9999"] and table.rows[0][1:] == table.rows[1][1:]
    with pytest.raises(OneiroError, match="set data and data"):
        from_folder(folder, "evaluation.own_steps=[4]")


def test_an_example_that_the_data_does_not_have_is_told_of(folder: Path, tmp_path: Path) -> None:
    for example, said in (("true", True), ("false", False)):
        recipe = from_folder(folder, f"task.example={example}")
        with Run.open(tmp_path / example, recipe) as run:
            data_stage(recipe, run)
        assert ("task.example shows none" in (tmp_path / example / "log.txt").read_text()) is said


def still(task: TextGamePredictor) -> Predict:
    return lambda cases: [task.no_change(case) for case in cases]


def test_a_folder_has_its_recorded_plans_simulated_and_says_how_many_steps_were_taught(
    folder: Path, data: TextGameData
) -> None:
    recipe = from_folder(folder, "evaluation.depth=3")
    task = data.predictor(recipe.task)
    evaluation = StepEvaluation.of(data.test, None, (), 0, 0)
    found = {"steps": evaluation.measure(task, task.no_change, "strict"), **beyond(recipe, task, still(task))}
    last = tables(recipe, data, task, {}, {"SFT": found})[-1]
    assert last.title == "Simulating winning plans: right at every step so far"
    assert last.columns == ["depth", "no change", "lookup", "perfect", "SFT"]
    assert [row[3].value for row in last.rows] == [1.0] * 3 and [row[4].value for row in last.rows][-1] == 0.0
    plans = find_plans(folder, "test", 3)
    planned = [row for row in (*data.train, *data.test) if row.on_plan]
    assert last.rows[0][2].n == len(plans.steps) > 1
    taught = sum(row.split == "train" or row.duplicate for plan in plans.steps for row in plan)
    assert f"{len(plans.steps)} recorded plans; {taught} of these {sum(map(len, plans.steps))} steps" in last.note
    assert {row.id for plan in plans.steps for row in plan} < {row.id for row in planned}


def test_a_plan_that_stands_wholly_in_train_is_left_out_unless_its_game_was_held_out(
    folder: Path, data: TextGameData, tmp_path: Path
) -> None:
    rows = [row for row in data.train if row.game == "bake-bread" and row.on_plan][:2]
    other = replace(data.test[0], on_plan=False)
    mixed = [*rows, other, replace(data.train[0], id="do-laundry/1", game="do-laundry", split="test", on_plan=True)]
    write_dataset(tmp_path, "games", mixed, {})
    assert [[row.id for row in plan] for plan in find_plans(tmp_path, "test", 8).steps] == [["do-laundry/1"]]
    kept = find_plans(tmp_path, "test", 8, held_out=["bake-bread"])
    assert [row.id for plan in kept.steps for row in plan] == [*(row.id for row in rows), "do-laundry/1"]
    assert kept.note.startswith(f"{len(kept.steps)} recorded plans; 0 of these 3 steps")
    assert len(kept.some(1, 0).steps) == 1 and not find_plans(tmp_path, "test", 0)


@pytest.mark.parametrize("kind", ["action", "tick", "score"])
def test_only_whole_steps_are_chained(folder: Path, data: TextGameData, kind: str) -> None:
    for recipe in (
        from_folder(folder, f"task.transition={kind}"),
        recipes.load("rlvr/text-game", [f"task.transition={kind}"]),
    ):
        assert isinstance(recipe, TextGameRecipe)
        task = TextGamePredictor(recipe.task)
        assert beyond(recipe, task, still(task)) == {}


def test_a_folded_adapter_answers_as_before_and_all_of_it_can_learn(data: TextGameData) -> None:
    answerer = make_answerer(data)
    language = with_lora(answerer.language, LoraSettings(rank=2))
    _disturb(language)
    before = TextGameModel(answerer.task, Engine(language, 16), answerer.sampling)(data.test[:4])
    whole = merge_adapters(language)
    assert len(whole.trainable()) > 5 and not hasattr(whole.model, "merge_and_unload")
    assert TextGameModel(answerer.task, Engine(whole, 16), answerer.sampling)(data.test[:4]) == before
    assert merge_adapters(whole) is whole


def _disturb(language: LanguageModel) -> None:
    import torch

    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for _, parameter in language.trainable():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))


def test_possible_commands_hold_every_winning_plan() -> None:
    recipe = recipes.load("rlvr/text-game")
    assert isinstance(recipe, TextGameRecipe)
    for game, scene in levels(recipe, 4):
        for command in solve(game, scene) or ():
            situation = game.situation(scene)
            allowed = possible(game)(situation)
            assert command in allowed and "look" not in allowed
            assert all(game.understand(scene, one) is not None for one in allowed)
            scene = game.step(scene, command).after
        assert scene.won


def test_a_state_is_written_one_object_a_line() -> None:
    scene = GAMES["bake-bread"].level(np.random.default_rng(0))
    lines = write_state(scene.state(), scene.score_json()).splitlines()
    assert [json.loads(line).get("uuid") for line in lines] == [*sorted(scene.things), None]


def test_settings_that_make_no_sense_are_refused() -> None:
    for override, said in (
        ("data.games=[bake-bred]", "did you mean 'bake-bread'"),
        ("data.held_out=[bake-bread]", "choose one"),
        ("sft_data.rows=0", "knows nothing yet"),
        ("sampler.name=gold-mix task.transition=tick task.reward=binary", "use sampler.name=balanced"),
    ):
        with pytest.raises(Exception, match=said):
            recipes.load("rlvr/text-game", override.split())


def test_official_rows_are_recognised_only_when_all_are_asked(data: TextGameData) -> None:
    assert not StepEvaluation.of(data.test, None, (), 0, 0).official
    named = Dataset(
        "bytesized32", "test", data.test.tasks, data.test.states, data.test.scores, [data.test.rows[0]] * 2954
    )
    assert StepEvaluation.of(named, None, (), 0, 0).official and not StepEvaluation.of(named, None, (), 100, 0).official


def test_published_rows_stand_beside_whole_steps_only(data: TextGameData) -> None:
    evaluation = StepEvaluation(data.test[:20], official=True)
    for kind, shown in (("full", True), ("action", False), ("tick", False), ("score", False)):
        task = TextGamePredictor(TextGamePredictorConfig(rules="none", transition=kind))
        assert bool(evaluation.compare(task, {}, "strict", task.baselines())["published"]) is shown


def test_rows_of_one_game_are_compared_without_an_interval() -> None:
    steps = {"accuracy": 50.0, "low": None, "high": None, "cases": 4}
    sampled = {"value": 0.25, "low": None, "high": None, "n": 4}
    row = {"steps": {"all": {"changed": steps}}, "sampled": {"changed": sampled}}
    said, drawn = verdict({"base": row, "RLVR": row})
    assert "base predicts 50.0 % exactly and RLVR 50.0 %: too few cases to compare." in said
    assert "25.0% were exact, then 25.0%: too few cases" in drawn


def test_a_verdict_compares_the_first_row_with_the_last() -> None:
    def row(value: float, spread: float) -> dict[str, Any]:
        exact = {"accuracy": value, "low": value - spread, "high": value + spread, "cases": 8}
        drawn = {"value": value / 200, "low": (value - spread) / 200, "high": (value + spread) / 200, "n": 8}
        return {"steps": {"all": {"changed": exact}}, "sampled": {"changed": drawn}}

    rows = {"base": row(10, 5), "SFT": row(90, 1), "RLVR": row(40, 20)}
    said, drawn = verdict(rows)
    assert "Of 8 test steps" in said and "base predicts 10.0 % (5.0 % to 15.0 %) exactly and RLVR 40.0 % (20" in said
    assert "5.0% (2.5% to 7.5%) were exact, then 20.0% (10.0% to 30.0%): " in drawn
    assert "): the intervals do not overlap." in said and drawn.endswith("): the intervals do not overlap.")
    assert all("): the intervals overlap." in sentence for sentence in verdict(rows | {"RLVR": row(40, 25)}))
    (alone,) = verdict(rows | {"SFT": {"steps": rows["SFT"]["steps"]}})  # one that was not sampled
    assert alone == said
    assert verdict({"base": {"steps": {"all": {"changed": {"cases": 0}}}}, "RLVR": row(40, 20)}) == []
