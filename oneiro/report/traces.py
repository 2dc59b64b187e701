"""What a planner considered, decision by decision, prepared for reading: `traces.json` of a run.

Everything here may hold text a model wrote or a page showed. It stays text: the page's template escapes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oneiro.report.episodes import MAX_CHARACTERS, MAX_TURNS, Span, compare
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import read_json

FILE = "traces.json"
MAX_TRACES = 40  # the page is one file that a browser opens at once
MAX_CANDIDATES = 12
MAX_NAME_CHARS = 200  # of a label, world or level


@dataclass(frozen=True)
class ShownCandidate:
    """An action that was considered; the prediction is marked where it differs from the present state."""

    action: str
    value: float
    predicted: list[Span] | None
    """None: the prediction could not be read."""
    chosen: bool


@dataclass(frozen=True)
class ShownDecision:
    """One turn: the state, the candidates best first, and what truly happened, marked where it was not predicted."""

    state: str
    candidates: list[ShownCandidate]
    hidden_candidates: int
    choice: str
    plan: list[str]
    tokens: int
    ended: str
    truth: list[Span]
    verdict: str
    """"as predicted", "not as predicted", or "" where nothing was predicted."""


@dataclass(frozen=True)
class ShownTrace:
    """One episode."""

    label: str
    world: str
    task: str
    success: bool
    decisions: list[ShownDecision]
    hidden_decisions: int


def read(path: Path) -> list[ShownTrace]:
    """The traces of a run directory; none where it has no file of them."""
    file = path / FILE
    if not file.exists():
        return []
    try:
        return [show(trace) for trace in read_json(file)["traces"][:MAX_TRACES]]
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise OneiroError(f"{file} holds what is no trace ({error}); delete that file") from error


def show(trace: dict[str, Any]) -> ShownTrace:
    """One stored trace, cut to a readable size."""
    turns = trace["turns"]
    return ShownTrace(
        label=str(trace.get("label", ""))[:MAX_NAME_CHARS],
        world=str(trace.get("world", ""))[:MAX_NAME_CHARS],
        task=str(trace.get("task", ""))[:MAX_NAME_CHARS],
        success=bool(trace.get("success")),
        decisions=[_decision(turn) for turn in turns[:MAX_TURNS]],
        hidden_decisions=max(0, len(turns) - MAX_TURNS),
    )


def _decision(turn: dict[str, Any]) -> ShownDecision:
    state, truth, choice = _cut(turn["state"]), _cut(turn["next_state"]), str(turn.get("choice") or "")
    candidates = turn["candidates"]
    chosen = next((one for one in candidates if one["action"] == choice), None)
    predicted = _cut(chosen["predicted"]) if chosen is not None and chosen["predicted"] is not None else None
    return ShownDecision(
        state=state,
        candidates=[_candidate(one, state, choice) for one in candidates[:MAX_CANDIDATES]],
        hidden_candidates=max(0, len(candidates) - MAX_CANDIDATES),
        choice=_cut(choice),
        plan=[_cut(action) for action in turn.get("plan") or []],
        tokens=int(turn.get("tokens") or 0),
        ended=str(turn.get("ended") or ""),
        truth=compare(truth, predicted) if predicted is not None else [Span(truth)],
        verdict="" if predicted is None else "as predicted" if predicted == truth else "not as predicted",
    )


def _candidate(candidate: dict[str, Any], state: str, choice: str) -> ShownCandidate:
    predicted = candidate["predicted"]
    return ShownCandidate(
        action=_cut(candidate["action"]),
        value=float(candidate["value"]),
        predicted=compare(_cut(predicted), state) if predicted is not None else None,
        chosen=candidate["action"] == choice,
    )


def _cut(text: Any) -> str:
    text = str(text).strip("\n")
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " [...]"
