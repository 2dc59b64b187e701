"""Episodes of a robot as files: one npz each, a folder of them is a dataset.

Frames are uint8 `[T, H, W, 3]`, `action` float32 `[T, A]`: action t was taken when frame t was seen and leads to frame
t + 1, so the last action is a placeholder. Beside the two, a file may hold `info` (JSON: task, instruction, seed, ...)
and further arrays with one entry a frame, here called signals (`opening`: how far the drawer is open). Files of the
RT-1 converter, which hold `image` and `action` only and are compressed, are read as they are.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.seeds import derive, generator
from oneiro.worlds.robot import storage

TEST_EVERY = 100
"""One file in this many, by the number in its name, belongs to the test split."""
Part = TypeVar("Part")


@dataclass(frozen=True)
class RobotEpisode:
    """Frames, the actions taken at them, what is known about the episode, and further numbers per frame."""

    image: np.ndarray
    action: np.ndarray
    info: dict[str, Any] = field(default_factory=dict)
    signals: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        image, action = self.image, self.action
        if image.dtype != np.uint8 or image.ndim != 4 or image.shape[3] != 3 or not len(image):
            raise ValueError(f"image must be uint8 [T, H, W, 3], got {image.dtype} {list(image.shape)}")
        if action.ndim != 2 or len(action) != len(image):
            raise ValueError(f"action must be [{len(image)}, A], one row a frame, got {list(action.shape)}")
        if not np.isfinite(action).all():
            raise ValueError("action holds numbers that are not finite")
        for name, values in self.signals.items():
            if len(values) != len(image):
                raise ValueError(f"{name} has {len(values)} entries for {len(image)} frames")

    def __len__(self) -> int:
        return len(self.image)

    def part(self, start: int, length: int) -> RobotEpisode:
        """`length` consecutive frames from `start` on."""
        if not 0 <= start <= len(self) - length or length < 1:
            raise OneiroError(f"frames {start} to {start + length - 1} are not in an episode of {len(self)} frames")
        cut = slice(start, start + length)
        signals = {name: values[cut] for name, values in self.signals.items()}
        return replace(self, image=self.image[cut], action=self.action[cut], signals=signals)


def write_episode(path: str | Path, episode: RobotEpisode, pictures: Sequence[bytes] | None = None) -> None:
    """Write an episode file, whole or not at all, with a checksum for every frame.

    `pictures` are the episode's frames as JPEG or PNG: they are stored as they are, in the place of pixels.
    """
    frames = storage.pixels(episode.image) if pictures is None else storage.pictures(pictures)
    info = np.frombuffer(json.dumps(episode.info).encode(), np.uint8)
    storage.save(path, {**frames, "action": episode.action.astype(np.float32), "info": info, **episode.signals})


def read_episode(path: str | Path) -> RobotEpisode:
    """Read an episode file; a damaged one is an error that names it. Nothing in it is ever unpickled."""
    return _of_file(path, lambda archive: _episode(storage.read(archive)))


def read_segment(path: str | Path, start: int, length: int) -> RobotEpisode:
    """`length` consecutive frames of an episode file from `start` on, without reading the others where it has sums."""

    def segment(archive: zipfile.ZipFile) -> RobotEpisode:
        frames = storage.shape_of(archive).frames
        cut = slice(start, start + length)
        there = 0 <= start <= frames - length and length > 0
        image = storage.few_frames(archive, range(start, start + length)) if there else None
        # Files of other converters have no checksum for each frame: all of it must be read to know that a part is
        # whole.
        if image is None:
            return _episode(storage.read(archive)).part(start, length)
        rest = storage.read(archive, lambda name: name not in storage.FRAMES)
        info = _info(rest)
        if any(len(values) != frames for values in rest.values()):
            raise ValueError(f"not every array has {frames} entries")
        action = rest.pop("action")[cut].astype(np.float32)
        return RobotEpisode(image, action, info, {name: values[cut] for name, values in rest.items()})

    return _of_file(path, segment)


def check_file(path: str | Path) -> storage.StoredShape:
    """Whether a file is whole: every byte is compared with its checksum, pictures are not decoded."""

    def check(archive: zipfile.ZipFile) -> storage.StoredShape:
        arrays = storage.read(archive)
        if storage.PICTURES in arrays and storage.ENDS in arrays:
            packed, ends = arrays.pop(storage.PICTURES), arrays.pop(storage.ENDS)
            arrays.pop(storage.SUMS, None)
            # Frames of one black pixel in the place of pictures: shapes are compared without decoding any.
            arrays[storage.IMAGE] = np.zeros((len(storage.bounds(ends, packed.nbytes)), 1, 1, 3), np.uint8)
        return storage.StoredShape(*_episode(arrays).action.shape)

    return _of_file(path, check)


def _episode(arrays: storage.Arrays) -> RobotEpisode:
    info, image = _info(arrays), storage.take_frames(arrays)
    return RobotEpisode(image, arrays.pop("action").astype(np.float32), info, arrays)


def _of_file(path: str | Path, work: Callable[[zipfile.ZipFile], Part]) -> Part:
    """What `work` makes of a file; an error that names the file where it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return work(archive)
    except storage.BROKEN as error:
        raise OneiroError(f"{path} is damaged ({first_line(error, 160)}); remove it or restore it") from error


@dataclass(frozen=True)
class Episodes:
    """A dataset: files in order, how many frames each has, and the files left out because they are damaged."""

    paths: tuple[Path, ...]
    lengths: tuple[int, ...]
    damaged: tuple[tuple[Path, str], ...] = ()
    """Files that were left out, with the reason."""
    every: int = TEST_EVERY

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> RobotEpisode:
        return read_episode(self.paths[index])

    def __iter__(self) -> Iterator[RobotEpisode]:
        return (read_episode(path) for path in self.paths)

    @cached_property
    def train(self) -> Episodes:
        """The episodes that are not in `test`."""
        return self.where(lambda path: number_of(path) % self.every != 0)

    @cached_property
    def test(self) -> Episodes:
        """Every `every`-th episode by its number, 0 included. Other files of the folder have no say in that."""
        return self.where(lambda path: number_of(path) % self.every == 0)

    def segment(self, index: int, start: int, length: int) -> RobotEpisode:
        """`length` consecutive frames of one episode."""
        return read_segment(self.paths[index], start, length)

    def frames(self, index: int, places: Sequence[int]) -> np.ndarray | None:
        """Some frames of one episode, uint8 `[len(places), H, W, 3]`; None where its file must be read as a whole."""
        return _of_file(self.paths[index], lambda archive: storage.few_frames(archive, places))

    def action(self, index: int) -> np.ndarray:
        """The actions of one episode `[T, A]`, without touching the frames."""
        return next(replace(self, paths=(self.paths[index],), lengths=(self.lengths[index],)).actions())

    def windows(self, length: int) -> np.ndarray:
        """Every (episode, start) of a segment of `length` frames, `[N, 2]`: shuffle it, and an epoch is an epoch."""
        rows = [(index, start) for index, frames in enumerate(self.lengths) for start in range(frames - length + 1)]
        return np.array(rows, np.int64).reshape(-1, 2)

    def fixed_windows(self, length: int, seed: int = 0) -> np.ndarray:
        """One (episode, start) for each episode that is long enough, `[N, 2]`: the same ones every time."""
        rows = [
            (index, int(generator("segment", seed, path.name).integers(frames - length + 1)))
            for index, (path, frames) in enumerate(zip(self.paths, self.lengths, strict=True))
            if frames >= length
        ]
        return np.array(rows, np.int64).reshape(-1, 2)

    def actions(self) -> Iterator[np.ndarray]:
        """Each episode's actions `[T, A]`, without touching the frames."""
        return self._each("action", lambda arrays: arrays["action"].astype(np.float32))

    def infos(self) -> Iterator[dict[str, Any]]:
        """What is known about each episode, without touching the frames."""
        return self._each("info", _info)

    def _each(self, wanted: str, decode: Callable[[dict[str, np.ndarray]], Part]) -> Iterator[Part]:
        for path in self.paths:
            yield _of_file(path, lambda archive: decode(storage.read(archive, lambda name: name == wanted)))

    def where(self, keep: Callable[[Path], bool]) -> Episodes:
        """The episodes whose file is kept."""
        kept = [index for index, path in enumerate(self.paths) if keep(path)]
        return replace(self, paths=tuple(self.paths[i] for i in kept), lengths=tuple(self.lengths[i] for i in kept))


def number_of(path: Path) -> int:
    """The number a file's name ends with, else one made of the name.

    The split hangs on it and on nothing else, so that files which come, go or break move no other file across. Where
    the files of a folder are numbered without a gap, as the RT-1 converter does, this is the place in sorted order.
    """
    digits = re.search(r"[0-9]+$", path.stem)
    return int(digits.group()) if digits else derive("episode", path.stem)


def open_episodes(
    folder: str | Path, *, every: int = TEST_EVERY, verify: bool = True, without: Collection[str] = ()
) -> Episodes:
    """The episodes of a folder, sorted by name. Damaged files are left out and named in `damaged`.

    `verify` reads every file once and compares its checksums; without it only headers are
    read, and a file that is damaged inside is noticed when it is first used. Files named in `without` are passed over:
    whoever verified a folder once need not do so again.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise OneiroError(f"{folder} is not a folder of episodes; make one with oneiro data robot or oneiro data rlds")
    paths = sorted(path for path in folder.glob("*.npz") if not path.name.startswith(".") and path.name not in without)
    if not paths:
        raise OneiroError(f"{folder} holds no episode files (*.npz); make some with oneiro data robot")
    whole: list[tuple[Path, int, int]] = []
    damaged: list[tuple[Path, str]] = []
    for path in paths:
        try:
            whole.append((path, *(check_file(path) if verify else _of_file(path, storage.shape_of))))
        except OneiroError as error:
            damaged.append((path, str(error)))
    if not whole:
        raise OneiroError(f"none of the {len(paths)} episode files in {folder} can be read; the first: {damaged[0][1]}")
    # A model learns actions of one width; mixed folders would fail in the middle of training.
    first, _, known = whole[0]
    for path, _, entries in whole:
        if entries != known:
            raise OneiroError(
                f"{folder} mixes actions of {known} numbers ({first.name}) and of {entries} ({path.name}); "
                "keep one kind in a folder"
            )
    return Episodes(tuple(path for path, _, _ in whole), tuple(frames for _, frames, _ in whole), tuple(damaged), every)


def is_whole(path: Path) -> bool:
    """Whether a file is there and can be read to its end."""
    try:
        check_file(path)
    except OneiroError:
        return False
    return True


def refuse_others(note: Path, made: Mapping[str, Any], what: str) -> None:
    """Episodes of a folder are made alike: an error where the note beside them says that theirs were made otherwise."""
    for key, value in (files.read_json(note) if note.exists() else {}).items():
        if made.get(key) != value:
            raise OneiroError(
                f"{note.parent} holds {what} made with {key}={value}, not {made.get(key)}; "
                "choose another --out or the same settings"
            )


def _info(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Takes what is known about an episode out of its arrays."""
    info = json.loads(arrays.pop("info").tobytes()) if "info" in arrays else {}
    if not isinstance(info, dict):
        raise ValueError("info is not a JSON object")
    return info


@dataclass(frozen=True)
class ActionBins:
    """Actions as small integers: each dimension's range is cut into `bins` equal parts, values outside are clipped."""

    low: np.ndarray
    high: np.ndarray
    bins: int = 256

    @classmethod
    def fit(
        cls, episodes: Episodes, bins: int = 256, quantiles: tuple[float, float] | None = (0.01, 0.99)
    ) -> ActionBins:
        """Ranges from the data: between two quantiles, or with None the plain minimum and maximum.

        Minimum and maximum are what the release uses; one outlier then leaves most of the bins empty. A dimension
        that is constant between the quantiles (a rarely used one) falls back to its minimum and maximum.
        """
        return cls.of(np.concatenate(list(episodes.actions())), bins, quantiles)

    @classmethod
    def of(cls, actions: np.ndarray, bins: int = 256, quantiles: tuple[float, float] | None = None) -> ActionBins:
        """The same from actions `[N, A]` in memory."""
        least, most = actions.min(axis=0), actions.max(axis=0)
        low, high = (least, most) if quantiles is None else np.quantile(actions, quantiles, axis=0)
        flat = high <= low
        low, high = np.where(flat, least, low), np.where(flat, most, high)
        return cls(low.astype(np.float64), high.astype(np.float64), bins)

    def encode(self, actions: np.ndarray) -> np.ndarray:
        """Bins `[..., A]` int64 of actions `[..., A]`."""
        if not np.isfinite(actions).all():
            raise ValueError("actions must be finite numbers")
        # The small number is for a dimension that never changes.
        share = np.clip((actions - self.low) / (self.high - self.low + 1e-8), 0.0, 1.0)
        # The upper end of the range belongs to the last bin.
        return np.minimum((share * self.bins).astype(np.int64), self.bins - 1)

    def decode(self, bins: np.ndarray) -> np.ndarray:
        """The middles of bins `[..., A]`, float32."""
        middle = (np.asarray(bins) + 0.5) / self.bins
        return (self.low + middle * (self.high - self.low)).astype(np.float32)

    def data(self) -> dict[str, Any]:
        """As plain JSON; `read` takes it back."""
        return {"low": self.low.tolist(), "high": self.high.tolist(), "bins": self.bins}

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> ActionBins:
        try:
            low, high = np.array(data["low"], np.float64), np.array(data["high"], np.float64)
            bins = int(data["bins"])
        except (KeyError, TypeError, ValueError) as error:
            raise OneiroError(f"not action ranges: {first_line(error, 160)}; fit them again") from error
        if low.ndim != 1 or low.shape != high.shape or bins < 2 or not (np.isfinite(low) & np.isfinite(high)).all():
            raise OneiroError("not action ranges: two lists of finite numbers of one length are needed; fit them again")
        return cls(low, high, bins)

    def save(self, path: str | Path) -> None:
        files.write_json(path, self.data())

    @classmethod
    def load(cls, path: str | Path) -> ActionBins:
        return cls.read(files.read_json(path))
