"""Figures for papers: curves with their numbers beside them, tables as CSV, videos as MP4 and contact sheets."""

from __future__ import annotations

import csv
import shutil
import sys
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneiro.recipe import Recipe
from oneiro.report import figures
from oneiro.report.figures import file_name, write_figures, write_videos
from oneiro.report.table import Cell, Table
from oneiro.rundir.run import Run
from oneiro.runtime.errors import OneiroError
from tests.commands import mistake, oneiro


def make_run(path: Path, gain: float = 0.0) -> Path:
    table = Table("Success, unseen", ["agent", "success"], {"success": "%"})
    table.add("mine", Cell(0.5 + gain, 0.4, 0.6, 100))
    with Run.open(path, Recipe(system="toy")) as run:
        for step in (1, 2):
            run.log("rl", step, {"success": step / 4 + gain})
        curve = {"title": "Success, while it learns", "key": "success", "unit": "%", "stages": {"spa": "rl"}}
        run.summary({"tables": [table.data()], "curves": [curve]})
    return path


def rows_of(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_a_curve_is_two_pictures_with_its_numbers_beside_them(tmp_path: Path) -> None:
    written = write_figures([make_run(tmp_path / "one")], tmp_path / "out")
    assert [path.name for path in written] == [
        "success-while-it-learns.svg",
        "success-while-it-learns.pdf",
        "success-while-it-learns.csv",
        "success-unseen.csv",
    ]
    assert rows_of(written[2]) == [["line", "step", "success"], ["spa", "1", "0.25"], ["spa", "2", "0.5"]]
    assert rows_of(written[3]) == [["agent", "success", "success low", "success high"], ["mine", "0.5", "0.4", "0.6"]]
    assert b"Success, while it learns" in written[0].read_bytes() and written[1].read_bytes().startswith(b"%PDF")
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in write_figures([tmp_path / "one"], tmp_path / "out")] == before


def test_several_runs_share_a_figure(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "one"), make_run(tmp_path / "two", 0.25)]
    written = write_figures(runs, tmp_path / "out")
    assert rows_of(written[2])[1:] == [
        ["one: spa", "1", "0.25"],
        ["one: spa", "2", "0.5"],
        ["two: spa", "1", "0.5"],
        ["two: spa", "2", "0.75"],
    ]
    assert [row[:3] for row in rows_of(written[3])] == [
        ["run", "agent", "success"],
        ["one", "mine", "0.5"],
        ["two", "mine", "0.75"],
    ]


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    run = make_run(tmp_path / "one")
    assert "--figures" in mistake("export", run, "--out", tmp_path / "out")
    done = oneiro("export", run, "--figures", "--out", tmp_path / "out")
    assert done.returncode == 0 and "success-unseen.csv" in done.stdout
    with pytest.raises(OneiroError, match="no videos"):
        write_videos([run], tmp_path / "out")


def test_a_sheet_has_every_frame_in_its_place() -> None:
    frames = np.stack([np.full((2, 4, 3), 40 * n, np.uint8) for n in range(5)])
    sheet = np.asarray(Image.open(BytesIO(figures.contact_sheet(frames))))
    assert sheet.shape == (3 * 2 + 2 * figures.GAP, 2 * 4 + figures.GAP, 3)
    corners = [(row * (2 + figures.GAP), column * (4 + figures.GAP)) for row in range(3) for column in range(2)]
    assert [int(sheet[row, column, 0]) for row, column in corners] == [0, 40, 80, 120, 160, 255]


def test_videos_of_a_run_become_mp4_and_sheets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "one")
    frames = np.random.default_rng(0).integers(0, 255, (3, 9, 7, 3), np.uint8)
    figures.save_gif(run / "images" / "segment.gif", {"true": frames})
    read, fps = figures.read_gif(run / "images" / "segment.gif")
    assert len(read) == 3 and fps == pytest.approx(1000 / figures.PAUSE_MS, rel=0.02)
    if shutil.which("ffmpeg") or find_spec("imageio_ffmpeg"):
        sheet, film = write_videos([run], tmp_path / "out")
        assert sheet.suffix == ".png" and film.read_bytes()[4:8] == b"ftyp"
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(OneiroError, match="MP4 needs ffmpeg"):
        figures.mp4(frames, 3)


def test_titles_become_plain_file_names() -> None:
    assert (
        file_name("Exact, sampled (%)") == "exact-sampled"
        and file_name("../../etc") == "etc"
        and file_name("…") == "figure"
    )
