"""How good predicted frames are: fixed measures on test segments, beside copying and the tokenizer's ceiling.

Every row of the tables is an array [segments, runs, frames] for each measure; a baseline has one run. An episode counts
as the mean of its segments, runs and frames, and means and intervals are over episodes: segments of one resemble each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneiro.models.video.perceptual import Lpips
from oneiro.models.video.tokenizer import pixels
from oneiro.report import stats
from oneiro.report.table import Cell, Table
from oneiro.runtime import files, seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.video import measures
from oneiro.tasks.video.data import fixed_windows
from oneiro.tasks.video.dataset import Clips, Images, VideoDataset, Windows, resize
from oneiro.tasks.video.encodings import Encodings
from oneiro.tasks.video.model import PRETRAIN, VideoMetadata, VideoModel, open_model
from oneiro.tasks.video.predictor import Encoded, VideoPredictor
from oneiro.worlds.robot.episodes import Episodes, open_episodes

COPY, LOOKUP, CEILING = "copy last frame", "lookup", "tokenizer (ceiling)"
TITLES = {
    "mse": "MSE x 100",
    "moving": "MSE of moving pixels x 100",
    "psnr": "PSNR",
    "ssim": "SSIM x 100",
    "alex": "LPIPS Alex x 100",
    "vgg": "LPIPS VGG x 100",
    "reward": "reward",
}
"""Columns, in the paper's units."""
SCALES = {"mse": 100.0, "moving": 100.0, "ssim": 100.0, "alex": 100.0, "vgg": 100.0}
UP = ("psnr", "ssim", "reward")
"""More is better; of the others less."""

Advance = Callable[[int], None]
Values = NDArray[np.float32]


@dataclass(frozen=True)
class Measured:
    """One row of the tables: each measure, and which frames are the one before them, token for token; [N, S, F] all."""

    values: dict[str, Values]
    repeats: NDArray[np.bool_]
    frames: NDArray[np.int32] | None = None
    """Sampled tokens [N, F, Z] of the first run."""

    def save(self, path: Path) -> None:
        arrays: dict[str, np.ndarray] = {f"value_{name}": array for name, array in self.values.items()}
        arrays["repeats"] = self.repeats
        if self.frames is not None:
            arrays["frames"] = self.frames

        def write(part: Path) -> None:
            with part.open("wb") as handle:
                np.savez_compressed(handle, **arrays)  # type: ignore[arg-type]

        files.write_with(path, write)

    @classmethod
    def load(cls, path: Path) -> Measured:
        with np.load(path, allow_pickle=False) as arrays:
            values = {name.removeprefix("value_"): arrays[name] for name in arrays.files if name.startswith("value_")}
            return cls(values, arrays["repeats"], arrays["frames"] if "frames" in arrays.files else None)


class SegmentEvaluation:
    """Test segments, and what is measured on them. The context of a segment is its first given frame, never another."""

    def __init__(self, task: VideoPredictor, dataset: VideoDataset, windows: Windows, networks: Sequence[str]) -> None:
        self.task, self.dataset, self.windows = task, dataset, windows
        self.encodings = Encodings(dataset, task)
        for name in networks:
            if reason := measures.too_small(name, task.tokenizer.settings.height, task.tokenizer.settings.width):
                raise OneiroError(reason)
        self.networks = {name: Lpips.load(name, task.tokenizer.device) for name in networks}  # type: ignore[arg-type]

    @property
    def episodes(self) -> NDArray[np.int64]:
        """[N]: which episode a segment is of."""
        return self.windows[:, 0]

    def model(self, engine: Engine, sampling: SamplingSettings, runs: int, seed: int, advance: Advance) -> Measured:
        """Sample `runs` futures of every segment and measure them."""
        parts, first = [], []
        for part in self._parts(runs):
            clips, cases = self._read(part)
            samples = self.task.sample(engine, cases, runs, sampling, seed + part.start)
            frames = self.task.frames_of(samples)
            made, repeats = self.task.decode(cases.context, frames), self.task.repeats(cases, frames)
            parts.append(self._score(made, clips, cases, repeats))
            first.append(frames[:, 0])  # the report shows one future of each segment
            advance(len(clips))
        return join(parts, np.concatenate(first))

    def baselines(self, train: VideoDataset | None = None) -> dict[str, Measured]:
        """Copying the last given frame, the future of the nearest training segment, and the true frames through the
        tokenizer; all are rewarded like a model.
        """
        rows: dict[str, list[Measured]] = {}
        lookup = VideoLookup(train, self.task.layout.past) if train is not None else None
        for part in self._parts(1):
            clips, cases = self._read(part)
            true = cases.frames[:, None, self.task.layout.past :]
            # Ones: every copied frame repeats the one before and pays for it. A looked-up future moves, so zeros.
            shown = {COPY: (self.task.copy_frames(clips), np.ones(true.shape[:3], np.float32))}
            if lookup is not None:
                looked_up = pixels(lookup(clips), self.task.tokenizer.device)
                shown[LOOKUP] = looked_up, np.zeros(true.shape[:3], np.float32)
            shown[CEILING] = self.task.ceiling(cases), self.task.repeats(cases, true)
            for name, (made, repeats) in shown.items():
                rows.setdefault(name, []).append(self._score(made[:, None], clips, cases, repeats))
        return {name: join(parts) for name, parts in rows.items()}

    def _score(self, made: Tensor, clips: Clips, cases: Encoded, repeats: Values) -> Measured:
        """Frames [N, S, F, 3, H, W] and what they earn; its mean over frames is the segment's reward."""
        terms = self.task.reward_terms(made, self.task.truth(clips, cases), repeats)
        # Terms hold each frame's share of a segment; times the frames, their mean is the segment's reward.
        reward = np.sum(list(terms.values()), axis=0) * self.task.layout.future
        return Measured(self._measure(made, clips) | {"reward": reward.astype(np.float32)}, repeats.astype(bool))

    @torch.inference_mode()
    def _measure(self, made: Tensor, clips: Clips) -> dict[str, Values]:
        """Against the recorded frames, whatever the reward compares with: [N, S, F, 3, H, W] -> [N, S, F] each."""
        true = pixels(clips.images[:, self.task.layout.past :], self.task.tokenizer.device)[:, None]
        scores = measures.measure(made, true.expand_as(made), self.networks)
        last = pixels(clips.images[:, self.task.layout.past - 1], self.task.tokenizer.device)[:, None, None]
        scores["moving"] = measures.moving_mse(made, true, last)
        return {name: values.float().cpu().numpy() for name, values in scores.items() if name in TITLES}

    def _read(self, part: slice) -> tuple[Clips, Encoded]:
        return self.dataset.cut(self.windows[part]), self.encodings.encode(self.windows[part])

    def _parts(self, runs: int) -> list[slice]:
        """Segments that are decoded together."""
        # Frames that are decoded are what fills memory: more runs of a segment leave room for fewer segments.
        size = max(1, 4 * self.task.tokenizer.at_once // (runs * self.task.layout.future))
        return [slice(start, min(start + size, len(self.windows))) for start in range(0, len(self.windows), size)]


def join(parts: Sequence[Measured], frames: NDArray[np.int32] | None = None) -> Measured:
    values = {name: np.concatenate([part.values[name] for part in parts]) for name in parts[0].values}
    return Measured(values, np.concatenate([part.repeats for part in parts]), frames)


# Tables ---------------------------------------------------------------------------------------------------------------


def by_episode(values: NDArray[np.floating], episodes: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of each episode's segments: values [N] -> [episodes]."""
    return np.array([values[episodes == episode].mean() for episode in np.unique(episodes)], np.float64)


def mean_of_episodes(values: NDArray[np.floating], episodes: NDArray[np.int64]) -> float:
    """One number of a measure [N, S, F], as the tables show it: every episode counts alike."""
    return float(by_episode(values.mean(axis=(1, 2)), episodes).mean())


def cell(values: NDArray[np.floating], episodes: NDArray[np.int64], scale: float = 1.0) -> Cell:
    """The mean of the episodes' means with its interval; n counts episodes."""
    return stats.bootstrap(scale * by_episode(values.reshape(len(values), -1).mean(axis=1), episodes))


def main_table(rows: Mapping[str, Measured], episodes: NDArray[np.int64]) -> Table:
    """Every measure of every row."""
    names = [name for name in TITLES if any(name in row.values for row in rows.values())]
    table = Table(
        "Predicted frames against recorded ones",
        ["frames", *(TITLES[name] for name in names), "ends repeating"],
        {"ends repeating": "%", "PSNR": "dB"},
        note=f"means, intervals and n are over episodes; an episode is the mean of its segments ({len(episodes)} in "
        "all), their frames and sampling runs. A future ends repeating when its last frame is, token for token, the "
        "one before it.",
    )
    for name, row in rows.items():
        cells = [cell(row.values[key], episodes, SCALES.get(key, 1.0)) for key in names]
        table.add(name, *cells, cell(row.repeats[:, :, -1].astype(np.float64), episodes))
    return table


def change_table(before: Measured, after: Measured, episodes: NDArray[np.int64]) -> Table:
    """What RLVR changed, as a part of the base's value, episode by episode."""
    table = Table(
        "RLVR against base on the same segments",
        ["measure", "base", "RLVR", "change"],
        {"change": "%"},
        note="change is relative to the base's mean; its interval is of the paired differences, over episodes",
    )
    for key in (name for name in TITLES if name in before.values):
        first, last = (by_episode(row.values[key].mean(axis=(1, 2)), episodes) for row in (before, after))
        # Of the mean, since single episodes may be near zero.
        scale = abs(float(first.mean())) or 1.0
        size = SCALES.get(key, 1.0)
        change = stats.paired(last / scale, first / scale)
        table.add(TITLES[key], size * float(first.mean()), size * float(last.mean()), change)
    return table


def horizon_table(rows: Mapping[str, Measured], episodes: NDArray[np.int64]) -> Table:
    """Every measure of every row, frame by frame; the rows of one frame stand together."""
    shown = next(iter(rows.values())).values
    names = [name for name in TITLES if name in shown and name != "reward"]
    table = Table(
        "By how far ahead",
        ["ahead", "frames", *(TITLES[name] for name in names), "repeats"],
        {"repeats": "%", "PSNR": "dB"},
        note="a frame repeats when it is, token for token, the one before it; the first follows the last given one",
    )
    for frame in range(shown["mse"].shape[2]):
        for name, row in rows.items():
            cells = [cell(row.values[key][:, :, frame], episodes, SCALES.get(key, 1.0)) for key in names]
            repeats = cell(row.repeats[:, :, frame].astype(np.float64), episodes)
            table.add(f"frame {frame + 1}", name, *cells, repeats)
    return table


def runs_table(rows: Mapping[str, Measured], episodes: NDArray[np.int64]) -> Table | None:
    """How much single sampling runs differ, and the best of them, measure by measure."""
    sampled = {name: row for name, row in rows.items() if next(iter(row.values.values())).shape[1] > 1}
    if not sampled:
        return None
    runs = next(iter(next(iter(sampled.values())).values.values())).shape[1]
    table = Table(
        f"One sampled future, and the best of {runs}",
        ["frames", "measure", "mean", "deviation of runs", f"best of {runs}"],
        note="the best is chosen by the truth, for each measure by itself: what an oracle could pick",
    )
    for name, row in sampled.items():
        for key, values in row.values.items():
            size, per_run = SCALES.get(key, 1.0), values.mean(axis=2)
            best = per_run.max(axis=1) if key in UP else per_run.min(axis=1)
            # Of the mean over all segments from run to run, not of single segments.
            deviation = size * float(per_run.mean(axis=0).std(ddof=1))
            table.add(name, TITLES[key], cell(values, episodes, size), deviation, cell(best, episodes, size))
    return table


def tables(rows: Mapping[str, Measured], episodes: NDArray[np.int64]) -> list[Table]:
    """All of them, the main one first."""
    made = [main_table(rows, episodes)]
    if "base" in rows and "RLVR" in rows:
        made.append(change_table(rows["base"], rows["RLVR"], episodes))
    if next(iter(rows.values())).values["mse"].shape[2] > 1:
        made.append(horizon_table(rows, episodes))
    best = runs_table(rows, episodes)
    return [*made, *([best] if best is not None else [])]


SEGMENTS = 4096
"""Training segments that are looked through at most; more are drawn from at random. 13 MB of pixels at `SIDE`."""
SIDE = 16
"""Height and width at which frames are compared."""
SEEN = 2
"""Last given frames that are compared: one tells where things are, two how they move."""
AT_ONCE = 64
"""Segments that are read together."""

Features = NDArray[np.float32]


class VideoLookup:
    """A baseline that learns nothing: the nearest training segment, and what really came after its `past` frames.

    A segment is near if its last given frames look alike (mean absolute pixel difference at small size) and its actions
    from the last given frame on are alike. Both count in units of how much they vary in training, so neither drowns the
    other. Of equally near segments the first counts.
    """

    def __init__(self, dataset: VideoDataset, past: int) -> None:
        self.dataset, self.past = dataset, past
        drawn = seeds.generator("video lookup", 0).permutation(len(dataset.windows))[:SEGMENTS]
        # Sorted, so that reading goes through the files in order.
        self.windows: Windows = dataset.windows[np.sort(drawn)]
        """The segments that are looked through, in the order of their episodes."""
        parts = [
            self._raw(dataset.cut(self.windows[start : start + AT_ONCE]))
            for start in range(0, len(self.windows), AT_ONCE)
        ]
        pixels, actions = (np.concatenate(each) for each in zip(*parts, strict=True))
        self.scales = _scales(pixels, actions)
        self.features = self._scale(pixels, actions)

    def __call__(self, clips: Clips) -> Images:
        """The frames that came after the nearest segments' given ones, [N, F, H, W, 3]; later frames are not used."""
        images = [
            self.dataset.cut(part).images[:, self.past :]
            for part in np.array_split(self.nearest(clips), max(1, -(-len(clips) // AT_ONCE)))
        ]
        return np.concatenate(images)

    def nearest(self, clips: Clips) -> Windows:
        """The nearest segment of each, [N, 2]: its episode and its first frame."""
        queries = self._scale(*self._raw(clips))
        chosen = [int(np.argmin(np.abs(self.features - one).sum(axis=1))) for one in queries]
        return self.windows[np.array(chosen, np.int64)]

    def _raw(self, clips: Clips) -> tuple[Features, Features]:
        """Small pixels of the last given frames in [0, 1], and the actions that lead to what comes after them."""
        last = clips.images[:, max(0, self.past - SEEN) : self.past]
        size = min(SIDE, last.shape[2]), min(SIDE, last.shape[3])
        small = resize(last.reshape(-1, *last.shape[2:]), size)
        actions = clips.actions[:, self.past - 1 : -1]
        return (small.reshape(len(last), -1) / 255).astype(np.float32), actions.reshape(len(last), -1)

    def _scale(self, pixels: Features, actions: Features) -> Features:
        return np.concatenate([pixels * self.scales[0], actions * self.scales[1]], axis=1).astype(np.float32)


def _scales(pixels: Features, actions: Features) -> tuple[Features, Features]:
    """What features are multiplied by: then segments are on average 1 from the mean, in pixels as in actions.

    Each entry of an action counts in its own unit. Pixels share theirs: where little happens, little counts. What never
    varies in training counts nothing.
    """
    spread, each = (np.abs(values - values.mean(axis=0)).mean(axis=0) for values in (pixels, actions))
    shared = np.full_like(spread, spread.sum())
    own = each * max(1, np.count_nonzero(each))
    return _inverse(shared), _inverse(own)


def _inverse(values: Features) -> Features:
    return np.divide(1, values, out=np.zeros_like(values), where=values > 0)


# Any model on any episodes --------------------------------------------------------------------------------------------


Split = Literal["test", "all"]
VideoModels = dict[str, VideoModel]


def evaluate_video(
    models: VideoModels,
    data: str | Path,
    split: Split = "test",
    segments: int = 200,
    runs: int = 3,
    networks: Sequence[str] = ("alex", "vgg"),
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
    say: Callable[[str], None] = lambda line: None,
) -> list[Table]:
    """Tables of the models (`open_models`) on the test episodes of a folder, or on all of it.

    `say` hears of every file that is left out.
    """
    _, task, metadata = next(iter(models.values()))
    episodes = chosen(data, split, metadata, say)
    size = task.tokenizer.settings.height, task.tokenizer.settings.width
    dataset = VideoDataset(episodes, task.layout.frames, size)
    evaluation = SegmentEvaluation(task, dataset, fixed_windows(dataset, segments), networks)
    others = open_episodes(data, every=metadata.test_every, verify=False).train if split == "test" else None
    train = VideoDataset(others, task.layout.frames, size) if others else None
    rows: dict[str, Measured] = evaluation.baselines(train)
    for name, (language, _, how) in models.items():
        sampling = seeds.derive(seed, "evaluate")
        rows[name] = evaluation.model(Engine(language), how.sampling, runs, sampling, advance)
    return tables(rows, evaluation.episodes)


def open_models(model: str | Path) -> VideoModels:
    """The models to measure: of a run, before and after RL as far as it has come."""
    stages = {"base": PRETRAIN, "RLVR": "rl"}
    there = {
        name: stage for name, stage in stages.items() if any(Path(model).glob(f"checkpoints/{stage}/step-*/model"))
    }
    if not there:
        return {Path(model).name: open_model(model)}
    return {name: open_model(model, stage) for name, stage in there.items()}


def chosen(data: str | Path, split: Split, metadata: VideoMetadata, say: Callable[[str], None]) -> Episodes:
    """The episodes of a folder that count: its test split, cut as the model's training cut it, or all."""
    episodes = open_episodes(data, every=metadata.test_every)
    for _, reason in episodes.damaged:
        say(f"left out: {reason}")
    part = episodes.test if split == "test" else episodes
    if not len(part):
        raise OneiroError(f"{data} has no test episodes")
    entries = len(next(part.actions())[0])
    if entries != len(metadata.bins["low"]):
        raise OneiroError(f"actions in {data} have {entries} numbers, the model knows {len(metadata.bins['low'])}")
    return part
