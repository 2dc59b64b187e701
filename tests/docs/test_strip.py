"""The README's picture."""

from __future__ import annotations

import io
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from oneiro.recipe import load
from oneiro.tasks.webpage.predictor import WebPagePredictor
from oneiro_web.diff import Diff, Item
from tests.tasks.webpage.cases import state, step
from tools import strip
from tools.strip import ROWS, TARGET, draw_grid_row, draw_page_row, draw_picture, draw_video_row

BEFORE = state("main ''", "button 'Upvote'", "StaticText '-30'", "link 'A & B'")
VOTE = step(BEFORE, "click [2]", state("main ''", "button 'Retract upvote'", "StaticText '-29'", "link 'A & B'"))
RIGHT = (Item(2, "button 'Retract upvote'"), Item(3, "StaticText '-29'"))


def lake(prediction: str | None) -> dict:
    turn = {"state": "P _\n_ O", "actions": ["Right"], "prediction": prediction, "next_state": "_ P\n_ O"}
    return {"world": "frozen-lake", "turns": [turn, turn | {"actions": ["Down"]}]}


def test_wrong_tiles_are_framed_and_nothing_else() -> None:
    _, action, predicted, true = draw_grid_row(lake("P _\n_ O"))
    assert "→ Right" in action.svg and 'class="differs"' not in true.svg
    assert predicted.svg.count('class="differs"') == 2  # where the walker is, and where it should be
    assert 'class="differs"' not in draw_grid_row(lake("_ P\n_ O"))[2].svg
    assert 'class="wrong"' in draw_grid_row(lake(None))[2].svg


def test_a_page_shows_the_lines_that_change() -> None:
    task = WebPagePredictor()
    cells = draw_page_row(task, VOTE, task.target(VOTE))
    before, action, predicted, true = (
        " ".join(ElementTree.fromstring(f"<g>{cell.svg}</g>").itertext()) for cell in cells
    )
    assert before.split() == ["button", "'Upvote'", "StaticText", "'-30'"]
    assert action.split() == ["click", "button", "'Upvote'"]
    assert predicted == true and true.split() == ["button", "'Retract", "upvote'", "StaticText", "'-29'"]
    assert "wrong" not in "".join(cell.svg for cell in cells)


@pytest.mark.parametrize(
    ("change", "wrong", "missing"),
    [
        (Diff(updated=(RIGHT[0], Item(3, "StaticText '-31'"))), "'-31'", 0),
        (Diff(updated=RIGHT, deleted=BEFORE.items[3:]), "− link 'A &amp;<", 0),
        (Diff(updated=RIGHT[:1]), "", 1),
        (None, "", 2),  # prose
    ],
)
def test_wrong_and_missing_lines_of_a_page_are_marked(change: Diff | None, wrong: str, missing: int) -> None:
    task = WebPagePredictor()
    *_, predicted, true = draw_page_row(task, VOTE, "it is upvoted" if change is None else task.write(change, VOTE))
    marked = [part for part in predicted.svg.split("<text ") if 'class="wrong"' in part]
    assert "wrong" not in true.svg and wrong in " ".join(marked)
    assert any(f">{missing} missing<" in part for part in marked) is bool(missing)


def test_frames_are_shown_as_they_are() -> None:
    frames = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), np.uint8)
    cells = draw_video_row(frames[0], np.array([[1, 0], [0, 0.5]], np.float32), frames[1], frames[2])
    assert "2 moves" in cells[1].svg and "x +0.50" in cells[1].svg and "y +0.25" in cells[1].svg
    for cell, frame in zip((cells[0], *cells[2:]), frames, strict=True):
        address = ElementTree.fromstring(cell.svg).attrib["href"].partition("base64,")[2]
        assert (np.asarray(Image.open(io.BytesIO(b64decode(address)))) == frame).all()


def test_the_picture_is_small_and_has_a_row_for_each_world() -> None:
    drawn = ElementTree.parse(TARGET).getroot()
    text = " ".join(drawn.itertext())
    assert TARGET.stat().st_size < 300_000 and all(row.recipe in text for row in ROWS)
    assert all(load(row.recipe, row.overrides).seed == 0 for row in ROWS)


@pytest.mark.thorough
def test_finished_runs_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strip, "RUNS", tmp_path)
    presets = ("smoke", "smoke", "toy")
    small = [replace(row, overrides=(f"preset={preset}",)) for row, preset in zip(ROWS, presets, strict=True)]
    first, again = (draw_picture([row.draw() for row in small]) for _ in range(2))
    assert ElementTree.fromstring(first).findall(".//{*}image") and first == again
