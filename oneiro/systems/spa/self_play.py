"""Self-play: who plays for data, and the played episodes on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oneiro.agents.policies import ExplorationPolicy, ModelPolicy, Policy, ScriptedPolicy, ServerPolicy
from oneiro.agents.rollout import attempts, play
from oneiro.episode import FinishReason
from oneiro.models.chat import ChatFormat
from oneiro.report.episodes import is_record, record
from oneiro.rundir.records import read_lines, write_episodes
from oneiro.rundir.run import Run
from oneiro.runtime import distributed, seeds
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.processes import each_done
from oneiro.systems.spa.recipe import SelfPlaySettings, SpaRecipe
from oneiro.worlds.baselines import mixture

STAGE = "self-play"


def self_play_stage(recipe: SpaRecipe, name: str) -> str:
    """The stage that plays a variant's data; variants with the same data share it."""
    own = recipe.sft_data_of(recipe.variant(name)) != (recipe.world, recipe.self_play)
    return f"{STAGE}-{name}" if own else STAGE


def self_play(recipe: SpaRecipe, run: Run, name: str) -> dict[str, Any]:
    """Play a variant's training levels, batch by batch; a batch that is on disk is not played again."""
    settings, stage = recipe.sft_data_of(recipe.variant(name))[1], self_play_stage(recipe, name)
    solved = failed = episodes = 0
    with run.progress(stage, settings.batches) as bar:
        for batch in batches(recipe, run, name):
            records = list(read_batch(run.path, stage, batch))
            solved, episodes = solved + sum(r["success"] for r in records), episodes + len(records)
            failed += sum(r["finish_reason"] == FinishReason.ERROR for r in records)
            if not records:
                failed += settings.levels * settings.group_size
                run.say(f"{stage}: batch {batch} was lost, the process that played it died twice (out of memory?)")
            bar.advance(1, success=solved / max(1, episodes))
    if not episodes:
        raise OneiroError(f"{stage}: every process that played died; try fewer self_play.workers, or another world")
    broken = f", {failed:,} broken off by errors" if failed else ""
    run.say(f"{stage}: {episodes:,} trajectories, {solved / episodes:.1%} solved{broken}")
    return {"episodes": episodes, "success": solved / episodes, "errors": failed}


def batches(recipe: SpaRecipe, run: Run, name: str) -> Iterator[int]:
    """The numbers of the batches as they come to be on disk."""
    settings, stage = recipe.sft_data_of(recipe.variant(name))[1], self_play_stage(recipe, name)
    there = distributed.broadcast([batch_file(run.path, stage, batch).exists() for batch in range(settings.batches)])
    yield from (batch for batch, done in enumerate(there) if done)
    missing = [batch for batch, done in enumerate(there) if not done]
    workers = settings.workers if isinstance(settings.workers, str) else min(settings.workers, len(missing))
    if missing and settings.scripted and workers not in (0, 1):
        yield from each_done(play_batch, ((recipe, run.path, name, batch) for batch in missing), workers, lose_batch)
    elif missing:
        player = scripted_player(recipe, settings) if settings.scripted else model_player(recipe, settings, run)
        for batch in missing:
            play_batch(recipe, run.path, name, batch, player)
            distributed.barrier()  # it is written
            yield batch


@dataclass(frozen=True)
class Player:
    """Who plays: `policy` anew for each batch, so that none remembers another."""

    policy: Callable[[], Policy]
    chat: ChatFormat | None = None
    """What its tokens need."""
    response_prefix: str = ""
    """What its replies are made to begin with."""


def play_batch(recipe: SpaRecipe, folder: Path, name: str, batch: int, player: Player | None = None) -> int:
    """Play one batch and write it into the run's `folder`; without a `player`, by the recipe's script."""
    world, settings = recipe.sft_data_of(recipe.variant(name))
    player = player or scripted_player(recipe, settings)
    seed = seeds.derive(recipe.seed, "self-play", batch)
    planned = attempts(settings.levels, settings.group_size, "train", seed)
    policy, rounds = player.policy(), [planned]
    if settings.policy == "exploration":  # it learns from one attempt what to try in the next
        rounds = [[t for t in planned if t.member == member] for member in range(settings.group_size)]
    made = world.maker() if settings.scripted else world.episode_maker()
    played = [
        record(episode)
        for part in rounds
        for episode in play(made, part, policy, recipe.dialogue, player.chat, seed, player.response_prefix)
    ]
    write_episodes(folder, self_play_stage(recipe, name), batch, played)
    return batch


def lose_batch(recipe: SpaRecipe, folder: Path, name: str, batch: int) -> int:
    """A batch that cannot be played stays empty: a resumed run does not try it again."""
    write_episodes(folder, self_play_stage(recipe, name), batch, [])
    return batch


def recorded_play(recipe: SpaRecipe, run: Run, name: str) -> Iterator[dict[str, Any]]:
    """The recorded episodes a variant learns from."""
    settings = recipe.sft_data_of(recipe.variant(name))[1]
    for batch in range(settings.batches):
        yield from read_batch(run.path, self_play_stage(recipe, name), batch)


def read_batch(folder: Path, stage: str, batch: int) -> Iterator[dict[str, Any]]:
    """The episodes of a batch. What the play did not write is an error that names the file."""
    file = batch_file(folder, stage, batch)
    for data in read_lines(file):
        if not is_record(data):
            raise OneiroError(f"{file} holds what is no episode; delete that file, then the batch is played again")
        yield data


def batch_file(folder: Path, stage: str, batch: int) -> Path:
    return folder / "episodes" / f"{stage}-{batch:06d}.jsonl.gz"


def model_player(recipe: SpaRecipe, settings: SelfPlaySettings, run: Run) -> Player:
    """A model that plays: the one to be trained, or one behind an address."""
    if settings.policy == "server":
        assert settings.server is not None
        return Player(partial(ServerPolicy, settings.server))
    # Here, so that the processes in which scripts play need not import torch.
    from oneiro.learning import stages
    from oneiro.sampling.engine import Engine

    language = stages.base_weights(run, recipe.model)
    model = ModelPolicy(Engine(language, recipe.max_batch_size), recipe.sampling)
    return Player(lambda: model, ChatFormat(language.tokenizer), recipe.response_prefix)


def scripted_player(recipe: SpaRecipe, settings: SelfPlaySettings) -> Player:
    dialogue = recipe.dialogue
    form = dialogue.think, dialogue.world_model
    if settings.policy == "exploration":
        return Player(lambda: ExplorationPolicy(dialogue.actions_per_turn, *form))
    share = {"random": 0.0, "mixture": settings.oracle_share, "oracle": 1.0}[settings.policy]
    most = dialogue.actions_per_turn if settings.policy == "random" else 1
    return Player(lambda: ScriptedPolicy(mixture(share), (1, most), *form))
