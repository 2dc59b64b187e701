"""Augmentation: colours by hand, crops within their bounds, all frames of a segment alike, tokens and truth too."""

from __future__ import annotations

import colorsys
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from oneiro import recipe as recipes
from oneiro.tasks.video.augment import AugmentSettings, crop, crop_box, jitter
from oneiro.tasks.video.dataset import VideoDataset
from oneiro.tasks.video.encodings import Encodings
from oneiro.tasks.video.recipe import VideoRecipe
from oneiro.tasks.video.training import augment
from oneiro.worlds.robot import puck
from oneiro.worlds.robot.episodes import Episodes, open_episodes
from tests.tasks.video.test_predictor import task_of

PUBLISHED = AugmentSettings(
    brightness=0.1, contrast=0.1, saturation=0.1, hue=0.05, crop_scale=(0.8, 1.0), crop_aspect=(1.0, 1.4)
)


@pytest.fixture(scope="module")
def episodes(tmp_path_factory: pytest.TempPathFactory) -> Episodes:
    folder = tmp_path_factory.mktemp("puck")
    puck.record(folder, episodes=3, frames=12, size=16, seed=0)
    return open_episodes(folder, every=4)


def flat(*colour: int) -> np.ndarray:
    return np.broadcast_to(np.array(colour, np.uint8), (2, 4, 5, 3)).copy()


def test_brightness_multiplies_within_its_range() -> None:
    factors = np.array([jitter(flat(100, 50, 200), AugmentSettings(brightness=0.1), n)[0, 0, 0] for n in range(60)])
    ratio = factors[:, 2] / 200
    assert ratio.min() >= 0.895 and ratio.max() <= 1.105 and ratio.max() - ratio.min() > 0.15
    assert np.allclose(factors / ratio[:, None], [100, 50, 200], atol=3)  # all channels alike


def test_contrast_leaves_a_flat_frame_and_saturation_a_grey_one() -> None:
    for number in range(10):
        assert np.array_equal(
            jitter(flat(90, 90, 90), AugmentSettings(contrast=0.5, saturation=0.5), number), flat(90, 90, 90)
        )
    colours = np.array([jitter(flat(200, 100, 50), AugmentSettings(saturation=0.1), n)[0, 0, 0] for n in range(40)])
    # Away from or towards the grey of the same luma: 0.299 * 200 + 0.587 * 100 + 0.114 * 50 = 124.2.
    luma = colours @ np.array([0.299, 0.587, 0.114])
    assert np.allclose(luma, 124.2, atol=1.5) and np.ptp(colours[:, 0]) > 8


def test_hues_turn_by_at_most_their_share_of_the_circle() -> None:
    turned = [jitter(flat(200, 40, 40), AugmentSettings(hue=0.05), n)[0, 0, 0] / 255 for n in range(60)]
    hues = np.array([colorsys.rgb_to_hsv(*colour)[0] for colour in turned])
    signed = (hues + 0.5) % 1 - 0.5
    assert np.abs(signed).max() <= 0.055 and signed.min() < -0.02 and signed.max() > 0.02


def test_crops_keep_the_published_bounds_and_are_drawn_to_the_frames_size() -> None:
    boxes = np.array([crop_box(256, 320, PUBLISHED, n) for n in range(300)])
    left, top, right, bottom = boxes.T
    assert left.min() >= 0 and top.min() >= 0 and right.max() <= 320 and bottom.max() <= 256
    share, aspect = (right - left) * (bottom - top) / (256 * 320), (right - left) / (bottom - top)
    assert share.min() > 0.79 and share.max() <= 1.0 and aspect.min() > 0.99 and aspect.max() < 1.41
    assert np.ptp(share) > 0.15 and np.ptp(aspect) > 0.3 and len(np.unique(left)) > 20
    assert crop_box(256, 320, AugmentSettings(), 0) == (0, 0, 320, 256)  # the transformers' setting: the whole frame
    ramp = np.broadcast_to(np.arange(20, dtype=np.uint8)[None, None, :, None], (2, 16, 20, 3)).copy()
    seen = crop(ramp, PUBLISHED, 3)
    assert seen.shape == ramp.shape and seen.min() >= 0 and np.ptp(seen) < 20


def test_frames_of_a_segment_change_alike_and_segments_do_not() -> None:
    segments = np.stack([np.stack([flat(120, 80, 40)[0]] * 3)] * 4)
    made = augment(segments, PUBLISHED, "seed")
    assert all(np.array_equal(one[0], frame) for one in made for frame in one)
    assert len({one.tobytes() for one in made}) > 1
    assert np.array_equal(made, augment(segments, PUBLISHED, "seed"))
    assert augment(segments, AugmentSettings(), "seed") is segments


def test_tokens_and_truth_of_a_segment_have_the_same_colours(episodes: Episodes) -> None:
    task = task_of("multi", episodes)
    dataset = VideoDataset(episodes, task.layout.frames)
    strong = AugmentSettings(brightness=0.5, hue=0.3)
    encodings = Encodings(dataset, task, context_offset=2, augment=strong)
    windows = np.array([[0, 3], [1, 4]])
    contexts = np.array([[0, 2], [1, 4]])
    clips, cases = encodings.clips(windows, contexts), encodings.encode(windows, contexts)
    plain = dataset.cut(windows)
    assert not np.array_equal(clips.images, plain.images) and np.array_equal(clips.actions, plain.actions)
    # The second segment is its own context: its frames alone give its tokens.
    direct = task.encode(clips[1:])
    assert np.array_equal(direct.frames, cases.frames[1:]) and np.array_equal(direct.context, cases.context[1:])
    assert np.array_equal(Encodings(dataset, task).clips(windows, contexts).images, plain.images)


@pytest.mark.parametrize(
    "wrong", [{"hue": 0.6}, {"brightness": 1.0}, {"crop_scale": (0.9, 0.8)}, {"crop_aspect": (0, 1)}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        AugmentSettings(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["rlvr/video-single", "rlvr/video-multi"])
def test_the_published_settings_augment_and_the_others_do_not(name: str, tmp_path: Path) -> None:
    published = recipes.load(name, ["model=published"], VideoRecipe)
    assert isinstance(published, VideoRecipe) and published.augment == PUBLISHED
    usual = recipes.load(name, [], VideoRecipe)
    assert isinstance(usual, VideoRecipe) and not usual.augment.jitters and not usual.augment.crops
