"""Episodes as WebRL keeps and learns from them.

What was read and said stands in `info["turns"]`, the task's own words in `info["task"]`. Rows hold the tokens as they
were sampled; a demonstration has none, because the tokenizer of a model from nothing is trained on demonstrations: its
rows are written when a model learns from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.agents import prompts as words
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import start_reply
from oneiro.episode import Episode, FinishReason, Floats, Row, Tokens, from_plain, given, to_plain
from oneiro.models.chat import ChatFormat
from oneiro.rundir.records import read_lines
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.files import write_lines
from oneiro.runtime.seeds import generator
from oneiro_web.tasks import Task

Turn = Mapping[str, Any]
Lesson = tuple[Episode, Sequence[int]]
"""An episode whose score is its label, and which of its turns are learned from."""


def describe_task(episode: Episode, task: Task) -> Episode:
    """The episode with the words of its task."""
    about = {"id": str(task.task_id), "intent": task.intent, "site": task.sites[0]}
    return replace(episode, info={**episode.info, "task": {**about, "template": str(task.intent_template_id)}})


def is_played(episode: Episode) -> bool:
    """Whether it came to a reply, and did not break off with an error."""
    return episode.finish_reason is not FinishReason.ERROR and bool(turns_of(episode))


def turns_of(episode: Episode) -> list[dict[str, Any]]:
    turns: list[dict[str, Any]] = episode.info["turns"]
    return turns


def intent_of(episode: Episode) -> str:
    return str(episode.info["task"]["intent"])


def task_of(episode: Episode) -> str:
    """The task's id."""
    return str(episode.info["task"]["id"])


def key_of(episode: Episode) -> str:
    """Names it among the episodes of a phase."""
    return f"{task_of(episode)}#{episode.group}.{episode.member}"


def is_valid(turn: Turn) -> bool:
    """Whether the world understood the reply."""
    return bool(turn["actions"]) and all(action["valid"] for action in turn["actions"])


def turn_after(episode: Episode, dialogue: DialogueSettings) -> Turn:
    """The page that the last action left, as the agent would have read it."""
    last = turns_of(episode)[-1]
    state = last["next_state"]
    message = last["message"].replace(words.show_state(last["state"], dialogue), words.show_state(state, dialogue))
    return {"message": message, "state": state, "reply": ""}


def success_rate(episodes: Sequence[Episode]) -> float:
    """By the tasks' own graders."""
    return sum(episode.success for episode in episodes) / max(1, len(episodes))


# Files ----------------------------------------------------------------------------------------------------------------


def write(path: Path, episodes: Iterable[Episode]) -> None:
    """One line each."""
    write_lines(path, map(to_plain, episodes))


def read(path: Path) -> Iterator[Episode]:
    """The episodes of a file; damage is one line that names the file."""
    for record in read_lines(path):
        try:
            yield from_plain(record)
        except (TypeError, KeyError, ValueError) as error:
            raise OneiroError(f"{path} holds what is no episode ({error}); delete that file") from error


def read_folder(folder: Path) -> list[Episode]:
    """Of all its files, in order."""
    return [episode for path in sorted(folder.glob("*.jsonl")) for episode in read(path)]


def record(episode: Episode) -> dict[str, Any]:
    """An episode as the report's pages show it."""
    plain = to_plain(episode)
    return {**plain, "rows": [], "world": "web", "task": task_of(episode), "score": float(episode.success)}


# What is learned ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowFormat:
    """How a turn becomes tokens."""

    chat: ChatFormat
    dialogue: DialogueSettings
    response_prefix: str

    def state(self, turn: Turn) -> Tokens:
        """What was read, up to where the reply begins."""
        return self.chat.opening(turn["message"], "" if self.dialogue.brief else words.SYSTEM)

    def rows(self, episode: Episode, page_weight: float = 0.0) -> list[Row]:
        """One a turn: as sampled, or a demonstration's, written with cross-entropy on its replies and `page_weight` of
        it on what was read.
        """
        if episode.rows:
            return episode.rows
        return [self._write(turn, number, page_weight) for number, turn in enumerate(turns_of(episode), start=1)]

    def _write(self, turn: Turn, number: int, page_weight: float) -> Row:
        begins = start_reply(self.response_prefix, turn["state"])
        reply = np.append(self.chat.encode(turn["reply"].removeprefix(begins)), self.chat.end)
        segments = [given(self.state(turn), turn=number)]
        if page_weight:
            segments[0].weights["ce"] = page_weight
        if begins:
            segments.append(given(self.chat.encode(begins), "assistant", turn=number))
        return Row([*segments, given(reply, "assistant", turn=number, ce=1.0)])

    def weigh(self, lesson: Lesson) -> Episode:
        """The episode with a policy weight on the replies of those turns that are learned from, and on no others."""
        episode, places = lesson
        rows = []
        for number, row in enumerate(self.rows(episode)):
            weight = float(number in places)
            replied = [segment.sampled or segment is row.segments[-1] for segment in row.segments]
            rows.append(
                Row(
                    [
                        replace(segment, weights={"policy": weight, "kl": weight} if says else {})
                        for segment, says in zip(row.segments, replied, strict=True)
                    ]
                )
            )
        return replace(episode, rows=rows)


def instructive(lessons: Iterable[Lesson], known: float) -> list[Lesson]:
    """Without the turns whose sampled reply was more probable than `known`. Demonstrations stay whole."""
    kept = ((e, [place for place in places if reply_probability(e, place) <= known]) for e, places in lessons)
    return [(episode, places) for episode, places in kept if places]


def reply_probability(episode: Episode, place: int) -> float:
    """Of the whole reply of a turn, when it was sampled; 0 where nothing was, as in a demonstration."""
    said = [s.logprobs.sum() for s in episode.rows[place].segments if s.logprobs is not None] if episode.rows else []
    return float(np.exp(sum(said))) if said else 0.0


def solved_shares(episodes: Sequence[Episode], labels: Sequence[int | None], tasks: int) -> list[float]:
    """[tasks] the share of the attempts at each task that was labelled a success. An attempt without a label is none:
    its task may grow again.
    """
    attempts, successes = np.zeros(tasks), np.zeros(tasks)
    for episode, label in zip(episodes, labels, strict=True):
        attempts[episode.group] += 1
        successes[episode.group] += bool(label)
    shares: list[float] = (successes / np.maximum(attempts, 1)).tolist()
    return shares


# Replay by perplexity: past successful turns that the actor neither knows for sure nor finds strange ------------------

Place = tuple[int, int, int]
"""Where a stored turn is: phase (0: the demonstrations), episode of the phase, turn of the episode."""


def confidence(logprobs: Floats) -> float:
    """Geometric-mean probability of a reply's tokens, 1 / perplexity. `logprobs` are without the end token's."""
    return float(np.exp(np.mean(logprobs))) if len(logprobs) else 0.0


def in_band(probability: float, band: tuple[float, float]) -> bool:
    """Perplexity in [1 / high, 1 / low): the low end is out, the high end in, as released."""
    return band[0] < probability <= band[1]


def stored_turns(phases: Sequence[Sequence[Episode]], good: Sequence[Sequence[bool]], quota: int) -> list[Place]:
    """Every turn of the first `quota` successes of each task, over all phases in order."""
    taken: dict[str, int] = {}
    places: list[Place] = []
    for phase, episodes in enumerate(phases):
        for number, episode in enumerate(episodes):
            task = task_of(episode)
            if not good[phase][number] or taken.get(task, 0) >= quota:
                continue
            taken[task] = taken.get(task, 0) + 1
            places += [(phase, number, turn) for turn in range(len(turns_of(episode)))]
    return places


def select_replay(
    places: Sequence[Place],
    probabilities: Sequence[float],
    new_turns: int,
    band: tuple[float, float],
    cap: float,
    seed: int,
) -> list[tuple[Place, float]]:
    """Those in the band, shuffled, at most `cap` times the number of new turns."""
    inside = [(place, p) for place, p in zip(places, probabilities, strict=True) if in_band(p, band)]
    order = generator(seed, "replay").permutation(len(inside))
    return [inside[i] for i in order[: int(cap * new_turns)]]
