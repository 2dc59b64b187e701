"""Episodes of the size of RT-1's, written and read by segment: as this project stores them, and as compressed npz.

CPU seconds are counted, not those of the clock: whoever waits for a disk or a neighbour computes nothing.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from PIL import Image

from bench.measure import OURS
from oneiro.report.table import Table
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot import storage
from oneiro.worlds.robot.episodes import RobotEpisode, read_segment, write_episode

SIZE, FRAMES, SEGMENT, ACTIONS = (256, 320), 40, 8, 13
"""Of RT-1's episodes, and of the published segments."""
QUALITY = 95
"""Of the JPEG; a frame then has about as many bytes as RT-1's."""
COMPRESSED = "compressed npz (RT-1 converter)"


class Cost(NamedTuple):
    """CPU seconds of an episode and of a segment, and bytes of an episode."""

    episode: float
    segment: float
    size: float


def data_table(episodes: int, segments: int = 4) -> Table:
    """What an episode costs once, and each of its segments whenever it is used."""
    pictures = [filmed(number) for number in range(episodes)]
    costs = {OURS: measured(pictures, stored, segments), COMPRESSED: measured(pictures, compressed, segments)}
    theirs = costs[COMPRESSED]
    table = Table(
        f"Episodes of {FRAMES} frames of {SIZE[0]}x{SIZE[1]} from JPEG, one core",
        ["stored as", "CPU-s an episode", "CPU-s a segment", "MB an episode", "times as fast: import", "read"],
        note=f"import decodes every picture and writes the file; a segment has {SEGMENT} frames; {episodes} episodes",
    )
    for name, cost in costs.items():
        ratios = theirs.episode / cost.episode, theirs.segment / cost.segment
        table.add(name, cost.episode, cost.segment, cost.size / 1e6, *ratios)
    return table


def filmed(number: int) -> list[bytes]:
    """The pictures of an episode: a patterned scene, something that moves, a camera's noise."""
    rng, (height, width) = generator("bench", "video data", number), SIZE
    y, x = np.mgrid[:height, :width]
    scene = np.stack(
        [128 + 60 * np.sin(x / 40 + number), 90 + 50 * np.sin(y / 30), 140 + 40 * np.cos((x + y) / 25)], -1
    )
    encoded = []
    for place in range(FRAMES):
        frame = scene + rng.normal(0, 4, scene.shape)
        frame[60:140, 5 * place : 5 * place + 50] = (200, 80, 40)
        buffer = io.BytesIO()
        Image.fromarray(np.clip(frame, 0, 255).astype(np.uint8)).save(buffer, "JPEG", quality=QUALITY)
        encoded.append(buffer.getvalue())
    return encoded


def measured(
    pictures: list[list[bytes]], write: Callable[[Path, RobotEpisode, list[bytes]], None], segments: int
) -> Cost:
    """What writing and reading cost, as means."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{number:08d}.npz" for number in range(len(pictures))]
        started = time.process_time()
        for path, encoded in zip(paths, pictures, strict=True):
            image = np.stack([storage.decode(picture, SIZE) for picture in encoded])
            write(path, RobotEpisode(image, np.zeros((FRAMES, ACTIONS), np.float32)), encoded)
        written = time.process_time()
        places = generator("bench", "segments").integers(FRAMES - SEGMENT + 1, size=(len(paths), segments))
        for path, starts in zip(paths, places, strict=True):
            for start in starts:
                read_segment(path, int(start), SEGMENT)
        read = time.process_time()
        size = sum(path.stat().st_size for path in paths)
    return Cost((written - started) / len(paths), (read - written) / places.size, size / len(paths))


def stored(path: Path, episode: RobotEpisode, encoded: list[bytes]) -> None:
    """As `oneiro data rlds` writes them."""
    write_episode(path, episode, encoded)


def compressed(path: Path, episode: RobotEpisode, encoded: list[bytes]) -> None:
    """As they were written before, and as the RT-1 converter writes them."""
    np.savez_compressed(path, image=episode.image, action=episode.action)
