"""Anyone's predicted frames, scored beside the last given frame and the nearest training segment.

A file has a segment a line: the recorded frames as a file of numpy (`[T, H, W, 3]`, bytes), how many of them the model
was given, and files of its predictions of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.models.video.tokenizer import pixels
from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.tasks.scorer import compare, predictions_of, read_rows, require
from oneiro.tasks.video import measures

Frames = NDArray[np.uint8]
MAX_BYTES = 1 << 30  # of the frames of a segment
FIGURES = ("psnr", "ssim", "mae", "mse")


@dataclass(frozen=True)
class ScoredSegment:
    """One line of a file. Frames are read when they are needed."""

    episode: str
    place: str
    frames: Path
    given: int
    actions: NDArray[np.float64]
    predictions: Mapping[str, Path]

    def true(self) -> tuple[Frames, Frames]:
        """The last frame that was given, [H, W, 3], and the ones to predict, [F, H, W, 3]."""
        frames = read_frames(self.frames, self.place)
        if not 1 <= self.given < len(frames):
            raise OneiroError(f"{self.place}: 'given' is {self.given} of {len(frames)} frames; 1 or more, not all")
        return frames[self.given - 1], frames[self.given :]

    def predicted(self, name: str) -> Frames:
        if name not in self.predictions:
            raise OneiroError(f"{self.place} has no prediction of '{name}', which other lines have")
        return read_frames(self.predictions[name], self.place)


def score(pairs: Path, train: Path | None = None) -> list[Table]:
    """The table of a file of predictions; the segments of `train` are what the lookup looks among."""
    segments, learned = list(read_segments(pairs)), list(read_segments(train, False)) if train is not None else []
    names = list(dict.fromkeys(name for segment in segments for name in segment.predictions))
    answers: dict[str, Callable[[ScoredSegment, Frames, Frames], Frames]] = {
        "copy of the last frame": lambda segment, last, future: np.broadcast_to(last, future.shape)
    }
    if learned:
        answers["lookup: the nearest segment"] = FrameLookup(learned)
    floors = list(answers)
    answers |= {name: lambda segment, last, future, name=name: segment.predicted(name) for name in names}  # type: ignore[misc]
    rows: dict[str, list[list[float]]] = {name: [] for name in answers}
    for segment in segments:
        last, future = segment.true()
        for name, answer in answers.items():
            frames = answer(segment, last, future)
            if frames.shape != future.shape:
                raise OneiroError(f"{segment.place}: {name} is {list(frames.shape)}, the future {list(future.shape)}")
            measured = measures.measure(pixels(frames), pixels(future))
            rows[name].append([float(measured[figure].mean()) for figure in FIGURES])
    figures = {name: dict(zip(FIGURES, np.array(values).T, strict=True)) for name, values in rows.items()}
    everything = np.ones(len(segments), bool)
    note = "Means over frames and segments. Intervals are over episodes; the last column is PSNR over the better floor."
    clusters = np.array([segment.episode for segment in segments])
    return [compare("Predicted frames", figures, FIGURES, "psnr", everything, clusters, floors, note)]


class FrameLookup:
    """The future of the training segment whose last given frame and actions are nearest."""

    def __init__(self, train: list[ScoredSegment]) -> None:
        self.train = train
        self.last = np.stack([segment.true()[0].astype(np.float32) / 255 for segment in train])
        """[N, H, W, 3]: all that is kept of the training frames."""
        widths = {segment.actions.shape[1] for segment in train}
        if len(widths) > 1:
            raise OneiroError(f"actions of train have {' and '.join(map(str, sorted(widths)))} numbers; give one kind")
        # Segments are on average 1 from the mean, in pixels as in each entry of an action.
        self.pixel_scale = float(_inverse(np.abs(self.last - self.last.mean(axis=0)).mean()))
        actions = np.concatenate([segment.actions for segment in train])
        self.scales = _inverse(np.abs(actions - actions.mean(axis=0)).mean(axis=0)) if len(actions) else 0.0

    def __call__(self, segment: ScoredSegment, last: Frames, future: Frames) -> Frames:
        if last.shape != self.last.shape[1:]:
            raise OneiroError(f"{segment.place}: frames are {list(last.shape)}, those of train {self.last.shape[1:]}")
        distance = np.abs(self.last - last.astype(np.float32) / 255).mean(axis=(1, 2, 3)) * self.pixel_scale
        for number, other in enumerate(self.train):
            if segment.actions.shape == other.actions.shape and segment.actions.size:
                distance[number] += (np.abs(segment.actions - other.actions) * self.scales).mean()
        nearest = self.train[int(distance.argmin())].true()[1]
        # A shorter one stands still at its end.
        return nearest[np.minimum(np.arange(len(future)), len(nearest) - 1)]


def _inverse(spread: Any) -> NDArray[np.float64]:
    """What never varies in training counts nothing."""
    spread = np.asarray(spread, np.float64)
    return np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)


def read_segments(path: Path, predicted: bool = True) -> Iterator[ScoredSegment]:
    for place, row in read_rows(path):
        require(place, row, "frames", "given", "episode")
        given = predictions_of(place, row, predicted)
        if not isinstance(row["given"], int) or not all(
            isinstance(name, str) for name in (row["frames"], *given.values())
        ):
            raise OneiroError(f"{place}: 'given' is a number, frames and predictions are names of .npy files")
        files = {str(name): path.parent / file for name, file in given.items()}
        yield ScoredSegment(
            str(row["episode"]), place, path.parent / row["frames"], row["given"], _actions(place, row), files
        )


def _actions(place: str, row: Mapping[str, Any]) -> NDArray[np.float64]:
    """[T, A], one for each frame; [0, 0] where there are none."""
    try:
        actions = np.array(row.get("actions", np.zeros((0, 0))), np.float64)
    except (ValueError, TypeError) as error:
        raise OneiroError(f"{place}: 'actions' are no list of equally long lists of numbers") from error
    if actions.ndim != 2 or not np.isfinite(actions).all():
        raise OneiroError(f"{place}: 'actions' are no list of equally long lists of numbers")
    return actions


def read_frames(path: Path, place: str) -> Frames:
    """Frames of a file that somebody else wrote: its head is looked at before the rest, and nothing is unpickled."""
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise OneiroError(f"{place}: cannot read {path} ({first_line(error, 80)}); give frames as .npy") from error
    shape: tuple[int, ...] = getattr(mapped, "shape", ())
    if len(shape) != 4 or shape[3] != 3 or not len(mapped) or mapped.dtype != np.uint8 or mapped.nbytes > MAX_BYTES:
        raise OneiroError(f"{place}: {path} is {list(shape)}; frames are bytes [T, H, W, 3], at most 1 GiB")
    if min(shape[1:3]) < measures.WINDOW:
        raise OneiroError(f"{place}: {path} has frames of {shape[1]}x{shape[2]}; SSIM needs {measures.WINDOW} pixels")
    return np.array(mapped)
