"""Honest tables for text-game predictors: how often the whole next state is right, where, and what goes wrong.

Every table shows questions whose answer changes something and those where nothing changes apart from each other, the
rows "no change" and "perfect" beside the answers in question, the number of cases, and a 95 % interval.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from oneiro.errors import OneiroError, nearest
from oneiro.predictors.base import Malformed
from oneiro.predictors.textgame.parse import Output
from oneiro.predictors.textgame.score import Error
from oneiro.predictors.textgame.task import Scorer, TextGamePredictor, TextGamePredictorConfig
from oneiro.report.stats import wilson
from oneiro.worlds.textgame.state import Kind, Transition, same_state

Answers = Mapping[str, str] | Callable[[Transition], str]
"""Raw model outputs by the id of their transition, or a function that gives them."""

PUBLISHED: tuple[tuple[str, float, float, float], ...] = (
    ("R1-Distill-Qwen-1.5B", 11.98, 0.08, 7.11),
    ("R1-Distill-Qwen-1.5B + SFT", 38.88, 24.21, 32.87),
    ("R1-Distill-Qwen-1.5B + RLVR, binary", 73.57, 33.14, 57.01),
    ("R1-Distill-Qwen-1.5B + RLVR, task-specific", 83.66, 33.80, 63.24),
    ("R1-Distill-Qwen-7B", 46.90, 5.53, 29.92),
    ("R1-Distill-Qwen-7B + SFT", 65.94, 31.32, 51.76),
    ("R1-Distill-Qwen-7B + RLVR, binary", 83.08, 40.33, 65.53),
    ("GPT-4 (per-game average)", 73.90, 51.60, 64.76),
)
"""Accuracy in percent on unchanged, changed and all official test rows (RLVR-World, table 1; published scorer)."""


FORMS: tuple[Output, ...] = ("difference", "edits", "full")
LOOKED_AT = 200
"""Answers read to find out in which form they are."""


@dataclass(slots=True)
class Tally:
    """Right answers out of all."""

    right: int = 0
    cases: int = 0

    def add(self, right: bool) -> None:
        self.right += right
        self.cases += 1

    def table(self) -> dict[str, Any]:
        """Accuracy in percent with its 95 % Wilson interval; None where there are no cases."""
        cell = wilson(self.right, self.cases)
        parts = {"accuracy": cell.value, "low": cell.low, "high": cell.high}
        return {**{k: 100 * v if isinstance(v, float) else None for k, v in parts.items()}, "cases": self.cases}


class Split:
    """Tallies of unchanged, changed and all steps."""

    def __init__(self) -> None:
        self.tallies = {"unchanged": Tally(), "changed": Tally(), "overall": Tally()}

    def add(self, changed: bool, right: bool) -> None:
        self.tallies["changed" if changed else "unchanged"].add(right)
        self.tallies["overall"].add(right)

    def table(self) -> dict[str, Any]:
        return {name: tally.table() for name, tally in self.tallies.items()}


def evaluate_answers(
    data: Iterable[Transition],
    answers: Answers,
    scorer: Scorer = "strict",
    *,
    task: TextGamePredictor | None = None,
    held_out: Collection[str] = (),
) -> dict[str, Any]:
    """Score answers to every transition of `data`; a missing answer counts as malformed.

    `task` says what was asked and in which form the answers are (by default differences of full transitions); what
    counts as changed, and as a creation, is the part of the step that is asked. The result is plain JSON:
    `all`, `clean` (no duplicate in train; without cases where that is not known), `held_out` games, `score_only`,
    `creates` and `removes` are each split into unchanged, changed and overall; `games` has every game and `macro` the
    mean over games; `errors` counts by kind. The kinds are the strict scorer's: what another one finds wrong may show
    none of them, and has no such counts.
    """
    base = task.config if task is not None else TextGamePredictorConfig(rules="none")
    task = TextGamePredictor(TextGamePredictorConfig.model_validate({**base.model_dump(), "scorer": scorer}))
    subsets = {name: Split() for name in ("all", "clean", "held_out", "score_only", "creates", "removes")}
    games: dict[str, Split] = {}
    errors, flaws, only = Counter[str](), Counter[str](), Counter[str]()
    missing = wrong = 0
    unknown = set() if callable(answers) else set(answers)
    for case in data:
        text = answers(case) if callable(answers) else answers.get(case.id)
        unknown.discard(case.id)
        missing += text is None
        outcome = task.judge(text or "", case) if scorer == "strict" else None
        right = outcome.exact if outcome is not None else task.exact(text or "", case)
        changed = task.changes(case)
        for name in _subsets(case, base.transition, held_out):
            subsets[name].add(changed, right)
        games.setdefault(case.game, Split()).add(changed, right)
        wrong += not right
        if outcome is not None:
            errors.update(str(kind) for kind in outcome.errors)
            if len(outcome.errors) == 1:
                only.update(str(kind) for kind in outcome.errors)
            if outcome.flaw is not None:
                flaws[str(outcome.flaw)] += 1
    if not callable(answers) and len(unknown) == len(answers):
        raise OneiroError("no answer has the id of a transition in the data; check that both are of the same split")
    tables = {name: split.table() for name, split in subsets.items()}
    kinds = {
        "with": {str(kind): errors[kind] for kind in Error},
        "only": {str(kind): only[kind] for kind in Error},
        "flaws": dict(sorted(flaws.items())),
    }
    return {
        "transition": base.transition,
        "scorer": scorer,
        **tables,
        "games": {name: games[name].table() for name in sorted(games)},
        "macro": _macro(games.values()),
        "errors": {
            "wrong": wrong,
            "missing answers": missing,
            "answers to nothing": len(unknown),
            **(kinds if scorer == "strict" else {}),
        },
    }


def _subsets(case: Transition, kind: Kind, held_out: Collection[str]) -> list[str]:
    found = ["all"]
    if case.duplicate is False:
        found.append("clean")
    if case.game in held_out:
        found.append("held_out")
    before, after, *_ = case.part(kind)
    if case.changes(kind) and same_state(before, after):
        found.append("score_only")
    return found + ["creates"] * case.creates(kind) + ["removes"] * case.removes(kind)


def _macro(games: Iterable[Split]) -> dict[str, Any]:
    """The mean of the games' accuracies: every game counts the same, those without such steps not at all."""
    games = list(games)
    table = {}
    for name in ("unchanged", "changed", "overall"):
        shares = [split.tallies[name].right / split.tallies[name].cases for split in games if split.tallies[name].cases]
        table[name] = {"accuracy": 100 * sum(shares) / len(shares) if shares else None, "games": len(shares)}
    return table


def compare(
    data: Sequence[Transition],
    named: Mapping[str, Answers],
    scorer: Scorer = "strict",
    *,
    task: TextGamePredictor | None = None,
    held_out: Collection[str] = (),
    published: bool = False,
) -> dict[str, Any]:
    """The tables of several sets of answers, with "no change" and "perfect" beside them, and the published rows."""
    task = task if task is not None else TextGamePredictor(TextGamePredictorConfig(rules="none"))
    rows: dict[str, Any] = {}
    for name, answers in {**task.baselines(), **named}.items():
        rows[name] = evaluate_answers(data, answers, scorer, task=task, held_out=held_out)
    return {"rows": rows, "published": published_rows(task.config.transition) if published else []}


def published_rows(kind: Kind) -> list[dict[str, Any]]:
    """The published results as rows of a table; they are about whole steps and belong beside no other kind."""
    names = ("name", "unchanged", "changed", "overall")
    return [dict(zip(names, row, strict=True)) for row in PUBLISHED] if kind == "full" else []


def read_answers(path: Path) -> dict[str, str]:
    """Raw model outputs from JSON lines `{"id": ..., "answer": ...}`."""
    found: dict[str, str] = {}
    try:
        with Path(path).open("rb") as handle:
            for number, line in enumerate(handle, 1):
                text = line.decode("utf-8-sig")  # some editors put a mark before the first line
                if not text.strip():
                    continue
                entry = json.loads(text)
                key, answer = entry["id"], entry["answer"]
                if not isinstance(key, str) or not isinstance(answer, str):
                    raise ValueError("id and answer must be text")
                if key in found:
                    raise OneiroError(f"{path}, line {number}: the id {key} comes twice; keep one answer for each")
                found[key] = answer
    except FileNotFoundError as error:
        raise OneiroError(f"{path} does not exist; give a file of JSON lines with id and answer") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise OneiroError(f'{path}, line {number}: not {{"id": text, "answer": text}} ({error})') from error
    return found


def form_of(task: TextGamePredictor, cases: Iterable[Transition], answers: Mapping[str, str]) -> Output | None:
    """The form in which most answers can be read where nearly none can in the form of `task`; None otherwise."""
    if task.config.transition == "score":
        return None  # has one form only
    told = list(islice(((answers[case.id], case) for case in cases if case.id in answers), LOOKED_AT))

    def readable(output: Output) -> int:
        other = TextGamePredictor(task.config.model_copy(update={"output": output}))
        return sum(not isinstance(other.parse(text, case), Malformed) for text, case in told)

    if readable(task.config.output) > len(told) / 20:
        return None
    best = max(FORMS, key=readable)
    return best if readable(best) > len(told) / 2 else None


def answers_named(task: TextGamePredictor, name: str) -> Answers:
    """Answers by a word or a file: "perfect", "no-change", or the path of a file of JSON lines."""
    built_in = {label.replace(" ", "-"): answer for label, answer in task.baselines().items()}
    if name not in built_in and not Path(name).exists():
        raise OneiroError(f"the file {name} does not exist{nearest(name, built_in)}")
    return built_in[name] if name in built_in else read_answers(Path(name))
