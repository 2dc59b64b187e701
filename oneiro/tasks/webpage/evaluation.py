"""Honest tables for predictors of web pages: precision, recall and F1 by site, beside rows that need no model.

Steps of one episode share a task and often a page, so intervals are over episodes. Questions that stand twice among
the test steps count once. The rate of actions that fail and are predicted to fail is a table of its own: a model that
makes every wish come true is no world.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from oneiro.report.stats import clustered, paired
from oneiro.report.table import Cell, Table
from oneiro.tasks.base import Malformed
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro.tasks.webpage.state import PageTransition

FIGURES = ("precision", "recall", "f1", "id_free_f1", "content")
Answers = Mapping[str, str] | Callable[[PageTransition], str]
"""Raw model outputs by the id of their step, or a function that gives them."""


def distinct(cases: Iterable[PageTransition], stops: bool = False) -> list[PageTransition]:
    """Every question once; `stop` actions, which change no page, only where they are asked about."""
    by_question: dict[bytes, PageTransition] = {}
    for case in cases:
        if stops or not case.stops:
            by_question.setdefault(case.question, case)
    return list(by_question.values())


def measure(
    task: WebPagePredictor,
    cases: Sequence[PageTransition],
    answers: Answers,
    seen: Callable[[PageTransition], bool] | None = None,
) -> dict[str, Any]:
    """The row of one set of answers, as plain JSON; a missing answer is unreadable.

    `seen` says whether training had such a step (`PageLookup.has_seen`): the figures are then given for both kinds of
    steps.
    """
    texts = [answers(case) if callable(answers) else answers.get(case.id, "") for case in cases]
    rows = [task.metrics(text, case) for text, case in zip(texts, cases, strict=True)]
    episodes = np.array([case.episode for case in cases])
    changed = np.array([task.changes(case) for case in cases], bool)
    sites = np.array([case.site for case in cases])
    inert = np.array([case.state == case.after and not case.stops for case in cases], bool)
    still = np.array([_claims_nothing(task, text, case) for text, case in zip(texts, cases, strict=True)], np.float64)

    def cells(part: Any, names: Sequence[str] = FIGURES) -> dict[str, Any]:
        if not part.any():
            return {}
        return {
            name: vars(clustered([row[name] for row, take in zip(rows, part, strict=True) if take], episodes[part]))
            for name in names
        }

    heads = [f"{head}_right" for head in task.config.heads]
    known = np.array([seen is not None and seen(case) for case in cases], bool)
    return {
        "all": cells(np.ones(len(cases), bool), [*FIGURES, "parsed", *heads]),
        "changed": cells(changed),
        "paired": {
            "f1": [round(row["f1"], 6) for row, take in zip(rows, changed, strict=True) if take],
            "episodes": episodes[changed].tolist(),
        },
        "sites": {
            site: {"all": cells(sites == site), "changed": cells(changed & (sites == site))}
            for site in sorted({*sites})
        },
        "seen": {"seen": cells(changed & known), "new": cells(changed & ~known)} if seen is not None else {},
        "failed": {
            name: vars(clustered(still[part], episodes[part]))
            for name, part in _failures(cases, inert).items()
            if part.any()
        },
        "kept": vars(clustered(1 - still[changed], episodes[changed])) if changed.any() else {},
    }


def _claims_nothing(task: WebPagePredictor, text: str, case: PageTransition) -> float:
    read = task.parse(text, case)
    return float(not isinstance(read, Malformed) and not read.change and not any(read.false))


def _failures(cases: Sequence[PageTransition], inert: Any) -> dict[str, Any]:
    """Actions that changed nothing at all, by why."""
    absent = np.array([case.element is not None and case.state.item(case.element) is None for case in cases], bool)
    # Probes click what does nothing or what is not there; the rest are actions of a player that came to nothing.
    static = np.array([case.probe for case in cases], bool) & ~absent
    return {
        "all": inert,
        "no such id": inert & absent,
        "static text": inert & static,
        "other": inert & ~absent & ~static,
    }


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> Cell:
    """F1 of one set of answers less that of another, step by step on those that change the page."""
    return paired(one["paired"]["f1"], other["paired"]["f1"], one["paired"]["episodes"])


# Tables --------------------------------------------------------------------------------------------------------------


def tables(
    task: WebPagePredictor, rows: Mapping[str, dict[str, Any]], depth: Mapping[str, Any] | None = None
) -> list[Table]:
    """Figures on changed pages and on all, by site, on actions that fail, and against depth where it was measured."""
    scorer = task.config.scorer
    note = (
        "Intervals are over episodes. delete all: every shown line goes. copy: it goes and comes again. lookup: the "
        "nearest training step. content: new and updated items, and deletions as far as they are told from what stays."
    )
    made = [
        _figures(f"Steps that change the page, {scorer} scorer", rows, lambda row: row["changed"], note),
        _figures(f"All steps, {scorer} scorer", rows, lambda row: row["all"], note),
        _sites(rows),
        *([_seen_table(rows)] if any(row["seen"] for row in rows.values()) else []),
        _failed_table(rows),
    ]
    heads = [f"{head}_right" for head in task.config.heads]
    if heads:
        table = Table("Right heads", ["answers", *task.config.heads], dict.fromkeys(task.config.heads, "%"))
        for name, row in rows.items():
            table.add(name, *(Cell(**row["all"][head]) for head in heads))
        made.append(table)
    return [*made, *([_depth(depth)] if depth else [])]


def _figures(
    title: str, rows: Mapping[str, dict[str, Any]], part: Callable[[dict[str, Any]], dict[str, Any]], note: str
) -> Table:
    names = [name.replace("_", "-").replace("f1", "F1").replace("-F1", " F1") for name in FIGURES]
    table = Table(title, ["answers", *names], dict.fromkeys(names, "%"), note=note)
    for name, row in rows.items():
        cells = part(row)
        table.add(name, *(Cell(**cells[figure]) if figure in cells else Cell(None) for figure in FIGURES))
    return table


def _sites(rows: Mapping[str, dict[str, Any]]) -> Table:
    sites = sorted({site for row in rows.values() for site in row["sites"]})
    table = Table("F1 by site, on steps that change the page", ["answers", *sites], dict.fromkeys(sites, "%"))
    for name, row in rows.items():
        cells = [row["sites"].get(site, {}).get("changed", {}).get("f1") for site in sites]
        table.add(name, *(Cell(**cell) if cell else Cell(None) for cell in cells))
    return table


def _seen_table(rows: Mapping[str, dict[str, Any]]) -> Table:
    table = Table(
        "F1 by what training has seen, on steps that change the page",
        ["answers", "seen", "new"],
        dict.fromkeys(("seen", "new"), "%"),
        note="seen: a training step has the same type of page, action and element. new: none has.",
    )
    for name, row in rows.items():
        cells = [row["seen"].get(part, {}).get("f1") for part in ("seen", "new")]
        table.add(name, *(Cell(**cell) if cell else Cell(None) for cell in cells))
    return table


def _failed_table(rows: Mapping[str, dict[str, Any]]) -> Table:
    kinds = list(dict.fromkeys(kind for row in rows.values() for kind in row["failed"]))
    columns = [*kinds, "changes predicted"]
    table = Table(
        "Actions that do nothing, predicted to do nothing",
        ["answers", *columns],
        dict.fromkeys(columns, "%"),
        note="changes predicted: of the steps that do change the page, those with any change predicted.",
    )
    for name, row in rows.items():
        cells = [Cell(**row["failed"][kind]) if kind in row["failed"] else Cell(None) for kind in kinds]
        table.add(name, *cells, Cell(**row["kept"]) if row["kept"] else Cell(None))
    return table


def _depth(rows: Mapping[str, Sequence[dict[str, Any]]]) -> Table:
    table = Table(
        "Error of the imagined page against depth",
        ["steps", *rows],
        dict.fromkeys(rows, "%"),
        note="1 - F1 of the lines in view, after so many steps on own predictions. Intervals are over episodes.",
    )
    for cells in zip(*rows.values(), strict=True):
        values = [Cell(**{key: value for key, value in cell.items() if key != "depth"}) for cell in cells]
        table.add(str(cells[0]["depth"]), *values)
    return table
