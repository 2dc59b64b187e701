"""How good is an agent: success, pass@k, effective actions and the truth of its imagined states, beside chance and
ceiling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from oneiro.agents.policies import Policy, ServerPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts_at, gives_state, play
from oneiro.episode import Episode, FinishReason, describe_errors
from oneiro.models.chat import ChatFormat
from oneiro.recipe import Settings, build
from oneiro.report import stats
from oneiro.report.table import Cell, Table
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.server import ServerConfig
from oneiro.worlds import baselines
from oneiro.worlds.base import World
from oneiro.worlds.baselines import mixture
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.registry import config_for, make

if TYPE_CHECKING:
    from oneiro.agents.planning.base import PlannerSettings
    from oneiro.agents.planning.loading import LoadedPlanner

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
"""Lengths of shortest solutions that share a column, in actions."""


class AgentEvaluationSettings(Settings):
    levels: int = Field(256, ge=1)
    """Distinct levels of the evaluation split, none of which is ever trained on; all there are, where there are fewer.
    """
    samples: int = Field(4, ge=1)
    """Attempts at each level; pass@k is reported for k = samples."""
    first_seed: int = 0
    """Seed of the first level."""
    temperature: float | None = Field(None, ge=0)
    """Sampling temperature, where it is not that of play."""
    every: int = Field(0, ge=0)
    """Steps of RL between evaluations on the way, the first before any update; 0: only at the end."""


def table(world: str, levels: int, settings: AgentEvaluationSettings) -> Table:
    return Table(
        f"{world}, {levels} distinct unseen levels, {settings.samples} attempt{'s' * (settings.samples > 1)} each",
        [column.replace("@k", f"@{settings.samples}") for column in COLUMNS],
        units={column.replace("@k", f"@{settings.samples}"): "%" for column in COLUMNS[1:]},
        note="95 % intervals, bootstrap over levels",
    )


@dataclass(frozen=True)
class Baselines:
    """Chance and the best possible on the evaluation levels: what a learned row is read between."""

    random: NDArray[np.bool_]
    """[levels, samples] which attempts of the random policy succeed."""
    optima: baselines.LevelOptima

    def random_row(self) -> list[Cell | str]:
        return success_row("random", self.random)

    def ceiling_row(self) -> list[Cell | str] | None:
        """The best any agent can get within the action budget, where the world can say."""
        best = self.optima.best
        if np.isnan(best).any():
            return None
        # Attempts at a level are independent, so k of them fail together with the product of their chances.
        any_of_k = 1 - (1 - best) ** self.random.shape[1]
        return ["ceiling", stats.bootstrap(best), stats.bootstrap(any_of_k), *[Cell(None)] * 4]

    def random_lengths(self) -> list[Cell | str] | None:
        return _by_length("random", self.optima.optimum, lambda levels: stats.success_rate(self.random[levels]))

    def ceiling_lengths(self) -> list[Cell | str] | None:
        best = self.optima.best
        if np.isnan(best).any():
            return None
        return _by_length("ceiling", self.optima.optimum, lambda levels: stats.bootstrap(best[levels]))


def within(dialogue: DialogueSettings, world: str, world_settings: dict[str, Any]) -> dict[str, Any]:
    """The world's settings with no more actions than a dialogue has room for: the budget that agents really have."""
    # A ceiling for more actions than the turns have room for would be one that no agent can reach.
    room = dialogue.max_turns * dialogue.actions_per_turn
    own = config_for(world, world_settings).max_actions
    return world_settings if own <= room else {**world_settings, "max_actions": room}


def measure_baselines(
    world: str,
    world_settings: dict[str, Any],
    settings: AgentEvaluationSettings,
    advance: Callable[[int], object] | None = None,
) -> Baselines:
    """Play the random policy and ask for the ceiling, on the levels an agent is evaluated on and with its budget
    (`within`).
    """
    levels, chosen = settings.levels, evaluation_seeds(world, world_settings, settings)
    chance = baselines.random_success(
        world, levels, settings.samples, seeds=chosen, settings=world_settings, advance=advance
    )
    return Baselines(chance, baselines.level_optima(world, levels, seeds=chosen, settings=world_settings))


def evaluation_seeds(world: str, world_settings: dict[str, Any], settings: AgentEvaluationSettings) -> list[int]:
    return distinct_seeds(lambda: make(world, **world_settings), "eval", settings.levels, settings.first_seed)


def success_row(name: str, success: NDArray[np.bool_]) -> list[Cell | str]:
    """The row of a script, of which [levels, samples] successes are all there is to say."""
    return [name, stats.success_rate(success), stats.pass_rate(success, success.shape[1]), *[Cell(None)] * 4]


def attempt(
    make_world: Callable[[], World],
    policy: Policy,
    dialogue: DialogueSettings,
    chat: ChatFormat | None,
    settings: AgentEvaluationSettings,
    seed: int,
    response_prefix: str = "",
    advance: Callable[[int], object] | None = None,
) -> list[Episode]:
    """Play all evaluation levels: distinct ones, also up to the world's symmetries."""
    seeds = distinct_seeds(make_world, "eval", settings.levels, settings.first_seed)
    planned = attempts_at(seeds, settings.samples, "eval")
    at_once = 1 if is_shared(make_world) else None
    return play(make_world, planned, policy, dialogue, chat, seed, response_prefix, advance, at_once)


def is_shared(make_world: Callable[[], World]) -> bool:
    """Whether others use the same sites: then episodes are played one at a time, and no row that nobody asked for."""
    with closing(make_world()) as world:
        return world.shared


def agent_row(
    name: str, episodes: Sequence[Episode], settings: AgentEvaluationSettings, response_prefix: str = ""
) -> list[Cell | str]:
    """An agent's row of the table. What its `response_prefix` gives it to say is not measured."""
    cells = measure(episodes, settings.samples)
    if gives_state(response_prefix):
        cells["observation"] = Cell(None)  # it was written for the agent, so that being right is no merit
    return [name, *cells.values()]


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
    return _by_length(
        name,
        [e.info.get("optimum") for e in episodes],
        lambda places: measure([episodes[place] for place in places], 1)["success"],
    )


def _by_length(name: str, lengths: Sequence[int | None], cell: Callable[[list[int]], Cell]) -> list[Cell | str] | None:
    """A row of `lengths_table`: `cell` measures what lies at some places of `lengths`; None where none is known."""
    if all(length is None for length in lengths):
        return None
    bands = [
        [place for place, length in enumerate(lengths) if length is not None and low <= length <= high]
        for low, high in BANDS
    ]
    return [name, *(cell(band) if band else Cell(None) for band in bands)]


def measure(episodes: Sequence[Episode], k: int) -> dict[str, Cell]:
    """Success and pass@k over levels; the rest over turns or actions, each averaged within its level first."""
    by_level: dict[int, list[Episode]] = {}
    for episode in episodes:
        by_level.setdefault(episode.group, []).append(episode)
    levels = list(by_level.values())
    success = np.array([[e.success for e in level] for level in levels])

    def over_levels(values: Callable[[Episode], list[bool]]) -> Cell:
        # Levels are what is independent: turns of one level share its map, and a long episode must not count more.
        means = [np.mean(own) for level in levels if (own := [v for e in level for v in values(e)])]
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


def evaluate_agent(
    world: str,
    model: str | None = None,
    policy: str | None = None,
    levels: int = 256,
    samples: int = 8,
    settings: dict[str, Any] | None = None,
    seed: int = 0,
    *,
    split: str | None = None,
    server: ServerConfig | None = None,
    oracle_share: float = 0.5,
    dialogue: dict[str, Any] | None = None,
    plan: PlannerSettings | None = None,
    say: Callable[[str], object] | None = None,
    advance: Callable[[int], object] | None = None,
    expect: Callable[[int], object] | None = None,
) -> Table:
    """The table of `oneiro eval agent`: random, whoever is asked for, and the ceiling.

    Who plays is a `model`, the `policy` "random", "oracle" or "mixture" (of both, `oracle_share` of its actions being
    the oracle's), or a `server`. With `plan` the `model` is a world model, and search in it plays. `split` names a
    test split of the model or the world. `dialogue` are settings over those the agent was trained with. `say` gets what
    a person should know before the wait, `expect` how many episodes there will be, `advance` every few that are played.
    """
    from oneiro.agents.loading import load_agent

    baselines.require_script(policy)
    evaluation = AgentEvaluationSettings(levels=levels, samples=samples)
    planner = None
    if plan is not None:
        # Search plays, in the words that it needs.
        planner, server, dialogue = _load_planner(model, world, settings or {}, plan), None, None
    agent = planner or load_agent(model, world, settings or {}, split=split)
    form = build(DialogueSettings, {**agent.dialogue.model_dump(), **(dialogue or {})})
    # A server plays by the dialogue alone: it has no metadata of ours.
    speaker = ServerPolicy(server) if server is not None else agent.policy
    budget = agent.world_settings if speaker is None else within(form, agent.world, agent.world_settings)
    shared = is_shared(agent.make_world)
    if say is not None and not shared and (warning := baselines.budget_warning(agent.world, budget)):
        say(warning)
    chosen = evaluation_seeds(agent.world, budget, evaluation)
    result = table(agent.world, len(chosen), evaluation)
    if expect is not None:
        # The random policy is played too, as the row that everything else is read against.
        expect(len(chosen) * samples * (1 if policy == "random" or shared else 2))
    if budget != agent.world_settings:
        result.note += f"; within {budget['max_actions']} actions, which is all that the dialogue's turns have room for"
    if agent.note:
        result.note += f"; {agent.note}"
    if policy in ("oracle", "mixture"):
        player = baselines.with_oracle(agent.make_world())
        if player.oracle_is != World.oracle_is:
            result.note += f"; the oracle is {player.oracle_is}"
    baseline = None if shared else measure_baselines(agent.world, budget, evaluation, advance)
    if baseline is not None:
        result.add(*baseline.random_row())
    elif policy == "random":
        chance = baselines.random_success(agent.world, levels, samples, seeds=chosen, settings=budget, advance=advance)
        result.add(*success_row("random", chance))
    else:
        result.note += "; --policy random gives the row of chance: it would change sites that others use"
    if policy in ("oracle", "mixture"):
        share = 1.0 if policy == "oracle" else oracle_share
        success = baselines.success_table(
            agent.world, mixture(share), levels, samples, seeds=chosen, settings=budget, advance=advance
        )
        result.add(*success_row("oracle" if policy == "oracle" else f"mixture, oracle {share:.0%}", success))
    if speaker is not None:
        episodes = attempt(
            agent.make_world, speaker, form, agent.chat, evaluation, seed, agent.response_prefix, advance
        )
        whole, broken = unbroken(episodes)
        if broken:
            result.note += f"; {broken} level{'s' * (broken > 1)} left out, broken off by errors"
        name, prefix = str(model), agent.response_prefix
        if server is not None:
            name, prefix = server.model, ""
        elif planner is not None and plan is not None:
            # A planner is shown the true state, so the table leaves out how well it describes it.
            name, prefix = f"{model}, {plan.name} depth {plan.depth}", "{state}"
            tokens = planner.policy.spent.tokens_per_decision
            result.note += f"; {tokens:.0f} tokens a decision, cached predictions are free"
        result.add(*agent_row(name, whole, evaluation, prefix))
    best = baseline.ceiling_row() if baseline is not None else None
    if best is not None:
        result.add(*best)
    return result


def _load_planner(model: str | None, world: str, settings: dict[str, Any], plan: PlannerSettings) -> LoadedPlanner:
    from oneiro.agents.planning.loading import load_planner

    if model is None:
        raise OneiroError("planning needs a world model: give --model DIR")
    return load_planner(model, world, settings, plan)


def unbroken(episodes: Sequence[Episode]) -> tuple[list[Episode], int]:
    """The episodes of levels on which no attempt ended in an error, and how many levels are not so."""
    # The whole level goes: pass@k of a level with fewer attempts would not be comparable.
    broken = {episode.group for episode in episodes if episode.finish_reason is FinishReason.ERROR}
    whole = [episode for episode in episodes if episode.group not in broken]
    if not whole:
        raise OneiroError(
            f"every level was broken off by an error at least once ({describe_errors(episodes)}); try again"
        )
    return whole, len(broken)
