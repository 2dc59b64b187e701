"""Text games as an RLVR task: a language model learns to predict what a command does.

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

from oneiro.agents.evaluate import record
from oneiro.episode import Episode
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.predictors.textgame.model import TextGameMetadata, TextGameModel
from oneiro.predictors.textgame.task import TextGamePredictor
from oneiro.report.table import Cell
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.systems import stages
from oneiro.systems.rlvr import pipeline
from oneiro.systems.rlvr.answers import play
from oneiro.systems.rlvr.pipeline import intervals_apart
from oneiro.systems.rlvr.task import AFTER, BEFORE, Task
from oneiro.systems.rlvr.textgame import evaluation
from oneiro.systems.rlvr.textgame.data import (
    Data,
    data_stage,
    open_data,
    row_order,
    some,
    training_rows,
    true_rows,
    with_validation,
)
from oneiro.systems.rlvr.textgame.episodes import describe, judged
from oneiro.systems.rlvr.textgame.recipe import TextGameRecipe
from oneiro.systems.rlvr.textgame.tiny import TEXTS, create_tiny
from oneiro.systems.stages import Curve, Rollout

__all__ = ["TextGameRecipe", "TextGameTask", "run"]

SFT = "sft"
_RL = {AFTER: pipeline.RL}


def run(recipe: TextGameRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    pipeline.train(TextGameTask(recipe, run))


class TextGameTask(Task):
    """Transitions of text games; the reward compares the predicted next state with the true one."""

    recipe: TextGameRecipe
    curves: ClassVar = (
        Curve("Exact answers to steps that change something, sampled", "success_changed", _RL, "%"),
        Curve("Exact answers to steps that change nothing, sampled", "success_unchanged", _RL, "%"),
        Curve("Test steps that change something, greedy", "eval_changed", _RL, "%"),
        Curve("Test steps that change nothing, greedy", "eval_unchanged", _RL, "%"),
        Curve("Reward", "reward", _RL),
        Curve("Reward for exact answers", "reward_exact", _RL),
        Curve("Reward for the overlap of true and predicted changes", "reward_overlap", _RL),
        Curve("Cross-entropy of SFT", "ce", {"SFT": SFT}),
        Curve("Unreadable answers", "malformed", _RL, "%"),
        Curve("Reward std within groups", "group_std", _RL),
        Curve("Entropy", "entropy", _RL),
        Curve("Tokens of an answer", "response_length", _RL),
        Curve("Largest sampler-learner difference in log-probability", "mismatch", _RL),
    )

    @property
    def before(self) -> str:
        return "SFT" if self.recipe.sft_data.rows else BEFORE

    @cached_property
    def data(self) -> Data:
        data, select = open_data(self.recipe.data, self.run), self.recipe.rl.select
        return with_validation(data, select.cases, self.recipe.seed) if select else data

    @cached_property
    def predictor(self) -> TextGamePredictor:
        return self.data.predictor(self.recipe.task)

    @property
    def first_stages(self) -> list[str]:
        return ["data", "model", *([SFT] if self.recipe.sft_data.rows else [])]

    def prepare(self) -> None:
        recipe, run = self.recipe, self.run
        run.stage("data", lambda: data_stage(recipe, run), main_only=True)
        run.stage("model", lambda: stages.make_base(run, recipe.model, self._create_tiny), main_only=True)

    def _create_tiny(self) -> LanguageModel:
        recipe, train = self.recipe, self.data.train
        order = row_order(train, recipe.sampler, recipe.task.transition, seeds.derive(recipe.seed, "tokenizer"))
        cases = [train[order.row(i)] for i in range(TEXTS)]
        return create_tiny(recipe.model, self.predictor, cases, seeds.derive(recipe.seed, "weights"))

    def supervise(self) -> str | None:
        if not self.recipe.sft_data.rows:
            return None
        self.run.stage(SFT, self._sft)
        return SFT

    def _sft(self) -> dict[str, Any]:
        """Learn right answers, as far as the recipe goes."""
        recipe, run, language = self.recipe, self.run, self.model(None)
        chat, seed = ChatFormat(language.tokenizer), seeds.derive(recipe.seed, "sft")
        rows = training_rows(recipe, run, self.data, self.predictor, chat)
        tests = some(self.data.test, recipe.sft_data.held_out, recipe.seed) if recipe.sft_data.held_out else []
        held_out = true_rows(self.predictor, chat, tests, [[number] for number in range(len(tests))])
        sizes = [len(group) for group in rows.groups]
        steps = stages.supervise(run, SFT, "SFT", language, rows, held_out, recipe.sft, seed, sizes)
        return {"rows": len(rows), "steps": steps}

    def model(self, stage: str | None) -> LanguageModel:
        recipe = self.recipe
        language = stages.weights_after(self.run, [stage], recipe.model)
        metadata = TextGameMetadata(task=recipe.task, sampling=recipe.sampling, held_out=recipe.data.held_out)
        return metadata.write(language)

    def answering(self, engine: Engine) -> TextGameModel:
        return TextGameModel(self.predictor, engine, self.recipe.sampling)

    def rollout(self, engine: Engine) -> Rollout:
        recipe, train, model = self.recipe, self.data.train, self.answering(engine)
        order = row_order(train, recipe.sampler, recipe.task.transition, seeds.derive(recipe.seed, "rl"))
        count, subset = recipe.rollout.prompts_per_step, recipe.evaluation.eval_subset

        def play_step(step: int) -> list[Episode]:
            cases = [train[order.row(i)] for i in range(step * count, (step + 1) * count)]
            seed = seeds.derive(recipe.seed, "rl", step)
            return play(model, cases, recipe.rollout.group_size, seed, partial(judged, self.predictor))

        def evaluate(step: int) -> dict[str, float]:
            return evaluation.subset_accuracy(model, some(self.data.test, subset, recipe.seed))

        def validate() -> dict[str, float]:
            found = evaluation.subset_accuracy(model, self.data.validation)
            return {name.replace("eval_", "validation_"): value for name, value in found.items()}

        return Rollout(
            play_step, record, describe, evaluate, recipe.sampling.max_tokens, validate, "validation_changed"
        )

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        stage = "evaluate-rlvr" if name == AFTER else "evaluate-base"
        found = evaluation.evaluate(self.recipe, self.run, self.data, self.answering(engine), stage)
        parts = found["steps"]["all"]
        shown = ", ".join(f"{part} {cell['accuracy']:.1f} %" for part, cell in parts.items() if cell["cases"])
        self.run.say(f"{name}: exact answers to test rows: {shown}")
        return found

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        tables = evaluation.tables(self.recipe, self.data, measured)
        return {"tables": [table.data() for table in tables], "notes": verdict(measured)}


def verdict(measured: Mapping[str, dict[str, Any]]) -> Sequence[str]:
    """What RLVR added to its start on steps that change something, in a sentence."""
    (first, before), (last, after) = ((name, row["steps"]["all"]["changed"]) for name, row in measured.items())
    if not before["cases"]:
        return []
    was, now = (Cell(row["accuracy"], row["low"], row["high"]).words("{:.1f} %") for row in (before, after))
    said = [
        f"Of {before['cases']} test steps that change something, {first} predicts {was} exactly and {last} {now}: "
        f"{intervals_apart(before['high'], after['low'])}. The answer that nothing changes gets none of them."
    ]
    sampled = [row["sampled"]["changed"] for row in measured.values() if "changed" in row.get("sampled", {})]
    if len(sampled) == 2:
        one, two = (Cell(**cell).words("{:.1%}") for cell in sampled)
        apart = intervals_apart(sampled[0]["high"], sampled[1]["low"])
        said.append(f"Of sampled answers to them {one} were exact, then {two}: {apart}.")
    return said
