"""What was played, on disk and as rows: a trajectory is a task and its steps, a step one reply to one page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.agents import prompts as words
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import begun
from oneiro.episode import Episode, FinishReason, Row, SamplingParams, Segment, Tokens, given
from oneiro.models.chat import ChatFormat
from oneiro.rundir.records import read_lines
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_text
from oneiro_web.tasks import Task


@dataclass(slots=True)
class Step:
    """One reply."""

    message: str
    """What the agent read."""
    state: str
    """The page as the world shows it."""
    reply: str
    tokens: list[int] = field(default_factory=list)
    """The reply as it was sampled, without what it was made to begin with; none where nothing was sampled."""
    logprobs: list[float] = field(default_factory=list)
    valid: bool = True
    """Whether the world understood the action."""


@dataclass(slots=True)
class Trajectory:
    """One attempt at one task."""

    task_id: str
    intent: str
    site: str
    template: str
    steps: list[Step]
    success: bool
    """What the task's own grader said."""
    finish_reason: str
    final: str
    """The page that the last action left."""
    after: str = ""
    """What the agent would have read next."""
    group: int = 0
    member: int = 0

    @property
    def key(self) -> str:
        """Names it among the trajectories of a phase."""
        return f"{self.task_id}#{self.group}.{self.member}"

    def __len__(self) -> int:
        return len(self.steps)


def of_episode(episode: Episode, task: Task, dialogue: DialogueSettings) -> Trajectory | None:
    """A played episode; None where it broke off with an error or before its first reply."""
    turns = episode.info["turns"]
    if episode.finish_reason is FinishReason.ERROR or not turns:
        return None
    steps = []
    for number, turn in enumerate(turns):
        sampled = []
        if number < len(episode.rows):
            sampled = [segment for segment in episode.rows[number].segments if segment.sampled]
        steps.append(
            Step(
                turn["message"],
                turn["state"],
                turn["reply"],
                [int(token) for segment in sampled for token in segment.tokens],
                [float(p) for segment in sampled if segment.logprobs is not None for p in segment.logprobs],
                bool(turn["actions"]) and all(action["valid"] for action in turn["actions"]),
            )
        )
    last, final = steps[-1], turns[-1]["next_state"]
    after = last.message.replace(words.shown(last.state, dialogue), words.shown(final, dialogue))
    return Trajectory(
        str(task.task_id),
        task.intent,
        task.sites[0],
        str(task.intent_template_id),
        steps,
        episode.success,
        str(episode.finish_reason),
        final,
        after,
        episode.group,
        episode.member,
    )


# Files ----------------------------------------------------------------------------------------------------------------


def write(path: Path, trajectories: Iterable[Trajectory]) -> None:
    """One line each."""
    write_text(path, "".join(json.dumps(asdict(t), ensure_ascii=False) + "\n" for t in trajectories))


def read(path: Path) -> Iterator[Trajectory]:
    """The trajectories of a file; damage is one line that names the file."""
    for record in read_lines(path):
        try:
            yield Trajectory(**{**record, "steps": [Step(**step) for step in record["steps"]]})
        except (TypeError, KeyError) as error:
            raise OneiroError(f"{path} holds what is no trajectory ({error}); delete that file") from error


def read_folder(folder: Path) -> list[Trajectory]:
    """Of all its files, in order."""
    return [trajectory for path in sorted(folder.glob("*.jsonl")) for trajectory in read(path)]


# Rows -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowFormat:
    """How a step becomes tokens."""

    chat: ChatFormat
    dialogue: DialogueSettings
    response_prefix: str

    @property
    def system(self) -> str:
        return "" if self.dialogue.brief else words.SYSTEM

    def prompt(self, message: str) -> Tokens:
        """Up to where the reply begins."""
        return self.chat.opening(message, self.system)

    def reply(self, step: Step) -> Tokens:
        """The reply's own tokens, as sampled, or written anew for a demonstration."""
        if step.tokens:
            return np.array(step.tokens, np.int32)
        text = step.reply.removeprefix(begun(self.response_prefix, step.state))
        return np.concatenate([self.chat.encode(text), [self.chat.end]]).astype(np.int32)

    def row(self, step: Step, page_weight: float = 0.0, **weights: float) -> Row:
        """Prompt and reply; the reply's tokens carry the weights, the prompt's `page_weight` of cross-entropy."""
        page = {"ce": page_weight} if page_weight else {}
        segments = [Segment(self.prompt(step.message), weights=dict(page))]
        if self.response_prefix:
            segments.append(given(self.chat.encode(begun(self.response_prefix, step.state)), "assistant"))
        return Row([*segments, Segment(self.reply(step), role="assistant", weights=dict(weights))])

    def episode(self, trajectory: Trajectory, reward: float, params: SamplingParams) -> Episode:
        """As the shared learner takes it: every step a row, the reward on the last turn."""
        rows = []
        for turn, step in enumerate(trajectory.steps, start=1):
            row = self.row(step)
            sampled = Segment(
                self.reply(step), True, "assistant", turn=turn, logprobs=np.array(step.logprobs), params=params
            )
            rows.append(Row([*row.segments[:-1], sampled]))
        rewards = [0.0] * (len(trajectory) - 1) + [reward]
        return Episode(rows, rewards, success=reward > 0, group=trajectory.group, member=trajectory.member)


def success_rate(trajectories: Sequence[Trajectory]) -> float:
    """By the tasks' own graders."""
    return sum(t.success for t in trajectories) / max(1, len(trajectories))


def summary(trajectory: Trajectory) -> dict[str, Any]:
    """A trajectory as the report's pages show episodes."""
    return {
        "world": "web",
        "task": trajectory.task_id,
        "seed": 0,
        "member": trajectory.member,
        "group": trajectory.group,
        "success": trajectory.success,
        "finish_reason": trajectory.finish_reason,
        "score": float(trajectory.success),
        "turns": [{"message": s.message, "state": s.state, "reply": s.reply, "actions": []} for s in trajectory.steps],
    }
