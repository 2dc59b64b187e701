"""Rulebook games as an RLVR task: a language model learns to apply rules that it has never seen.

An episode is one question with one sampled answer; the answers to one question are a group. Every training scene is a
new game, so nothing can be learned by heart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from oneiro.episode import Row
from oneiro.learning.stages import Curve
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.report.table import Cell
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks import answering
from oneiro.tasks.answering import AnsweringModel, JudgedAnswer, LazyRows, SharedPrompts
from oneiro.tasks.rules.recipe import RulebookRecipe
from oneiro.tasks.rules.rulebook.cases import RuleCase, Scenes, twin, with_wrong_rules
from oneiro.tasks.rules.rulebook.evaluation import (
    GameTrajectory,
    acceptance,
    acceptance_table,
    depth_table,
    difference,
    exact_by_depth,
    exact_table,
    measure,
    trajectories,
)
from oneiro.tasks.rules.rulebook.predictor import RulebookPredictor, RulebookPredictorConfig, cut, symbols
from oneiro.tasks.task import AFTER, CURVES, RL, AnsweringTask, evaluation_stage

_RL = {AFTER: RL}
TEXTS = 400
"""Questions with their answers that the tokenizer of `tiny` is trained on."""
WRONG, HIDDEN = "another game's rules", "no rules"
"""The controls of each model, by the end of their row's name."""
DEEP = "depth"
"""Where the measures of a model against depth are."""

RulebookModel = AnsweringModel[RulebookPredictor, RuleCase]
"""A predictor with the engine that answers its prompts."""


class RulebookMetadata(ModelMetadata):
    """How a predictor of rulebook games is prompted."""

    what = "a predictor of rulebook games"
    kind: Literal["rulebook"] = "rulebook"
    task: RulebookPredictorConfig
    sampling: SamplingSettings


class SceneRows(LazyRows):
    """Token rows of whole scenes; rules and objects are a part that all rows of a scene share."""

    def __init__(self, predictor: RulebookPredictor, chat: ChatFormat, scenes: Scenes, rows: int) -> None:
        super().__init__(self._row, rows)
        self.predictor, self.prompts, self.scenes = predictor, SharedPrompts(chat), scenes

    @property
    def group_sizes(self) -> list[int]:
        whole, rest = divmod(self.rows, self.scenes.questions)
        return [self.scenes.questions] * whole + [rest] * bool(rest)

    def _row(self, index: int) -> Row:
        number, place = divmod(index, self.scenes.questions)
        case = self.scenes.cached(number)[place]
        return self.prompts.row(*cut(self.predictor.prompt(case)[0]["content"]), self.predictor.target(case))


class RulebookTask(AnsweringTask[RulebookPredictor, RuleCase]):
    """Games with new rules; the reward is how right the predicted changes are."""

    recipe: RulebookRecipe
    validation_metric: ClassVar[str] = "validation_changed"
    curves: ClassVar = (
        Curve("Exact on questions with 1 rule, sampled", "exact_1", _RL, "%"),
        Curve("Exact on questions with 2 rules, sampled", "exact_2", _RL, "%"),
        Curve("Exact on questions with 3 rules, sampled", "exact_3", _RL, "%"),
        Curve("Exact on validation questions that change something, greedy", "eval_changed", _RL, "%"),
        Curve("Reward", "reward", _RL),
        *CURVES,
    )

    @cached_property
    def predictor(self) -> RulebookPredictor:
        return RulebookPredictor(self.recipe.task)

    @property
    def metadata(self) -> RulebookMetadata:
        return RulebookMetadata(task=self.recipe.task, sampling=self.recipe.sampling)

    def scenes(self, name: str, held_out: bool = False, questions: int | None = None) -> Scenes:
        recipe = self.recipe
        wanted = recipe.data.questions if questions is None else questions
        return Scenes(recipe.data, recipe.seed, name, held_out, wanted, recipe.task.observed)

    @cached_property
    def test(self) -> tuple[list[RuleCase], list[RuleCase]]:
        """Questions about test games, and the counterfactual of one question of each game that has one."""
        recipe, scenes = self.recipe, self.scenes("test", held_out=True, questions=self.recipe.data.test_questions)
        games = [scenes.draw(number) for number in range(recipe.data.test_books)]
        cases = answering.some([case for game in games for case in game], recipe.evaluation.rows, recipe.seed, "test")
        twins: dict[str, RuleCase] = {}
        for case in cases:
            book = case.game.key
            if book not in twins and (other := twin(case, recipe.seed)) is not None:
                twins[book] = replace(other, pair=case.id)
        return cases, list(twins.values())

    @cached_property
    def looked_up(self) -> list[RuleCase]:
        recipe, scenes = self.recipe, self.scenes("sft")
        count = min(recipe.sft_data.rows or recipe.evaluation.lookup_rows, recipe.evaluation.lookup_rows)
        return [case for number in range(-(-count // recipe.data.questions)) for case in scenes.draw(number)][:count]

    def record_data(self) -> dict[str, Any]:
        cases, twins = self.test
        figures = acceptance(self.looked_up, cases)
        counts = {f"rules {count}": sum(case.rules == count for case in cases) for count in range(4)}
        self.run.say(
            f"data: {len(cases):,} test questions about {self.recipe.data.test_books} games, {len(twins)} "
            f"counterfactuals; {figures['conflicts']:.1%} have another answer under other rules, "
            f"{figures['coverage']:.1%} are in training"
        )
        return {**figures, **counts, "twins": len(twins)}

    def create_tiny(self) -> LanguageModel:
        scenes = self.scenes("tokenizer", questions=1)
        cases = [case for number in range(TEXTS) for case in scenes.draw(number)]
        seed = seeds.derive(self.recipe.seed, "weights")
        pieces = symbols if self.recipe.task.spaced else lambda texts: ()
        return answering.create_tiny(self.recipe.model, self.predictor, cases, seed, pieces)

    def training_rows(self, chat: ChatFormat) -> tuple[Sequence[Row], Sequence[int]]:
        rows = SceneRows(self.predictor, chat, self.scenes("sft"), self.recipe.sft_data.rows)
        return rows, rows.group_sizes

    def training_cases(self, chat: ChatFormat) -> Callable[[int], RuleCase]:
        scenes = self.scenes("rl", questions=1)
        return lambda number: scenes.cached(number)[0]

    def validation_cases(self, count: int) -> list[RuleCase]:
        """Validation questions: training names and links, games of their own."""
        scenes, books = self.scenes("validation"), self.recipe.data.validation_books
        cases = [case for number in range(books) for case in scenes.draw(number)]
        return answering.some(cases, count, self.recipe.seed, "validation")

    def grade(self, case: RuleCase, text: str) -> dict[str, float]:
        return {"changed" if case.changed else "unchanged": self.predictor.metrics(text, case)["exact"]}

    def judge(self, case: RuleCase, text: str) -> JudgedAnswer:
        """Success is an exact answer, whatever the reward is."""
        predictor, outcome = self.predictor, self.predictor.judge(text, case)
        return JudgedAnswer(
            task=case.id,
            world="rulebook",
            state=predictor.prompt(case)[0]["content"],
            action=case.action,
            reply=text,
            prediction=text if outcome.flaw is None else None,
            next_state=predictor.target(case),
            reward=predictor.pay(outcome),
            success=outcome.exact,
            parts={f"exact_{case.rules}": float(outcome.exact)},
        )

    @cached_property
    def played(self) -> list[GameTrajectory]:
        starts = {case.game.key: case for case in reversed(self.test[0])}
        return trajectories(list(starts.values())[: self.recipe.evaluation.trajectories], self.recipe.seed)

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        predictor, model, (cases, twins) = self.predictor, self.answering(engine), self.test
        answers = self.answers(model, [*cases, *twins], evaluation_stage(name))
        rows: dict[str, Any] = {"": measure(predictor, cases, twins, answers)}
        if self.recipe.evaluation.controls:
            wrong = model([with_wrong_rules(case, 0) for case in [*cases, *twins]])
            bare = replace(model, task=RulebookPredictor(self.recipe.task.model_copy(update={"context": "none"})))
            for control, texts in ((WRONG, wrong), (HIDDEN, bare([*cases, *twins]))):
                by_id = {case.id: text for case, text in zip([*cases, *twins], texts, strict=True)}
                rows[control] = measure(predictor, cases, twins, by_id)
        shown = ", ".join(
            f"{part} {rows[''][part]['value']:.1%}" for part in ("changed", "pairs") if rows[""][part]["n"]
        )
        rows[DEEP] = exact_by_depth(predictor, model, self.played)
        self.run.say(f"{name}: exact answers to questions about unseen rulebooks: {shown}")
        return rows

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        predictor, (cases, twins) = self.predictor, self.test
        baselines = predictor.baselines(self.looked_up)
        perfect = baselines.pop("perfect")
        rows = {name: measure(predictor, cases, twins, answers) for name, answers in baselines.items()}
        for name, parts in measured.items():
            controls = {f"{name}, {control}": parts[control] for control in (WRONG, HIDDEN) if control in parts}
            rows |= {name: parts[""], **controls}
        rows["perfect"] = measure(predictor, cases, twins, perfect)
        tables = [exact_table(rows), acceptance_table(acceptance(self.looked_up, cases))]
        if self.played:
            bounds = {"no change": baselines["no change"], "perfect": perfect}
            still, right = (
                exact_by_depth(predictor, lambda asked, answer=answer: list(map(answer, asked)), self.played)  # type: ignore[misc]
                for answer in bounds.values()
            )
            learned = {name: parts[DEEP] for name, parts in measured.items()}
            tables.append(depth_table({"no change": still, **learned, "perfect": right}))
        return {"tables": [table.data() for table in tables], "notes": verdict(measured)}


def verdict(measured: Mapping[str, dict[str, Any]]) -> list[str]:
    """What the last model added to each of the others, in sentences."""
    *others, (last, after) = measured.items()
    sentences = []
    for name, before in others:
        parts = [
            f"{difference(after[''], before[''], at_least).words('{:+.1%}')} {where}"
            for at_least, where in ((1, "where anything changes"), (2, "where 2 or more rules take part"))
            if any(rules >= at_least for rules in after[""]["rules"])
        ]
        sentences.append(f"Exact answers of {last} less those of {name}: {', '.join(parts)}; over rulebooks.")
    if WRONG in after:
        words = Cell(**after[WRONG]["changed"])
        sentences.append(f"With another game's rules {last} is right in {words.value:.1%} of changed questions.")
    return sentences if after[""]["changed"]["n"] else []
