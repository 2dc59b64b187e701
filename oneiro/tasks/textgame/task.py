"""Text games as an RLVR task: a language model learns to predict what a command does.

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from oneiro.episode import Row
from oneiro.learning.stages import Curve
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.table import Cell
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.tasks.answering import JudgedAnswer
from oneiro.tasks.base import Malformed
from oneiro.tasks.task import AFTER, CURVES, RL, AnsweringTask, evaluation_stage, intervals_apart
from oneiro.tasks.textgame import evaluation
from oneiro.tasks.textgame.data import (
    TextGameData,
    data_stage,
    open_data,
    row_order,
    some_rows,
    training_rows,
    true_rows,
    with_validation,
)
from oneiro.tasks.textgame.lookup import TextGameLookup
from oneiro.tasks.textgame.model import TEXTS, TextGameMetadata, create_tiny
from oneiro.tasks.textgame.predictor import TextGamePredictor
from oneiro.tasks.textgame.recipe import TextGameRecipe
from oneiro.tasks.textgame.score import question
from oneiro.worlds.textgame.state import Score, State, Transition

_RL = {AFTER: RL}


class TextGameTask(AnsweringTask[TextGamePredictor, Transition]):
    """Transitions of text games; the reward compares the predicted next state with the true one."""

    recipe: TextGameRecipe
    validation_metric: ClassVar[str] = "validation_changed"
    curves: ClassVar = (
        Curve("Exact answers to steps that change something, sampled", "success_changed", _RL, "%"),
        Curve("Exact answers to steps that change nothing, sampled", "success_unchanged", _RL, "%"),
        Curve("Validation steps that change something, greedy", "eval_changed", _RL, "%"),
        Curve("Validation steps that change nothing, greedy", "eval_unchanged", _RL, "%"),
        Curve("Reward", "reward", _RL),
        Curve("Reward for exact answers", "reward_exact", _RL),
        Curve("Reward for the overlap of true and predicted changes", "reward_overlap", _RL),
        *CURVES,
    )

    @cached_property
    def data(self) -> TextGameData:
        return with_validation(open_data(self.recipe.data, self.run), self.recipe.seed)

    @cached_property
    def predictor(self) -> TextGamePredictor:
        return self.data.predictor(self.recipe.task)

    @cached_property
    def memories(self) -> dict[int, TextGameLookup]:
        return self.data.memories(self.recipe)

    @property
    def metadata(self) -> TextGameMetadata:
        recipe = self.recipe
        return TextGameMetadata(task=recipe.task, sampling=recipe.sampling, held_out=recipe.data.held_out)

    def record_data(self) -> dict[str, Any]:
        return data_stage(self.recipe, self.run)

    def cases(self, name: str) -> Callable[[int], Transition]:
        """The endless list of training rows under a name, which belongs to the seed."""
        recipe, train = self.recipe, self.data.train
        order = row_order(train, recipe.sampler, recipe.task.transition, seeds.derive(recipe.seed, name))
        return lambda number: train[order.row(number)]

    def training_cases(self, chat: ChatFormat) -> Callable[[int], Transition]:
        return self.cases("rl")

    def create_tiny(self) -> LanguageModel:
        cases = list(map(self.cases("tokenizer"), range(TEXTS)))
        return create_tiny(self.recipe.model, self.predictor, cases, seeds.derive(self.recipe.seed, "weights"))

    def training_rows(self, chat: ChatFormat) -> tuple[Sequence[Row], Sequence[int]]:
        rows = training_rows(self.recipe, self.run, self.data, self.predictor, chat)
        return rows, [len(group) for group in rows.groups]

    def held_out_rows(self, chat: ChatFormat, count: int) -> Sequence[Row]:
        cases = self.validation_cases(count)
        return true_rows(self.predictor, chat, cases, [[number] for number in range(len(cases))])

    def validation_cases(self, count: int) -> list[Transition]:
        return some_rows(self.data.validation, count, self.recipe.seed)

    def grade(self, case: Transition, text: str) -> dict[str, float]:
        part = "changed" if self.predictor.changes(case) else "unchanged"
        return {part: float(self.predictor.exact(text, case))}

    def judge(self, case: Transition, text: str) -> JudgedAnswer:
        return judge_answer(self.predictor, case, text)

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        """Everything a model's rows of the tables need; its answers are kept as episodes."""
        stage = evaluation_stage(name)
        recipe, task, model = self.recipe, self.predictor, self.answering(engine)
        steps = evaluation.evaluation_of(recipe, self.data)
        measured: dict[str, Any] = {
            "steps": steps.measure(task, self.answers(model, steps.rows, stage), recipe.task.scorer)
        }
        if recipe.evaluation.samples:
            measured["sampled"] = evaluation.evaluate_samples(recipe, self.run, model, steps.cases, stage)
        measured |= evaluation.beyond(recipe, task, model)
        if self.memories:
            measured["own_steps"] = evaluation.by_own_steps(
                recipe, self.data, self.memories, lambda memory: replace(model, task=task.with_memory(memory))
            )
        parts = measured["steps"]["all"]
        shown = ", ".join(f"{part} {cell['accuracy']:.1f} %" for part, cell in parts.items() if cell["cases"])
        self.run.say(f"{name}: exact answers to test rows: {shown}")
        return measured

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        tables = evaluation.tables(self.recipe, self.data, self.predictor, self.memories, measured)
        return {"tables": [table.data() for table in tables], "notes": verdict(measured)}


def judge_answer(task: TextGamePredictor, case: Transition, text: str) -> JudgedAnswer:
    """One answer with what it earned. Success is exactness, whatever the reward is."""
    reward, prediction = task.reward(text, case), task.parse(text, case)
    truth = question(case, task.config.transition)
    after = None if isinstance(prediction, Malformed) else write_state(prediction.state, prediction.score)
    success = task.exact(text, case)
    return JudgedAnswer(
        task=case.id,
        world=f"text game {case.game}",
        state=write_state(truth.before, truth.score_before),
        action=case.action,
        reply=text,
        prediction=after,
        next_state=write_state(truth.after, truth.score_after),
        reward=reward,
        success=success,
        parts={"success_changed" if task.changes(case) else "success_unchanged": float(success)},
    )


def write_state(state: State, score: Score | None) -> str:
    """A state for reading: one object a line, in the order of their uuids, so that two states can be laid side by
    side.
    """
    things = sorted(state, key=lambda thing: thing["uuid"])
    shown = [{**thing, "contains": sorted(thing.get("contains", []))} for thing in things]
    return "\n".join(json.dumps(line) for line in [*shown, *([score] if score is not None else [])])


def verdict(measured: Mapping[str, dict[str, Any]]) -> Sequence[str]:
    """What RLVR added to its start on steps that change something, in a sentence."""
    (first, before), *_, (last, after) = ((name, row["steps"]["all"]["changed"]) for name, row in measured.items())
    if not before["cases"]:
        return []
    was, now = (Cell(row["accuracy"], row["low"], row["high"]).words("{:.1f} %") for row in (before, after))
    sentences = [
        f"Of {before['cases']} test steps that change something, {first} predicts {was} exactly and {last} {now}: "
        f"{intervals_apart(before['high'], after['low'])}. The answer that nothing changes gets none of them."
    ]
    sampled = [row["sampled"]["changed"] for row in measured.values() if "changed" in row.get("sampled", {})]
    if len(sampled) == len(measured):
        one, two = (Cell(**sampled[place]).words("{:.1%}") for place in (0, -1))
        apart = intervals_apart(sampled[0]["high"], sampled[-1]["low"])
        sentences.append(f"Of sampled answers to them {one} were exact, then {two}: {apart}.")
    return sentences
