"""From sampled futures to episodes: one segment, one future, a verified reward for each of its frames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Episode, FinishReason, Row, given
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.video.dataset import Clips
from oneiro.tasks.video.predictor import Encoded, VideoPredictor


def play(
    task: VideoPredictor,
    engine: Engine,
    clips: Clips,
    cases: Encoded,
    names: Sequence[str],
    group_size: int,
    sampling: SamplingSettings,
    seed: int,
) -> list[Episode]:
    """`group_size` futures of each segment, one episode each; a segment is a group and a frame is a turn.

    Success is to earn more than the last given frame held still.
    """
    samples = task.sample(engine, cases, group_size, sampling, seed)
    frames = task.frames_of(samples)
    terms = task.rewards(clips, cases, frames)
    total = np.sum(list(terms.values()), axis=0)
    trivial, repeats = task.reward_of_copying(clips, cases), task.repeats(cases, frames)
    episodes = []
    for group, (name, futures) in enumerate(zip(names, samples, strict=True)):
        prompt, actions = task.opening(cases[group]), clips.actions[group, task.layout.past - 1 :]
        for member, sample in enumerate(futures):
            rewards = total[group, member]
            segments = task.layout.reply_segments(sample.segments())
            episodes.append(
                Episode(
                    rows=[Row([given(prompt), *segments])],
                    rewards=rewards.tolist(),
                    terms={term: values[group, member].tolist() for term, values in terms.items()},
                    success=bool(rewards.sum() > trivial[group]),
                    finish_reason=FinishReason.LENGTH,
                    member=member,
                    group=group,
                    task=name,
                    world="video",
                    info={"actions": actions, "repeats": repeats[group, member]},
                )
            )
    return episodes


def record(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON: its tokens say what was seen, the tokenizer turns them into pictures."""
    (row,) = episode.rows
    actions: NDArray[np.float32] = episode.info["actions"]
    frames = [segment.tokens.tolist() for segment in row.segments if segment.sampled]
    return {
        "world": episode.world,
        "task": episode.task,
        "member": episode.member,
        "group": episode.group,
        "success": episode.success,
        "finish_reason": str(episode.finish_reason),
        "score": episode.score,
        "terms": episode.terms,
        "tokens": episode.sampled_tokens,
        "prompt": row.segments[0].tokens.tolist(),
        "frames": frames,
        "turns": [
            {"actions": [" ".join(f"{number:+.2f}" for number in actions[turn])], "reward": reward}
            for turn, reward in enumerate(episode.rewards)
        ],
    }


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """How often a step's futures repeat a frame."""
    return {"repetition": float(np.mean([episode.info["repeats"].mean() for episode in episodes]))}
