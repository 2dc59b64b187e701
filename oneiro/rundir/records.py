"""The files of a run as they are read and written: whoever reads them trusts nothing, and damage is one line."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import math
import os
import platform
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.files import NAME, read_json, write_bytes, write_with

if TYPE_CHECKING:
    from oneiro.episode import Episode, Row
    from oneiro.recipe import Recipe

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
    write_bytes(target, data)


def drop_torn_line(path: Path) -> None:
    """A process killed while appending leaves half a line at the end."""
    if path.exists():
        data = path.read_bytes()
        if not data.endswith(b"\n") and data:
            os.truncate(path, data.rfind(b"\n") + 1)


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


# What a run was begun with: its recipe, versions and commit; and what may differ when it goes on ----------------------


PACKAGES = ("oneiro", "torch", "transformers", "numpy")
ASIDE = ("about", "needs", "takes", "next", "track", "profile", "checkpoint_minutes", "evaluation.every")
"""Settings that change no result: a run may be resumed with others."""
INTERVALS = ("checkpoint_every", "keep_checkpoints", "keep_episodes_every", "parallel", "workers", "worker_timeout_s")
"""The same in every section that has them."""


def first_difference(path: str | Path, recipe: Recipe) -> str:
    """How `recipe` differs from the one stored in the run at `path`: the first key and both values, or nothing."""
    from oneiro import recipe as recipes

    stored = recipes.flat(recipes.read(Path(path) / "recipe.yaml"))
    given = recipes.flat(recipes.plain(recipe))
    for key in [*given, *stored]:
        before, now = stored.get(key), given.get(key)
        if before != now and not changes_no_result(key, given):
            before, now = ("unset" if value is None else value for value in (before, now))
            return f"{key} was {before}, now {now}"
    return ""


def changes_no_result(key: str, recipe: Mapping[str, Any]) -> bool:
    """Whether a setting changes no result. With `async_rollout` a checkpoint decides which weights play next."""
    section, _, name = key.rpartition(".")
    if name == "checkpoint_every" and recipe.get(f"{section}.async_rollout"):
        return False
    return key in ASIDE or name in INTERVALS


def read_versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with contextlib.suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


def read_commit() -> str | None:
    """The commit of this source tree, with a + where files differ from it; None outside a repository."""
    folder = Path(__file__).resolve().parent
    git = ["git", "-C", str(folder)]
    try:
        tracked = subprocess.run([*git, "ls-files", "--error-unmatch", __file__], capture_output=True, timeout=10)
        if tracked.returncode:
            return None
        commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, timeout=10)
        changes = subprocess.run([*git, "diff", "--quiet", "HEAD"], capture_output=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return commit.stdout.strip() + ("+" if changes.returncode else "")


# Tokens of a step's episodes as columns, beside `episodes/STAGE-STEP.jsonl.gz` ----------------------------------------

# A Parquet file with one row for each token row of an episode, so that a viewer reads one episode without opening the
# others.
#
#     episode  its line in the .jsonl.gz        ids       list<int32>, as the model saw and wrote them
#     row      its row, from 0                  author    list<int8>: 0 given, 1 sampled, 2 forced
#                                               logprob   list<float32> under the sampler, 0 where not sampled
#                                               entropy   list<float32> of the learner's distribution, in nats
#                                               advantage list<float32> as estimated; null for rows not learned from


GIVEN, SAMPLED, FORCED = 0, 1, 2
ROWS_TOGETHER = 64
"""Rows of a Parquet row group: what reading one episode unpacks."""


class TokenRow(NamedTuple):
    ids: list[int]
    authors: list[int]
    logprobs: list[float]
    entropies: list[float] | None = None
    advantages: list[float] | None = None


def token_file(folder: Path, stage: str, step: int) -> Path:
    return folder / "episodes" / f"{stage_file_name(stage)}-{step:06d}.tokens.parquet"


def write_tokens(folder: Path, stage: str, step: int, episodes: Sequence[Episode]) -> None:
    """Into the run directory `folder`; the same episodes give the same bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    placed = [(number, place, row) for number, one in enumerate(episodes) for place, row in enumerate(one.rows)]
    columns = {
        "episode": pa.array([number for number, _, _ in placed], pa.int32()),
        "row": pa.array([place for _, place, _ in placed], pa.int32()),
        "ids": pa.array([row.tokens for _, _, row in placed], pa.list_(pa.int32())),
        "author": pa.array([_authors(row) for _, _, row in placed], pa.list_(pa.int8())),
        "logprob": pa.array([row.logprobs for _, _, row in placed], pa.list_(pa.float32())),
    }
    for name, values in (("entropy", "entropies"), ("advantage", "advantages")):
        if any(getattr(row, values) is not None for _, _, row in placed):
            columns[name] = pa.array([getattr(row, values) for _, _, row in placed], pa.list_(pa.float32()))
    table = pa.table(columns)
    write_with(
        token_file(folder, stage, step), lambda path: parquet.write_table(table, path, row_group_size=ROWS_TOGETHER)
    )


def read_tokens(path: Path, episode: int) -> list[TokenRow]:
    """The token rows of one episode; none where the file has none of it."""
    from pyarrow import ArrowException, parquet

    try:
        table = parquet.read_table(path, filters=[("episode", "==", episode)])
        rows: list[dict[str, Any]] = table.sort_by("row").to_pylist()
        return [
            TokenRow(row["ids"], row["author"], row["logprob"], row.get("entropy"), row.get("advantage"))
            for row in rows
        ]
    except (ArrowException, KeyError, TypeError, ValueError) as error:
        raise OneiroError(f"{path} is damaged ({first_line(error, 120)}); delete that file") from error


def _authors(row: Row) -> Any:
    import numpy as np  # listing recipes does without

    kinds = [SAMPLED if part.sampled else FORCED if part.role == "forced" else GIVEN for part in row.segments]
    return np.repeat(np.array(kinds, np.int8), [len(part) for part in row.segments])
