"""Drawn physics as an RLVR task: a language model learns to infer rules from a few steps and to apply them.

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import count, islice
from typing import Any, ClassVar, Literal

from oneiro.episode import Row
from oneiro.learning.stages import CONTROL, Curve
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.models.metadata import ModelMetadata
from oneiro.report.stats import clustered
from oneiro.report.table import Cell, Table
from oneiro.runtime import seeds
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.tasks.answering import AnsweringModel, JudgedAnswer, LazyRows, dense_row
from oneiro.tasks.base import Malformed
from oneiro.tasks.rules.physics import (
    PhysicsCase,
    PhysicsPredictor,
    PhysicsPredictorConfig,
    PhysicsSituation,
    copy_outcome,
)
from oneiro.tasks.rules.physics_data import (
    FULL,
    OTHER,
    SHUFFLED,
    TWIN,
    CaseSampler,
    Drawn,
    Split,
    acceptance,
    draw_test,
    drawn_id,
    most_likely,
)
from oneiro.tasks.rules.recipe import PhysicsRecipe
from oneiro.tasks.task import AFTER, CURVES, RL, AnsweringTask, evaluation_stage
from oneiro.worlds.rules.physics import DISPLACEMENTS, GLYPHS, WORDS

_RL = {AFTER: RL}
TEXTS = 400
"""Prompts that the tokenizer of `tiny` is trained on."""
PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% if m['role'] == 'assistant' %}<|im_end|>{% endif %}{% endfor %}"
)
"""For `tiny`: the reply follows the question at once, so that it stands where outcomes stand in the context, which SFT
learns too.
"""

PhysicsModel = AnsweringModel[PhysicsPredictor, PhysicsSituation]
"""A predictor with the engine that answers its prompts."""


class PhysicsMetadata(ModelMetadata):
    """How a predictor of drawn physics is prompted."""

    what = "a predictor of drawn physics"
    kind: Literal["physics"] = "physics"
    task: PhysicsPredictorConfig
    sampling: SamplingSettings


class PhysicsTask(AnsweringTask[PhysicsPredictor, PhysicsCase]):
    """Displacements of a walker; the reward is 1 for the exact one."""

    recipe: PhysicsRecipe
    validation_metric: ClassVar[str] = "validation_exact"
    curves: ClassVar = (
        Curve("Exact, sampled", "exact", _RL, "%"),
        Curve("Exact where copying is wrong, sampled", "exact_uncopied", _RL, "%"),
        Curve("Exact on validation rooms, greedy", "eval_exact", _RL, "%"),
        Curve("Reward", "reward", _RL),
        *CURVES,
    )

    @cached_property
    def predictor(self) -> PhysicsPredictor:
        return PhysicsPredictor(self.recipe.task)

    @cached_property
    def test(self) -> tuple[list[Drawn], dict[str, list[PhysicsCase]]]:
        data, seed = self.recipe.data, seeds.derive(self.recipe.seed, "test")
        return draw_test(seed, data.test_physics, data.queries, data.context, self.recipe.task.view)

    def cases(self, name: str, split: Split = "train") -> CaseSampler:
        """The endless list of cases under a name, which belongs to the seed."""
        # As often as it takes for the longest context to have its share.
        context, share = self.recipe.data.context, self.recipe.full_share
        often = round(len(context) * share / max(1 - share, 0.05))
        return CaseSampler(
            split,
            seeds.derive(self.recipe.seed, name),
            self.recipe.task.view,
            (*context, *context[-1:] * often),
            self.recipe.simple_share if split == "train" else 0.0,
            self.recipe.free_share if split == "train" else 0.0,
        )

    @property
    def metadata(self) -> PhysicsMetadata:
        return PhysicsMetadata(task=self.recipe.task, sampling=self.recipe.sampling)

    def record_data(self) -> dict[str, Any]:
        drawn, forms = self.test
        numbers = acceptance(drawn, forms[FULL], self.remembered)
        self.run.say(
            f"{self.recipe.data.test_physics} physics of the test, {len(forms[FULL])} queries: conflict "
            f"{numbers['conflict']:.1%}, covered by training {numbers['coverage']:.1%}, "
            f"copying wrong {numbers['copying wrong']:.1%}"
        )
        return numbers

    @cached_property
    def remembered(self) -> list[PhysicsCase]:
        """The first steps that SFT learns from, as the lookups know them."""
        steps = (step for case in map(self.cases("sft rows"), count()) for step in case.steps())
        return list(islice(steps, self.recipe.data.lookup))

    def create_tiny(self) -> LanguageModel:
        texts = [self.predictor.prompt(case)[0]["content"] for case in map(self.cases("tokenizer"), range(TEXTS))]
        texts += [f" {' '.join(GLYPHS)}\n"] * TEXTS  # whatever training has not drawn yet is one token too
        pieces = [f" {piece}" for piece in (*DISPLACEMENTS, *WORDS)]
        if self.recipe.task.repeat_word:
            pieces += [f" {word}{way}" for word in WORDS for way in DISPLACEMENTS]
        made = languages.create_tiny(self.recipe.model, texts, seeds.derive(self.recipe.seed, "weights"), pieces)
        made.tokenizer.chat_template = PLAIN_TEMPLATE
        return made

    def training_rows(self, chat: ChatFormat) -> tuple[Sequence[Row], None]:
        cases = self.cases("sft rows")
        return LazyRows(lambda number: self.row(chat, cases(number)), self.recipe.sft_data.rows), None

    def held_out_rows(self, chat: ChatFormat, count: int) -> Sequence[Row]:
        return [self.row(chat, case) for case in self.validation_cases(count)]

    def row(self, chat: ChatFormat, case: PhysicsCase) -> Row:
        return dense_row(chat, self.predictor.pieces(case), self.predictor.target(case))

    def training_cases(self, chat: ChatFormat) -> CaseSampler:
        return self.cases("rl")

    def validation_cases(self, count: int) -> list[PhysicsCase]:
        return list(map(self.cases("validation", "validation"), range(count)))

    def grade(self, case: PhysicsCase, text: str) -> dict[str, float]:
        """Exact answers, of all and of those that copying gets wrong."""
        exact = self.predictor.metrics(text, case)["exact"]
        return {"exact": exact, **({"exact_uncopied": exact} if copy_outcome(case) != case.after else {})}

    def judge(self, case: PhysicsCase, text: str) -> JudgedAnswer:
        reward, prediction = self.predictor.reward(text, case), self.predictor.parse(text, case)
        return JudgedAnswer(
            task=case.id,
            world="physics",
            state=self.predictor.prompt(case)[0]["content"],
            action=case.word,
            reply=text,
            prediction=None if isinstance(prediction, Malformed) else prediction,
            next_state=case.after,
            reward=reward,
            success=bool(reward.value),
            parts=self.grade(case, text),
        )

    def evaluate(self, engine: Engine, name: str) -> dict[str, Any]:
        forms = self.test[1]
        every = [case for cases in forms.values() for case in cases]
        answers = self.answers(self.answering(engine), every, evaluation_stage(name))
        measured = measure(self.predictor, forms, lambda case: answers[case.id])
        shown = ", ".join(f"{form} {Cell(**cell).words('{:.1%}')}" for form, cell in measured.items() if cell["n"])
        self.run.say(f"{name}: exact: {shown}")
        return measured

    def compare(self, measured: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        _, forms = self.test
        baselines = self.predictor.baselines(self.remembered)
        perfect = baselines.pop("perfect")
        rows = {
            **{name: measure(self.predictor, forms, answer) for name, answer in baselines.items()},
            **measured,
            BAYES: self._bayes(),
            "perfect": measure(self.predictor, forms, perfect),
        }
        numbers = self.run.info["stages"]["data"]["result"]
        tables = [accuracy_table(rows), acceptance_table(numbers)]
        return {"tables": [table.data() for table in tables], "notes": verdict(rows, numbers)}

    def _bayes(self) -> dict[str, dict[str, Any]]:
        """Exact answers of Bayes over the family; only with contexts that say something and belong to the query."""
        drawn, forms = self.test
        known = {form: cases for form, cases in forms.items() if cases[0].context and form in (FULL, *lengths(forms))}
        answers = {
            case.id: most_likely(replace(one, seen=one.seen[: len(case.context)]))
            for cases in known.values()
            for one, case in zip(drawn, cases, strict=True)
        }
        return measure(self.predictor, known, lambda case: answers[case.id])


# Tables ---------------------------------------------------------------------------------------------------------------

UNCOPIED, PAIRS = "copying wrong", "both twins"
BAYES = "Bayes over the family"


def lengths(forms: Iterable[str]) -> list[str]:
    """The forms with a shorter context."""
    return [form for form in forms if form.startswith("K=")]


def measure(
    task: PhysicsPredictor, forms: Mapping[str, Sequence[PhysicsCase]], answer: Callable[[PhysicsCase], str]
) -> dict[str, dict[str, Any]]:
    """Exact answers by form of the prompt, with intervals over physics; where copying is wrong; and of both twins."""
    right = {form: [task.metrics(answer(case), case)["exact"] for case in cases] for form, cases in forms.items()}
    cells = {form: _cell(right[form], cases) for form, cases in forms.items() if form != TWIN}
    full = dict(zip(map(drawn_id, forms[FULL]), right[FULL], strict=True))
    hard = [case for case in forms[FULL] if copy_outcome(case) != case.after]
    cells[UNCOPIED] = _cell([full[drawn_id(case)] for case in hard], hard)
    twins = forms.get(TWIN, ())
    cells[PAIRS] = _cell(
        [full[drawn_id(case)] * hit for case, hit in zip(twins, right.get(TWIN, ()), strict=True)], twins
    )
    return cells


def _cell(values: Sequence[float], cases: Sequence[PhysicsCase]) -> dict[str, Any]:
    cell = clustered(values, [case.rules for case in cases])
    return {"value": cell.value, "low": cell.low, "high": cell.high, "n": cell.n}


def accuracy_table(rows: Mapping[str, Mapping[str, Any]]) -> Table:
    columns = [FULL, UNCOPIED, *lengths(next(iter(rows.values()))), OTHER, SHUFFLED, PAIRS]
    table = Table(
        "Exact displacements under rules that training never had",
        ["answers", *columns],
        dict.fromkeys(columns, "%"),
        note="Intervals are over physics. full: the longest context. copying wrong: of these, what the word did most "
        "often in the prompt is not the answer. K: fewer steps in the prompt. another physics, shuffled outcomes: a "
        "context that does not belong to the query. both twins: right under both of two meanings of the words.",
    )
    for name, row in rows.items():
        table.add(name, *(Cell(**row[column]) if column in row else Cell(None) for column in columns))
    return table


def acceptance_table(numbers: Mapping[str, float]) -> Table:
    table = Table(
        "Can memory help?",
        ["number", "share"],
        {"share": "%"},
        note="conflict: test queries that have another outcome under other meanings of the words; at least 50 %. "
        "disagreement: how many of the other 23 meanings change it. coverage: test queries that training has; 0.",
    )
    for name, value in numbers.items():
        table.add(name, value)
    return table


def verdict(rows: Mapping[str, Mapping[str, Any]], numbers: Mapping[str, float]) -> list[str]:
    """What RLVR reaches beside its floors and its control, in sentences."""

    def words(row: str, column: str) -> str:
        return Cell(**rows[row][column]).words("{:.1%}")

    start = next(name for name in rows if name in ("SFT", "base"))
    control = f", {CONTROL} {words(CONTROL, FULL)}" if CONTROL in rows else ""
    return [
        f"Under rules that training never had, {AFTER} predicts {words(AFTER, FULL)} exactly, {start} "
        f"{words(start, FULL)}{control}; copying from the prompt {words('copy from the prompt', FULL)}. Where copying "
        f"is wrong, {AFTER} has {words(AFTER, UNCOPIED)}; with the context of another physics {words(AFTER, OTHER)}. "
        f"Bayes over the family of rules has {words(BAYES, FULL)}.",
        f"Of the test queries {numbers['conflict']:.1%} have another outcome under other meanings of the words, and "
        f"training has {numbers['coverage']:.1%} of them.",
    ]
