"""What a paper needs of runs: each curve as SVG and PDF with its numbers as CSV, tables as CSV, videos as MP4 and as
contact sheets.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oneiro.report import page, plots
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_text, write_with


def write_figures(runs: Sequence[Path], out: Path) -> list[Path]:
    """Curves and tables of all runs; several runs share a figure, each with a line of its own."""
    sources = [page.find(run) for run in runs]
    specs = {spec["title"]: spec for source in sources for spec in source.summary.get("curves", [])}
    written = []
    for title, spec in specs.items():
        series = page.curve_series(spec, sources)
        if series:
            stem = out / file_name(title)
            figure = plots.curve_figure(title, series, spec.get("unit", ""))
            for kind in ("svg", "pdf"):
                written.append(write_bytes(stem.with_suffix(f".{kind}"), plots.render(figure, title, kind)))
            rows = [
                (one.label, step, value) for one in series for step, value in zip(one.steps, one.values, strict=True)
            ]
            written.append(write_csv(stem.with_suffix(".csv"), ("line", "step", spec["key"]), rows))
    tables = page.join_tables(sources) if len(sources) > 1 else page.tables(runs[0])
    written += [write_table(out / f"{file_name(table.title)}.csv", table) for table in tables]
    if not written:
        raise OneiroError(f"{', '.join(map(str, runs))}: neither curves nor tables yet; they come as stages end")
    return written


def write_table(path: Path, table: Table) -> Path:
    """Each measured column with the ends of its interval, as shares and not per cent."""
    measured = {place for row in table.rows for place, cell in enumerate(row) if cell.measured}
    header = [
        name
        for place, column in enumerate(table.columns)
        for name in ([column, f"{column} low", f"{column} high"] if place in measured else [column])
    ]
    rows = [
        [
            value
            for place, cell in enumerate(row)
            for value in ((cell.value, cell.low, cell.high) if place in measured else (cell.value,))
        ]
        for row in table.rows
    ]
    return write_csv(path, header, rows)


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header, *rows])
    write_text(path, text.getvalue())
    return path


def write_bytes(path: Path, data: bytes) -> Path:
    def write(part: Path) -> None:
        part.write_bytes(data)

    write_with(path, write)
    return path


def write_videos(runs: Sequence[Path], out: Path) -> list[Path]:
    """Every animated picture of the runs as MP4, and as a sheet of all its frames."""
    from oneiro.report.videos import contact_sheet, mp4, read_gif

    written = []
    for run in runs:
        for picture in sorted((run / "images").glob("*.gif")):
            frames, fps = read_gif(picture)
            stem = out / (picture.stem if len(runs) == 1 else f"{run.name}-{picture.stem}")
            written.append(write_bytes(stem.with_suffix(".png"), contact_sheet(frames)))
            written.append(write_bytes(stem.with_suffix(".mp4"), mp4(frames, fps)))
    if not written:
        raise OneiroError(f"{', '.join(map(str, runs))}: no videos; runs of rlvr/video-... write some")
    return written


def file_name(title: str) -> str:
    """A title as a file is called: `Success on unseen levels` -> `success-on-unseen-levels`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80] or "figure"
