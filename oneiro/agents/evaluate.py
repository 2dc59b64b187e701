"""How good is an agent: success, pass@k, effective actions and the truth of its imagined states, beside chance and
ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pydantic import Field

from oneiro.agents.chat import ChatFormat
from oneiro.agents.dialogue import DialogueSettings
from oneiro.agents.play import play, tasks
from oneiro.agents.policies import ModelPolicy
from oneiro.episode import Episode, Stop
from oneiro.recipe import Settings
from oneiro.report import stats
from oneiro.report.table import Cell, Table
from oneiro.worlds import baselines
from oneiro.worlds.base import World

COLUMNS = [
    "agent",
    "success",
    "pass@k",
    "effective actions",
    "observation exact",
    "prediction exact",
    "malformed turns",
]


BANDS = ((1, 2), (3, 4), (5, 6), (7, 8), (9, 10), (11, math.inf))
"""Lengths of shortest solutions that are told together, in actions."""


class EvaluationSettings(Settings):
    levels: int = Field(256, ge=1)
    """Levels of the evaluation split, none of which is ever trained on."""
    samples: int = Field(4, ge=1)
    """Attempts at each level; pass@k is reported for k = samples."""
    first_seed: int = 0
    temperature: float | None = Field(None, ge=0)
    """Sampling temperature, where it is not that of play."""
    every: int = Field(0, ge=0)
    """Steps of RL between evaluations on the way, the first before any update; 0: only at the end."""


def table(world: str, settings: EvaluationSettings) -> Table:
    return Table(
        f"{world}, {settings.levels} unseen levels, {settings.samples} attempt{'s' * (settings.samples > 1)} each",
        [column.replace("@k", f"@{settings.samples}") for column in COLUMNS],
        units={column.replace("@k", f"@{settings.samples}"): "%" for column in COLUMNS[1:]},
        note="95 % intervals, bootstrap over levels",
    )


def random_row(world: str, world_settings: dict[str, Any], settings: EvaluationSettings) -> list[Cell | str]:
    """What the random policy gets on the same levels."""
    success = baselines.random_success(
        world, settings.levels, settings.samples, first_seed=settings.first_seed, settings=world_settings
    )
    return ["random", stats.success_rate(success), stats.pass_rate(success, settings.samples), *[Cell(None)] * 4]


def ceiling_row(world: str, world_settings: dict[str, Any], settings: EvaluationSettings) -> list[Cell | str] | None:
    """The best any agent can get within the action budget, where the world can say."""
    best = baselines.ceiling(world, settings.levels, first_seed=settings.first_seed, settings=world_settings)
    if np.isnan(best).any():
        return None
    any_of_k = 1 - (1 - best) ** settings.samples
    return ["ceiling", stats.bootstrap(best), stats.bootstrap(any_of_k), *[Cell(None)] * 4]


def attempt(
    make_world: Callable[[], World],
    policy: ModelPolicy,
    dialogue: DialogueSettings,
    chat: ChatFormat,
    settings: EvaluationSettings,
    seed: int,
    primed: str = "",
) -> list[Episode]:
    """Play all evaluation levels."""
    attempts = tasks(settings.levels, settings.samples, "eval", settings.first_seed)
    return play(make_world, attempts, policy, dialogue, chat, seed, primed)


def agent_row(name: str, episodes: Sequence[Episode], settings: EvaluationSettings) -> list[Cell | str]:
    """An agent's row of the table."""
    return [name, *measure(episodes, settings.samples).values()]


def lengths_table(world: str) -> Table:
    names = [f"{low} to {high}" if high < math.inf else f"{low} and more" for low, high in BANDS]
    return Table(
        f"{world}: success by the length of the shortest solution, in actions",
        ["agent", *names],
        units=dict.fromkeys(names, "%"),
        note="95 % intervals, bootstrap over levels",
    )


def lengths_row(name: str, episodes: Sequence[Episode]) -> list[Cell | str] | None:
    """Success at levels of each length; None where the world does not know its solutions."""
    known = [e for e in episodes if e.info.get("optimum") is not None]
    if not known:
        return None
    bands = [[e for e in known if low <= e.info["optimum"] <= high] for low, high in BANDS]
    return [name, *(measure(band, 1)["success"] if band else Cell(None) for band in bands)]


def measure(episodes: Sequence[Episode], k: int) -> dict[str, Cell]:
    """Success and pass@k over levels; the rest over turns or actions, each averaged within its level first."""
    by_level: dict[int, list[Episode]] = {}
    for episode in episodes:
        by_level.setdefault(episode.group, []).append(episode)
    levels = list(by_level.values())
    success = np.array([[e.success for e in level] for level in levels])

    def over_levels(values: Callable[[Episode], list[bool]]) -> Cell:
        means = [np.mean(found) for level in levels if (found := [v for e in level for v in values(e)])]
        return stats.bootstrap(means)

    return {
        "success": stats.success_rate(success),
        "pass@k": stats.pass_rate(success, k),
        "effective": over_levels(lambda e: [a["effective"] for t in e.info["turns"] for a in t["actions"]]),
        "observation": over_levels(
            lambda e: [t["observation"] == t["state"] for t in e.info["turns"] if t["observation"] is not None]
        ),
        "prediction": over_levels(
            lambda e: [t["prediction"] == t["next_state"] for t in e.info["turns"] if t["prediction"] is not None]
        ),
        "malformed": over_levels(
            lambda e: [not t["actions"] or not all(a["valid"] for a in t["actions"]) for t in e.info["turns"]]
        ),
    }


def record(episode: Episode) -> dict[str, Any]:
    """An episode as plain JSON, for `episodes/` and the report."""
    return {
        "world": episode.world,
        "task": episode.task,
        "seed": episode.seed,
        "member": episode.member,
        "group": episode.group,
        "success": episode.success,
        "stop": str(episode.stop),
        "score": episode.score,
        "optimum": episode.info.get("optimum"),
        "terms": episode.terms,
        "tokens": episode.sampled_tokens,
        "turns": [
            {**turn, "actions": [action["action"] for action in turn["actions"]]} for turn in episode.info["turns"]
        ],
    }


def evaluate_agent(
    world: str,
    model: str | None,
    policy: str | None,
    levels: int = 256,
    samples: int = 8,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
) -> Table:
    """The table of `oneiro eval agent`: random, the model or scripted policy asked for, and the ceiling."""
    from oneiro.agents.subject import load_subject

    evaluation = EvaluationSettings(levels=levels, samples=samples)
    subject = load_subject(model, world, settings or {})
    found = table(subject.world, evaluation)
    if subject.note:
        found.note += f"; {subject.note}"
    found.add(*random_row(subject.world, subject.world_settings, evaluation))
    if policy == "oracle":
        success = baselines.oracle_success(
            subject.world, levels, samples, first_seed=evaluation.first_seed, settings=subject.world_settings
        )
        found.add("oracle", stats.success_rate(success), stats.pass_rate(success, samples), *[Cell(None)] * 4)
    if subject.policy is not None and subject.chat is not None:
        episodes = attempt(
            subject.make_world, subject.policy, subject.dialogue, subject.chat, evaluation, seed, subject.primed
        )
        found.add(*agent_row(str(model), [e for e in episodes if e.stop is not Stop.ERROR], evaluation))
    best = ceiling_row(subject.world, subject.world_settings, evaluation)
    if best is not None:
        found.add(*best)
    return found
