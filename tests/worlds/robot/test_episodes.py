"""Episode files: what is written is read, damage is named, the split is by name, actions become bins."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot.episodes import (
    ActionBins,
    RobotEpisode,
    open_episodes,
    read_episode,
    read_segment,
    write_episode,
)


def episode(length: int = 6, seed: int = 0) -> RobotEpisode:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (length, 8, 10, 3), np.uint8)
    action = rng.normal(size=(length, 4)).astype(np.float32)
    opening = np.linspace(0, 1, length, dtype=np.float32)
    return RobotEpisode(image, action, {"task": "drawer-open", "seed": seed}, {"opening": opening})


def write_folder(folder: Path, count: int, length: int = 6) -> None:
    for index in range(count):
        write_episode(folder / f"train_eps_{index:08d}.npz", episode(length, index))


def test_an_episode_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = episode()
    write_episode(tmp_path / "a.npz", written)
    read = read_episode(tmp_path / "a.npz")
    assert np.array_equal(read.image, written.image) and np.array_equal(read.action, written.action)
    assert read.info == written.info and np.array_equal(read.signals["opening"], written.signals["opening"])
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_a_file_with_only_images_and_actions_is_an_episode(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", image=np.zeros((3, 4, 5, 3), np.uint8), action=np.zeros((3, 13)))
    read = read_episode(tmp_path / "a.npz")
    assert len(read) == 3 and read.action.dtype == np.float32 and read.info == {} and read.signals == {}


@pytest.mark.parametrize(
    "arrays",
    [
        {"image": np.zeros((3, 4, 5, 3), np.uint8)},
        {"image": np.zeros((3, 4, 5, 3), np.uint8), "action": np.zeros((2, 4))},
        {"image": np.zeros((3, 4, 5, 3), np.float32), "action": np.zeros((3, 4))},
        {"image": np.zeros((3, 4, 5, 3), np.uint8), "action": np.full((3, 4), np.nan)},
        {"image": np.zeros((0, 4, 5, 3), np.uint8), "action": np.zeros((0, 4))},
        {"image": np.zeros((3, 4, 5, 3), np.uint8), "action": np.array([{}, {}, {}], object)},
        {"image": np.zeros((3, 4, 5, 3), np.uint8), "action": np.zeros((3, 4)), "info": np.zeros(3, np.uint8)},
    ],
)
def test_a_file_that_is_no_episode_is_an_error_that_names_it(tmp_path: Path, arrays: dict[str, np.ndarray]) -> None:
    np.savez(tmp_path / "odd.npz", **arrays)
    with pytest.raises(OneiroError, match=r"odd\.npz is damaged"):
        read_episode(tmp_path / "odd.npz")


def test_an_array_that_claims_more_than_the_file_holds_is_never_allocated(tmp_path: Path) -> None:
    header = b"\x93NUMPY\x01\x00"
    text = b"{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 4, 5, 3), }"
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w") as archive:
        archive.writestr("image.npy", header + len(text).to_bytes(2, "little") + text)
    with pytest.raises(OneiroError, match="does not fit"):
        read_episode(tmp_path / "bomb.npz")


@pytest.mark.parametrize("verify", [True, False])
def test_a_truncated_file_is_skipped_and_counted(tmp_path: Path, verify: bool) -> None:
    write_folder(tmp_path, 5)
    victim = tmp_path / "train_eps_00000001.npz"
    victim.write_bytes(victim.read_bytes()[:-40])
    episodes = open_episodes(tmp_path, every=2, verify=verify)
    assert len(episodes) == 4 and [path.name for path, _ in episodes.damaged] == [victim.name]
    # 0, 2, 4 are test whether or not 1 can be read.
    assert [path.name[-5] for path in episodes.test.paths] == ["0", "2", "4"]
    assert [path.name[-5] for path in episodes.train.paths] == ["3"]


def test_a_flipped_bit_inside_is_found_when_verifying(tmp_path: Path) -> None:
    write_folder(tmp_path, 2, length=200)  # long enough that the header does not bring the flipped byte along
    victim = tmp_path / "train_eps_00000001.npz"
    data = bytearray(victim.read_bytes())
    data[len(data) // 3] ^= 4
    victim.write_bytes(bytes(data))
    assert len(open_episodes(tmp_path)) == 1
    with pytest.raises(OneiroError, match="00000001"):
        list(open_episodes(tmp_path, verify=False))


def test_one_bad_byte_in_an_arrays_header_costs_one_episode_and_not_the_folder(tmp_path: Path) -> None:
    write_folder(tmp_path, 2, length=60)  # long enough that the header is read before the checksum is known
    victim = tmp_path / "train_eps_00000001.npz"
    data = victim.read_bytes()
    victim.write_bytes(data.replace(b", }", b",  ", 1))  # the bracket stays open: Python's tokenizer raises
    for verify in (True, False):
        episodes = open_episodes(tmp_path, verify=verify)
        assert len(episodes) == 1 and [path.name for path, _ in episodes.damaged] == [victim.name]


@pytest.mark.parametrize("form", ["pixels", "pictures", "compressed"])
def test_no_changed_byte_raises_anything_but_an_error_that_names_the_file(tmp_path: Path, form: str) -> None:
    path, whole = tmp_path / "a.npz", RobotEpisode(np.zeros((3, 2, 2, 3), np.uint8), np.zeros((3, 2), np.float32))
    if form == "compressed":
        np.savez_compressed(path, image=whole.image, action=whole.action)
    else:
        write_episode(path, whole, png(whole.image) if form == "pictures" else None)
    data, rng = path.read_bytes(), np.random.default_rng(0)
    for place in range(0, len(data), 5):
        path.write_bytes(data[:place] + bytes([int(rng.integers(256))]) + data[place + 1 :])
        for read in (read_episode, lambda file: read_segment(file, 1, 2)):
            try:
                read(path)
            except OneiroError as error:
                assert "a.npz" in str(error)


@pytest.mark.parametrize("form", ["pixels", "pictures", "compressed", "foreign"])
def test_a_segment_is_the_part_of_the_whole_episode(tmp_path: Path, form: str) -> None:
    path, whole = tmp_path / "a.npz", episode(9)
    if form in ("pixels", "pictures"):
        write_episode(path, whole, png(whole.image) if form == "pictures" else None)
    else:
        save = np.savez_compressed if form == "compressed" else np.savez
        info = np.frombuffer(json.dumps(whole.info).encode(), np.uint8)
        save(path, image=whole.image, action=whole.action, info=info, opening=whole.signals["opening"])
    assert np.array_equal(read_episode(path).image, whole.image)
    for start, length in ((0, 1), (2, 5), (0, 9), (8, 1)):
        part, true = read_segment(path, start, length), whole.part(start, length)
        assert np.array_equal(part.image, true.image) and np.array_equal(part.action, true.action)
        assert part.info == true.info and np.array_equal(part.signals["opening"], true.signals["opening"])
    for start, length in ((5, 5), (-1, 2), (0, 0)):
        with pytest.raises(OneiroError, match="not in an episode of 9 frames"):
            read_segment(path, start, length)


@pytest.mark.parametrize("form", ["pixels", "pictures"])
def test_a_segment_is_read_without_the_other_frames_and_its_own_are_checked(tmp_path: Path, form: str) -> None:
    path, whole = tmp_path / "a.npz", episode(60)  # more bytes than reading a header brings along
    encoded = png(whole.image)
    write_episode(path, whole, encoded if form == "pictures" else None)
    data = path.read_bytes()
    frames = encoded if form == "pictures" else [frame.tobytes() for frame in whole.image]
    place = data.index(frames[57]) + len(frames[57]) // 2
    path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert np.array_equal(read_segment(path, 0, 57).image, whole.image[:57])  # frame 57 is not looked at
    with pytest.raises(OneiroError, match="checksum of frame 57"):
        read_segment(path, 56, 2)
    assert open_episodes_damaged(tmp_path) == ["a.npz"]


def png(image: np.ndarray) -> list[bytes]:
    encoded = []
    for frame in image:
        buffer = io.BytesIO()
        Image.fromarray(frame).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    return encoded


def open_episodes_damaged(folder: Path) -> list[str]:
    """The damaged files of a folder, beside one that is whole."""
    write_episode(folder / "whole.npz", episode())
    return [path.name for path, _ in open_episodes(folder).damaged]


def test_an_empty_folder_and_a_missing_one_say_what_to_do(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(OneiroError, match="oneiro data robot"):
            open_episodes(folder)


def test_every_hundredth_file_is_the_test_split(tmp_path: Path) -> None:
    write_folder(tmp_path, 102, length=1)
    episodes = open_episodes(tmp_path)
    assert [path.stem[-3:] for path in episodes.test.paths] == ["000", "100"] and len(episodes.train) == 100


def test_files_that_come_or_go_move_no_other_across_the_split(tmp_path: Path) -> None:
    names = [f"{task}_{number:06d}" for task in ("close", "open") for number in range(7)] + ["by-hand", "z"]
    for name in names:
        write_episode(tmp_path / f"{name}.npz", episode(1))
    before = {path.stem for path in open_episodes(tmp_path, every=3).test.paths}
    # By the number behind each name, for each task alike; by the name itself where there is none.
    assert before - {"by-hand", "z"} == {f"{task}_00000{number}" for task in ("close", "open") for number in (0, 3, 6)}
    for name in ("a", "close_000007", "open_000007", "close_000008"):
        write_episode(tmp_path / f"{name}.npz", episode(1))
    (tmp_path / "close_000001.npz").unlink()
    after = open_episodes(tmp_path, every=3, without=["open_000002.npz"])
    assert {path.stem for path in after.test.paths} & set(names) == before
    assert {path.stem for path in after.train.paths} & set(names) == set(names) - before - {
        "close_000001",
        "open_000002",
    }


@pytest.mark.parametrize("verify", [True, False])
def test_a_folder_of_different_actions_is_one_line(tmp_path: Path, verify: bool) -> None:
    write_folder(tmp_path, 2)
    one = episode()
    write_episode(tmp_path / "z.npz", RobotEpisode(one.image, np.zeros((6, 7), np.float32)))
    with pytest.raises(OneiroError, match=r"actions of 4 numbers \(train_eps_00000000\.npz\) and of 7 \(z\.npz\)"):
        open_episodes(tmp_path, verify=verify)


def test_windows_are_all_segments_once_and_fixed_ones_never_move(tmp_path: Path) -> None:
    write_folder(tmp_path, 2, length=6)
    write_episode(tmp_path / "z.npz", episode(3))
    episodes = open_episodes(tmp_path)
    # 6 - 4 + 1 = 3 starts in each long episode, none in the short one.
    assert episodes.windows(4).tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    fixed = episodes.fixed_windows(4)
    assert fixed[:, 0].tolist() == [0, 1] and np.array_equal(fixed, open_episodes(tmp_path).fixed_windows(4))
    part = episodes.segment(1, 2, 4)
    whole = episodes[1]
    assert np.array_equal(part.image, whole.image[2:6]) and np.allclose(part.signals["opening"], [0.4, 0.6, 0.8, 1])
    with pytest.raises(OneiroError, match="not in an episode"):
        episodes.segment(1, 3, 4)


def test_bins_follow_the_formula_of_the_release() -> None:
    actions = np.array([[-1.0, 0.0], [1.0, 10.0]], np.float32)
    bins = ActionBins.of(actions, bins=4)
    # u = (a - min) / (max - min): 0, .249.., .25, .5, 1 and beyond; bin = min(floor(4 u), 3).
    x = np.array([-1.0, -0.51, -0.5 + 1e-6, 0.1, 1.0, 7.0, -7.0])
    assert bins.encode(np.stack([x, x], axis=1))[:, 0].tolist() == [0, 0, 1, 2, 3, 3, 0]
    assert bins.decode(np.array([[0, 3]])).tolist() == [[-0.75, 8.75]]


def test_encoding_a_decoded_bin_gives_the_bin_back() -> None:
    actions = np.random.default_rng(0).normal(size=(500, 3))
    bins = ActionBins.of(actions, bins=256, quantiles=(0.01, 0.99))
    every = np.repeat(np.arange(256)[:, None], 3, axis=1)
    assert np.array_equal(bins.encode(bins.decode(every)), every)


def test_quantiles_ignore_an_outlier_and_minimum_and_maximum_do_not(tmp_path: Path) -> None:
    action = np.linspace(-1, 1, 1001, dtype=np.float32)[:, None].repeat(2, axis=1)
    action[-1, 1] = 50.0
    write_episode(tmp_path / "a.npz", RobotEpisode(np.zeros((1001, 4, 4, 3), np.uint8), action))
    episodes = open_episodes(tmp_path)
    robust, plain = ActionBins.fit(episodes), ActionBins.fit(episodes, quantiles=None)
    assert robust.high[1] < 1 and plain.high[1] == 50
    assert len(np.unique(robust.encode(action)[:, 1])) == 256 and len(np.unique(plain.encode(action)[:, 1])) < 20


def test_a_rarely_used_dimension_keeps_a_range() -> None:
    actions = np.zeros((1000, 1))
    actions[0] = 1
    bins = ActionBins.of(actions, quantiles=(0.01, 0.99))
    assert bins.encode(np.array([[0.0], [1.0]])).tolist() == [[0], [255]]


def test_ranges_are_saved_and_a_broken_file_says_so(tmp_path: Path) -> None:
    bins = ActionBins.of(np.array([[0.0, 1.0], [1.0, 3.0]]), bins=16)
    bins.save(tmp_path / "bins.json")
    loaded = ActionBins.load(tmp_path / "bins.json")
    assert np.array_equal(loaded.low, bins.low) and np.array_equal(loaded.high, bins.high) and loaded.bins == 16
    for broken in ({}, {"low": [0], "high": [1, 2], "bins": 4}, {"low": [None], "high": [1], "bins": 4}):
        with pytest.raises(OneiroError, match="fit them again"):
            ActionBins.read(broken)
    with pytest.raises(ValueError, match="finite"):
        bins.encode(np.array([np.nan, 0.0]))
