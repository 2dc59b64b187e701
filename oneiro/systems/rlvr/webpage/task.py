"""Web pages as an RLVR task: a language model learns to predict what an action changes on a page.

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

from oneiro.agents.evaluate import record
from oneiro.episode import Episode
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.predictors.webpage.evaluate import difference, measure, tables
from oneiro.predictors.webpage.lookup import Lookup
from oneiro.predictors.webpage.model import WebPageMetadata, WebPageModel
from oneiro.predictors.webpage.rollout import Predict, chains, errors_by_depth, true_predictor
from oneiro.predictors.webpage.state import PageTransition
from oneiro.predictors.webpage.task import WebPagePredictor
from oneiro.report.table import Cell
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, Sample
from oneiro.systems import stages
from oneiro.systems.rlvr import pipeline
from oneiro.systems.rlvr.answers import episode, play
from oneiro.systems.rlvr.pipeline import intervals_apart
from oneiro.systems.rlvr.task import AFTER, BEFORE, Task
from oneiro.systems.rlvr.webpage.data import Data, StepSampler, data_stage, open_data, short_enough, some, true_rows
from oneiro.systems.rlvr.webpage.episodes import describe, judged
from oneiro.systems.rlvr.webpage.recipe import WebPageRecipe
from oneiro.systems.rlvr.webpage.tiny import TEXTS, create_tiny
from oneiro.systems.stages import Curve, Rollout

__all__ = ["WebPageRecipe", "WebPageTask", "run"]

SFT = "sft"
AT_ONCE = 256
"""Questions answered between two moves of the progress bar."""
_RL = {AFTER: pipeline.RL}


def run(recipe: WebPageRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    pipeline.train(WebPageTask(recipe, run))


class WebPageTask(Task):
    """Steps of the web; the reward is the F1 of the predicted change."""

    recipe: WebPageRecipe
    curves: ClassVar = (
        Curve("F1 on steps that change the page, sampled", "f1_changed", _RL, "%"),
        Curve("F1 on steps that change nothing, sampled", "f1_unchanged", _RL, "%"),
        Curve("F1 on validation steps that change the page, greedy", "eval_f1_changed", _RL, "%"),
        Curve("Precision on steps that change the page, sampled", "precision_changed", _RL, "%"),
        Curve("Recall on steps that change the page, sampled", "recall_changed", _RL, "%"),
        Curve("Reward", "reward", _RL),
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
        return open_data(self.recipe, self.run)

    @cached_property
    def predictor(self) -> WebPagePredictor:
        return WebPagePredictor(self.recipe.task, examples=self.data.train if self.recipe.task.retrieve else ())

    @cached_property
    def seen(self) -> Callable[[PageTransition], bool]:
        """Whether training has a step like a given one."""
        return Lookup(self.data.train, self.recipe.task.lines).seen

    @property
    def first_stages(self) -> list[str]:
        return ["data", "model", *([SFT] if self.recipe.sft_data.rows else [])]

    def prepare(self) -> None:
        recipe, run = self.recipe, self.run
        run.stage("data", lambda: data_stage(recipe, run), main_only=True)
        run.stage("model", lambda: stages.make_base(run, recipe.model, self._create_tiny), main_only=True)

    def _create_tiny(self) -> LanguageModel:
        sampler = self.sampler(self.data.train, "tokenizer")
        cases = [sampler(number) for number in range(TEXTS)]
        return create_tiny(self.recipe.model, self.predictor, cases, seeds.derive(self.recipe.seed, "weights"))

    def sampler(self, cases: Sequence[PageTransition], name: str) -> StepSampler:
        return StepSampler(self.predictor, cases, self.recipe.changed_share, seeds.derive(self.recipe.seed, name))

    def trainable(self, chat: ChatFormat) -> list[PageTransition]:
        """The training steps whose prompts are short enough."""
        found = short_enough(self.predictor, chat, self.data.train, self.recipe.max_prompt)
        if not found:
            raise OneiroError(f"no prompt has at most max_prompt={self.recipe.max_prompt} tokens; raise it")
        if len(found) < len(self.data.train):
            self.run.say(f"{len(self.data.train) - len(found):,} training steps have prompts above max_prompt")
        return found

    def supervise(self) -> str | None:
        if not self.recipe.sft_data.rows:
            return None
        self.run.stage(SFT, self._sft)
        return SFT

    def _sft(self) -> dict[str, Any]:
        """Learn true changes, as far as the recipe goes."""
        recipe, run, language = self.recipe, self.run, self.model(None)
        chat, seed = ChatFormat(language.tokenizer), seeds.derive(recipe.seed, "sft")
        sampler = self.sampler(self.trainable(chat), "sft steps")
        rows = true_rows(self.predictor, chat, [sampler(number) for number in range(recipe.sft_data.rows)])
        tests = some(self.data.validation, recipe.sft_data.held_out, recipe.seed) if recipe.sft_data.held_out else []
        held_out = true_rows(self.predictor, chat, tests)
        steps = stages.supervise(run, SFT, "SFT", language, rows, held_out, recipe.sft, seed)
        return {"rows": len(rows), "steps": steps}

    def model(self, stage: str | None) -> LanguageModel:
        language = stages.weights_after(self.run, [stage], self.recipe.model)
        return WebPageMetadata(task=self.recipe.task, sampling=self.recipe.sampling).write(language)

    def answering(self, engine: Engine) -> WebPageModel:
        return WebPageModel(self.predictor, engine, self.recipe.sampling)

    def rollout(self, engine: Engine) -> Rollout:
        recipe, model = self.recipe, self.answering(engine)
        sampler = self.sampler(self.trainable(model.chat), "rl steps")
        count, subset = recipe.rollout.prompts_per_step, recipe.evaluation.eval_subset

        def play_step(step: int) -> list[Episode]:
            cases = [sampler(number) for number in range(step * count, (step + 1) * count)]
            seed = seeds.derive(recipe.seed, "rl", step)
            return play(model, cases, recipe.rollout.group_size, seed, partial(judged, self.predictor))

        def evaluate(step: int) -> dict[str, float]:
            return _means(model, some(self.data.validation, subset, recipe.seed), "eval")

        def validate() -> dict[str, float]:
            select = recipe.rl.select
            return _means(model, some(self.data.validation, select.cases if select else 0, recipe.seed), "validation")

        most = recipe.sampling.max_tokens
        return Rollout(play_step, record, describe, evaluate, most, validate, "validation_f1_changed")

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        stage = "evaluate-rlvr" if name == AFTER else "evaluate-base"
        model, cases = self.answering(engine), some(self.data.test, self.recipe.evaluation.rows, self.recipe.seed)
        samples: list[Sample] = []
        with self.run.progress(stage, len(cases)) as bar:
            for start in range(0, len(cases), AT_ONCE):
                part = cases[start : start + AT_ONCE]
                samples += model.greedy(part)
                bar.advance(len(part))
        answers = {case.id: model.text(sample) for case, sample in zip(cases, samples, strict=True)}
        told = [
            episode(judged(self.predictor, case, answers[case.id]), sample, model.prompt(case), number)
            for number, (case, sample) in enumerate(zip(cases, samples, strict=True))
        ]
        self.run.episodes(stage, 0, [record(one) for one in told])
        found = measure(self.predictor, cases, answers, self.seen)
        shown = ", ".join(f"{part} {found[part]['f1']['value']:.1%}" for part in ("changed", "all") if found[part])
        self.run.say(f"{name}: F1 on test steps: {shown}")
        return {"steps": found, "depth": self._depth(model)}

    def _depth(self, predict: Predict) -> list[dict[str, Any]]:
        wanted = self.recipe.evaluation.trajectories
        return errors_by_depth(self.predictor, predict, chains(self.data.episodes)[:wanted]) if wanted else []

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        task, cases = self.predictor, some(self.data.test, self.recipe.evaluation.rows, self.recipe.seed)
        baselines = task.baselines(self.data.train)
        perfect, learned = baselines.pop("perfect"), {name: row["steps"] for name, row in measured.items()}
        rows = {
            **{name: measure(task, cases, answers, self.seen) for name, answers in baselines.items()},
            **learned,
            "perfect": measure(task, cases, perfect, self.seen),
        }
        deep: dict[str, Any] = {}
        if self.recipe.evaluation.trajectories:
            scripted: dict[str, Predict] = {
                name: (lambda asked, answers=answers: [answers(case) for case in asked])  # type: ignore[misc]
                for name, answers in baselines.items()
            }
            deep = {
                **{name: self._depth(predict) for name, predict in scripted.items()},
                **{name: row["depth"] for name, row in measured.items()},
                "perfect": self._depth(true_predictor(task, self.data.episodes)),
            }
        found = tables(task, rows, deep)
        return {"tables": [table.data() for table in found], "notes": verdict(measured, rows["lookup"])}


def _means(model: WebPageModel, cases: Sequence[PageTransition], prefix: str) -> dict[str, float]:
    """Mean greedy F1 on a few steps."""
    rows = [
        (model.task.changes(case), model.task.judge(text, case).f1)
        for case, text in zip(cases, model(cases), strict=True)
    ]
    found: dict[str, float] = {}
    for name, changed in (("f1_changed", True), ("f1_unchanged", False)):
        part = [f1 for kind, f1 in rows if kind is changed]
        found |= {f"{prefix}_{name}": sum(part) / len(part)} if part else {}
    return found


def verdict(measured: Mapping[str, dict[str, Any]], lookup: dict[str, Any]) -> Sequence[str]:
    """What RLVR added to its start, and how it stands to the lookup, in sentences."""
    (first, before), (last, after) = ((name, row["steps"]) for name, row in measured.items())
    if not before["changed"]:
        return []
    one, two, three = (row["changed"]["f1"] for row in (before, after, lookup))
    was, now, looked_up = (Cell(**cell).words("{:.1%}") for cell in (one, two, three))

    gained, ahead = (difference(after, other).words("{:+.1%}") for other in (before, lookup))
    return [
        f"On {one['n']} test steps that change the page, of unseen tasks, {first} has F1 {was} and {last} "
        f"{now}: {intervals_apart(one['high'], two['low'])}. The lookup among training steps has "
        f"{looked_up}: {intervals_apart(three['high'], two['low'])} with {last}'s.",
        f"Step by step, F1 of {last} less {first}'s is {gained}, less the lookup's {ahead}; intervals are over "
        "episodes.",
    ]
