"""Self-play: who plays for data, and the played episodes on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from oneiro import seeds
from oneiro.agents import evaluate as evaluation
from oneiro.agents.chat import ChatFormat
from oneiro.agents.explorer import Explorer
from oneiro.agents.play import play, tasks
from oneiro.agents.policies import ModelPolicy, Policy, ScriptedPolicy, ServerPolicy, mixture
from oneiro.episode import Stop
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.run import Run, read_lines
from oneiro.sampling.engine import Engine
from oneiro.systems.spa_recipe import SelfPlaySettings, SpaRecipe

STAGE = "self-play"


def lesson_stage(recipe: SpaRecipe, name: str) -> str:
    """The stage that plays a variant's data; arms whose data is played alike share it."""
    own = recipe.lessons_of(recipe.variant(name)) != (recipe.world, recipe.self_play)
    return f"{STAGE}-{name}" if own else STAGE


def base_model(recipe: SpaRecipe, run: Run) -> LanguageModel:
    """The weights every arm starts from; those of `tiny` were made by the stage `model`."""
    if recipe.model.name == "tiny":
        base = languages.load(str(run.path / "checkpoints" / "base"))
        return languages.with_lora(base, recipe.model.lora)
    return languages.load(recipe.model)


def self_play(recipe: SpaRecipe, run: Run, name: str) -> dict[str, Any]:
    """Play a variant's training levels, batch by batch; a batch that is on disk is not played again."""
    world, settings = recipe.lessons_of(recipe.variant(name))
    stage = lesson_stage(recipe, name)
    player, chat, primed = players(recipe, settings, run)
    solved = failed = episodes = 0
    with run.progress(stage, settings.batches) as bar:
        for batch in range(settings.batches):
            if not batch_file(run, stage, batch).exists():
                seed = seeds.derive(recipe.seed, "self-play", batch)
                attempts = tasks(settings.levels, settings.members, "train", seed)
                policy, rounds = player(), [attempts]
                if settings.policy == "curious":  # it learns from one attempt what to try in the next
                    rounds = [[t for t in attempts if t.member == member] for member in range(settings.members)]
                played = [
                    evaluation.record(episode)
                    for part in rounds
                    for episode in play(world.maker(), part, policy, recipe.dialogue, chat, seed, primed)
                ]
                run.episodes(stage, batch, played)
            records = list(read_lines(batch_file(run, stage, batch)))
            solved, episodes = solved + sum(r["success"] for r in records), episodes + len(records)
            failed += sum(r["stop"] == Stop.ERROR for r in records)
            bar.advance(1, success=solved / episodes)
    broken = f", {failed:,} broken off by errors" if failed else ""
    run.say(f"{stage}: {episodes:,} trajectories, {solved / episodes:.1%} solved{broken}")
    return {"episodes": episodes, "success": solved / episodes, "errors": failed}


def lessons(recipe: SpaRecipe, run: Run, name: str) -> Iterator[dict[str, Any]]:
    """The recorded episodes a variant learns from."""
    settings = recipe.lessons_of(recipe.variant(name))[1]
    for batch in range(settings.batches):
        yield from read_lines(batch_file(run, lesson_stage(recipe, name), batch))


def batch_file(run: Run, stage: str, batch: int) -> Path:
    return run.path / "episodes" / f"{stage}-{batch:06d}.jsonl.gz"


def players(
    recipe: SpaRecipe, settings: SelfPlaySettings, run: Run
) -> tuple[Callable[[], Policy], ChatFormat | None, str]:
    """Who plays a batch, anew for each so that none remembers another; the chat format its tokens need; and what its
    replies are made to begin with.
    """
    dialogue = recipe.dialogue
    if settings.policy == "self":
        language = base_model(recipe, run)
        model = ModelPolicy(Engine(language, recipe.slots), recipe.limits)
        return (lambda: model), ChatFormat(language.tokenizer), recipe.primed
    if settings.policy == "server":
        assert settings.server is not None
        return partial(ServerPolicy, settings.server), None, ""

    def script() -> ScriptedPolicy:
        shares = {"random": 0.0, "mixture": settings.oracle_share, "oracle": 1.0}
        choose = Explorer() if settings.policy == "curious" else mixture(shares[settings.policy])
        most = dialogue.actions_per_turn if settings.policy == "random" else 1
        return ScriptedPolicy(choose, (1, most), dialogue.think, dialogue.world_model)

    return script, None, ""
