"""Ways in which the folder of a run can be damaged: the catalogue of the tests and of `make chaos`."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Damage = Callable[[Path], object]
"""Does something bad to a run directory."""


@dataclass(frozen=True)
class Case:
    """One damage. `mended`: the run gets over it by itself; else it must say so and name `file`."""

    file: str
    damage: Damage
    mended: bool = False


def put(file: str, data: str | bytes) -> Damage:
    raw = data if isinstance(data, bytes) else data.encode()
    return lambda run: newest(run, file).write_bytes(raw)


def line(file: str, number: int, text: str) -> Damage:
    """Another text in the place of one line, which is not the last."""

    def damage(run: Path) -> None:
        lines = (run / file).read_text().splitlines()
        lines[min(number, len(lines) - 2)] = text
        (run / file).write_text("\n".join(lines) + "\n")

    return damage


def info(**changes: Any) -> Damage:
    def damage(run: Path) -> None:
        found = json.loads((run / "run.json").read_text())
        (run / "run.json").write_text(json.dumps({**found, **changes}))

    return damage


def cut(file: str, share: float = 0.5) -> Damage:
    def damage(run: Path) -> None:
        path = newest(run, file)
        os.truncate(path, int(share * path.stat().st_size))

    return damage


def flip(file: str, share: float = 0.9) -> Damage:
    def damage(run: Path) -> None:
        path = newest(run, file)
        data = bytearray(path.read_bytes())
        data[int(share * (len(data) - 1))] ^= 16
        path.write_bytes(data)

    return damage


def newest(run: Path, pattern: str) -> Path:
    """The last file of a run that fits a pattern, by name."""
    found = sorted(path for path in run.glob(pattern) if path.is_file())
    return found[-1] if found else run / pattern


DEEP = "[" * 200_000
EPISODES = "episodes/*.jsonl.gz"

RUN_FILES: dict[str, Case] = {
    "run.json is a list": Case("run.json", put("run.json", "[]")),
    "run.json is empty": Case("run.json", put("run.json", "")),
    "run.json is {}": Case("run.json", put("run.json", "{}")),
    "run.json is null": Case("run.json", put("run.json", "null")),
    "run.json is nested": Case("run.json", put("run.json", DEEP)),
    "run.json is no text": Case("run.json", put("run.json", b"\xff\xfe\x00")),
    "run.json is cut": Case("run.json", cut("run.json")),
    "no stages": Case("run.json", info(stages=None)),
    "a list of stages": Case("run.json", info(stages=[])),
    "a null stage": Case("run.json", info(stages={"gather": None})),
    "a stage without a status": Case("run.json", info(stages={"gather": {}})),
    "a stage done without a result": Case("run.json", info(stages={"gather": {"status": "done"}})),
    "a stage of endless seconds": Case("run.json", info(stages={"gather": {"status": "x", "seconds": 1e999}})),
    "versions in a list": Case("run.json", info(versions=["1"])),
    "a status of numbers": Case("run.json", info(status=5)),
    "metrics torn at the end": Case(
        "metrics.jsonl", lambda run: (run / "metrics.jsonl").open("a").write('{"stage": "le'), mended=True
    ),
    "metrics corrupt in the middle": Case("metrics.jsonl", line("metrics.jsonl", 3, '{"stage": "le')),
    "metrics without a step": Case("metrics.jsonl", line("metrics.jsonl", 3, '{"stage": "learn"}')),
    "metrics without a stage": Case("metrics.jsonl", line("metrics.jsonl", 3, '{"step": 3}')),
    "metrics with a step in words": Case("metrics.jsonl", line("metrics.jsonl", 3, '{"stage": "learn", "step": "3"}')),
    "metrics with a list": Case("metrics.jsonl", line("metrics.jsonl", 3, "[1, 2]")),
    "metrics with a long number": Case(
        "metrics.jsonl", line("metrics.jsonl", 3, '{"stage": "learn", "step": 3, "loss": 1' + "0" * 400 + "}")
    ),
    "metrics nested": Case("metrics.jsonl", line("metrics.jsonl", 3, DEEP)),
    "metrics of no text": Case("metrics.jsonl", put("metrics.jsonl", b"\xff\xfe\x00\n")),
    "timings torn at the end": Case(
        "timings.jsonl", lambda run: (run / "timings.jsonl").open("a").write('{"st'), mended=True
    ),
    "timings corrupt in the middle": Case("timings.jsonl", line("timings.jsonl", 2, "garbage")),
    "timings without a step": Case("timings.jsonl", line("timings.jsonl", 2, '{"stage": "learn"}')),
    "recipe nested": Case("recipe.yaml", put("recipe.yaml", DEEP[:1000])),
    "recipe of no text": Case("recipe.yaml", put("recipe.yaml", b"\xff\xfe\x00")),
    "recipe cut": Case("recipe.yaml", put("recipe.yaml", "system: [")),
    "leftovers of a killed process": Case("", put(".run.json.1.part", "half"), mended=True),
}
"""What both going on and reporting must notice."""

LOGS: dict[str, Case] = {
    "metrics cut": Case("metrics.jsonl", cut("metrics.jsonl")),
    "metrics cut to nothing": Case("metrics.jsonl", put("metrics.jsonl", "")),
    "metrics gone": Case("metrics.jsonl", lambda run: (run / "metrics.jsonl").unlink()),
    "metrics altered": Case("metrics.jsonl", line("metrics.jsonl", 3, '{"stage": "learn", "step": 3, "loss": 0.0}')),
    "a digest torn at the end": Case(
        "metrics.jsonl", lambda run: (run / ".metrics-lines").open("a").write("0f"), mended=True
    ),
}
"""Logs that a report can draw, but that a run does not go on with."""

REPORT_FILES: dict[str, Case] = {
    "episodes cut": Case("episodes", cut(EPISODES)),
    "episodes of garbage": Case("episodes", put(EPISODES, b"\x00garbage")),
    "episodes empty": Case("episodes", put(EPISODES, b"")),
    "episodes flipped": Case("episodes", flip(EPISODES, 0.5)),
    "episodes of lists": Case("episodes", put(EPISODES, gzip.compress(b"[1]\n"))),
    "episodes nested": Case("episodes", put(EPISODES, gzip.compress(DEEP.encode() + b"\n"))),
    "episodes with odd turns": Case("episodes", put(EPISODES, gzip.compress(b'{"turns": [5], "score": "x"}\n'))),
    "summary is a list": Case("summary.json", put("summary.json", "[]")),
    "summary of odd tables": Case("summary.json", put("summary.json", '{"tables": [{"title": 5}]}')),
    "summary of odd cells": Case(
        "summary.json",
        put("summary.json", '{"tables": [{"title": "t", "columns": ["a"], "rows": [{"a": [1]}]}]}'),
    ),
    "summary of odd curves": Case("summary.json", put("summary.json", '{"curves": [{"title": "x"}]}')),
    "summary of odd images": Case("summary.json", put("summary.json", '{"images": [5]}')),
    "summary nested": Case("summary.json", put("summary.json", DEEP)),
}
"""What only the report reads."""


STEP = "checkpoints/rl-spa/step-*"
MODEL, POLICY, STATE, MANIFEST = (
    f"{STEP}/{name}" for name in ("model/model.safetensors", "policy.safetensors", "state.json", "manifest.json")
)
CHECKPOINTS: dict[str, Case] = {
    **{f"weights flipped at {share}": Case("step-", flip(MODEL, share)) for share in (0.0, 0.1, 0.5, 1.0)},
    **{f"optimiser flipped at {share}": Case("step-", flip(POLICY, share)) for share in (0.0, 0.1, 0.5, 1.0)},
    "weights cut": Case("step-", cut(MODEL)),
    "optimiser cut": Case("step-", cut(POLICY)),
    "optimiser empty": Case("step-", put(POLICY, b"")),
    "config flipped": Case("step-", flip(f"{STEP}/model/config.json")),
    "tokenizer cut": Case("step-", cut(f"{STEP}/model/tokenizer.json")),
    "weights gone": Case("step-", lambda run: newest(run, MODEL).unlink()),
    "state gone": Case("step-", lambda run: newest(run, STATE).unlink()),
    "manifest gone": Case("step-", lambda run: newest(run, MANIFEST).unlink()),
    "manifest is a list": Case("step-", put(MANIFEST, "[]")),
    **{
        f"state is {text}": Case("step-", put(STATE, text))
        for text in (
            '{"step": 99, "updates": {"policy": 2}}',
            '{"step": -1, "updates": {"policy": 2}}',
            '{"step": 1, "updates": {"policy": 2}}',
            '{"step": 2}',
            "[]",
            "NaN",
        )
    },
    "SFT flipped": Case("sft-spa", flip("checkpoints/sft-spa/step-*/model/model.safetensors")),
}
"""Checkpoints that are not what was written: the run goes on from the one before, or says what to delete."""

FINAL = "checkpoints/*/step-*"
FINISHED: dict[str, Case] = {
    "the last weights flipped": Case("step-", flip(f"{FINAL}/model/model.safetensors")),
    "the last weights gone": Case("step-", lambda run: newest(run, f"{FINAL}/model/model.safetensors").unlink()),
    "the last checkpoint gone": Case("step-", lambda run: shutil.rmtree(newest(run, f"{FINAL}/state.json").parent)),
    "all checkpoints gone": Case("checkpoints", lambda run: shutil.rmtree(run / "checkpoints")),
}
"""Damages of a run that is finished: the same command says so."""
