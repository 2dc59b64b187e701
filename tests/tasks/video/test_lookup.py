"""The nearest training segment: on four episodes whose colours and actions are chosen by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oneiro.tasks.video import evaluation
from oneiro.tasks.video.dataset import Clips, VideoDataset
from oneiro.tasks.video.evaluation import VideoLookup
from oneiro.worlds.robot.episodes import RobotEpisode, open_episodes, write_episode

PAST = 2


def colours(*shades: int) -> np.ndarray:
    """Frames of 8x8 pixels, each of one shade."""
    return np.broadcast_to(np.array(shades, np.uint8)[:, None, None, None], (len(shades), 8, 8, 3)).copy()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> VideoDataset:
    """Four segments: dark or light; from either an action of +1 at the last given frame brightens, and -1 darkens."""
    folder = tmp_path_factory.mktemp("shades")
    for number, (shades, action) in enumerate(
        [((40, 40, 50, 60), 1.0), ((40, 40, 30, 20), -1.0), ((200, 200, 210, 220), 1.0), ((200, 200, 190, 180), -1.0)]
    ):
        taken = np.array([[0.0], [action], [0.0], [0.0]], np.float32)
        write_episode(folder / f"{number}.npz", RobotEpisode(colours(*shades), taken))
    return VideoDataset(open_episodes(folder, every=100), length=4)


def asked(shade: int, action: float, later: int = 0) -> Clips:
    images = colours(shade, shade, later, later)[None]
    return Clips(images, np.array([[[9.0], [action], [0.0], [9.0]]], np.float32), images[:, 0])


@pytest.mark.parametrize(
    ("shade", "action", "future"),
    [(50, 0.8, (50, 60)), (50, -0.8, (30, 20)), (180, 0.8, (210, 220)), (180, -0.8, (190, 180))],
)
def test_the_nearest_in_look_and_action_says_what_comes(
    dataset: VideoDataset, shade: int, action: float, future: tuple[int, int]
) -> None:
    lookup = VideoLookup(dataset, PAST)
    frames = lookup(asked(shade, action))
    assert frames.shape == (1, 2, 8, 8, 3) and frames.dtype == np.uint8
    assert (frames[0] == colours(*future)).all()


def test_pixels_and_actions_count_by_how_much_they_vary(dataset: VideoDataset) -> None:
    """Shades lie 80 from their mean of 120, actions 1 from 0: a shade of 121 and an action of -0.1 decide for light
    and darker, each against a difference of the other that is larger in plain numbers.
    """
    lookup = VideoLookup(dataset, PAST)
    assert lookup.nearest(asked(121, -0.1)).tolist() == [[3, 0]]
    distances = np.abs(lookup.features - lookup._scale(*lookup._raw(asked(40, 1.0)))).sum(axis=1)
    assert distances == pytest.approx([0, 2, 2, 4])  # the other action, the other shade, both: 2 each


def test_what_comes_later_is_not_looked_at(dataset: VideoDataset) -> None:
    lookup = VideoLookup(dataset, PAST)
    assert (lookup(asked(50, 1.0, later=0)) == lookup(asked(50, 1.0, later=255))).all()


def test_a_segment_of_the_training_data_finds_itself(dataset: VideoDataset) -> None:
    lookup = VideoLookup(dataset, PAST)
    clips = dataset.cut(dataset.windows)
    assert (lookup.nearest(clips) == dataset.windows).all()
    assert (lookup(clips) == clips.images[:, PAST:]).all()


def test_of_equally_near_segments_the_first_counts(dataset: VideoDataset) -> None:
    lookup = VideoLookup(dataset, PAST)
    assert lookup.nearest(asked(40, 0.0)).tolist() == [[0, 0]]  # between brighter and darker


def test_so_many_segments_are_kept_the_same_ones_each_time(
    dataset: VideoDataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "SEGMENTS", 2)
    first, again = (VideoLookup(dataset, PAST).windows for _ in range(2))
    assert len(first) == 2 and (first == again).all() and (first[:, 0] == np.sort(first[:, 0])).all()


def test_what_never_varies_counts_nothing(dataset: VideoDataset, tmp_path: Path) -> None:
    for number in range(2):
        write_episode(tmp_path / f"{number}.npz", RobotEpisode(colours(9, 9, 9, number), np.ones((4, 1), np.float32)))
    lookup = VideoLookup(VideoDataset(open_episodes(tmp_path, every=100), length=4), PAST)
    assert np.isfinite(lookup.features).all()
    assert lookup.nearest(asked(200, 5.0)).tolist() == [[0, 0]]
