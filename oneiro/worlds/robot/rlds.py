"""Real robot episodes in RLDS (the TFRecord form of Open X-Embodiment) as this project's episode files.

`features.json` says what a record holds: which names, shapes and image formats. A `FieldMap` says which of them become
frames, actions and instruction; without one the usual places are taken. Where the action is a group of several fields,
they are joined in alphabetical order: for RT-1 (`fractal20220817_data`) that gives its thirteen numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError, first_line, nearest
from oneiro.runtime.processes import each_done
from oneiro.worlds.robot import storage
from oneiro.worlds.robot.episodes import RobotEpisode, check_file, refuse_others, write_episode
from oneiro.worlds.robot.tfrecord import (
    Corrupt,
    Damage,
    Feature,
    example,
    read_bytes,
    read_floats,
    read_integers,
    records,
)

STEPS = "steps/"
NOTE = "rlds.json"
"""Beside imported episodes: the dataset and the fields they were made of."""
SHARD = re.compile(r"-([0-9]+)-of-([0-9]+)$")
"""How the name of one of several files of a split ends: which one it is, and how many there are."""
RT1_ACTION = (
    "base_displacement_vector",
    "base_displacement_vertical_rotation",
    "gripper_closedness_action",
    "rotation_delta",
    "terminate_episode",
    "world_vector",
)
"""The fields of RT-1's action in their order: 2 + 1 + 1 + 3 + 3 + 3 = 13 numbers."""


@dataclass(frozen=True)
class FieldMap:
    """Which fields of a record are used; names as in `features.json`, below `steps`."""

    image: str
    action: tuple[str, ...]
    instruction: str | None = None


KNOWN: dict[str, FieldMap] = {
    "fractal20220817_data": FieldMap(
        "observation/image",
        tuple(f"action/{name}" for name in RT1_ACTION),
        "observation/natural_language_instruction",
    ),
}
"""Datasets whose fields are known by name."""


@dataclass(frozen=True)
class RldsDataset:
    """An RLDS folder: its name, the leaves below `steps` with their descriptions, its files by split."""

    name: str
    leaves: Mapping[str, Mapping[str, Any]]
    files: Mapping[str, Sequence[Path]]
    shard_lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """How many records each file of a split should hold, where the dataset says so."""


@dataclass
class Imported:
    """What an import did."""

    written: int = 0
    kept: int = 0
    """Episodes whose files were there before, whole."""
    frames: int = 0
    damaged: list[str] = field(default_factory=list)
    """One line for each record that could not be used."""
    due: int | None = None
    """Episodes that the dataset says it has; None where it does not say."""
    missing: int = 0
    """Episodes that are due and of which no record was found, as far as the dataset says how many there are."""
    gaps: list[str] = field(default_factory=list)
    """One line for each file that is absent or ends too early."""

    def add(self, other: Imported) -> None:
        """Count what was done with one more file."""
        self.written, self.kept = self.written + other.written, self.kept + other.kept
        self.frames, self.missing = self.frames + other.frames, self.missing + other.missing
        self.damaged += other.damaged
        self.gaps += other.gaps


def open_dataset(folder: str | Path) -> RldsDataset:
    """Describe the dataset in `folder`, or the only one below it (`NAME/VERSION/`)."""
    folder = Path(folder)
    if not folder.is_dir():
        raise OneiroError(f"{folder} is not a folder; give the one that holds features.json and the .tfrecord files")
    described = (
        [folder / "features.json"] if (folder / "features.json").is_file() else sorted(folder.rglob("features.json"))
    )
    if len(described) != 1:
        there = "no features.json" if not described else f"{len(described)} datasets"
        raise OneiroError(f"{folder} holds {there}; give the folder of one dataset's version")
    place = described[0].parent
    try:
        features = dict(_leaves(_json(described[0])))
    except (ValueError, RecursionError) as error:
        raise OneiroError(f"{described[0]} does not describe a dataset ({error}); restore it") from error
    leaves = {name.removeprefix(STEPS): leaf for name, leaf in features.items() if name.startswith(STEPS)}
    splits: dict[str, list[Path]] = {}
    for path in sorted(path for path in place.iterdir() if ".tfrecord" in path.name and path.is_file()):
        # DATASET-SPLIT.tfrecord-00000-of-00001
        splits.setdefault(path.name.partition(".tfrecord")[0].rpartition("-")[2], []).append(path)
    if not leaves or not splits:
        raise OneiroError(f"{place} describes no steps or holds no .tfrecord files; is it an RLDS dataset?")
    info = _json(place / "dataset_info.json") if (place / "dataset_info.json").is_file() else {}
    return RldsDataset(str(info.get("name") or place.name), leaves, splits, _shard_lengths(info))


def choose_fields(
    dataset: RldsDataset, image: str | None = None, action: Sequence[str] = (), instruction: str | None = None
) -> FieldMap:
    """The fields to use: what the caller names, else what is known of the dataset, else the usual places."""
    known = KNOWN.get(dataset.name)
    images = [name for name, leaf in dataset.leaves.items() if "image" in leaf]
    if image is None:
        image = known.image if known else _usual(images)
    if not action:
        action = known.action if known else _group(dataset, "action")
    else:
        action = [leaf for name in action for leaf in _group(dataset, name)]
    if instruction is None:
        instruction = known.instruction if known else _first(dataset.leaves, "instruction")
    for name in (image, *action, *([instruction] if instruction else [])):
        if name not in dataset.leaves:
            raise OneiroError(f"{dataset.name} has no field '{name}'{nearest(name, dataset.leaves)}")
    if image not in images:
        raise OneiroError(f"'{image}' of {dataset.name} is no image; images: {', '.join(images) or 'none'}")
    return FieldMap(image, tuple(action), instruction)


def import_rlds(
    source: str | Path,
    out: str | Path,
    *,
    image: str | None = None,
    action: Sequence[str] = (),
    instruction: str | None = None,
    workers: int = 1,
    advance: Callable[[int], Any] = lambda count: None,
) -> Imported:
    """Write every episode below `source` to `out` as `SPLIT_eps_00000000.npz`. Files that are there and whole are kept,
    and must have been made of the same fields. `workers` processes take a file of records each; `advance` hears of
    episodes, with several workers when a file is done.
    """
    dataset = open_dataset(source)
    fields = choose_fields(dataset, image, action, instruction)
    note, made = Path(out) / NOTE, {"dataset": dataset.name, **asdict(fields), "action": list(fields.action)}
    refuse_others(note, made, "episodes")
    if not note.exists() and any(Path(out).glob("*_eps_*.npz")):
        raise OneiroError(f"{out} holds episodes and no {NOTE} that says what they were made of; choose another --out")
    work = Work(dataset, fields, note, made)
    shards = [(split, path) for split in sorted(dataset.files) for path in dataset.files[split]]
    done = Imported(due=due(dataset))
    for line, missing in absent(dataset):
        done.gaps.append(line)
        done.missing += missing or 0
    if workers <= 1 or len(shards) == 1:
        parts = {number: import_file(work, *shard, advance) for number, shard in enumerate(shards)}
    else:
        parts = {}
        for number, part in each_done(_import_numbered, ((n, work, *shard) for n, shard in enumerate(shards)), workers):
            parts[number] = part
            advance(part.written + part.kept + len(part.damaged))
    for number in sorted(parts):  # the order of files, however the processes took turns
        done.add(parts[number])
    if not done.written + done.kept:
        reason = [*done.damaged, *done.gaps, "its files hold no records"][0]
        raise OneiroError(f"no episode of {dataset.name} could be read; {reason}")
    return done


@dataclass(frozen=True)
class Work:
    """What an import does with every file."""

    dataset: RldsDataset
    fields: FieldMap
    note: Path
    """Beside the episodes; a folder with episodes always has it."""
    made: Mapping[str, Any]
    """What it says."""


def import_file(work: Work, split: str, path: Path, advance: Callable[[int], Any] = lambda count: None) -> Imported:
    """Write the episodes of one file of records."""
    prefix, first, length = _numbering(work.dataset, split, path)
    done, read_count = Imported(), 0
    for place, record in records(path):
        target = work.note.parent / f"{prefix}_eps_{first + place:08d}.npz"
        try:
            if isinstance(record, Damage):
                raise Corrupt(record.reason)
            if length is not None and place >= length:
                raise Corrupt(f"dataset_info.json knows {length} records of this file")
            frames = _whole_frames(target)
            if frames is None:
                episode, pictures = _episode(work.dataset, work.fields, record)
                # Before the first episode: a folder with episodes always says what they were made of.
                if not done.written and not work.note.exists():
                    files.write_json(work.note, work.made)
                write_episode(target, episode, pictures)
                done.written, frames = done.written + 1, len(episode)
            else:
                done.kept += 1
            done.frames += frames
        except (Corrupt, ValueError, OSError, SyntaxError) as error:  # the last two: Pillow, of broken images
            done.damaged.append(str(Damage(path, place, first_line(error, 160))))
        read_count = place + 1
        advance(1)
    if length is not None and read_count < length:
        done.missing = length - read_count
        done.gaps.append(f"{path.name}: it holds {read_count} of {length} records")
    return done


def _import_numbered(number: int, work: Work, split: str, path: Path) -> tuple[int, Imported]:
    """The same in another process, where files are done in any order."""
    return number, import_file(work, split, path)


def _whole_frames(path: Path) -> int | None:
    """How many frames an episode file has that is there and whole."""
    try:
        return check_file(path).frames if path.exists() else None
    except OneiroError:
        return None


def due(dataset: RldsDataset) -> int | None:
    """Episodes of all splits, where the dataset says how many each has."""
    known = {split: sum(lengths) for split, lengths in dataset.shard_lengths.items() if lengths}
    return sum(known.values()) if known and set(dataset.files) <= set(known) else None


def absent(dataset: RldsDataset) -> Iterator[tuple[str, int | None]]:
    """A line for each split that lacks files, and how many episodes they hold if the dataset says so."""
    for split in sorted({*dataset.files, *dataset.shard_lengths}):
        lengths, paths = dataset.shard_lengths.get(split, ()), dataset.files.get(split, ())
        named = [match for path in paths if (match := SHARD.search(path.name))]
        if len(named) < len(paths):
            continue  # files that are not numbered say nothing of others
        there, count = {int(match[1]) for match in named}, max([len(lengths), *(int(match[2]) for match in named)])
        if len(there) < count:
            known = len(lengths) == count
            missing = sum(length for number, length in enumerate(lengths) if number not in there) if known else None
            first = next(number for number in range(count) if number not in there)
            yield (
                f"{split}: {count - len(there)} of {count} files are not there, the first is number {first:05d}; "
                f"they hold {missing if known else 'an unknown number of'} episodes",
                missing,
            )


def _numbering(dataset: RldsDataset, split: str, path: Path) -> tuple[str, int, int | None]:
    """How the episodes of one file are called: a prefix, the number of the first, and how many there may be.

    A name must not depend on what can be read of other files, or a repaired file would rename their episodes. So
    numbers run on from file to file only where the dataset says how long each is; else the file is part of the prefix.
    """
    lengths = dataset.shard_lengths.get(split, ())
    match = SHARD.search(path.name)
    shard, count = (int(match[1]), int(match[2])) if match else (0, len(dataset.files[split]))
    if count == 1:
        return split, 0, lengths[0] if len(lengths) == 1 else None
    if match and len(lengths) == count > shard:
        return split, sum(lengths[:shard]), lengths[shard]
    return f"{split}-{shard:05d}" if match else f"{split}-{path.name.partition('.tfrecord')[0]}", 0, None


def _episode(dataset: RldsDataset, fields: FieldMap, record: bytes) -> tuple[RobotEpisode, list[bytes]]:
    """An episode, and its frames as the record holds them."""
    features = example(record)
    pictures = read_bytes(_pick_feature(features, fields.image))
    if not pictures:
        raise Corrupt(f"{fields.image} holds no frames")
    size = _shape(dataset.leaves[fields.image])[:2]
    image = np.stack([storage.decode(picture, size) for picture in pictures])
    parts = [_numbers(_pick_feature(features, name), dataset.leaves[name], name, len(image)) for name in fields.action]
    info: dict[str, Any] = {"dataset": dataset.name}
    if fields.instruction:
        instruction = read_bytes(_pick_feature(features, fields.instruction))
        info["instruction"] = instruction[0].decode("utf-8", "replace") if instruction else ""
    return RobotEpisode(image, np.concatenate(parts, axis=1), info), pictures


def _pick_feature(features: Mapping[str, Feature], name: str) -> Feature:
    if STEPS + name not in features:
        raise Corrupt(f"it has no {STEPS}{name}")
    return features[STEPS + name]


def _numbers(feature: Feature, leaf: Mapping[str, Any], name: str, frames: int) -> np.ndarray:
    """A field's numbers `[T, width]` float32, whether stored as floats or integers."""
    width = int(np.prod(_shape(leaf), dtype=np.int64))
    values = read_floats(feature)
    if not len(values):
        # TFRecord has one list for each type, and the others are empty.
        values = read_integers(feature).astype(np.float32)
    if len(values) != frames * width:
        raise Corrupt(f"{name} has {len(values)} numbers where {frames} frames of {width} need {frames * width}")
    return values.reshape(frames, width).astype(np.float32)


def _leaves(node: Any, path: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Names and descriptions of the leaves of a `features.json`. Sequences are not part of a name."""
    if not isinstance(node, Mapping):
        return
    if "featuresDict" in node:
        for name, inner in _inside(node, "featuresDict", "features").items():
            yield from _leaves(inner, f"{path}/{name}" if path else name)
    elif "sequence" in node:
        yield from _leaves(_inside(node, "sequence", "feature"), path)
    elif path and node:
        yield path, node


def _inside(node: Mapping[str, Any], kind: str, key: str) -> Mapping[str, Any]:
    """What a node of the given kind holds below `key`."""
    held = node[kind].get(key) or {} if isinstance(node[kind], Mapping) else None
    if not isinstance(held, Mapping):
        raise ValueError(f"a {kind} has no {key}")
    return held


def _shard_lengths(info: Mapping[str, Any]) -> dict[str, list[int]]:
    """Records in each file of each split, as `dataset_info.json` has them; nothing where it is written otherwise."""
    try:
        return {split["name"]: [int(length) for length in split.get("shardLengths", ())] for split in info["splits"]}
    except (KeyError, TypeError, ValueError, AttributeError):
        return {}


def _shape(leaf: Mapping[str, Any]) -> tuple[int, ...]:
    """A leaf's shape; dimensions that are not fixed make it unknown, which is empty."""
    inner: Any = next((leaf[kind] for kind in ("tensor", "image") if kind in leaf), {})
    try:
        sides = tuple(int(side) for side in (inner.get("shape") or {}).get("dimensions") or ())
    except (TypeError, ValueError, AttributeError):
        return ()
    return sides if all(side > 0 for side in sides) else ()


def _group(dataset: RldsDataset, name: str) -> tuple[str, ...]:
    """A field, or all fields below a group in alphabetical order."""
    below = tuple(sorted(leaf for leaf in dataset.leaves if leaf.startswith(f"{name}/")))
    return below or (name,)


def _usual(images: Sequence[str]) -> str:
    """The camera most datasets mean: called `image`, else the first that is neither on the wrist nor of depth."""
    for name in ("observation/image", "observation/image_0", "observation/rgb"):
        if name in images:
            return name
    plain = sorted(name for name in images if not any(word in name for word in ("depth", "wrist", "hand")))
    if not plain:
        raise OneiroError(f"say which camera to use with --image; images: {', '.join(images) or 'none'}")
    return plain[0]


def _first(leaves: Mapping[str, Mapping[str, Any]], word: str) -> str | None:
    return next((name for name, leaf in sorted(leaves.items()) if word in name and "text" in leaf), None)


def _json(path: Path) -> dict[str, Any]:
    data = files.read_json(path)
    if not isinstance(data, dict):
        raise OneiroError(f"{path} is not a JSON object; restore it")
    return data
