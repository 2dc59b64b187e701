"""Rows of a data file: JSONL, a JSON list, parquet, each JSON also gzipped."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from oneiro.runtime.errors import OneiroError


def read(path: Path) -> list[dict[str, Any]]:
    """Every row as a dict; a file that cannot be read is one clear line."""
    if not path.is_file():
        raise OneiroError(f"{path} does not exist")
    try:
        if path.suffix == ".parquet":
            from pyarrow import parquet

            return parquet.read_table(path).to_pylist()
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
        if text.lstrip().startswith("["):
            rows = json.loads(text)
        else:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise OneiroError(f"{path} cannot be read ({error}); it may be cut short or of another format") from error
    if not all(isinstance(row, dict) for row in rows):
        raise OneiroError(f"{path} must hold one JSON object for each row")
    return rows
