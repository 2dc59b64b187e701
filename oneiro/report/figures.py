"""What a paper needs of runs: each curve as SVG and PDF with its numbers as CSV, tables as CSV, videos as MP4 and as
contact sheets.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.report import page, plots
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_bytes, write_text


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
                written.append(stem.with_suffix(f".{kind}"))
                write_bytes(written[-1], plots.render(figure, title, kind))
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


def write_videos(runs: Sequence[Path], out: Path) -> list[Path]:
    """Every animated picture of the runs as MP4, and as a sheet of all its frames."""
    written = []
    for run in runs:
        for picture in sorted((run / "images").glob("*.gif")):
            frames, fps = read_gif(picture)
            stem = out / (picture.stem if len(runs) == 1 else f"{run.name}-{picture.stem}")
            for suffix, data in ((".png", contact_sheet(frames)), (".mp4", mp4(frames, fps))):
                written.append(stem.with_suffix(suffix))
                write_bytes(written[-1], data)
    if not written:
        raise OneiroError(f"{', '.join(map(str, runs))}: no videos; runs of rlvr/video-... write some")
    return written


def file_name(title: str) -> str:
    """A title as a file is called: `Success on unseen levels` -> `success-on-unseen-levels`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")[:80] or "figure"


# Videos as an animated GIF, small enough to stand inside a page, as MP4 and as a sheet --------------------------------


GAP = 4  # pixels between the pictures of a sheet
SMALL = 160
"""Frames are enlarged, pixel by pixel, to about this height."""
PAUSE_MS = 350
ACROSS = 2
"""Videos in a row: as many as a phone shows with readable names."""
EDGE = 3
"""Width of the edge around a picture that a model was given or predicted, in pixels."""
RECORDED, PREDICTED = "#8a9099", "#e0803a"


def save_gif(path: Path, videos: Mapping[str, NDArray[np.uint8]], given: Mapping[str, int] | None = None) -> None:
    """Write `gif` to a file, whole or not at all."""
    write_bytes(path, gif(videos, given))


def gif(videos: Mapping[str, NDArray[np.uint8]], given: Mapping[str, int] | None = None) -> bytes:
    """Videos [T, H, W, 3] of one size as a looping GIF, two in a row: the frame's number on top, names above each.

    `given` maps a predicted video to how many frames at its start were given to the model. These are named "given",
    the later ones "predicted" with how far ahead they are, with an edge in the colour of predictions; videos that it
    does not name have no mark.
    """
    from PIL import Image, ImageDraw, ImageFont

    count, height, width = next(iter(videos.values())).shape[:3]
    zoom = max(1, round(SMALL / height))
    high, wide = zoom * height, zoom * width
    text = max(12, wide // 12)
    line = text + 6
    across = min(ACROSS, len(videos))
    rows = -(-len(videos) // across)
    font = ImageFont.load_default(size=text)
    shown = []
    for number, frames in enumerate(zip(*videos.values(), strict=True)):
        sheet = Image.new("RGB", (across * (wide + GAP) - GAP, line + rows * (line + high + GAP) - GAP), "white")
        pen = ImageDraw.Draw(sheet)
        pen.text((1, 1), f"frame {number + 1} of {count}", fill="black", font=font)
        for place, (name, frame) in enumerate(zip(videos, frames, strict=True)):
            left, top = place % across * (wide + GAP), line + place // across * (line + high + GAP)
            sheet.paste(Image.fromarray(frame).resize((wide, high), Image.Resampling.NEAREST), (left, top + line))
            pen.text((left + 1, top + 1), name, fill="black", font=font)
            if given is not None and name in given:
                ahead = number - given[name] + 1
                mark, colour = (f"predicted +{ahead}", PREDICTED) if ahead > 0 else ("given", RECORDED)
                pen.text((left + wide - 1, top + 1), mark, fill=colour, font=font, anchor="ra")
                pen.rectangle((left, top + line, left + wide - 1, top + line + high - 1), outline=colour, width=EDGE)
        shown.append(sheet)
    buffer = io.BytesIO()
    shown[0].save(buffer, "GIF", save_all=True, append_images=shown[1:], duration=PAUSE_MS, loop=0)
    return buffer.getvalue()


def read_gif(path: Path) -> tuple[NDArray[np.uint8], float]:
    """The frames [T, H, W, 3] of an animated picture, and how many a second has."""
    from PIL import Image, ImageSequence

    with Image.open(path) as picture:
        frames = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(picture)]
        pause_ms = float(picture.info.get("duration") or PAUSE_MS)
    return np.stack(frames), 1000 / pause_ms


def contact_sheet(frames: NDArray[np.uint8]) -> bytes:
    """All frames [T, H, W, 3] of a video on one PNG, row by row, about twice as wide as high."""
    from PIL import Image

    count, height, width = frames.shape[:3]
    across = max(1, min(count, round((2 * count * height / width) ** 0.5)))
    sheet = Image.new("RGB", (across * (width + GAP) - GAP, -(-count // across) * (height + GAP) - GAP), "white")
    for place, frame in enumerate(frames):
        sheet.paste(Image.fromarray(frame), (place % across * (width + GAP), place // across * (height + GAP)))
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def mp4(frames: NDArray[np.uint8], fps: float) -> bytes:
    """A video [T, H, W, 3] as H.264 in an MP4 file that browsers play, by ffmpeg."""
    program = _ffmpeg()
    # Four pixels share a colour, so that both sides must be even; the last row or column is doubled.
    frames = np.pad(frames, ((0, 0), (0, frames.shape[1] % 2), (0, frames.shape[2] % 2), (0, 0)), mode="edge")
    height, width = frames.shape[1:3]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "video.mp4"
        given = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{fps:g}", "-i", "-"]
        wanted = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart", "-threads", "1", str(target)]
        done = subprocess.run(
            [program, "-loglevel", "error", *given, *wanted], input=frames.tobytes(), capture_output=True, timeout=600
        )
        if done.returncode:
            raise OneiroError(f"ffmpeg failed: {done.stderr.decode(errors='replace').strip().splitlines()[-1:]}")
        return target.read_bytes()


def _ffmpeg() -> str:
    """The program, on the path or from imageio-ffmpeg."""
    if program := shutil.which("ffmpeg"):
        return program
    try:
        from imageio_ffmpeg import get_ffmpeg_exe
    except ModuleNotFoundError as error:
        raise OneiroError("MP4 needs ffmpeg; pip install imageio-ffmpeg, or take the GIFs of the run") from error
    return str(get_ffmpeg_exe())
