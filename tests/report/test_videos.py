"""Moving pictures: which frame it is, and whether a model saw it or made it."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise

import numpy as np
from PIL import Image

from oneiro.report.figures import GAP, gif

NAMES = ("truth", "tokenizer", "base")
WHITE = (255, 255, 255)


def sheets(given: dict[str, int] | None) -> list[np.ndarray]:
    """Three grey videos of four frames, 16 x 16, drawn at 160 x 160."""
    videos = {name: np.full((4, 16, 16, 3), 60 + 40 * place, np.uint8) for place, name in enumerate(NAMES)}
    picture = Image.open(BytesIO(gif(videos, given)))
    found = []
    for place in range(picture.n_frames):  # type: ignore[attr-defined]
        picture.seek(place)
        found.append(np.asarray(picture.convert("RGB")).astype(int))
    return found


def test_every_frame_is_drawn_under_its_own_number() -> None:
    found = sheets(None)
    assert len(found) == 4  # alike but for their numbers
    heads = [sheet[:19] for sheet in found]
    assert all((a != b).any() for a, b in pairwise(heads))
    assert all((a[19:] == b[19:]).all() for a, b in pairwise(found))


def test_two_videos_stand_in_a_row() -> None:
    assert sheets(None)[0].shape == (19 + 2 * (19 + 160) + GAP, 2 * 160 + GAP, 3)


def test_only_predicted_frames_of_predicted_videos_have_the_colour_of_predictions() -> None:
    orange = np.array([0xE0, 0x80, 0x3A])
    found = sheets({"base": 1})
    top = 2 * 19 + 160 + GAP  # the second row: its names, then its pictures
    marked = [(np.abs(sheet - orange).max(axis=-1) < 24) for sheet in found]
    assert [bool(sheet[top + 19 :, :160].any()) for sheet in marked] == [False, True, True, True]
    assert not any(sheet[:top].any() or sheet[:, 160:].any() for sheet in marked)


def test_without_a_word_on_what_was_given_nothing_is_marked() -> None:
    pictures = sheets(None)[0][38:198, :160]
    assert (np.abs(pictures - 60) < 4).all()
