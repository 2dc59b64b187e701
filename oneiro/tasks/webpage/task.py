"""Web pages as an RLVR task: a language model learns to predict what an action changes on a page.

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from oneiro.episode import Row
from oneiro.learning.stages import CONTROL, Curve
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.table import Cell
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.answering import JudgedAnswer, true_rows
from oneiro.tasks.task import AFTER, CURVES, RL, AnsweringTask, evaluation_stage, intervals_apart
from oneiro.tasks.webpage.data import StepSampler, WebPageData, data_stage, open_data, short_enough, some_steps
from oneiro.tasks.webpage.evaluation import difference, measure, tables
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.model import TEXTS, WebPageMetadata, create_tiny
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.recipe import WebPageRecipe
from oneiro.tasks.webpage.rollout import Predict, chains, errors_by_depth, true_predictor
from oneiro.tasks.webpage.state import PageTransition, shown_items

_RL = {AFTER: RL}


class WebPageTask(AnsweringTask[WebPagePredictor, PageTransition]):
    """Steps of the web; the reward is the F1 of the predicted change."""

    recipe: WebPageRecipe
    validation_metric: ClassVar[str] = "validation_f1_changed"
    curves: ClassVar = (
        Curve("F1 on steps that change the page, sampled", "f1_changed", _RL, "%"),
        Curve("F1 on steps that change nothing, sampled", "f1_unchanged", _RL, "%"),
        Curve("F1 on validation steps that change the page, greedy", "eval_f1_changed", _RL, "%"),
        Curve("Precision on steps that change the page, sampled", "precision_changed", _RL, "%"),
        Curve("Recall on steps that change the page, sampled", "recall_changed", _RL, "%"),
        Curve("Reward", "reward", _RL),
        *CURVES,
    )

    @cached_property
    def data(self) -> WebPageData:
        return open_data(self.recipe, self.run)

    @cached_property
    def predictor(self) -> WebPagePredictor:
        return WebPagePredictor(self.recipe.task, examples=self.data.train if self.recipe.task.retrieve else ())

    @cached_property
    def seen(self) -> Callable[[PageTransition], bool]:
        """Whether training has a step like a given one."""
        return PageLookup(self.data.train, self.recipe.task.lines).has_seen

    @property
    def metadata(self) -> WebPageMetadata:
        return WebPageMetadata(task=self.recipe.task, sampling=self.recipe.sampling)

    def record_data(self) -> dict[str, Any]:
        return data_stage(self.recipe, self.run)

    def sampler(self, cases: Sequence[PageTransition], name: str) -> StepSampler:
        return StepSampler(self.predictor, cases, self.recipe.changed_share, seeds.derive(self.recipe.seed, name))

    def create_tiny(self) -> LanguageModel:
        cases = list(map(self.sampler(self.data.train, "tokenizer"), range(TEXTS)))
        return create_tiny(self.recipe.model, self.predictor, cases, seeds.derive(self.recipe.seed, "weights"))

    def trainable(self, chat: ChatFormat) -> list[PageTransition]:
        short = short_enough(self.predictor, chat, self.data.train, self.recipe.max_prompt)
        if not short:
            raise OneiroError(f"no prompt has at most max_prompt={self.recipe.max_prompt} tokens; raise it")
        if len(short) < len(self.data.train):
            self.run.say(f"{len(self.data.train) - len(short):,} training steps have prompts above max_prompt")
        return short

    def training_rows(self, chat: ChatFormat) -> tuple[Sequence[Row], None]:
        sampler = self.sampler(self.trainable(chat), "sft steps")
        return true_rows(self.predictor, chat, map(sampler, range(self.recipe.sft_data.rows))), None

    def training_cases(self, chat: ChatFormat) -> StepSampler:
        return self.sampler(self.trainable(chat), "rl steps")

    def validation_cases(self, count: int) -> list[PageTransition]:
        return some_steps(self.data.validation, count, self.recipe.seed)

    def grade(self, case: PageTransition, text: str) -> dict[str, float]:
        return {f"f1_{'changed' if self.predictor.changes(case) else 'unchanged'}": self.predictor.judge(text, case).f1}

    def judge(self, case: PageTransition, text: str) -> JudgedAnswer:
        return judge_answer(self.predictor, case, text)

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        stage = evaluation_stage(name)
        model, cases = self.answering(engine), some_steps(self.data.test, self.recipe.evaluation.rows, self.recipe.seed)
        scores = measure(self.predictor, cases, self.answers(model, cases, stage), self.seen)
        parts = ", ".join(f"{part} {scores[part]['f1']['value']:.1%}" for part in ("changed", "all") if scores[part])
        self.run.say(f"{name}: F1 on test steps: {parts}")
        return {"steps": scores, "depth": self._depth(model)}

    def _depth(self, predict: Predict) -> list[dict[str, Any]]:
        wanted = self.recipe.evaluation.trajectories
        return errors_by_depth(self.predictor, predict, chains(self.data.episodes)[:wanted]) if wanted else []

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        task, cases = self.predictor, some_steps(self.data.test, self.recipe.evaluation.rows, self.recipe.seed)
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
                name: (lambda cases, answers=answers: [answers(case) for case in cases])  # type: ignore[misc]
                for name, answers in baselines.items()
            }
            deep = {
                **{name: self._depth(predict) for name, predict in scripted.items()},
                **{name: row["depth"] for name, row in measured.items()},
                "perfect": self._depth(true_predictor(task, self.data.episodes)),
            }
        made = tables(task, rows, deep)
        return {"tables": [table.data() for table in made], "notes": verdict(measured, rows)}


def judge_answer(task: WebPagePredictor, case: PageTransition, text: str) -> JudgedAnswer:
    """One answer with what it earned. Success is an exact answer."""
    reward, score = task.reward(text, case), task.judge(text, case)
    figures = score.figures()
    changed = {f"{name}_changed": figures[name] for name in ("f1", "precision", "recall")}
    return JudgedAnswer(
        task=case.id,
        world=f"web page {case.site}",
        state="\n".join(map(str, shown_items(case, task.config.lines))),
        action=case.action,
        reply=text,
        prediction=text if score.flaw is None else None,
        next_state=task.write(task.truth(case), case),
        reward=reward,
        success=score.f1 == 1.0,
        parts=changed if task.changes(case) else {"f1_unchanged": figures["f1"]},
    )


def verdict(measured: Mapping[str, dict[str, Any]], rows: Mapping[str, dict[str, Any]]) -> Sequence[str]:
    """What RLVR added to its start, and how it stands to the rows that it must beat, in sentences."""
    (first, before), *_, (last, after) = ((name, row["steps"]) for name, row in measured.items())
    if not before["changed"]:
        return []
    one, two, three = (row["changed"]["f1"] for row in (before, after, rows["lookup"]))
    was, now, looked_up = (Cell(**cell).words("{:.1%}") for cell in (one, two, three))

    others = [name for name in (first, CONTROL, "delete all", "lookup", "slot model") if name in rows]
    ahead = "; ".join(f"less {name} {difference(after, rows[name]).words('{:+.1%}')}" for name in others)
    return [
        f"On {one['n']} test steps that change the page, of unseen tasks, {first} has F1 {was} and {last} "
        f"{now}: {intervals_apart(one['high'], two['low'])}. The lookup among training steps has {looked_up}.",
        f"Step by step, F1 of {last}: {ahead}. Intervals are over episodes.",
    ]
