"""Anyone's predictions of next states, scored beside what needs no model: no change, and lookups among training steps.

A file has a step a line: the state, the action, the true next state, and one or more predictions of it. A state is
compared as a bag of facts: the lines of a text, the lines of a page without their ids, or the paths and values of JSON.
The figures are about the change (facts that come and facts that go), because most of a state never changes; `exact`
asks for the whole next state.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oneiro.report.stats import clustered, paired
from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.worlds.base import level_key

Subject = Literal["text", "page"]
Facts = tuple[str, ...]
"""A state, fact by fact, in the order in which it is written."""

MAX_LINE_BYTES = 64 << 20
MAX_COMPARED = 256  # training steps with the same action whose states are compared; the first ones
MAX_ALIGNED = 4000  # facts of a state; the change of a longer one is not carried over to another state
FIGURES = ("exact", "precision", "recall", "f1")
_ID = re.compile(r"\s*\[\d+\]\s*")

Change = Counter[tuple[str, str]]
"""`("+", fact)` for each that comes, `("-", fact)` for each that goes."""


@dataclass(frozen=True)
class ScoredStep:
    """One line of a file."""

    episode: str
    state: Facts
    action: str
    after: Facts
    predictions: Mapping[str, Facts | None]
    """By the name of their model; None: it cannot be read as a state."""

    @property
    def question(self) -> tuple[Facts, str]:
        return self.state, self.action


def score(subject: Subject, pairs: Path, train: Path | None = None) -> list[Table]:
    """The tables of a file of predictions; the steps of `train` are what the lookups look among."""
    steps = list(read_steps(pairs, subject))
    learned = list(read_steps(train, subject, predicted=False)) if train is not None else []
    # A step that stands twice in the file is one question: it counts once.
    steps = list({(*step.question, step.after): step for step in reversed(steps)}.values())[::-1]
    names = sorted({name for step in steps for name in step.predictions})
    floors: dict[str, Callable[[ScoredStep], Facts | None]] = {"no change": lambda step: step.state}
    if learned:
        lookup = StepLookup(learned)
        floors |= {"lookup: its next state": lookup.next_state, "lookup: its change": lookup.change}
    figures = {name: _measure(steps, answer) for name, answer in floors.items()}
    figures |= {name: _measure(steps, lambda step, name=name: step.predictions.get(name)) for name in names}  # type: ignore[misc]

    changed = np.array([step.state != step.after for step in steps], bool)
    seen = {step.question for step in learned}
    clean = np.array([step.question not in seen for step in steps], bool)
    clusters = np.array([step.episode for step in steps])
    parts = {"Steps that change the state": changed, "All steps": np.ones_like(changed)}
    if not clean.all():
        parts["Steps that change the state, clean: their state and action are not in train"] = changed & clean
    note = f"Precision, recall and F1 are of the facts that come and go. {_INTERVALS}"
    return [compare(title, figures, FIGURES, "f1", part, clusters, list(floors), note) for title, part in parts.items()]


_INTERVALS = "Intervals are over episodes; the last column is over the better floor, step by step."


def compare(
    title: str,
    figures: Mapping[str, Mapping[str, NDArray[np.float64]]],
    columns: Sequence[str],
    main: str,
    part: NDArray[np.bool_],
    clusters: NDArray[np.str_],
    floors: Sequence[str],
    note: str,
) -> Table:
    """A row for each set of predictions, with its distance in `main` from the best floor, paired."""
    units = {column: "%" for column in (*columns, "over floor") if column in FIGURES or main in FIGURES}
    table = Table(title, ["predictions", *columns, "over floor"], units, note)
    best = max(floors, key=lambda name: float(figures[name][main][part].mean()) if part.any() else 0.0)
    for name, values in figures.items():
        cells = [clustered(values[column][part], clusters[part]) for column in columns]
        apart = None if name in floors else paired(values[main][part], figures[best][main][part], clusters[part])
        table.add(name, *cells, apart if apart is not None else Cell("best" if name == best else None))
    return table


def _measure(
    steps: Sequence[ScoredStep], answer: Callable[[ScoredStep], Facts | None]
) -> dict[str, NDArray[np.float64]]:
    """Every figure of every step, [N] each; a prediction that is missing or unreadable has 0 everywhere."""
    rows = []
    for step in steps:
        predicted = answer(step)
        if predicted is None:
            rows.append((0.0, 0.0, 0.0, 0.0))
            continue
        claimed, true = difference(step.state, predicted), difference(step.state, step.after)
        hits, count, count_true = (claimed & true).total(), claimed.total(), true.total()
        precision = hits / count if count else float(not count_true)
        recall = hits / count_true if count_true else float(not count)
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        rows.append((float(predicted == step.after), precision, recall, f1))
    columns = np.array(rows, np.float64).reshape(-1, len(FIGURES)).T
    return dict(zip(FIGURES, columns, strict=True))


def difference(before: Facts, after: Facts) -> Change:
    """The facts that come and go."""
    old, new = Counter(before), Counter(after)
    coming = {("+", fact): count for fact, count in (new - old).items()}
    return Counter({**coming, **{("-", fact): count for fact, count in (old - new).items()}})


# Lookups ------------------------------------------------------------------------------------------------------------


class StepLookup:
    """The nearest training step: the same action, or one with the same first word, and the state most like this one."""

    def __init__(self, train: Sequence[ScoredStep]) -> None:
        self.steps = defaultdict[tuple[str, ...], list[ScoredStep]](list)
        for step in train:
            for key in self._keys(step.action):
                if len(self.steps[key]) < MAX_COMPARED:
                    self.steps[key].append(step)
        self._last: tuple[ScoredStep, ScoredStep] | None = None

    @staticmethod
    def _keys(action: str) -> list[tuple[str, ...]]:
        return [("action", action), ("verb", action.partition(" ")[0]), ()]

    def nearest(self, step: ScoredStep) -> ScoredStep:
        if self._last is None or self._last[0] is not step:
            group = next(group for key in self._keys(step.action) if (group := self.steps.get(key)))
            own = set(step.state)
            near = max(group, key=lambda other: len(own & set(other.state)) / max(1, len(own | set(other.state))))
            self._last = step, near
        return self._last[1]

    def next_state(self, step: ScoredStep) -> Facts:
        return self.nearest(step).after

    def change(self, step: ScoredStep) -> Facts:
        near = self.nearest(step)
        return transplant(near.state, near.after, step.state)


def transplant(before: Facts, after: Facts, here: Facts) -> Facts:
    """The change of one state made to another: old facts are found again by their text, the nearest to where they
    stood; new ones stand behind the fact that they followed. What is not found stays.
    """
    if max(map(len, (before, after, here))) > MAX_ALIGNED:
        return here
    result = list(here)
    for kind, low, high, low_after, high_after in reversed(
        SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    ):
        if kind == "equal":
            continue
        old, new = list(before[low:high]), after[low_after:high_after]
        anchor = old or list(before[max(0, low - 1) : low])
        places = [at for at in range(len(result) - len(anchor) + 1) if result[at : at + len(anchor)] == anchor]
        if not places:
            continue
        at = min(places, key=lambda place: abs(place - low)) + (0 if old else len(anchor))
        result[at : at + len(old)] = new
    return tuple(result)


# Files --------------------------------------------------------------------------------------------------------------


def read_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a file of JSON lines, each with its place for messages."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                place = f"{path}, line {number}"
                if not line.strip():
                    continue
                try:
                    row = json.loads(line.decode("utf-8-sig"))
                except (ValueError, RecursionError) as error:
                    raise OneiroError(
                        f"{place} is not JSON ({first_line(error, 80)}); write one object a line"
                    ) from error
                if not isinstance(row, dict):
                    raise OneiroError(f"{place} is not an object")
                yield place, row
    except OSError as error:
        raise OneiroError(f"cannot read {path}: {error.strerror or error}; give a file of JSON lines") from error
    if not number:
        raise OneiroError(f"{path} is empty; write one object a line")


def predictions_of(place: str, row: Mapping[str, Any], predicted: bool) -> dict[str, Any]:
    """`prediction`, or several by name under `predictions`."""
    given = row.get("predictions", {"prediction": row["prediction"]} if "prediction" in row else {})
    if predicted and (not isinstance(given, dict) or not given):
        raise OneiroError(f"{place} has neither 'prediction' nor 'predictions' by name; add one")
    return dict(given) if predicted else {}


def require(place: str, row: Mapping[str, Any], *names: str) -> None:
    for name in names:
        if name not in row:
            raise OneiroError(f"{place} has no '{name}'; a step has {', '.join(names)}")


def read_steps(path: Path, subject: Subject, predicted: bool = True) -> Iterator[ScoredStep]:
    for place, row in read_rows(path):
        require(place, row, "state", "action", "next")
        if not isinstance(row["action"], str):
            raise OneiroError(f"{place}: 'action' is not a text; write it as the model gets it")
        state, after = (facts(subject, row[name]) for name in ("state", "next"))
        if state is None or after is None:
            raise OneiroError(f"{place}: 'state' and 'next' of a page are texts, a line for each element")
        given = predictions_of(place, row, predicted)
        # Without episodes, steps from one state are what belongs together.
        episode = str(row["episode"]) if "episode" in row else level_key("\n".join(state))
        answers = {str(name): facts(subject, value, like=row["state"]) for name, value in given.items()}
        yield ScoredStep(episode, state, row["action"], after, answers)


def facts(subject: Subject, value: Any, like: Any = None) -> Facts | None:
    """A state as facts; None where it cannot be one. A text is read as JSON where the true state (`like`) is JSON."""
    if isinstance(value, str) and like is not None and not isinstance(like, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    if isinstance(value, str):
        lines = [line.rstrip() for line in value.strip("\n").split("\n")]
        return tuple(_ID.sub("", line, count=1).strip() for line in lines) if subject == "page" else tuple(lines)
    if subject == "page" or value is None or isinstance(like, str):
        return None
    try:
        return tuple(sorted(_paths(value)))
    except RecursionError:
        return None


def _paths(value: Any, path: str = "") -> Iterator[str]:
    """`/door/open = true`. Objects of a list go by their `uuid` or `id`, so that their order means nothing."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _paths(inner, f"{path}/{key}")
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            known = inner if isinstance(inner, dict) else {}
            yield from _paths(inner, f"{path}/{known.get('uuid', known.get('id', place))}")
    else:
        yield f"{path} = {json.dumps(value)}"
