"""WebRL's published files, read and written: rollout traces, processed steps, task configs, sharegpt SFT data.

A run directory of the release holds `traces/{id}.jsonl` (a line a step) and `actions/{id}.json` (the score). Its
processing script turns them into trajectories of steps (stage 1, nested) and into one flat list with replayed steps
(stage 2). Here these are JSON lines; the release's `.pt` files are read by a loader that runs no code.

Whatever is malformed is reported by file and line and left out, never lost silently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oneiro.learning.algorithms.webrl import mc_returns
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError, first_line

PLACEHOLDER = "** Simplified html **"
"""Stands for every page but the present one."""
LARGEST = 1 << 28
"""Bytes of one file; a larger one is reported, not read."""
STEP_FIELDS = {
    "observation": str,
    "next_observation": str,
    "task": str,
    "reward": (int, float),
    "done": bool,
    "action": str,
    "trajectory_reward": (int, float),
}
"""What a processed step has, besides `mc_return` and, if it was replayed, `rank_score`."""

Plain = dict[str, Any]


@dataclass
class Problem:
    """Something that was left out."""

    path: Path
    line: int
    """From 1; 0: the whole file."""
    reason: str

    def __str__(self) -> str:
        return f"{self.path}{f', line {self.line}' if self.line else ''}: {self.reason}; skipped"


@dataclass
class TraceStep:
    """One line of a trace."""

    index: int
    html: str
    response: str
    prompt: str = PLACEHOLDER


@dataclass
class Trace:
    """One task's rollout."""

    trace_id: str
    target: str
    """The intent."""
    steps: list[TraceStep]
    score: float = 0.0


@dataclass
class Read:
    """What a folder gave, and what it did not."""

    traces: list[Trace] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


# Traces ---------------------------------------------------------------------------------------------------------------


def read_traces(folder: Path) -> Read:
    """All traces of a run directory, with their scores. A trace with a malformed line, without a score or without an
    end is left out whole: half a trajectory teaches what nobody did.
    """
    folder_content = Read()
    places = sorted((folder / "traces").glob("*.jsonl"))
    if not places:
        raise OneiroError(f"{folder} has no traces/*.jsonl; give the folder that contains traces/ and actions/")
    for path in places:
        trace = _read_trace(path, folder_content.problems)
        if trace is None:
            continue
        score = _read_score(folder / "actions" / f"{path.stem}.json", folder_content.problems)
        if score is not None:
            trace.score = score
            folder_content.traces.append(trace)
    return folder_content


def _read_trace(path: Path, problems: list[Problem]) -> Trace | None:
    steps: list[TraceStep] = []
    target = trace_id = ""
    bad = False
    for number, row in json_lines(path, problems):
        reason = None if row is None else wrong_field(row, {"index": int, "html": str, "response": str, "target": str})
        if row is None or reason is not None:
            bad = True
            if reason is not None:
                problems.append(Problem(path, number, reason))
            continue
        steps.append(TraceStep(row["index"], row["html"], row["response"], str(row.get("prompt", PLACEHOLDER))))
        target, trace_id = row["target"], str(row.get("trace_id", path.stem))
    while steps and not steps[-1].response.strip():
        steps.pop()  # an episode that was stopped ends with an empty response, which nobody should learn
    if not bad and not steps:
        problems.append(Problem(path, 0, "holds no step"))
    return None if bad or not steps else Trace(trace_id, target, sorted(steps, key=lambda step: step.index))


def _read_score(path: Path, problems: list[Problem]) -> float | None:
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        score = float(raw["score"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        problems.append(Problem(path, 0, f"no score ({first_line(error, 80)})"))
        return None
    if score < 0:  # -0.1 until an episode has ended
        problems.append(Problem(path, 0, f"the episode has not ended (score {score:g})"))
        return None
    return score


def write_traces(folder: Path, traces: Iterable[Trace]) -> int:
    """As the release's runner leaves them."""
    count = 0
    for trace in traces:
        rows = [
            {
                "trace_id": trace.trace_id,
                "index": step.index,
                "prompt": trace.target if step.index == 0 else PLACEHOLDER,
                "html": step.html,
                "response": step.response,
                "target": trace.target,
            }
            for step in trace.steps
        ]
        name = _file_name(trace.trace_id)
        files.write_lines(folder / "traces" / f"{name}.jsonl", rows)
        actions = {"task_id": trace.trace_id, "score": trace.score, "actions": [step.response for step in trace.steps]}
        files.write_json(folder / "actions" / f"{name}.json", actions)
        count += 1
    return count


# The prompt -----------------------------------------------------------------------------------------------------------

EOT, USER, ASSISTANT = (
    "<|eot_id|>",
    "<|start_header_id|>user<|end_header_id|>",
    "<|start_header_id|>assistant<|end_header_id|>",
)


def policy_prompt(intent: str, past: Sequence[str], html: str, max_characters: int | None = None) -> str:
    """The release's flat prompt: all past responses, the present page only. A page that does not fit loses its end."""
    user, assistant = f"{EOT}{USER}\n", f"\n\n{EOT}{ASSISTANT}\n"
    text = f"Task Instruction: {intent}\n\n"
    for number, response in enumerate(past):
        shown = intent if number == 0 else PLACEHOLDER
        text += f"Round {number}\n\n{user}{shown}{assistant}{response}\n\n"
    text += f"Round {len(past)}\n\n{user}"
    if max_characters is not None:
        html = html[: max(0, max_characters - len(text) - len(assistant))]
    return f"{text}{html}{assistant}"


# Processed steps ------------------------------------------------------------------------------------------------------


def process_trace(trace: Trace, success: bool, copied: bool = False, max_characters: int | None = None) -> list[Plain]:
    """Stage 1: a trajectory as steps. The reward stands on the last step; `copied`: on every step, as released."""
    past: list[str] = []
    steps: list[Plain] = []
    for number, step in enumerate(trace.steps):
        last = number == len(trace.steps) - 1
        following = step.html if last else trace.steps[number + 1].html
        observation = policy_prompt(trace.target, past, step.html, max_characters)
        past.append(step.response)
        steps.append(
            {
                "observation": observation,
                "next_observation": policy_prompt(trace.target, past, following, max_characters),
                "task": trace.target,
                "reward": float(success) if last or copied else 0.0,
                "done": last,
                "action": step.response,
                "trajectory_reward": int(success),
            }
        )
    return steps


def with_returns(steps: Sequence[Plain], gamma: float = 0.9) -> list[Plain]:
    """Every step with its `mc_return`."""
    import numpy as np

    returns = mc_returns(np.array([step["reward"] for step in steps], np.float32), gamma)
    return [{**step, "mc_return": round(float(value), 6)} for step, value in zip(steps, returns, strict=True)]


def select_steps(
    new: Sequence[Sequence[Plain]],
    experience: Sequence[Sequence[Plain]],
    rank: Callable[[Plain], float] | None,
    band: tuple[float, float],
    cap: float,
    seed: int,
) -> list[Plain]:
    """Stage 2: all new steps and the replayed ones, flat and shuffled. `rank` is a step's geometric-mean token
    probability under the actor; without one, steps keep the `rank_score` they have.
    """
    from oneiro.runtime.seeds import generator
    from oneiro.systems.webrl.episodes import in_band

    flat = [step for trajectory in new for step in with_returns(trajectory)]
    seen: set[str] = set()
    pool: list[Plain] = []
    for trajectory in experience:
        if trajectory and trajectory[-1]["trajectory_reward"] and trajectory[0]["task"] not in seen:
            seen.add(trajectory[0]["task"])
            pool += with_returns(trajectory)
    scored = [{**step, "rank_score": rank(step) if rank else step.get("rank_score", 0.0)} for step in pool]
    inside = [step for step in scored if in_band(step["rank_score"], band)]
    order = generator(seed, "replay").permutation(len(inside))[: int(cap * len(flat))]
    mixed = flat + [inside[i] for i in order]
    return [mixed[i] for i in generator(seed, "shuffle").permutation(len(mixed))]


def write_processed(path: Path, trajectories: Sequence[Sequence[Plain]]) -> None:
    """Stage 1, nested: a line a trajectory."""
    files.write_lines(path, [{"layout": "trajectory", "steps": list(steps)} for steps in trajectories])


def write_filtered(path: Path, steps: Sequence[Plain]) -> None:
    """Stage 2, flat: a line a step. The layout is said in the file, not guessed from its name."""
    files.write_lines(path, [{"layout": "step", **step} for step in steps])


def read_processed(path: Path) -> tuple[list[list[Plain]], list[Problem]]:
    """Trajectories of a processed file, JSON lines or `.pt`; flat steps are trajectories of one step."""
    problems: list[Problem] = []
    trajectories: list[list[Plain]] = []
    for number, row in enumerate(_load_pt(path), start=1) if path.suffix == ".pt" else json_lines(path, problems):
        if row is None:
            continue
        steps: Any = row.get("steps", [row]) if isinstance(row, dict) else row
        reason = _no_steps(steps)
        if reason is not None:
            problems.append(Problem(path, number, reason))
            continue
        trajectories.append([{key: value for key, value in step.items() if key != "layout"} for step in steps])
    return trajectories, problems


def _no_steps(steps: Any) -> str | None:
    """Why something is no list of processed steps; None where it is one."""
    if not isinstance(steps, list) or not steps:
        return "is no list of steps"
    return next((reason for step in steps if (reason := wrong_field(step, STEP_FIELDS))), None)


def _load_pt(path: Path) -> list[Any]:
    """A published `.pt` file: plain lists, dictionaries, texts and numbers; the rest is refused, no code is run."""
    import torch

    try:
        if path.stat().st_size > LARGEST:
            raise OneiroError(f"{path} is larger than {LARGEST >> 20} MB; split it")
        data = torch.load(path, map_location="cpu", weights_only=True)
    except OneiroError:
        raise
    except Exception as error:  # pickles fail in every way there is
        raise OneiroError(f"{path} is no plain .pt file ({first_line(error, 120)}); it is not opened") from error
    if not isinstance(data, list):
        raise OneiroError(f"{path} holds no list of trajectories or steps")
    return data


# Lines ----------------------------------------------------------------------------------------------------------------


def json_lines(path: Path, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Number and object of each line; None for one that is no JSON object, which is reported."""
    try:
        if path.stat().st_size > LARGEST:
            problems.append(Problem(path, 0, f"larger than {LARGEST >> 20} MB"))
            return
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise OneiroError(f"cannot read {path}: {error.strerror or error}") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.append(Problem(path, number, f"is no JSON ({first_line(error, 60)})"))
            yield number, None
            continue
        if not isinstance(row, dict):
            problems.append(Problem(path, number, "is no JSON object"))
            yield number, None
            continue
        yield number, row


def wrong_field(row: Any, kinds: Mapping[str, Any]) -> str | None:
    """What a record lacks or has wrong."""
    if not isinstance(row, dict):
        return "is no object"
    for name, kind in kinds.items():
        if name not in row:
            return f"has no '{name}'"
        if not isinstance(row[name], kind):
            return f"'{name}' is {type(row[name]).__name__}"
    return None


def _file_name(trace_id: str) -> str:
    """An id as a file's name, which it must not lead away from the folder."""
    return "".join(char if char.isalnum() or char in "-_.,=" else "_" for char in trace_id)[:120].lstrip(".") or "trace"
