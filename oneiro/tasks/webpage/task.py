"""Web pages as an RLVR task: a language model learns to predict what an action changes on a page.

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from oneiro.episode import Episode, FinishReason, Row
from oneiro.learning.stages import Curve
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.table import Cell
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.answering import CURVES, AnsweringTask, JudgedAnswer, means, true_rows
from oneiro.tasks.task import AFTER, CONTROL, RL, evaluation_stage, intervals_apart
from oneiro.tasks.webpage.data import StepSampler, WebPageData, data_stage, open_data, short_enough, some_steps
from oneiro.tasks.webpage.evaluation import difference, measure, tables
from oneiro.tasks.webpage.lookup import PageLookup
from oneiro.tasks.webpage.model import TEXTS, WebPageMetadata, WebPageModel, create_tiny
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
        """The training steps whose prompts are short enough."""
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

    def accuracy(self, model: WebPageModel, cases: Sequence[PageTransition], prefix: str) -> dict[str, float]:
        """Mean F1."""
        scores = [
            (model.task.changes(case), model.task.judge(text, case).f1)
            for case, text in zip(cases, model(cases), strict=True)
        ]
        changed, unchanged = [f1 for kind, f1 in scores if kind], [f1 for kind, f1 in scores if not kind]
        return means({f"{prefix}_f1_changed": changed, f"{prefix}_f1_unchanged": unchanged})

    def judge(self, case: PageTransition, text: str) -> JudgedAnswer:
        return judge_answer(self.predictor, case, text)

    def describe(self, episodes: Sequence[Episode]) -> dict[str, float]:
        return describe(episodes)

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
    turn = {
        "state": "\n".join(map(str, shown_items(case, task.config.lines))),
        "actions": [{"action": case.action}],
        "reply": text,
        "prediction": text if score.flaw is None else None,
        "next_state": task.write(task.truth(case), case),
        "reward": reward.value,
    }
    return JudgedAnswer(
        task=case.id,
        world=f"web page {case.site}",
        turn=turn,
        reward=reward,
        success=score.f1 == 1.0,
        info={"changed": task.changes(case), "malformed": score.flaw is not None, "figures": score.figures()},
    )


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a step's answers were like: F1 on steps that change the page and on those that do not, and precision and
    recall.
    """
    changed = [e.info["figures"] for e in episodes if e.info["changed"]]
    still = [e.info["figures"] for e in episodes if not e.info["changed"]]
    parts = {
        "f1_changed": [row["f1"] for row in changed],
        "precision_changed": [row["precision"] for row in changed],
        "recall_changed": [row["recall"] for row in changed],
        "f1_unchanged": [row["f1"] for row in still],
        "malformed": [float(e.info["malformed"]) for e in episodes],
        "truncated": [float(e.finish_reason is FinishReason.LENGTH) for e in episodes],
    }
    return means(parts)


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
