"""Benchmarks: this engine and learner beside their peers, on the same work, in one run.

A benchmark is one module with `run(model=None, **options) -> list[Table]`, named in `BENCHES`, imported when asked for.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from oneiro.report.table import Table
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import write_json

BENCHES: dict[str, str] = {
    "board": "bench.board",
    "cpu": "bench.cpu",
    "memory": "bench.memory",
    "sample": "bench.sample",
    "step": "bench.step",
    "textgame": "bench.textgame",
    "train": "bench.train",
    "video": "bench.video",
    "web": "bench.web",
    "worlds": "bench.worlds",
}
"""Benchmark name -> its module."""


def run(name: str, model: str | None = None, json: str | Path | None = None, **options: Any) -> list[Table]:
    """Carry a benchmark out; with `json`, also write its tables there. `options` are the benchmark's own settings."""
    if name not in BENCHES:
        raise OneiroError(f"no benchmark called '{name}'{nearest(name, BENCHES)}")
    measure = import_module(BENCHES[name]).run
    accepted = inspect.signature(measure).parameters
    if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in accepted.values()):
        for option in set(options) - set(accepted):
            raise OneiroError(f"bench {name} has no option {_flag(option)}")
    try:
        tables: list[Table] = measure(model, **options)
    except ValidationError as error:
        first = error.errors()[0]
        option = _flag(".".join(map(str, first["loc"])))
        if first["type"] == "extra_forbidden":
            raise OneiroError(f"bench {name} has no option {option}") from error
        raise OneiroError(f"bench {name}: {option}: {first['msg']}") from error
    if json is not None:
        write_json(json, {"tables": [table.data() for table in tables]})
    return tables


def _flag(option: str) -> str:
    return "--" + option.replace("_", "-")
