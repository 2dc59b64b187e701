"""Written rules as an RLVR task: a language model writes the rules of a game from what it has seen.

An episode is one game with one written table; the tables for one game are a group. Every training game is a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

from oneiro.episode import Row
from oneiro.learning.stages import Curve
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.report.stats import bootstrap, paired
from oneiro.report.table import Cell, Table
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks import answering
from oneiro.tasks.answering import JudgedAnswer, LazyRows, dense_row
from oneiro.tasks.base import Malformed
from oneiro.tasks.rules.recipe import WrittenRecipe
from oneiro.tasks.rules.rulebook.predictor import symbols
from oneiro.tasks.rules.rulebook.written import (
    WrittenCase,
    WrittenPredictor,
    WrittenPredictorConfig,
    draw_case,
    plan_succeeds,
)
from oneiro.tasks.task import AFTER, CURVES, RL, AnsweringTask, evaluation_stage

_RL = {AFTER: RL}
TEXTS = 400
"""Games whose texts the tokenizer of `tiny` is trained on."""
COLUMNS = ("steps reproduced", "all of a game's", "readable", "goals reached")


class WrittenMetadata(ModelMetadata):
    """How a model that writes rules is prompted."""

    what = "a writer of rules"
    kind: Literal["written-rules"] = "written-rules"
    task: WrittenPredictorConfig
    sampling: SamplingSettings


class WrittenTask(AnsweringTask[WrittenPredictor, WrittenCase]):
    """Games with new rules; the reward is the share of held-out steps that the written rules reproduce."""

    recipe: WrittenRecipe
    validation_metric: ClassVar[str] = "validation_reproduced"
    curves: ClassVar = (
        Curve("Held-out steps that sampled rules reproduce", "reproduced", _RL, "%"),
        Curve("Held-out steps that rules for validation games reproduce, greedy", "eval_reproduced", _RL, "%"),
        Curve("Reward", "reward", _RL),
        *CURVES,
    )

    @cached_property
    def predictor(self) -> WrittenPredictor:
        return WrittenPredictor(self.recipe.task)

    @property
    def metadata(self) -> WrittenMetadata:
        return WrittenMetadata(task=self.recipe.task, sampling=self.recipe.sampling)

    def draw(self, name: str, number: int, held_out: bool = False) -> WrittenCase:
        recipe = self.recipe
        return draw_case(recipe.data, recipe.task.steps, recipe.seed, name, number, held_out)

    @cached_property
    def test(self) -> list[WrittenCase]:
        cases = [self.draw("test", number, held_out=True) for number in range(self.recipe.data.test_books)]
        return answering.some(cases, self.recipe.evaluation.rows, self.recipe.seed, "test")

    @cached_property
    def planned(self) -> set[str]:
        """Test games in which somebody plans."""
        return {case.id for case in [case for case in self.test if case.goal][: self.recipe.evaluation.trajectories]}

    def record_data(self) -> dict[str, Any]:
        self.run.say(f"data: {len(self.test):,} test games, {len(self.planned):,} of them with a goal to plan for")
        return {"test": len(self.test), "goals": len(self.planned)}

    def create_tiny(self) -> LanguageModel:
        cases = [self.draw("tokenizer", number) for number in range(TEXTS)]
        seed = seeds.derive(self.recipe.seed, "weights")
        pieces = symbols if self.recipe.task.spaced else lambda texts: ()
        return answering.create_tiny(self.recipe.model, self.predictor, cases, seed, pieces)

    def training_rows(self, chat: ChatFormat) -> tuple[Sequence[Row], None]:
        return LazyRows(lambda number: self.row(chat, self.draw("sft", number)), self.recipe.sft_data.rows), None

    def held_out_rows(self, chat: ChatFormat, count: int) -> Sequence[Row]:
        return [self.row(chat, case) for case in self.validation_cases(count)]

    def row(self, chat: ChatFormat, case: WrittenCase) -> Row:
        """What steps change is learned besides the rules: whoever can predict it from the earlier steps knows them."""
        return dense_row(chat, self.predictor.pieces(case), self.predictor.target(case))

    def training_cases(self, chat: ChatFormat) -> Callable[[int], WrittenCase]:
        return lambda number: self.draw("rl", number)

    def validation_cases(self, count: int) -> list[WrittenCase]:
        """Validation games: training names and links, rules of their own."""
        cases = [self.draw("validation", number) for number in range(self.recipe.data.validation_books)]
        return answering.some(cases, count, self.recipe.seed, "validation")

    def grade(self, case: WrittenCase, text: str) -> dict[str, float]:
        return {"reproduced": self.predictor.reward(text, case).value}

    def judge(self, case: WrittenCase, text: str) -> JudgedAnswer:
        """Success is a table that reproduces every held-out step."""
        predictor = self.predictor
        reward, figures = predictor.reward(text, case), predictor.metrics(text, case)
        return JudgedAnswer(
            task=case.id,
            world="rulebook",
            state=predictor.prompt(case)[0]["content"],
            action=None,
            reply=text,
            prediction=text if figures["parsed"] else None,
            next_state=predictor.target(case),
            reward=reward,
            success=figures["all"] == 1.0,
            parts={"reproduced": figures["reproduced"]},
        )

    def measure(self, answer: Callable[[WrittenCase], str]) -> dict[str, Any]:
        """The row of one writer, as plain JSON; a table that cannot be read reaches no goal."""
        figures: dict[str, list[float]] = {name: [] for name in COLUMNS}
        for case in self.test:
            text = answer(case)
            metrics, book = self.predictor.metrics(text, case), self.predictor.parse(text, case)
            for name, key in zip(COLUMNS, ("reproduced", "all", "parsed"), strict=False):
                figures[name].append(metrics[key])
            if case.id in self.planned:
                figures["goals reached"].append(float(not isinstance(book, Malformed) and plan_succeeds(case, book)))
        return {"cells": {name: vars(bootstrap(values)) for name, values in figures.items()}, "values": figures}

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        answers = self.answers(self.answering(engine), self.test, evaluation_stage(name))
        row = self.measure(lambda case: answers[case.id])
        shown = ", ".join(f"{column} {cell['value']:.1%}" for column, cell in row["cells"].items() if cell["n"])
        self.run.say(f"{name}: {shown}")
        return row

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        baselines = self.predictor.baselines()
        true = baselines.pop("true rules")
        rows = {name: self.measure(answer) for name, answer in baselines.items()}
        rows |= {**measured, "true rules": self.measure(true)}
        table = Table(
            "Rules written from observed steps of unseen games",
            ["writer", *COLUMNS],
            dict.fromkeys(COLUMNS, "%"),
            note="Held-out steps that the executed rules reproduce, and goals that a search in them reaches in the "
            "true game, planning again after each step. Intervals are over rulebooks.",
        )
        for name, row in rows.items():
            table.add(name, *(Cell(**row["cells"][column]) for column in COLUMNS))
        return {"tables": [table.data()], "notes": verdict(measured)}


def verdict(measured: Mapping[str, dict[str, Any]]) -> list[str]:
    """What the last writer added to each of the others, game by game."""
    *others, (last, after) = measured.items()
    sentences = []
    for name, before in others:
        parts = [
            f"{paired(after['values'][column], before['values'][column]).words('{:+.1%}')} {column}"
            for column in ("steps reproduced", "goals reached")
            if after["values"][column]
        ]
        sentences.append(f"{last} less {name}: {', '.join(parts)}; over rulebooks.")
    return sentences
