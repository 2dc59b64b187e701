"""RLDS: real Bridge episodes, hand-made RT-1 ones, and what is said when a record is damaged."""

from __future__ import annotations

import io
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot import rlds, storage
from oneiro.worlds.robot.episodes import open_episodes, read_episode
from oneiro.worlds.robot.rlds import import_rlds, open_dataset
from tests.worlds.robot.test_tfrecord import serialise, write_records

BRIDGE = Path(__file__).parents[4] / "shared" / "data" / "bridge_rlds"
needs_bridge = pytest.mark.skipif(not BRIDGE.is_dir(), reason="the Bridge sample is not here")
WIDTHS = dict(zip(rlds.RT1_ACTION, (2, 1, 1, 3, 3, 3), strict=True))


def tensor(width: int, kind: str = "float32") -> dict[str, Any]:
    return {"tensor": {"shape": {"dimensions": [str(width)]}, "dtype": kind}}


def group(**features: Any) -> dict[str, Any]:
    return {"featuresDict": {"features": features}}


def picture(value: int, form: str = "PNG", size: tuple[int, int] = (20, 16)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, (value, 0, 255 - value)).save(buffer, form)
    return buffer.getvalue()


def rt1_record(frames: int, first: float = 0.0) -> bytes:
    """Action number d of frame t is 100 t + d, so that order shows."""
    features: dict[str, Any] = {"steps/observation/image": [picture(10 * t) for t in range(frames)]}
    features["steps/observation/natural_language_instruction"] = [b"open middle drawer"] * frames
    place = 0
    for name, width in WIDTHS.items():
        rows = [[100.0 * t + place + d + first for d in range(width)] for t in range(frames)]
        flat = [value for row in rows for value in row]
        whole = name == "terminate_episode"  # stored as integers
        features[f"steps/action/{name}"] = [int(value) for value in flat] if whole else flat
        place += width
    return serialise(features)


def rt1_folder(folder: Path, records: list[bytes], name: str = "fractal20220817_data") -> Path:
    described(folder, name)
    write_records(folder / f"{name}-train.tfrecord-00000-of-00001", records)
    return folder


def described(folder: Path, name: str, **info: Any) -> None:
    """An RT-1 dataset without its records."""
    folder.mkdir(parents=True)
    actions = {key: tensor(width) for key, width in sorted(WIDTHS.items(), reverse=True)}
    observation = group(
        image={"image": {"shape": {"dimensions": ["16", "20", "3"]}, "encodingFormat": "jpeg"}},
        natural_language_instruction={"text": {}},
    )
    steps = {"sequence": {"feature": group(action=group(**actions), observation=observation)}}
    (folder / "features.json").write_text(json.dumps(group(steps=steps)))
    (folder / "dataset_info.json").write_text(json.dumps({"name": name, **info}))


@needs_bridge
def test_the_bridge_sample_becomes_25_episodes(tmp_path: Path) -> None:
    done = import_rlds(BRIDGE, tmp_path)
    assert (done.written, done.kept, done.frames, done.damaged) == (25, 0, 250, [])
    # Its dataset_info.json speaks of 25 more in a split that is not part of the sample.
    assert (done.due, done.missing) == (50, 25)
    assert done.gaps == ["val: 1 of 1 files are not there, the first is number 00000; they hold 25 episodes"]
    episodes = open_episodes(tmp_path)
    first = episodes[0]
    assert first.image.shape == (10, 64, 64, 3) and first.action.shape == (10, 7)
    assert first.info["instruction"] == "put cup from counter or drying rack into sink"
    assert 20 < first.image.mean() < 235 and set(np.unique(first.action[:, 6])) <= {0.0, 1.0}  # the gripper
    again = import_rlds(BRIDGE, tmp_path)
    assert (again.written, again.kept) == (0, 25)


@needs_bridge
def test_a_camera_can_be_chosen_and_a_wrong_name_is_corrected(tmp_path: Path) -> None:
    dataset = open_dataset(BRIDGE)
    assert rlds.choose_fields(dataset) == rlds.FieldMap("observation/image_0", ("action",), "language_instruction")
    assert rlds.choose_fields(dataset, image="observation/image_1").image == "observation/image_1"
    with pytest.raises(OneiroError, match="did you mean 'observation/image_"):
        rlds.choose_fields(dataset, image="observation/image_9")
    with pytest.raises(OneiroError, match="is no image"):
        rlds.choose_fields(dataset, image="action")


@needs_bridge
def test_a_flipped_byte_in_real_data_costs_one_episode_and_is_named(tmp_path: Path) -> None:
    source = tmp_path / "bridge"
    source.mkdir()
    for file in BRIDGE.iterdir():
        (source / file.name).write_bytes(file.read_bytes())
    shard = next(source.glob("*.tfrecord*"))
    data = bytearray(shard.read_bytes())
    data[2000] ^= 0x10
    shard.chmod(0o644)
    shard.write_bytes(bytes(data))
    done = import_rlds(source, tmp_path / "out")
    assert done.written == 24 and done.damaged == [f"{shard.name}, record 0: the checksum of its data is wrong"]
    assert not (tmp_path / "out" / "train_eps_00000000.npz").exists()


@pytest.mark.parametrize("name", ["fractal20220817_data", "some_other_set"])
def test_actions_of_rt1_are_thirteen_numbers_in_alphabetical_order(tmp_path: Path, name: str) -> None:
    source = rt1_folder(tmp_path / "in" / name / "0.1.0", [rt1_record(3)], name)
    import_rlds(source.parents[1], tmp_path / "out")  # the only dataset below the folder is found
    episode = open_episodes(tmp_path / "out")[0]
    assert episode.action.tolist() == [[100.0 * t + d for d in range(13)] for t in range(3)]
    assert episode.image.shape == (3, 16, 20, 3) and episode.image[2, 0, 0].tolist() == [20, 0, 235]
    assert episode.info == {"dataset": name, "instruction": "open middle drawer"}


def test_fields_can_be_mapped_by_hand(tmp_path: Path) -> None:
    source = rt1_folder(tmp_path / "in", [rt1_record(2)], "mine")
    import_rlds(source, tmp_path / "out", action=["action/world_vector", "action/gripper_closedness_action"])
    assert open_episodes(tmp_path / "out")[0].action.tolist() == [[10, 11, 12, 3], [110, 111, 112, 103]]


def test_a_folder_holds_episodes_of_one_choice_of_fields(tmp_path: Path) -> None:
    source, out = rt1_folder(tmp_path / "in", [rt1_record(2)], "mine"), tmp_path / "out"
    import_rlds(source, out, action=["action/world_vector"])
    before = (out / "train_eps_00000000.npz").read_bytes()
    with pytest.raises(OneiroError, match=r"made with action=\['action/world_vector'\], not \['action/base_"):
        import_rlds(source, out)
    other = rt1_folder(tmp_path / "other", [rt1_record(2)], "theirs")
    with pytest.raises(OneiroError, match="made with dataset=mine, not theirs; choose another --out"):
        import_rlds(other, out, action=["action/world_vector"])
    assert (out / "train_eps_00000000.npz").read_bytes() == before
    assert import_rlds(source, out, action=["action/world_vector"]).kept == 1
    (out / "rlds.json").unlink()
    with pytest.raises(OneiroError, match=r"no rlds\.json that says what they were made of"):
        import_rlds(source, out, action=["action/world_vector"])


def test_an_import_that_wrote_nothing_binds_nobody(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="no episode"):
        import_rlds(rt1_folder(tmp_path / "broken", [b"\xff"]), tmp_path / "out")
    assert import_rlds(rt1_folder(tmp_path / "in", [rt1_record(2)], "mine"), tmp_path / "out").written == 1


def test_each_way_a_record_can_be_wrong_is_one_line(tmp_path: Path) -> None:
    short = serialise({"steps/observation/image": [picture(0)] * 2, "steps/action/world_vector": [0.0] * 5})
    larger = serialise({"steps/observation/image": [picture(0, size=(40, 30))]})
    odd = serialise({"steps/observation/image": [b"GIF89a"]})
    cut = serialise({"steps/observation/image": [picture(0, "JPEG")[:200]]})
    empty = serialise({"steps/other": [1.0]})
    records = [short, larger, odd, cut, empty, b"\xff\xff", rt1_record(2)]
    source = rt1_folder(tmp_path / "in", records)
    done = import_rlds(source, tmp_path / "out", action=["action/world_vector"])
    assert done.written == 1 and len(done.damaged) == 6 and all("\n" not in line for line in done.damaged)
    for line, words in zip(done.damaged, ("5 numbers", "30x40", "identify", "", "no steps/obs", "end"), strict=True):
        assert words in line
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["rlds.json", "train_eps_00000006.npz"]


@pytest.mark.parametrize("known", [True, False], ids=["lengths known", "lengths unknown"])
def test_a_repaired_file_brings_its_own_episodes_and_renames_no_other(tmp_path: Path, known: bool) -> None:
    splits = [{"name": "train", "shardLengths": ["3", "2"]}]
    described(tmp_path / "in", "mine", **({"splits": splits} if known else {}))
    shards = [tmp_path / "in" / f"mine-train.tfrecord-0000{number}-of-00002" for number in range(2)]
    write_records(shards[0], [rt1_record(2, first=1000.0 * number) for number in range(3)])
    write_records(shards[1], [rt1_record(2, first=1000.0 * number) for number in range(3, 5)])
    whole = shards[0].read_bytes()
    shards[0].write_bytes(whole[: len(whole) // 2])
    assert import_rlds(tmp_path / "in", tmp_path / "out").written == 3
    shards[0].write_bytes(whole)
    again = import_rlds(tmp_path / "in", tmp_path / "out")
    assert (again.written, again.kept, again.damaged) == (2, 3, [])
    found = open_episodes(tmp_path / "out")
    assert [episode.action[0, 0] for episode in found] == [0, 1000, 2000, 3000, 4000]
    names = [f"_eps_{number:08d}" for number in (range(5) if known else (0, 1, 2, 0, 1))]
    prefixes = ["train"] * 5 if known else ["train-00000"] * 3 + ["train-00001"] * 2
    assert [path.stem for path in found.paths] == [prefix + name for prefix, name in zip(prefixes, names, strict=True)]


def test_records_that_the_dataset_does_not_know_of_are_named_and_take_no_other_ones_place(tmp_path: Path) -> None:
    described(tmp_path / "in", "mine", splits=[{"name": "train", "shardLengths": ["1", "1"]}])
    for number in range(2):
        write_records(tmp_path / "in" / f"mine-train.tfrecord-0000{number}-of-00002", [rt1_record(2), rt1_record(3)])
    done = import_rlds(tmp_path / "in", tmp_path / "out")
    assert done.written == 2 and len(done.damaged) == 2 and "knows 1 records" in done.damaged[0]
    assert open_episodes(tmp_path / "out").lengths == (2, 2)


def sharded(folder: Path, lengths: list[int], **info: Any) -> list[Path]:
    """An RT-1 dataset in several files; the first action of episode n is 1000 n."""
    described(folder, "mine", **info)
    paths = [folder / f"mine-train.tfrecord-{number:05d}-of-{len(lengths):05d}" for number in range(len(lengths))]
    for number, path in enumerate(paths):
        first = sum(lengths[:number])
        write_records(path, [rt1_record(2, first=1000.0 * (first + place)) for place in range(lengths[number])])
    return paths


def end_of(data: bytes, records: int) -> int:
    """Where the first so many records of a file end."""
    place = 0
    for _ in range(records):
        place += 12 + struct.unpack_from("<Q", data, place)[0] + 4
    return place


def test_absent_files_and_files_cut_between_records_are_counted_among_what_is_due(tmp_path: Path) -> None:
    lengths = [3, 4, 2]
    shards = sharded(tmp_path / "in", lengths, splits=[{"name": "train", "shardLengths": [str(n) for n in lengths]}])
    shards[2].unlink()
    data = shards[1].read_bytes()
    third = end_of(data, 2)
    shards[1].write_bytes(data[:third])
    done = import_rlds(tmp_path / "in", tmp_path / "out")
    assert (done.due, done.written, done.missing, done.damaged) == (9, 5, 2 + 2, [])
    assert done.gaps == [
        "train: 1 of 3 files are not there, the first is number 00002; they hold 2 episodes",
        f"{shards[1].name}: it holds 2 of 4 records",
    ]
    shards[1].write_bytes(data[: third + 50])  # inside the third: that one is damaged, the fourth is missing
    again = import_rlds(tmp_path / "in", tmp_path / "out")
    assert (again.due, again.kept, len(again.damaged), again.missing) == (9, 5, 1, 1 + 2)


def test_a_single_file_that_is_cut_is_noticed(tmp_path: Path) -> None:
    (shard,) = sharded(tmp_path / "in", [4], splits=[{"name": "train", "shardLengths": ["4"]}])
    shard.write_bytes(shard.read_bytes()[: end_of(shard.read_bytes(), 1)])
    done = import_rlds(tmp_path / "in", tmp_path / "out")
    assert (done.due, done.written, done.missing) == (4, 1, 3) and "holds 1 of 4 records" in done.gaps[0]


def test_without_lengths_an_absent_file_is_named_and_nothing_is_claimed_of_its_episodes(tmp_path: Path) -> None:
    shards = sharded(tmp_path / "in", [1, 1])
    shards[0].unlink()
    done = import_rlds(tmp_path / "in", tmp_path / "out")
    assert (done.due, done.missing) == (None, 0) and "an unknown number of episodes" in done.gaps[0]


@pytest.mark.thorough
def test_worker_processes_write_the_same_files_and_tell_the_same(tmp_path: Path) -> None:
    lengths = [2, 3]
    shards = sharded(tmp_path / "in", lengths, splits=[{"name": "train", "shardLengths": ["2", "4"]}])
    for shard in shards:
        data = bytearray(shard.read_bytes())
        data[40] ^= 1
        shard.write_bytes(bytes(data))
    told: dict[int, int] = {1: 0, 2: 0}

    def imported(workers: int) -> tuple[rlds.Imported, dict[str, bytes]]:
        out = tmp_path / f"out{workers}"

        def advance(count: int) -> None:
            told[workers] += count

        done = import_rlds(tmp_path / "in", out, workers=workers, advance=advance)
        return done, {path.name: path.read_bytes() for path in out.iterdir()}

    alone, together = imported(1), imported(2)
    assert alone == together and told == {1: 5, 2: 5}
    assert (alone[0].written, len(alone[0].damaged), alone[0].missing) == (3, 2, 1)


def test_imported_pictures_are_the_records_own_and_no_pixel_changes(tmp_path: Path) -> None:
    source = rt1_folder(tmp_path / "in", [rt1_record(3)], "mine")
    import_rlds(source, tmp_path / "out")
    path = tmp_path / "out" / "train_eps_00000000.npz"
    with np.load(path) as arrays:
        assert arrays["pictures"].tobytes() == b"".join(picture(10 * t) for t in range(3))
    assert read_episode(path).image[:, 0, 0].tolist() == [[10 * t, 0, 255 - 10 * t] for t in range(3)]


def test_an_imported_file_that_was_damaged_since_is_imported_again(tmp_path: Path) -> None:
    source, out = rt1_folder(tmp_path / "in", [rt1_record(2), rt1_record(2)], "mine"), tmp_path / "out"
    import_rlds(source, out)
    (out / "train_eps_00000001.npz").write_bytes(b"PK")
    again = import_rlds(source, out)
    assert (again.written, again.kept) == (1, 1) and not open_episodes(out).damaged


def test_an_image_that_claims_a_huge_size_costs_one_episode(tmp_path: Path) -> None:
    def claiming(side: int) -> bytes:
        header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in ((b"IHDR", header), (b"IDAT", zlib.compress(b"\0")), (b"IEND", b""))
        )

    records = [serialise({"steps/observation/image": [claiming(side)]}) for side in (30_000, 10_000)]
    done = import_rlds(rt1_folder(tmp_path / "in", [*records, rt1_record(2)]), tmp_path / "out")
    assert (
        done.written == 1
        and [line.partition(": ")[2] for line in done.damaged]
        == [f"an image claims more than {storage.PIXELS} pixels"] * 2
    )


@pytest.mark.parametrize(
    "features", [{"featuresDict": ["x"]}, group(steps={"sequence": 5}), group(steps={"featuresDict": {"features": 3}})]
)
def test_features_that_describe_nothing_are_one_line(tmp_path: Path, features: dict[str, Any]) -> None:
    source = rt1_folder(tmp_path / "in", [rt1_record(2)])
    (source / "features.json").write_text(json.dumps(features))
    with pytest.raises(OneiroError, match=r"features\.json does not describe a dataset .*; restore it"):
        import_rlds(source, tmp_path / "out")


def test_what_is_no_dataset_says_so(tmp_path: Path) -> None:
    for folder, words in ((tmp_path / "nowhere", "not a folder"), (tmp_path, "no features.json")):
        with pytest.raises(OneiroError, match=words):
            import_rlds(folder, tmp_path / "out")
    (tmp_path / "features.json").write_text("[]")
    with pytest.raises(OneiroError, match="not a JSON object"):
        import_rlds(tmp_path, tmp_path / "out")
    (tmp_path / "features.json").write_text("{}")
    with pytest.raises(OneiroError, match="is it an RLDS dataset"):
        import_rlds(tmp_path, tmp_path / "out")
    source = rt1_folder(tmp_path / "broken", [b"\xff"])
    with pytest.raises(OneiroError, match=r"no episode of fractal20220817_data could be read; .*record 0"):
        import_rlds(source, tmp_path / "out")
