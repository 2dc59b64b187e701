"""LeRobot data sets, format v3.0, in and out: robot episodes with frames and actions. Nothing here imports LeRobot.

Frames are written as PNG inside the Parquet files (LeRobot's dtype `image`), so that no video codec changes a pixel.
Data sets whose frames are videos are read with PyAV (`pip install av`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.files import write_json, write_with
from oneiro.worlds.robot.episodes import RobotEpisode
from oneiro.worlds.robot.storage import decode

IMAGE, ACTION = "observation.images.main", "action"
DATA = "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
VIDEO = "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4"
QUANTILES = {"q01": 0.01, "q10": 0.1, "q50": 0.5, "q90": 0.9, "q99": 0.99}
COUNTERS = {"timestamp": "float32", **dict.fromkeys(("frame_index", "episode_index", "index", "task_index"), "int64")}


def write_lerobot(folder: str | Path, episodes: Sequence[RobotEpisode], fps: int = 10, robot: str = "oneiro") -> Path:
    """A data set of these episodes in a folder that does not exist yet; a file of frames for each episode."""
    folder = Path(folder)
    if folder.exists():
        raise OneiroError(f"{folder} exists; choose another place")
    if not episodes:
        raise OneiroError("a data set needs an episode")
    shape, width = episodes[0].image.shape[1:], episodes[0].action.shape[1]
    if any(one.image.shape[1:] != shape or one.action.shape[1] != width for one in episodes):
        raise OneiroError("episodes of a data set have frames of one size and actions of one length")
    features: dict[str, Any] = {
        IMAGE: {"dtype": "image", "shape": list(shape), "names": ["height", "width", "channels"]},
        ACTION: {"dtype": "float32", "shape": [width], "names": [f"action_{i}" for i in range(width)]},
        **{name: {"dtype": kind, "shape": [1], "names": None} for name, kind in COUNTERS.items()},
    }
    texts = [str(one.info.get("instruction") or one.info.get("task") or "act") for one in episodes]
    tasks = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    rows, total = [], 0
    for number, (one, text) in enumerate(zip(episodes, texts, strict=True)):
        length = len(one)
        columns = {
            IMAGE: pa.array([{"bytes": _png(frame), "path": None} for frame in one.image]),
            ACTION: pa.array(list(one.action.astype(np.float32)), pa.list_(pa.float32())),
            "timestamp": pa.array(np.arange(length, dtype=np.float32) / fps),
            "frame_index": pa.array(np.arange(length)),
            "episode_index": pa.array(np.full(length, number)),
            "index": pa.array(np.arange(total, total + length)),
            "task_index": pa.array(np.full(length, tasks[text])),
        }
        _write(folder / DATA.format(chunk_index=0, file_index=number), pa.table(columns))
        rows.append(
            {
                "episode_index": number,
                "tasks": [text],
                "length": length,
                "dataset_from_index": total,
                "dataset_to_index": total + length,
                "data/chunk_index": 0,
                "data/file_index": number,
                "meta/episodes/chunk_index": 0,
                "meta/episodes/file_index": 0,
            }
        )
        total += length
    _write(folder / "meta/episodes/chunk-000/file-000.parquet", pa.Table.from_pylist(rows))
    _write_tasks(folder / "meta/tasks.parquet", tasks)
    write_json(folder / "meta/stats.json", _stats(episodes))
    info = {"codebase_version": "v3.0", "robot_type": robot, "fps": fps, "features": features}
    counts = {"total_episodes": len(rows), "total_frames": total, "total_tasks": len(tasks), "chunks_size": 1000}
    sizes = {"data_files_size_in_mb": 100, "video_files_size_in_mb": 200, "data_path": DATA, "video_path": VIDEO}
    write_json(folder / "meta/info.json", {**info, **counts, **sizes, "splits": {"train": f"0:{len(rows)}"}})
    return folder


def read_lerobot(folder: str | Path, image: str | None = None, action: str = ACTION) -> Iterator[RobotEpisode]:
    """The episodes of a data set, one at a time. `image` names the camera; needed where there are several."""
    folder = Path(folder)
    try:
        info = json.loads((folder / "meta" / "info.json").read_text(encoding="utf-8"))
        features, version = info["features"], str(info["codebase_version"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise OneiroError(
            f"{folder} is no LeRobot data set ({first_line(error, 80)}): meta/info.json is missing or damaged"
        ) from error
    if not version.startswith("v3."):
        raise OneiroError(f"{folder} has format {version}; convert it to v3.0 with LeRobot's own script")
    cameras = [name for name, feature in features.items() if feature.get("dtype") in ("image", "video")]
    if image is None and len(cameras) != 1:
        raise OneiroError(f"{folder} has the cameras {', '.join(cameras) or 'none'}; choose one")
    image = image or cameras[0]
    for name in (image, action):
        if name not in features:
            raise OneiroError(f"{folder} has no feature '{name}'; it has {', '.join(features)}")
    texts = {
        row["task_index"]: row.get("task", row.get("__index_level_0__"))
        for row in pq.read_table(folder / "meta/tasks.parquet").to_pylist()
    }
    files = sorted((folder / "meta" / "episodes").rglob("*.parquet"))
    for episode in (row for file in files for row in pq.read_table(file).to_pylist()):
        place = info["data_path"].format(chunk_index=episode["data/chunk_index"], file_index=episode["data/file_index"])
        number = episode["episode_index"]
        columns = [action, "timestamp", "task_index", *([image] if features[image]["dtype"] == "image" else [])]
        table = pq.read_table(folder / place, columns=columns, filters=[("episode_index", "=", number)])
        if features[image]["dtype"] == "image":
            frames = np.stack([decode(row["bytes"]) for row in table[image].to_pylist()])
        else:
            frames = _video(folder, info, image, episode, np.asarray(table["timestamp"]))
        actions = np.array(table[action].to_pylist(), np.float32).reshape(len(table), -1)
        facts = {"instruction": texts.get(table["task_index"][0].as_py(), ""), "episode": number}
        yield RobotEpisode(frames, actions, facts)


def _video(folder: Path, info: dict[str, Any], key: str, episode: dict[str, Any], times: Any) -> np.ndarray:
    """The frames of an episode out of a video of many."""
    try:
        import av
    except ModuleNotFoundError as error:
        raise OneiroError("frames of this data set are videos: pip install av") from error
    chunk, file = episode[f"videos/{key}/chunk_index"], episode[f"videos/{key}/file_index"]
    path = folder / info["video_path"].format(video_key=key, chunk_index=chunk, file_index=file)
    start, frames = float(episode[f"videos/{key}/from_timestamp"]), []
    with av.open(str(path)) as video:
        # Half a frame of tolerance: times of a video are rounded to its own clock.
        wanted = iter(times + start - 0.5 / info["fps"])
        due = next(wanted)
        for frame in video.decode(video=0):
            if frame.time >= due:
                frames.append(frame.to_ndarray(format="rgb24"))
                if (due := next(wanted, None)) is None:
                    break
    return np.stack(frames)


def _png(frame: np.ndarray) -> bytes:
    from PIL import Image

    buffer = io.BytesIO()
    Image.fromarray(frame).save(buffer, "PNG")
    return buffer.getvalue()


def _write(path: Path, table: pa.Table) -> None:
    write_with(path, lambda part: pq.write_table(table, part))


def _write_tasks(path: Path, tasks: dict[str, int]) -> None:
    """A frame of pandas whose index is the task's text: its metadata say which column that is."""
    table = pa.table({"task_index": pa.array(list(tasks.values())), "task": pa.array(list(tasks))})
    columns = [
        {
            "name": "task_index",
            "field_name": "task_index",
            "pandas_type": "int64",
            "numpy_type": "int64",
            "metadata": None,
        },
        {"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": None},
    ]
    about = {"index_columns": ["task"], "column_indexes": [], "columns": columns, "pandas_version": "2.0.0"}
    _write(path, table.replace_schema_metadata({"pandas": json.dumps(about)}))


def _stats(episodes: Sequence[RobotEpisode]) -> dict[str, Any]:
    """Of each feature over all frames; of pixels per channel, in [0, 1]."""
    actions = np.concatenate([one.action for one in episodes]).astype(np.float64)
    # Every pixel of a long data set is more than quantiles need: frames at even distances stand for all.
    frames = np.concatenate([one.image[:: max(1, len(one) // 8)] for one in episodes])
    pixels = frames.reshape(-1, 3)[:: max(1, frames.size // 3_000_000)] / 255.0
    return {ACTION: _describe(actions, (-1,)), IMAGE: _describe(pixels, (3, 1, 1))}


def _describe(values: np.ndarray, shape: tuple[int, ...]) -> dict[str, Any]:
    statistics = {"min": values.min(0), "max": values.max(0), "mean": values.mean(0), "std": values.std(0)}
    statistics |= {name: np.quantile(values, share, axis=0) for name, share in QUANTILES.items()}
    return {**{name: value.reshape(shape).tolist() for name, value in statistics.items()}, "count": [len(values)]}
