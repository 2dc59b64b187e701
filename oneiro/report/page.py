"""`report.html`: one file that shows a run, or compares several, drawn from run directories alone.

Everything a model wrote is hostile until escaped: the template escapes all of it, and only our own SVG passes as it is.
"""

from __future__ import annotations

import base64
import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

from oneiro.recipe import flat
from oneiro.recipe import read as read_recipe
from oneiro.report import episodes, plots
from oneiro.report.table import Table
from oneiro.rundir.records import read_info, read_log
from oneiro.rundir.run import METRICS, TIMINGS, Run, require_run
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.files import read_json, write_text

if TYPE_CHECKING:
    import jinja2

TEMPLATE = Path(__file__).with_name("page.html")
PICTURES = (".gif", ".png")
WORDS = ("about", "next", "takes", "needs")
"""What a recipe says of itself; no settings."""
LONG_TABLE = 16
"""Tables with more rows than this, but for the first, are folded."""


@dataclass
class Found:
    """What a run directory holds."""

    path: Path
    recipe: dict[str, Any]
    info: dict[str, Any]
    summary: dict[str, Any]
    metrics: list[dict[str, Any]]

    @property
    def name(self) -> str:
        return self.path.resolve().name


@dataclass
class ReportPage:
    """What the template draws, top to bottom."""

    title: str
    about: str
    facts: dict[str, str]
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    images: list[tuple[str, str]] = field(default_factory=list)
    """Title, and the picture itself as a data address."""
    curves: list[str] = field(default_factory=list)
    more_curves: list[str] = field(default_factory=list)
    stages: list[tuple[str, str, float, float]] = field(default_factory=list)
    """Name, status, seconds, share of the longest."""
    traces: list[episodes.ShownTrace] = field(default_factory=list)
    episodes: list[episodes.Shown] = field(default_factory=list)
    recipe: str = ""


def write(paths: Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Write the page of one run into it (`report.html`), or a comparison of several to `out`; returns the file."""
    runs = [find(path) for path in paths]
    page = one(runs[0]) if len(runs) == 1 else several(runs)
    target = Path(out) if out else runs[0].path / "report.html" if len(runs) == 1 else Path("comparison.html")
    write_text(target, render(page))
    return target


def find(path: str | Path) -> Found:
    """Read a run directory, finished or not."""
    path = Path(path)
    require_run(path)
    return Found(
        path, read_recipe(path / "recipe.yaml"), read_info(path), read_summary(path), list(read_log(path / METRICS))
    )


class CurveSpec(BaseModel):
    title: str
    key: str
    stages: dict[str, str]
    unit: str = ""


class ImageSpec(BaseModel):
    title: str
    file: str


class Summary(BaseModel):
    """The form of `summary.json`; tables have a reader of their own."""

    tables: list[Any] = []
    curves: list[CurveSpec] = []
    notes: list[Any] = []
    images: list[ImageSpec] = []


def read_summary(path: Path) -> dict[str, Any]:
    """What a run ended with; nothing where it has not ended."""
    file = path / "summary.json"
    if not file.exists():
        return {}
    data = read_json(file)
    try:
        Summary.model_validate(data)
        for table in data.get("tables", []):
            Table.read(table)
    except (ValidationError, OneiroError) as error:
        raise OneiroError(
            f"{file} is damaged ({first_line(error)}); delete it, and run the same command again to have it "
            "written anew"
        ) from error
    return dict(data)


def tables(path: str | Path) -> list[Table]:
    """The tables a run ended with."""
    return [Table.read(data) for data in find(path).summary.get("tables", [])]


def one(run: Found) -> ReportPage:
    """The page of one run."""
    named = [_curve(spec, [run]) for spec in run.summary.get("curves", [])]
    shown = {spec["key"] for spec in run.summary.get("curves", [])}
    rest = [
        _curve({"title": key, "key": key, "stages": stages}, [run]) for key, stages in _keys(run) if key not in shown
    ]
    longest = max((stage.get("seconds", 0.0) for stage in run.info.get("stages", {}).values()), default=0.0) or 1.0
    return ReportPage(
        title=run.name,
        about=str(run.recipe.get("about", "")),
        facts=_facts(run),
        notes=[str(note) for note in run.summary.get("notes", [])],
        tables=[Table.read(data) for data in run.summary.get("tables", [])],
        images=list(_images(run)),
        curves=[svg for svg in named if svg],
        more_curves=[svg for svg in rest if svg],
        stages=[
            (name, stage["status"], stage.get("seconds", 0.0), stage.get("seconds", 0.0) / longest)
            for name, stage in run.info.get("stages", {}).items()
        ],
        traces=episodes.read_traces(run.path),
        episodes=episodes.sample(run.path, list(run.info.get("stages", {}))),
        recipe=(run.path / "recipe.yaml").read_text(encoding="utf-8"),
    )


def several(runs: Sequence[Found]) -> ReportPage:
    """The page that lays runs side by side: tables of one title joined, curves overlaid, recipes where they differ."""
    settings = differing_settings([run.recipe for run in runs], _names(runs))
    specs = {spec["title"]: spec for run in runs for spec in run.summary.get("curves", [])}
    curves = [_curve(spec, runs) for spec in specs.values()]
    return ReportPage(
        title=" · ".join(_names(runs)),
        about=f"{len(runs)} runs side by side",
        facts={name: _facts(run)["status"] for name, run in zip(_names(runs), runs, strict=True)},
        tables=[*join_tables(runs), *([settings] if settings.rows else [])],
        curves=[svg for svg in curves if svg],
    )


def differing_settings(recipes: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """What is not the same in all recipes, with each run's value."""
    table = Table("Where the recipes differ", ["setting", *names])
    settings = [flat(recipe) for recipe in recipes]
    for key in dict.fromkeys(key for own in settings for key in own if not key.startswith(WORDS)):
        values = [str(own.get(key, "–")) for own in settings]
        if len(set(values)) > 1:
            table.add(key, *values)
    return table


def render(page: ReportPage) -> str:
    """The page as one HTML text, everything escaped."""
    return _template().render(page=page, LONG=LONG_TABLE)


@functools.cache
def _template() -> jinja2.Template:
    """Translated once in a process: that takes longer than to draw a page with it."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["clock"] = _clock
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def _facts(run: Found) -> dict[str, str]:
    """The line under the title: what the numbers depend on besides the recipe."""
    seconds = seconds_at_work(run.info.get("stages", {}).values())
    versions, commit = run.info.get("versions", {}), str(run.info.get("commit") or "")
    facts = {
        "status": "finished" if run.info.get("status") == "done" else "not finished",
        "started": str(run.info.get("started", "")).replace("T", " ").removesuffix("+00:00") + " UTC",
        "took": _clock(seconds),
        "seed": str(run.info.get("seed", "")),
        "commit": commit[:12] + (" and changes" if commit.endswith("+") else ""),
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "platform": str(run.info.get("platform", "")),
    }
    return {name: fact for name, fact in facts.items() if fact}


def seconds_at_work(stages: Iterable[Mapping[str, Any]]) -> float:
    """How long a run was at work. Stages that ran side by side count once; one that was interrupted counts from its
    start, for as long as it worked.
    """
    spans = []
    for stage in stages:
        with contextlib.suppress(ValueError):  # run.json of another hand
            start = datetime.fromisoformat(str(stage.get("started", ""))).timestamp()
            spans.append((start, start + stage.get("seconds", 0.0)))
    total, until = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _curve(spec: Mapping[str, Any], runs: Sequence[Found]) -> str:
    """One plot of a metric; empty where nothing was logged."""
    series = curve_series(spec, runs)
    return plots.curves(spec["title"], series, spec.get("unit", "")) if series else ""


def curve_series(spec: Mapping[str, Any], runs: Sequence[Found]) -> list[plots.Series]:
    """A line for each labelled stage of each run that logged the metric."""
    series = []
    for name, run in zip(_names(runs), runs, strict=True):
        for label, stage in spec["stages"].items():
            rows = [row for row in run.metrics if row["stage"] == stage and row.get(spec["key"]) is not None]
            if rows:
                full = label if len(runs) == 1 else f"{name}: {label}"
                series.append(plots.Series(full, [row["step"] for row in rows], [row[spec["key"]] for row in rows]))
    return series


def _images(run: Found) -> Iterable[tuple[str, str]]:
    """The pictures a summary names (`{"title", "file"}`, files of the run), to stand inside the page."""
    for spec in run.summary.get("images", []):
        file = (run.path / str(spec["file"])).resolve()
        if file.suffix in PICTURES and file.is_file() and file.is_relative_to(run.path.resolve()):
            data = base64.b64encode(file.read_bytes()).decode()
            yield str(spec["title"]), f"data:image/{file.suffix[1:]};base64,{data}"


def _keys(run: Found) -> Iterable[tuple[str, dict[str, str]]]:
    """Every metric with the stages that logged it more than once."""
    counts_by_key: dict[str, dict[str, int]] = {}
    for row in run.metrics:
        for key in row.keys() - {"stage", "step"}:
            counts = counts_by_key.setdefault(key, {})
            counts[row["stage"]] = counts.get(row["stage"], 0) + 1
    for key in sorted(counts_by_key):
        stages = [stage for stage, count in counts_by_key[key].items() if count > 1]
        if stages:
            yield key, {stage: stage for stage in stages}


def join_tables(runs: Sequence[Found]) -> list[Table]:
    """Tables of the same title and columns as one, with the run as their first column."""
    joined: dict[tuple[str, tuple[str, ...]], Table] = {}
    for name, run in zip(_names(runs), runs, strict=True):
        for table in (Table.read(data) for data in run.summary.get("tables", [])):
            key = (table.title, tuple(table.columns))
            target = joined.setdefault(key, Table(table.title, ["run", *table.columns], table.units, table.note))
            for row in table.rows:
                target.add(name, *row)
    return list(joined.values())


def _names(runs: Sequence[Found]) -> list[str]:
    """The directories' names, distinguished by their paths where two are alike."""
    names = [run.name for run in runs]
    return [name if names.count(name) == 1 else str(run.path) for name, run in zip(names, runs, strict=True)]


def _clock(seconds: float) -> str:
    """`4.2 s`, `3:05 min` or `2:03:05 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d} h" if hours else f"{minutes}:{rest:02d} min"


# Where the steps of a run spent their time: the table of `oneiro run ... profile=true` --------------------------------


TIMES_TITLE = "Where the time went"
TIMED = {
    "sampling": "the model's own tokens",
    "waiting": "for a server's answers, or for play that was begun ahead",
    "worlds": "stepping worlds, putting states into words",
    "scoring": "verifying answers",
    "measuring": "further metrics of a step",
    "learning": "advantages and updates",
    "checkpointing": "weights, metrics and episodes written",
}
"""The names that `clock.spent` takes, and what they mean."""


def times_table(lines: Iterable[Mapping[str, Any]]) -> Table:
    """Seconds a step and share of all seconds, part by part, for every stage that was timed."""
    stages: dict[str, list[Mapping[str, Any]]] = {}
    for line in lines:
        stages.setdefault(line["stage"], []).append(line)
    summary = Table(TIMES_TITLE, ["stage", "part", "seconds a step", "share", "what"], {"share": "%"})
    for stage, timed in stages.items():
        steps = len({line["step"] for line in timed})  # a checkpoint is timed by a line of its own
        sums = {part: sum(line.get(part) or 0.0 for line in timed) for part in TIMED}
        total = sum(sums.values())
        for part, seconds in sums.items():
            if seconds:
                summary.add(stage, part, seconds / steps, seconds / total, TIMED[part])
        summary.add(stage, "all", total / steps, 1.0 if total else None, f"{steps} steps")
    return summary


def add_times(run: Run) -> None:
    """Put the table among those that the run ends with; anew where it stands there already."""
    path = run.path / "summary.json"
    summary = read_json(path) if path.exists() else {}
    others = [data for data in summary.get("tables", []) if data.get("title") != TIMES_TITLE]
    run.summary({**summary, "tables": [*others, times_table(read_log(run.path / TIMINGS)).data()]})
