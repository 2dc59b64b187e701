"""The tokens of a step's episodes as columns, beside `episodes/STAGE-STEP.jsonl.gz`: a Parquet file with one row for
each token row of an episode, so that a viewer reads one episode without opening the others.

    episode  its line in the .jsonl.gz        ids       list<int32>, as the model saw and wrote them
    row      its row, from 0                  author    list<int8>: 0 given, 1 sampled, 2 forced
                                              logprob   list<float32> under the sampler, 0 where not sampled
                                              entropy   list<float32> of the learner's distribution, in nats
                                              advantage list<float32> as estimated; null for rows not learned from
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from oneiro.episode import Episode, Row
from oneiro.rundir.records import stage_file_name
from oneiro.runtime.errors import OneiroError, first_line
from oneiro.runtime.files import write_with

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
    kinds = [SAMPLED if part.sampled else FORCED if part.role == "forced" else GIVEN for part in row.segments]
    return np.repeat(np.array(kinds, np.int8), [len(part) for part in row.segments])
