"""The files of a run as they are read and written: whoever reads them trusts nothing, and damage is one line."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.files import NAME, read_json, write_with

MAX_UNPACKED_BYTES = 1 << 32
"""A file of episodes that unpacks to more is damaged: a few bad bytes can promise any length."""


def read_info(path: str | Path) -> dict[str, Any]:
    """What `run.json` of a run holds, as far as it can be relied on; without the file, a run without stages."""
    file = Path(path) / "run.json"
    if not file.exists():
        return {"stages": {}}
    info = read_json(file)
    stages = info.get("stages") if isinstance(info, dict) else None
    if not isinstance(stages, dict) or not all(_is_stage(stage) for stage in stages.values()):
        raise OneiroError(
            f"{file} is damaged: it does not tell the stages of a run; restore it, or delete it: stages then go on "
            "from their checkpoints"
        )
    for key, kind in {"status": str, "versions": dict, "started": str}.items():
        if not isinstance(info.setdefault(key, kind()), kind):
            raise OneiroError(f"{file} is damaged: '{key}' is no {kind.__name__}; restore or delete it")
    return dict(info)


def read_lines(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of a `.jsonl` or `.jsonl.gz` file. A last line still being written is left out."""
    path = Path(path)
    if not path.exists():
        return
    number = 0
    try:
        if path.suffix == ".gz":
            with gzip.open(path) as packed:
                text = packed.read(MAX_UNPACKED_BYTES + 1)
            if not path.stat().st_size:  # gzip reads an empty file as empty text
                raise ValueError("empty")
            if len(text) > MAX_UNPACKED_BYTES:
                raise ValueError(f"longer than {MAX_UNPACKED_BYTES >> 30} GiB")
        else:
            text = path.read_bytes()
        # What follows the last line feed is still being written, or was cut off.
        for line in text.split(b"\n")[:-1]:
            number += 1
            if line:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("no JSON object")
                yield row
    except (ValueError, RecursionError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        place = f"{path}, line {number}," if number else f"{path}"
        what = "line, or restore the file" if path.suffix != ".gz" else "file: the run makes it again if it needs it"
        raise OneiroError(f"{place} is damaged ({first_line(error, 120)}); delete that {what}") from error


def read_log(path: str | Path) -> Iterator[dict[str, Any]]:
    """The rows of `metrics.jsonl` or `timings.jsonl`: a stage, a step, and numbers."""
    for number, row in enumerate(read_lines(path), start=1):
        counted = isinstance(row.get("stage"), str) and _is_number(row.get("step"), int) and row["step"] >= 0
        if not counted or not all(
            value is None or _is_number(row[key]) for key, value in row.items() if key != "stage"
        ):
            raise OneiroError(
                f"{path}, row {number}, is damaged (no stage and step with numbers); delete that line, or restore the "
                "file"
            )
        yield row


def line_digest(line: str) -> str:
    """Tells the lines of a log from others."""
    return hashlib.blake2b(line.rstrip("\n").encode(), digest_size=8).hexdigest()


def require_written_lines(path: Path, digests: Path) -> None:
    """See that a log still has every line whose digest was noted beside it. One more may follow: a killed process has
    noted all lines but the last.
    """
    if not digests.exists():
        return
    noted = Counter(digests.read_text(encoding="ascii", errors="replace").split("\n")[:-1])
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    # Counted and not compared in order: parallel stages put their rows in the order of the plan afterwards.
    lost = noted - Counter(line_digest(line) for line in lines)
    if lost:
        raise OneiroError(
            f"{path} is not what the run wrote: {lost.total()} of {noted.total()} lines are missing or altered; "
            f"restore it, or delete {digests} to go on without them"
        )


def write_episodes(folder: Path, stage: str, step: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Into the run directory `folder`, by the run itself or by a process that works for it."""
    lines = (json.dumps({"stage": stage, "step": step, **row}, ensure_ascii=False) + "\n" for row in rows)
    # No time stamp, so that the same episodes are the same bytes; halves of characters, which a model may write, as
    # text.
    data = gzip.compress("".join(lines).encode(errors="backslashreplace"), compresslevel=6, mtime=0)
    target = folder / "episodes" / f"{stage_file_name(stage)}-{step:06d}.jsonl.gz"
    write_with(target, lambda temporary: _write_bytes(temporary, data))


def drop_torn_line(path: Path) -> None:
    """A process killed while appending leaves half a line at the end."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n") and data:
            os.truncate(path, data.rfind(b"\n") + 1)


def _write_bytes(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _is_stage(stage: Any) -> bool:
    """Whether a stage of `run.json` has what is read from it."""
    return (
        isinstance(stage, dict)
        and isinstance(stage.get("status"), str)
        and _is_number(stage.get("seconds", 0.0))
        and _is_number(stage.get("starts", 0), int)
        and (stage["status"] != "done" or isinstance(stage.get("result"), dict))
    )


def _is_number(value: Any, kind: Any = (int, float)) -> bool:
    """A finite number that is not longer than any we write."""
    if not isinstance(value, kind) or isinstance(value, bool):
        return False
    return abs(value) < 1 << 64 if isinstance(value, int) else math.isfinite(value)


def stage_file_name(stage: str) -> str:
    """A stage's name as part of a file's, which it must not lead away from the run."""
    if not NAME.fullmatch(stage):
        raise OneiroError(f"{stage!r} is no name for a stage: letters, digits, spaces and . + - = @ , only")
    return stage
