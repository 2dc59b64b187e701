"""A sample of a run's episodes, prepared for reading: what was seen, what was said of it, what came.

Everything here may hold text a model wrote. It stays text: the page's template escapes it.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from oneiro.episode import Episode
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import require_run
from oneiro.runtime.errors import OneiroError, nearest
from oneiro.runtime.files import read_json, write_with

STEPS = 3
"""Steps shown of each stage: first, middle, last."""
PER_STEP = 6
"""Episodes shown of each step, as many that succeeded as that failed where there are enough."""
MAX_EPISODES = 60  # of a stage, spread over its steps: the page is one file that a browser opens at once
MAX_TURNS = 40
MAX_CHARACTERS = 4000
MAX_PICTURES = 100
"""Of the whole page, in the order of its episodes."""
MAX_PICTURE = 80_000
"""Characters in base 64; a larger picture is left out."""
MAX_WORDS = 600
"""Texts with more words are compared line by line: aligning words takes quadratic time."""

T = TypeVar("T")

PICTURE = re.compile(r"[A-Za-z0-9+/]+={0,2}")
FILE_NAME = re.compile(r"(?P<stage>.+)-(?P<step>\d+)\.jsonl\.gz")


@dataclass(frozen=True)
class Span:
    """A piece of text, marked where it differs from the truth."""

    text: str
    differs: bool = False


@dataclass(frozen=True)
class Panel:
    """One state of a turn: the true one, or what the agent made of it."""

    title: str
    spans: list[Span] | None
    verdict: str = ""
    """"exact" or "differs" where there is a truth to compare with."""


@dataclass(frozen=True)
class ShownTurn:
    panels: list[Panel]
    reply: str
    actions: list[str]
    reward: float
    picture: str = ""
    """A JPEG of the world after the turn, in base 64."""


@dataclass(frozen=True)
class Shown:
    """One episode on the page."""

    stage: str
    step: int
    world: str
    task: str
    seed: int
    member: int
    success: bool
    finish_reason: str
    score: float
    terms: dict[str, float]
    turns: list[ShownTurn]
    hidden_turns: int


def episode_files(path: Path) -> dict[str, dict[int, Path]]:
    """Stage -> step -> file of a run, steps ascending. Names say what is there."""
    files: dict[str, dict[int, Path]] = {}
    for file in sorted((path / "episodes").glob("*.jsonl.gz")):
        if match := FILE_NAME.fullmatch(file.name):
            files.setdefault(match["stage"], {})[int(match["step"])] = file
    return files


def sample(path: Path, stages: Sequence[str]) -> list[Shown]:
    """Episodes worth a look, of each stage its first, middle and last step. `stages` in order; the last comes first."""
    files = episode_files(path)
    in_order = [stage for stage in reversed(stages) if stage in files]
    in_order += [stage for stage in files if stage not in in_order]
    steps = [file for stage in in_order for _, file in _spread(sorted(files[stage].items()), STEPS)]
    chosen = _spread([shown for file in steps for shown in _read_shown(file)], MAX_EPISODES)
    room = MAX_PICTURES
    for place, shown in enumerate(chosen):
        kept = [replace(turn, picture="") if (room := room - bool(turn.picture)) < 0 else turn for turn in shown.turns]
        chosen[place] = replace(shown, turns=kept)
    return chosen


def _read_shown(file: Path) -> Iterator[Shown]:
    for row in _both_kinds(list(read_lines(file))):
        try:
            yield show(row)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise OneiroError(f"{file} holds what is no episode ({error}); delete that file") from error


def show(row: dict[str, Any]) -> Shown:
    """One stored episode, compared with the truth and cut to a readable size."""
    turns = row.get("turns") or []
    parts = [
        name for name in ("state", "observation", "prediction", "next_state") if any(turn.get(name) for turn in turns)
    ]
    return Shown(
        stage=str(row.get("stage", "")),
        step=int(row.get("step", 0)),
        world=str(row.get("world", "")),
        task=str(row.get("task", "")),
        seed=int(row.get("seed", 0)),
        member=int(row.get("member", 0)),
        success=bool(row.get("success")),
        finish_reason=str(row.get("finish_reason", "")),
        score=float(row.get("score", 0.0)),
        terms={str(name): _total(value) for name, value in (row.get("terms") or {}).items()},
        turns=[_turn(turn, parts) for turn in turns[:MAX_TURNS]],
        hidden_turns=max(0, len(turns) - MAX_TURNS),
    )


def compare(shown: str, truth: str) -> list[Span]:
    """`shown` in pieces, those that differ from `truth` marked. What is missing altogether shows as a marked `␣`."""
    shown_lines, true_lines = shown.split("\n"), truth.split("\n")
    if [len(line) for line in shown_lines] == [len(line) for line in true_lines]:
        return _join(Span(a, a != b) for a, b in zip(shown, truth, strict=True))
    words, true_words = re.findall(r"\s+|\S+", shown), re.findall(r"\s+|\S+", truth)
    if max(len(words), len(true_words)) > MAX_WORDS:
        known = set(true_lines)
        return _join(Span(line + "\n", line not in known) for line in shown_lines)
    return _join(_align(words, true_words))


def _align(words: Sequence[str], true_words: Sequence[str]) -> Iterator[Span]:
    matcher = difflib.SequenceMatcher(None, words, true_words, autojunk=False)
    for kind, first, last, _, _ in matcher.get_opcodes():
        yield Span("".join(words[first:last]) or "␣", kind != "equal")


def _turn(turn: dict[str, Any], parts: Sequence[str]) -> ShownTurn:
    texts = {name: None if turn.get(name) is None else _cut(str(turn[name]).strip("\n")) for name in parts}
    titles = {
        "state": "State",
        "observation": "Seen by the agent",
        "prediction": "Predicted by the agent",
        "next_state": "Next state",
    }
    truths = {"observation": "state", "prediction": "next_state"}
    panels = [_panel(titles[name], texts[name], texts.get(truths.get(name, ""))) for name in parts]
    actions = [_cut(str(action)) for action in turn.get("actions") or []]
    picture = str(turn.get("picture") or "")
    fine = len(picture) <= MAX_PICTURE and PICTURE.fullmatch(picture)
    reply, reward = _cut(str(turn.get("reply") or "")), float(turn.get("reward") or 0.0)
    return ShownTurn(panels, reply, actions, reward, picture if fine else "")


def _panel(title: str, text: str | None, truth: str | None) -> Panel:
    if text is None:
        return Panel(title, None)
    if truth is None:
        return Panel(title, [Span(text)])
    spans = compare(text, truth)
    return Panel(title, spans, "differs" if any(span.differs for span in spans) else "exact")


def _join(spans: Iterator[Span]) -> list[Span]:
    """Neighbours of a kind become one."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].differs == span.differs:
            joined[-1] = Span(joined[-1].text + span.text, span.differs)
        else:
            joined.append(span)
    return joined


def _spread(items: Sequence[T], count: int) -> list[T]:
    """At most `count` items, evenly from first to last."""
    if len(items) <= count:
        return list(items)
    return [items[round(place * (len(items) - 1) / (count - 1))] for place in range(count)]


def _both_kinds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    won, lost = [row for row in rows if row.get("success")], [row for row in rows if not row.get("success")]
    half = PER_STEP // 2
    return won[: max(half, PER_STEP - len(lost))] + lost[: max(half, PER_STEP - len(won))]


def _total(value: Any) -> float:
    """A reward term, given per turn or summed."""
    return float(sum(value)) if isinstance(value, list) else float(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} … ({len(text) - MAX_CHARACTERS:,} more)"


def record(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON, for `episodes/` and the report."""
    return {
        "world": episode.world,
        "task": episode.task,
        "seed": episode.seed,
        "member": episode.member,
        "group": episode.group,
        "success": episode.success,
        "finish_reason": str(episode.finish_reason),
        "score": episode.score,
        "optimum": episode.info.get("optimum"),
        "terms": episode.terms,
        "tokens": episode.sampled_tokens,
        "turns": [
            {**turn, "actions": [action["action"] for action in turn["actions"]]} for turn in episode.info["turns"]
        ],
        **({"error": episode.info["error"]} if "error" in episode.info else {}),
    }


def is_record(data: dict[str, Any]) -> bool:
    """Whether plain JSON has the form that `record` gives, as far as learning reads it."""
    turns = data.get("turns")
    return (
        isinstance(data.get("success"), bool)
        and isinstance(data.get("finish_reason"), str)
        and isinstance(data.get("seed"), int)
        and isinstance(turns, list)
        and all(isinstance(turn, dict) and _is_turn(turn) for turn in turns)
    )


def _is_turn(turn: dict[str, Any]) -> bool:
    # Written out: recorded play has hundreds of thousands of turns.
    return (
        isinstance(turn.get("message"), str)
        and isinstance(turn.get("state"), str)
        and isinstance(turn.get("reply"), str)
        and isinstance(turn.get("next_state"), str)
        and isinstance(actions := turn.get("actions"), list)
        and all(isinstance(action, str) for action in actions)
    )


# As one file ----------------------------------------------------------------------------------------------------------

# The episodes of a run as one Parquet file, which datasets, pandas and DuckDB read.
#
# datasets.load_dataset("parquet", data_files="episodes.parquet")


def read_stages(run: Path, wanted: Sequence[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """The records of a run by stage, as its files are named; a `wanted` stage that it lacks is one line."""
    require_run(run)
    rows: dict[str, list[dict[str, Any]]] = {}
    for file in sorted((run / "episodes").glob("*.jsonl.gz")):
        for row in read_lines(file):
            rows.setdefault(str(row.get("stage")), []).append(row)
    for stage in wanted:
        if stage not in rows:
            raise OneiroError(f"{run} has no episodes of a stage '{stage}'{nearest(stage, rows)}")
    return rows


def episodes_to_parquet(run: str | Path, out: str | Path, stages: Sequence[str] = ()) -> tuple[int, list[str]]:
    """Write one row per episode, of these stages or of all; gives the number of rows and the columns.

    A column holds what the records have under that name. Where records do not agree on its type, it holds JSON texts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    by_stage = read_stages(Path(run), stages)
    if not by_stage:
        raise OneiroError(f"{run} has no episodes yet; a run keeps them as its stages end")
    rows = [row for stage, own in by_stage.items() for row in own if not stages or stage in stages]
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


# What a planner considered, decision by decision: `traces.json` of a run ----------------------------------------------


TRACES = "traces.json"
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


def read_traces(path: Path) -> list[ShownTrace]:
    """The traces of a run directory; none where it has no file of them."""
    file = path / TRACES
    if not file.exists():
        return []
    try:
        return [show_trace(trace) for trace in read_json(file)["traces"][:MAX_TRACES]]
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise OneiroError(f"{file} holds what is no trace ({error}); delete that file") from error


def show_trace(trace: dict[str, Any]) -> ShownTrace:
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
    state, truth, choice = _shorten(turn["state"]), _shorten(turn["next_state"]), str(turn.get("choice") or "")
    candidates = turn["candidates"]
    chosen = next((one for one in candidates if one["action"] == choice), None)
    predicted = _shorten(chosen["predicted"]) if chosen is not None and chosen["predicted"] is not None else None
    return ShownDecision(
        state=state,
        candidates=[_candidate(one, state, choice) for one in candidates[:MAX_CANDIDATES]],
        hidden_candidates=max(0, len(candidates) - MAX_CANDIDATES),
        choice=_shorten(choice),
        plan=[_shorten(action) for action in turn.get("plan") or []],
        tokens=int(turn.get("tokens") or 0),
        ended=str(turn.get("ended") or ""),
        truth=compare(truth, predicted) if predicted is not None else [Span(truth)],
        verdict="" if predicted is None else "as predicted" if predicted == truth else "not as predicted",
    )


def _candidate(candidate: dict[str, Any], state: str, choice: str) -> ShownCandidate:
    predicted = candidate["predicted"]
    return ShownCandidate(
        action=_shorten(candidate["action"]),
        value=float(candidate["value"]),
        predicted=compare(_shorten(predicted), state) if predicted is not None else None,
        chosen=candidate["action"] == choice,
    )


def _shorten(text: Any) -> str:
    text = str(text).strip("\n")
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + " [...]"
