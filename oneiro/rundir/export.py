"""The episodes of a run as one Parquet file, which datasets, pandas and DuckDB read.

datasets.load_dataset("parquet", data_files="episodes.parquet")
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oneiro.rundir.records import read_lines
from oneiro.rundir.run import require_run
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import write_with


def episodes_to_parquet(run: str | Path, out: str | Path, stages: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Write one row per episode, of these stages or of all; gives the number of rows and the columns.

    A column holds what the records have under that name. Where records do not agree on its type, it holds JSON texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = Path(run)
    require_run(run)
    rows: list[dict[str, Any]] = []
    for file in sorted((run / "episodes").glob("*.jsonl.gz")):
        rows += read_lines(file)
    known = {str(row.get("stage")) for row in rows}
    for stage in stages:
        if stage not in known:
            raise OneiroError(f"{run} has no episodes of a stage '{stage}'{nearest(stage, known)}")
    if not rows:
        raise OneiroError(f"{run} has no episodes yet; a run keeps them as its stages end")
    rows = [row for row in rows if not stages or row["stage"] in stages]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _array([row.get(name) for row in rows]) for name in names}
    write_with(out, lambda part: pq.write_table(pa.table(columns), part, compression="zstd"))
    return len(rows), names


def _array(values: list[Any]) -> Any:
    """An Arrow array of the values' own type."""
    import pyarrow as pa

    try:
        array = pa.array(values)
        # A structure without fields cannot be written.
        return array if "struct<>" not in str(array.type) else pa.array([_text(value) for value in values])
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([_text(value) for value in values])


def _text(value: Any) -> str | None:
    return None if value is None else json.dumps(value, ensure_ascii=False)
