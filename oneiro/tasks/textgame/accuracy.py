"""Honest tables for text-game predictors: how often the whole next state is right, where, and what goes wrong.

Every table shows questions whose answer changes something and those where nothing changes apart from each other, the
rows "no change" and "perfect" beside the answers in question, the number of cases, and a 95 % interval. Many commands
are tried in one start state, and their rows are right or wrong together: intervals are over start states (the game and
its state before the command), and over games where games are held out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.report.stats import bootstrap, clustered, wilson
from oneiro.report.table import Cell
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.tasks.base import Malformed
from oneiro.tasks.scorer import read_rows
from oneiro.tasks.textgame.parse import Output
from oneiro.tasks.textgame.predictor import Scorer, TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.score import Error
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


SUBSETS = ("all", "clean", "held_out", "score_only", "creates", "removes")
FORMS: tuple[Output, ...] = ("difference", "edits", "full")
LOOKED_AT = 200
"""Answers read to find out in which form they are."""


@dataclass(slots=True)
class Tally:
    """Right answers out of all, where each is a case of its own: whole trajectories, levels."""

    right: int = 0
    cases: int = 0

    def add(self, right: bool) -> None:
        self.right += right
        self.cases += 1

    def table(self) -> dict[str, Any]:
        """Accuracy in percent with its 95 % Wilson interval; None where there are no cases."""
        return {**_percent(wilson(self.right, self.cases)), "cases": self.cases}


class Split:
    """Right and wrong answers to unchanged, changed and all steps, each with the cluster it belongs to."""

    def __init__(self) -> None:
        self.changed: list[bool] = []
        self.right: list[bool] = []
        self.clusters: list[int] = []

    def add(self, changed: bool, right: bool, cluster: int) -> None:
        self.changed.append(changed)
        self.right.append(right)
        self.clusters.append(cluster)

    def parts(self) -> Iterator[tuple[str, NDArray[np.bool_], NDArray[np.int64]]]:
        """Each part's name, which of its answers are right, and their clusters."""
        changed, right = np.array(self.changed, bool), np.array(self.right, bool)
        clusters = np.array(self.clusters, np.int64)
        for name, rows in (("unchanged", ~changed), ("changed", changed), ("overall", np.ones_like(changed))):
            yield name, right[rows], clusters[rows]

    def table(self) -> dict[str, Any]:
        """Accuracy in percent with its 95 % interval over clusters, cases and clusters; None where there is none."""
        return {name: self._part(right, clusters) for name, right, clusters in self.parts()}

    @staticmethod
    def _part(right: NDArray[np.bool_], clusters: NDArray[np.int64]) -> dict[str, Any]:
        accuracy = clustered(right, clusters)
        return {**_percent(accuracy), "cases": len(right), "clusters": len(np.unique(clusters))}


def _percent(cell: Cell) -> dict[str, float | None]:
    parts = {"accuracy": cell.value, "low": cell.low, "high": cell.high}
    return {key: 100 * value if isinstance(value, float) else None for key, value in parts.items()}


class Counts:
    """The answers under one scorer, by subset and by game."""

    def __init__(self) -> None:
        self.subsets = {name: Split() for name in SUBSETS}
        self.games: dict[str, Split] = {}

    def add(self, case: Transition, subsets: Iterable[str], changed: bool, right: bool, start: int, game: int) -> None:
        for name in subsets:
            # What is held out are games, so games are what is independent there.
            self.subsets[name].add(changed, right, game if name == "held_out" else start)
        self.games.setdefault(case.game, Split()).add(changed, right, start)

    def table(self) -> dict[str, Any]:
        return {
            **{name: split.table() for name, split in self.subsets.items()},
            "games": {name: self.games[name].table() for name in sorted(self.games)},
            "macro": _macro(self.games.values()),
        }


def start_states(cases: Iterable[Transition]) -> NDArray[np.int64]:
    """Which rows share a start state, the game and its state before the command: the clusters of intervals."""
    numbers: dict[tuple[str, str], int] = {}
    return np.array([numbers.setdefault(_start(case), len(numbers)) for case in cases], np.int64)


def _start(case: Transition) -> tuple[str, str]:
    return case.game, json.dumps(case.state)


def evaluate_answers(
    data: Iterable[Transition],
    answers: Answers,
    scorer: Scorer = "strict",
    *,
    task: TextGamePredictor | None = None,
    held_out: Collection[str] = (),
    both: bool = False,
) -> dict[str, Any]:
    """Score answers to every transition of `data`; a missing answer counts as malformed.

    `task` says what was asked and in which form the answers are (by default differences of full transitions); what
    counts as changed, and as a creation, is the part of the step that is asked. The result is plain JSON:
    `all`, `clean` (known not to be in train; `unknown` counts the rows where nobody knows), `held_out` games,
    `score_only`, `creates` and `removes` are each split into unchanged, changed and overall; `games` has every game and
    `macro` the mean over games; `errors` counts by kind. The kinds are the strict scorer's: what the other one finds
    wrong may show none of them, and has no such counts. Intervals are over start states, for `held_out` and `macro`
    over games. With `both`, `other` has the same tables under the other scorer, where that exists for the task.
    """
    base = task.config if task is not None else TextGamePredictorConfig(rules="none")
    tasks = {scorer: _predictor_with(scorer, base)}
    if both and (name := other_scorer(scorer, base)) is not None:
        tasks[name] = _predictor_with(name, base)
    counts = {name: Counts() for name in tasks}
    starts, games = dict[tuple[str, str], int](), dict[str, int]()
    errors, flaws, only = Counter[str](), Counter[str](), Counter[str]()
    missing = wrong = unsure = 0
    unknown = set() if callable(answers) else set(answers)
    for case in data:
        text = answers(case) if callable(answers) else answers.get(case.id)
        unknown.discard(case.id)
        missing += text is None
        unsure += case.duplicate is None
        outcome = tasks["strict"].judge(text or "", case) if "strict" in tasks else None
        start = starts.setdefault(_start(case), len(starts))
        game = games.setdefault(case.game, len(games))
        changed, subsets = tasks[scorer].changes(case), _subsets(case, base.transition, held_out)
        for name, scored in tasks.items():
            right = outcome.exact if name == "strict" and outcome is not None else scored.exact(text or "", case)
            counts[name].add(case, subsets, changed, right, start, game)
            wrong += name == scorer and not right
        if outcome is not None:
            errors.update(str(kind) for kind in outcome.errors)
            if len(outcome.errors) == 1:
                only.update(str(kind) for kind in outcome.errors)
            if outcome.flaw is not None:
                flaws[str(outcome.flaw)] += 1
    # A table of zeros would look like a bad model.
    if not callable(answers) and len(unknown) == len(answers):
        raise OneiroError("no answer has the id of a transition in the data; check that both are of the same split")
    kinds = {
        "with": {str(kind): errors[kind] for kind in Error},
        "only": {str(kind): only[kind] for kind in Error},
        "flaws": dict(sorted(flaws.items())),
    }
    first, *others = ({"scorer": name, **count.table()} for name, count in counts.items())
    return {
        "transition": base.transition,
        **first,
        "unknown": unsure,
        "errors": {
            "wrong": wrong,
            "missing answers": missing,
            "answers to nothing": len(unknown),
            **(kinds if scorer == "strict" else {}),
        },
        **({"other": others[0]} if others else {}),
    }


def other_scorer(scorer: Scorer, config: TextGamePredictorConfig) -> Scorer | None:
    """The scorer that is not `scorer`; None where it does not exist for such a task."""
    other: Scorer = "official" if scorer == "strict" else "strict"
    try:
        _predictor_with(other, config)
    except OneiroError:
        return None
    return other


def _predictor_with(scorer: Scorer, config: TextGamePredictorConfig) -> TextGamePredictor:
    return TextGamePredictor(TextGamePredictorConfig.model_validate({**config.model_dump(), "scorer": scorer}))


def _subsets(case: Transition, kind: Kind, held_out: Collection[str]) -> list[str]:
    subsets = ["all"]
    if case.duplicate is False:
        subsets.append("clean")
    if case.game in held_out:
        subsets.append("held_out")
    before, after, *_ = case.part(kind)
    if case.changes(kind) and same_state(before, after):
        subsets.append("score_only")
    return subsets + ["creates"] * case.creates(kind) + ["removes"] * case.removes(kind)


def _macro(games: Iterable[Split]) -> dict[str, Any]:
    """The mean of the games' accuracies: every game counts the same, those without such steps not at all."""
    shares: dict[str, list[float]] = {"unchanged": [], "changed": [], "overall": []}
    for split in games:
        for name, right, _ in split.parts():
            shares[name] += [float(right.mean())] if len(right) else []
    return {
        # One game has no interval.
        name: {**_percent(bootstrap(means) if len(means) != 1 else Cell(means[0])), "games": len(means)}
        for name, means in shares.items()
    }


def compare(
    data: Sequence[Transition],
    named: Mapping[str, Answers],
    scorer: Scorer = "strict",
    *,
    task: TextGamePredictor | None = None,
    held_out: Collection[str] = (),
    published: bool = False,
    both: bool = False,
) -> dict[str, Any]:
    """The tables of several sets of answers, with "no change" and "perfect" beside them, and the published rows.

    With published rows, or `both`, every row is scored by both scorers, where both exist for the task.
    """
    task = task if task is not None else TextGamePredictor(TextGamePredictorConfig(rules="none"))
    rows: dict[str, Any] = {}
    for name, answers in {**task.baselines(), **named}.items():
        rows[name] = evaluate_answers(data, answers, scorer, task=task, held_out=held_out, both=both or published)
    return {"rows": rows, "published": published_rows(task.config.transition) if published else []}


def published_rows(kind: Kind) -> list[dict[str, Any]]:
    """The published results as rows of a table; they are about whole steps and belong beside no other kind."""
    names = ("name", "unchanged", "changed", "overall")
    return [dict(zip(names, row, strict=True)) for row in PUBLISHED] if kind == "full" else []


def read_answers(path: Path) -> dict[str, str]:
    """Raw model outputs from JSON lines `{"id": ..., "answer": ...}`."""
    answers: dict[str, str] = {}
    for place, row in read_rows(path):
        key, answer = row.get("id"), row.get("answer")
        if not isinstance(key, str) or not isinstance(answer, str):
            raise OneiroError(f'{place} is not {{"id": text, "answer": text}}')
        if key in answers:
            raise OneiroError(f"{place}: the id {key} comes twice; keep one answer for each")
        answers[key] = answer
    return answers


def form_of(task: TextGamePredictor, cases: Iterable[Transition], answers: Mapping[str, str]) -> Output | None:
    """The form in which most answers can be read where nearly none can in the form of `task`; None otherwise."""
    if task.config.transition == "score":
        return None  # has one form only
    sample = list(islice(((answers[case.id], case) for case in cases if case.id in answers), LOOKED_AT))

    def readable(output: Output) -> int:
        other = TextGamePredictor(task.config.model_copy(update={"output": output}))
        return sum(not isinstance(other.parse(text, case), Malformed) for text, case in sample)

    # Some answers of a bad model fit no form; next to none in the asked form means another form.
    if readable(task.config.output) > len(sample) / 20:
        return None
    best = max(FORMS, key=readable)
    return best if readable(best) > len(sample) / 2 else None


def answers_named(baselines: Mapping[str, Answers], name: str) -> Answers:
    """Answers by a word or a file: the name of a baseline ("no-change"), or the path of a file of JSON lines."""
    built_in = {label.replace(" ", "-"): answer for label, answer in baselines.items()}
    if name not in built_in and not Path(name).exists():
        raise OneiroError(f"the file {name} does not exist{nearest(name, built_in)}")
    return built_in[name] if name in built_in else read_answers(Path(name))
