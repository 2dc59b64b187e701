"""Inspect AI: the episodes of a stage as an `.eval` log, which `inspect view` and its dataframes read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from inspect_ai.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalMetric,
    EvalResults,
    EvalSample,
    EvalScore,
    EvalSpec,
    write_eval_log,
)
from inspect_ai.model import ChatMessageAssistant, ChatMessageUser, ModelOutput
from inspect_ai.scorer import Score

from oneiro.report.episodes import read_stages
from oneiro.report.stats import clustered
from oneiro.rundir.records import read_info
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_with


def episodes_to_eval(run: str | Path, out: str | Path, stage: str | None = None) -> int:
    """Write the episodes of one stage, by default the last evaluation; gives their number.

    A level is a sample, its attempts are epochs. Each has its dialogue as it was, and scores `success` and `return`.
    """
    run = Path(run)
    rows = read_stages(run, () if stage is None else (stage,))
    evaluated = [name for name in rows if name.startswith("eval")]
    if stage is None and len(evaluated) != 1:
        raise OneiroError(f"{run} has the stages {', '.join(rows) or 'none'}; choose one with --stage NAME")
    stage = stage or evaluated[0]
    # A model may write half of a character (a lone surrogate), which the log cannot hold.
    episodes = [json.loads(json.dumps(row, ensure_ascii=False).encode(errors="replace")) for row in rows[stage]]
    info = read_info(run)
    world = str(episodes[0].get("world", "world"))
    spec = EvalSpec(
        created=info["started"],
        task=f"oneiro/{world}",
        model=f"oneiro/{stage}",
        dataset=EvalDataset(name=world, samples=len({row["task"] for row in episodes})),
        config=EvalConfig(epochs=1 + max(int(row.get("member", 0)) for row in episodes)),
        packages={name: str(version) for name, version in info["versions"].items() if name != "python"},
    )
    scores = [
        _score(name, [float(row[key]) for row in episodes], [row["task"] for row in episodes]) for name, key in SCORES
    ]
    results = EvalResults(total_samples=len(episodes), completed_samples=len(episodes), scores=scores)
    samples = [_sample(row, spec.model) for row in episodes]
    log = EvalLog(status="success", eval=spec, results=results, samples=samples)
    write_with(out, lambda part: write_eval_log(log, str(part), format="eval"))
    return len(samples)


SCORES = (("success", "success"), ("return", "score"))


def _score(name: str, values: list[float], levels: list[str]) -> EvalScore:
    """The mean with its 95 % interval over levels."""
    cell = clustered(values, levels)
    numbers = {"mean": cell.value, "low": cell.low, "high": cell.high}
    metrics = {key: EvalMetric(name=key, value=float(value)) for key, value in numbers.items() if value is not None}
    return EvalScore(name=name, scorer=name, metrics=metrics)


def _sample(row: dict[str, Any], model: str) -> EvalSample:
    messages: list[Any] = []
    for turn in row["turns"]:
        messages.append(ChatMessageUser(content=str(turn.get("message", ""))))
        messages.append(ChatMessageAssistant(content=str(turn.get("reply", "")), model=model))
    reply = messages[-1].content if messages else ""
    kept = {key: value for key, value in row.items() if key not in ("turns", "score", "success")}
    return EvalSample(
        id=str(row["task"]),
        epoch=1 + int(row.get("member", 0)),
        input=messages[0].content if messages else "",
        target="success",
        messages=messages,
        output=ModelOutput.from_content(model, reply),
        scores={
            "success": Score(value=float(row["success"]), answer=", ".join(map(str, _actions(row)))[:200]),
            "return": Score(value=float(row["score"])),
        },
        metadata={
            **kept,
            "turns": [
                {key: turn.get(key) for key in ("actions", "reward", "state", "next_state", "prediction")}
                for turn in row["turns"]
            ],
        },
    )


def _actions(row: dict[str, Any]) -> list[Any]:
    return [action for turn in row["turns"] for action in turn.get("actions", ())]
