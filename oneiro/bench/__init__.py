"""Benchmarks: this engine and learner beside their peers, on the same work, in one run.

A benchmark is one module with `run(model=None, **options) -> list[Table]`, named in `BENCHES`, imported when asked for.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from oneiro.errors import OneiroError, nearest
from oneiro.files import write_json
from oneiro.report.table import Table

BENCHES: dict[str, str] = {
    "cpu": "oneiro.bench.cpu",
    "textgame": "oneiro.bench.textgame",
    "worlds": "oneiro.bench.worlds",
}
"""Benchmark name -> its module."""


def run(name: str, model: str | None = None, json: str | Path | None = None, **options: Any) -> list[Table]:
    """Carry a benchmark out; with `json`, also write its tables there. `options` are the benchmark's own settings."""
    if name not in BENCHES:
        raise OneiroError(f"no benchmark called '{name}'{nearest(name, BENCHES)}")
    tables: list[Table] = import_module(BENCHES[name]).run(model, **options)
    if json is not None:
        write_json(json, {"tables": [table.data() for table in tables]})
    return tables
