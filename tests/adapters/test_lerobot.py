"""LeRobot's files, written and read again by us, and by LeRobot itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from oneiro.adapters.lerobot import read_lerobot, write_lerobot
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot.episodes import RobotEpisode

pytest.importorskip("PIL", reason="frames are PNGs: pip install oneiro[robot]")


def episode(length: int, task: str, seed: int) -> RobotEpisode:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (length, 16, 20, 3), dtype=np.uint8)
    return RobotEpisode(image, rng.normal(size=(length, 4)).astype(np.float32), {"instruction": task})


def test_episodes_come_back_to_the_pixel_and_the_tables_say_where_they_are(tmp_path: Path) -> None:
    written = [episode(5, "open", 0), episode(7, "close", 1), episode(4, "open", 2)]
    folder = write_lerobot(tmp_path / "set", written, fps=5)
    for one, again in zip(written, read_lerobot(folder), strict=True):
        assert np.array_equal(one.image, again.image) and np.array_equal(one.action, again.action)
        assert again.info["instruction"] == one.info["instruction"]
    info = json.loads((folder / "meta" / "info.json").read_text())
    assert (info["codebase_version"], info["total_episodes"], info["total_frames"]) == ("v3.0", 3, 16)
    rows = pq.read_table(folder / "meta/episodes/chunk-000/file-000.parquet").to_pylist()
    assert [(row["dataset_from_index"], row["dataset_to_index"]) for row in rows] == [(0, 5), (5, 12), (12, 16)]
    frames = pq.read_table(folder / "data/chunk-000/file-001.parquet")
    assert frames["index"].to_pylist() == list(range(5, 12)) and frames["timestamp"][1].as_py() == pytest.approx(0.2)
    stats = json.loads((folder / "meta" / "stats.json").read_text())["action"]
    actions = np.concatenate([one.action for one in written])
    assert stats["mean"] == pytest.approx(actions.mean(0)) and stats["count"] == [16]


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match="is no LeRobot data set"):
        next(read_lerobot(tmp_path))
    folder = write_lerobot(tmp_path / "set", [episode(2, "open", 0)])
    with pytest.raises(OneiroError, match="exists; choose another place"):
        write_lerobot(folder, [episode(2, "open", 0)])
    with pytest.raises(OneiroError, match="has no feature 'joints'"):
        next(read_lerobot(folder, action="joints"))


@pytest.mark.thorough
def test_lerobot_opens_what_we_wrote_and_we_read_what_it_wrote(
    with_library: Callable[..., Any], tmp_path: Path
) -> None:
    lengths, tasks = (5, 7, 4), ("open", "close", "open")
    written = [episode(length, task, seed) for seed, (length, task) in enumerate(zip(lengths, tasks, strict=True))]
    folder = write_lerobot(tmp_path / "set", written, fps=5)
    needed = ("huggingface-hub<1", "av", "jsonlines", "draccus==0.10.*", "einops", "deepdiff", "termcolor", "pandas")
    run = with_library("datasets>=4,<4.2", *needed, bare=("lerobot==0.4.*", "torchvision==0.28.*"))
    result = json.loads(run("lerobot_reads.py", folder).split("RESULT ")[1])
    assert (result["episodes"], result["frames"]) == (3, 16) and result["actions"] and result["pixels"] < 1e-3
    assert result["tasks"] == ["open"] * 5 + ["close"] * 7 + ["open"] * 4
    assert result["stats"] == ["action", "observation.images.main"]
    assert result["back"] == [True] * 3
