"""Tasks played by a model or the oracle, and the two test splits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from oneiro.agents import prompts as words
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import Policy, ScriptedPolicy
from oneiro.agents.rollout import Attempt, play
from oneiro.episode import Episode
from oneiro.models.chat import ChatFormat
from oneiro.runtime import distributed, seeds
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl.episodes import Turn
from oneiro.systems.webrl.recipe import WebrlRecipe
from oneiro.worlds.base import World
from oneiro.worlds.baselines import mixture
from oneiro.worlds.levels import new_levels
from oneiro.worlds.registry import WorldChoice
from oneiro_web.plugin import WebWorld
from oneiro_web.tasks import Task

CHUNK = 1024
"""Attempts that make one file. Between two files the places run empty: what is played together must not depend on where
a run was resumed, or the last digits of log-probabilities would.
"""
WAVES = 10
"""A file has at least so many attempts for each place, so that few places stand empty while its last attempts end."""


def world_of(recipe: WebrlRecipe, split: str | None = None) -> Callable[[], World]:
    """A factory of the world in which tasks are played."""
    return WorldChoice(name=recipe.world.name, **recipe.world_settings(split)).maker()


def episode_world_of(recipe: WebrlRecipe) -> Callable[[], World]:
    """The same for an agent's episodes: in workers, where the recipe names some."""
    chosen = recipe.world.model_copy(update=recipe.world_settings())
    return chosen.episode_maker()


def metadata(recipe: WebrlRecipe) -> AgentMetadata:
    """What a trained model needs to be evaluated from its folder alone."""
    return AgentMetadata(
        world=WorldChoice(name=recipe.world.name, **recipe.world_settings()),
        dialogue=recipe.dialogue,
        sampling=recipe.sampling.model_copy(update={"temperature": recipe.evaluation.temperature}),
        response_prefix=recipe.response_prefix,
        splits={split: recipe.split_settings(split) for split in recipe.splits},
    )


def oracle_policy(recipe: WebrlRecipe) -> ScriptedPolicy:
    """The templates' scripts, in the form that is asked for."""
    return ScriptedPolicy(mixture(1.0), (1, 1), recipe.dialogue.think, recipe.dialogue.world_model)


def play_tasks(
    recipe: WebrlRecipe,
    tasks: Sequence[Task],
    policy: Policy,
    seed: int,
    chat: ChatFormat | None = None,
    group_size: int = 1,
    first: int = 0,
    advance: Callable[[int], object] | None = None,
) -> list[Episode]:
    """Each task attempted `group_size` times; attempts that broke off are left out. `first` numbers the first task;
    `advance` hears of attempts that ended.
    """
    planned = [
        Attempt(seeds.derive(seed, first + number) % (1 << 31), member, first + number, task=task)
        for number, task in enumerate(tasks)
        for member in range(group_size)
    ]
    prefix = recipe.response_prefix if chat is not None else ""
    own, dialogue = seeds.derive(seed, first), recipe.dialogue
    worlds = episode_world_of(recipe)
    episodes = play(worlds, planned, policy, dialogue, chat, own, prefix, advance, recipe.concurrency)
    described = [records.describe_task(e, attempt.task) for e, attempt in zip(episodes, planned, strict=True)]
    return [episode for episode in described if records.is_played(episode)]


def play_chunks(
    recipe: WebrlRecipe,
    tasks: Sequence[Task],
    policy: Callable[[], tuple[Policy, ChatFormat | None]],
    folder: Path,
    seed: int,
    group_size: int = 1,
    advance: Callable[[int], object] = lambda count: None,
) -> list[Episode]:
    """Play all tasks, a file for every few; files that are there are not played again. `policy` is made when needed;
    `advance` hears of attempts.
    """
    size = max(1, max(CHUNK, WAVES * recipe.concurrency) // group_size)
    player: tuple[Policy, ChatFormat | None] | None = None
    for first in range(0, len(tasks), size):
        part, path = tasks[first : first + size], folder / f"{first // size:04d}.jsonl"
        if not distributed.broadcast(path.exists()):
            player = player or policy()
            records.write(path, play_tasks(recipe, part, player[0], seed, player[1], group_size, first, advance))
        else:
            advance(len(part) * group_size)
    distributed.barrier()  # the last file is written
    return records.read_folder(folder)


def split_tasks(recipe: WebrlRecipe, split: str) -> list[Task]:
    """The tasks of a test split: distinct ones, on content that is never trained on."""
    world = world_of(recipe, split)()
    assert isinstance(world, WebWorld)
    tasks: list[Task] = []
    try:
        for _ in new_levels(world, "eval", recipe.evaluation.first_seed):
            tasks.append(world.task)
            if len(tasks) == recipe.evaluation.tasks:
                break
    finally:
        world.close()
    return tasks


def first_turns(recipe: WebrlRecipe, tasks: Sequence[Task]) -> list[Turn]:
    """What the agent reads first of each task."""
    world = world_of(recipe)()
    turns: list[Turn] = []
    try:
        for task in tasks:
            state, _ = world.reset(seed=0, options={"task": task})
            left = world.config.max_actions
            message = words.history_message(world, [], 1, state, left, recipe.dialogue)
            turns.append({"message": message, "state": state, "reply": ""})
    finally:
        world.close()
    return turns
