"""What the pages show, made from run folders: plain data for the templates. All text in it is still hostile."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from oneiro.board import draw
from oneiro.board.episodes import EpisodeRow
from oneiro.board.folders import RunFolder
from oneiro.report import plots
from oneiro.report.episodes import MAX_PICTURE, PICTURE, Span, compare
from oneiro.report.stats import bootstrap, paired
from oneiro.report.table import Cell

PER_PAGE = 50
MAX_TEXT = 20_000  # characters of a text on the page; the rest is behind a link to the whole
MAX_TURNS = 200
MAX_DIFF_LINES = 3000  # aligning lines takes quadratic time
CONTEXT_LINES = 2
CURVES = 6  # shown at once; the others on demand
STATUSES = ("running", "finished", "stopped", "silent")


def link(path: str, /, **query: Any) -> str:
    """The address of a page with its state; what is empty is left out."""
    kept = {key: value for key, value in query.items() if value is not None and value != ""}
    return path + (f"?{urlencode(kept, doseq=True, errors='replace')}" if kept else "")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}" if minutes else f"{seconds:.1f} s"


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


@dataclass(frozen=True)
class Pager:
    """A page of a long list."""

    number: int
    pages: int
    total: int

    @classmethod
    def of(cls, items: Sequence[Any], number: int, size: int = PER_PAGE) -> tuple[Pager, Sequence[Any]]:
        pages = max(1, -(-len(items) // size))
        number = min(max(1, number), pages)
        return cls(number, pages, len(items)), items[(number - 1) * size : number * size]


# Runs


def list_runs(runs: Mapping[str, RunFolder], words: str, status: str) -> tuple[list[RunFolder], dict[str, int]]:
    """Runs whose name has all the words, newest first, those at work before the others; and how many have a status."""
    wanted = words.lower().split()
    named = [(run, run.status) for run in runs.values() if all(word in run.name.lower() for word in wanted)]
    counts = Counter(own for _, own in named)
    kept = [(own == "running", run.started, run.name, run) for run, own in named if not status or own == status]
    kept.sort(key=lambda entry: entry[:3], reverse=True)
    return [entry[3] for entry in kept], {one: counts[one] for one in STATUSES}


def curves(runs: Sequence[RunFolder], every: bool = False) -> tuple[list[Markup], int]:
    """Figures of all runs laid over one another; and how many more there are."""
    specs: dict[str, dict[str, Any]] = {}
    for run in runs:
        for spec in run.curves():
            known = specs.setdefault(spec["key"], {**spec, "stages": {}})
            known["stages"].update({stage: label for label, stage in spec["stages"].items()})
    figures = []
    for key, spec in specs.items():
        series = []
        for run in runs:
            files = run.steps_kept()
            for stage, label in spec["stages"].items():
                if line := run.metrics.get((stage, key)):
                    name = label if len(runs) == 1 else f"{run.name}: {label}"
                    there = link("step", run=run.name, stage=stage) + "&step={}" if stage in files else ""
                    series.append(plots.Series(name, line.steps, line.values, there, files.get(stage, [])))
        if series:
            figures.append((spec["title"], series, spec.get("unit", "")))
    shown = figures if every else figures[:CURVES]
    return [Markup(plots.curves(*figure)) for figure in shown], len(figures) - len(shown)


def stages_of(run: RunFolder) -> list[dict[str, Any]]:
    """Each stage with its status, its time and the steps whose episodes were kept."""
    files, known = run.steps_kept(), run.info["stages"]
    longest = max((stage.get("seconds", 0.0) for stage in known.values()), default=0.0) or 1.0
    return [
        {
            "name": name,
            "status": known.get(name, {}).get("status", "kept"),
            "seconds": known.get(name, {}).get("seconds", 0.0),
            "share": round(100 * known.get(name, {}).get("seconds", 0.0) / longest, 1),
            "steps": files.get(name, []),
        }
        for name in [*known, *(name for name in files if name not in known)]
    ]


# One step


@dataclass(frozen=True)
class GroupRow:
    """Episodes of one task side by side."""

    group: int
    task: str
    mean: float
    alike: bool
    """All scored the same: nothing to learn from."""
    members: list[EpisodeRow]


def group_rows(rows: Sequence[EpisodeRow]) -> list[GroupRow]:
    """Groups by their mean score, best first."""
    groups: dict[int, list[EpisodeRow]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    made = [
        GroupRow(
            number,
            members[0].task,
            fmean(row.score for row in members),
            len(members) > 1 and len({row.score for row in members}) == 1,
            members,
        )
        for number, members in groups.items()
    ]
    return sorted(made, key=lambda group: -group.mean)


def shade(score: float, low: float, high: float) -> int:
    """Which of ten colours stands for a score."""
    return round(9 * (score - low) / (high - low)) if high > low else 9 if score > 0 else 0


# One episode


@dataclass(frozen=True)
class Part:
    """A text of a turn: as it is, marked where it differs from the truth, or drawn."""

    key: str
    title: str
    text: str
    hidden: int = 0
    """Characters that the page leaves out."""
    spans: list[Span] | None = None
    picture: Markup | None = None
    verdict: str = ""


@dataclass(frozen=True)
class TurnView:
    number: int
    actions: list[str]
    reward: float
    states: list[Part]
    texts: list[Part]
    """What was asked and what was answered."""
    changes: list[tuple[str, str]] = field(default_factory=list)
    """Lines that the turn took away ("-"), brought ("+") or left beside them (" ")."""
    screenshot: str = ""


TITLES = {
    "state": "State",
    "observation": "Seen by the agent",
    "prediction": "Predicted",
    "next_state": "What happened",
    "message": "Prompt",
    "reply": "Reply",
}
TRUTHS = {"observation": "state", "prediction": "next_state"}


def turn_views(episode: Mapping[str, Any]) -> list[TurnView]:
    turns, world = episode.get("turns") or [], str(episode.get("world", ""))
    return [_turn_view(number, turn, world) for number, turn in enumerate(turns[:MAX_TURNS]) if isinstance(turn, dict)]


def _turn_view(number: int, turn: Mapping[str, Any], world: str) -> TurnView:
    whole = {key: str(turn[key]).strip("\n") for key in TITLES if turn.get(key) is not None}
    picture = str(turn.get("picture") or "")
    states = [_part(key, whole, world) for key in ("state", "observation", "prediction", "next_state") if key in whole]
    drawn = any(part.picture is not None for part in states)
    changes = [] if drawn else changed_lines(whole.get("state", ""), whole.get("next_state", ""))
    return TurnView(
        number=number,
        actions=[str(action)[:500] for action in turn.get("actions") or []],
        reward=float(turn.get("reward") or 0.0),
        states=states,
        texts=[_part(key, whole, world) for key in ("message", "reply") if whole.get(key)],
        changes=changes,
        screenshot=picture if len(picture) <= MAX_PICTURE and PICTURE.fullmatch(picture) else "",
    )


def _part(key: str, whole: Mapping[str, str], world: str) -> Part:
    text, truth = whole[key][:MAX_TEXT], whole.get(TRUTHS.get(key, ""))
    hidden, verdict, spans = len(whole[key]) - len(text), "", None
    picture = (
        draw.picture(whole[key], world, truth) if key in ("state", "next_state", "observation", "prediction") else None
    )
    if truth is not None:
        verdict = "exact" if whole[key] == truth else "differs"
        spans = compare(text, truth[:MAX_TEXT]) if verdict == "differs" else None
    return Part(key, TITLES[key], text, hidden, spans, picture, verdict)


def changed_lines(before: str, after: str) -> list[tuple[str, str]]:
    """What a step changed, line by line, with a little around it; nothing for short texts."""
    old, new = before.split("\n"), after.split("\n")
    if before == after or min(len(old), len(new)) < 4 or max(len(old), len(new)) > MAX_DIFF_LINES:
        return []
    lines = list(difflib.unified_diff(old, new, lineterm="", n=CONTEXT_LINES))[2:]
    return [("…", "") if line.startswith("@@") else (line[0], line[1:500]) for line in lines[:400]]


# Two runs on the same cases


@dataclass(frozen=True)
class RunPairing:
    """One stage's episodes of each side, matched by the case they began from."""

    cases: int
    only_one: int
    """Cases that the other side does not have."""
    success: tuple[Cell, Cell, Cell]
    """One, the other, and the paired difference (other minus one)."""
    score: tuple[Cell, Cell, Cell]
    parted: list[tuple[float, EpisodeRow, EpisodeRow]]
    """Cases with different means, largest gain of the other first: difference, an episode of each."""


def first_pair(places: Sequence[tuple[str, str, int]]) -> tuple[Any, Any]:
    """What two runs have in common, evaluations first; of one run its last evaluation with its first."""
    evaluations = [place for place in places if place[1].startswith(("evaluate", "compare", "test"))] or list(places)
    for one in evaluations:
        for other in evaluations:
            if other[1] == one[1] and other[0] != one[0]:
                return one, other
    return (evaluations[-1], evaluations[0]) if len(evaluations) > 1 else (None, None)


def pair(one: Sequence[EpisodeRow], other: Sequence[EpisodeRow]) -> RunPairing:
    """Match by case; attempts at one case are averaged first, so that cases are what is drawn again."""
    mine, yours = _by_case(one), _by_case(other)
    shared = [case for case in mine if case in yours]

    def measure(value: str) -> tuple[Cell, Cell, Cell]:
        left, right = (
            [fmean(float(getattr(row, value)) for row in side[case]) for case in shared] for side in (mine, yours)
        )
        return bootstrap(left), bootstrap(right), paired(right, left)

    apart, score = [], attrgetter("score")
    for case in shared:
        gain = fmean(row.score for row in yours[case]) - fmean(row.score for row in mine[case])
        if gain:
            worse, better = (min, max) if gain > 0 else (max, min)
            apart.append((gain, worse(mine[case], key=score), better(yours[case], key=score)))
    apart.sort(key=lambda case: -case[0])
    return RunPairing(
        len(shared), len(mine) + len(yours) - 2 * len(shared), measure("success"), measure("score"), apart
    )


def _by_case(rows: Sequence[EpisodeRow]) -> dict[tuple[str, str, int], list[EpisodeRow]]:
    cases: dict[tuple[str, str, int], list[EpisodeRow]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    return cases


def places_to_compare(runs: Sequence[RunFolder]) -> Iterator[tuple[str, str, int]]:
    """(run, stage, step) of everything that can be compared case by case; of a stage its last step."""
    for run in runs:
        for stage, steps in run.steps_kept().items():
            yield run.name, stage, steps[-1]
