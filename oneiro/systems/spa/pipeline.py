"""SPA (arXiv 2510.15047): an agent plays, learns the true dynamics from its own play, and then learns to act.

    self-play  ->  true states in place of the imagined ones  ->  SFT  ->  RL  ->  evaluation

Every variant of the recipe goes through the same stages with the same budget; they differ in one switch each.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from oneiro.agents import evaluate as evaluation
from oneiro.agents.reply import TAG_TOKENS
from oneiro.learning import stages
from oneiro.learning.stages import Curve
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.report.table import Cell
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.systems.side_by_side import side_by_side
from oneiro.systems.spa.data import sample_texts
from oneiro.systems.spa.recipe import SpaRecipe
from oneiro.systems.spa.self_play import self_play, self_play_stage
from oneiro.systems.spa.variant_run import VariantRun
from oneiro.systems.spa.variants import VARIANTS, Variant
from oneiro.worlds.baselines import beyond_budget, budget_warning
from oneiro.worlds.choice import WorldChoice
from oneiro.worlds.registry import config_for

__all__ = ["VARIANTS", "SpaRecipe", "Variant", "VariantRun", "run"]


def run(recipe: SpaRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    if not run.done("model") and (warning := budget_warning(recipe.world.name, budget_of(recipe))):
        run.say(warning)
    run.plan(stage_names(recipe))
    run.stage("model", lambda: stages.make_base(run, recipe.model, lambda: create_tiny(recipe)), main_only=True)
    for name in taught(recipe):
        scripted = recipe.sft_data_of(recipe.variant(name))[1].scripted
        run.stage(self_play_stage(recipe, name), partial(self_play, recipe, run, name), main_only=scripted)
    side_by_side(run, train_variant, [(recipe, name) for name in recipe.variants], recipe.workers)
    found = run.stage("compare", lambda: compare(recipe, run), main_only=True)
    summarise(recipe, run, found)


def train_variant(run: Run, recipe: SpaRecipe, name: str) -> None:
    VariantRun(recipe, run, name).train()


def stage_names(recipe: SpaRecipe) -> list[str]:
    """All stages, in order."""
    names = ["model", *(self_play_stage(recipe, name) for name in taught(recipe))]
    for name in recipe.variants:
        variant = recipe.variant(name)
        kinds = {"sft": variant.sft, "rl": variant.rl, "evaluate": True}
        names += [f"{kind}-{name}" for kind, wanted in kinds.items() if wanted]
    return [*names, "compare"]


def budget_of(recipe: SpaRecipe) -> dict[str, Any]:
    """The world's settings with the actions that agents really have."""
    return evaluation.within(recipe.dialogue, recipe.world.name, recipe.world.settings)


def taught(recipe: SpaRecipe) -> list[str]:
    """The variants that learn from recorded play."""
    return [name for name in recipe.variants if recipe.variant(name).sft]


def create_tiny(recipe: SpaRecipe) -> LanguageModel:
    """Random weights, and a tokenizer trained on the worlds' own text."""
    played = [recipe.sft_data_of(recipe.variant(name)) for name in taught(recipe)]
    if any(settings.policy == "self" for _, settings in played):
        raise OneiroError("'tiny' cannot play yet: set self_play.policy=random (or mixture)")
    acted = [recipe.world_of(recipe.variant(name)) for name in recipe.variants]
    worlds = distinct([*acted, *(world for world, _ in played)])
    texts = [text for world in worlds for text in sample_texts(world.maker(), recipe.dialogue, recipe.seed)]
    return languages.create_tiny(recipe.model, texts, seeds.derive(recipe.seed, "weights"), TAG_TOKENS)


def distinct(worlds: list[WorldChoice]) -> list[WorldChoice]:
    """Each world once, in order of first appearance."""
    return [world for place, world in enumerate(worlds) if world not in worlds[:place]]


def compare(recipe: SpaRecipe, run: Run) -> dict[str, Any]:
    """The tables: random below, the variants, the ceiling above."""
    world, budget = recipe.world, budget_of(recipe)
    measured = evaluation.measure_baselines(world.name, budget, recipe.evaluation)
    table, lengths = (
        evaluation.table(world.name, len(measured.random), recipe.evaluation),
        evaluation.lengths_table(world.name),
    )
    rows = [(table, measured.random_row()), (lengths, measured.random_lengths())]
    for name in sorted(recipe.variants, key=lambda name: table_place(recipe.variant(name))):
        measured_row = run.stage(f"evaluate-{name}", dict)
        for to, row in ((table, measured_row["row"]), (lengths, measured_row["lengths"])):
            rows.append((to, [cell if isinstance(cell, str) else Cell(**cell) for cell in row]))
    rows += [(table, measured.ceiling_row()), (lengths, measured.ceiling_lengths())]
    for to, cells in rows:
        if cells:
            to.add(*cells)
    warning = beyond_budget(measured.optima.best, config_for(world.name, budget).max_actions)
    return {"tables": [found.data() for found in (table, lengths) if found.rows], "warning": warning}


def table_place(variant: Variant) -> int:
    """Where a variant stands in a table: controls first, those without states before those that copy them."""
    return variant.world_model + (variant.world_model and variant.predict == "next")


def summarise(recipe: SpaRecipe, run: Run, found: dict[str, Any]) -> None:
    """Notes and curves of all variants."""
    runs = {name: f"rl-{name}" for name in recipe.variants if recipe.variant(name).rl}
    sft_stages = {name: f"sft-{name}" for name in taught(recipe)}
    notes = [f"{recipe.world.name} is {found['warning']}."] if found.get("warning") else []
    outlook = (
        "Predictions help RL only as far as they are right; what they are worth, the control shows."
        if recipe.world.maker()().deterministic
        else "Transitions are stochastic, so no prediction can always be right."
    )
    for name in sft_stages:
        cell = run.stage(f"sft-{name}", dict)["measured"]["prediction"]
        if cell["value"] is not None:
            notes.append(
                f"Before RL began, {name} reached the state it had predicted in {cell['value']:.1%} of its turns "
                f"({cell['low']:.1%} to {cell['high']:.1%}, {cell['n']} levels). {outlook}"
            )
    for name in runs:
        notes += [f"{name}: {note}" for note in run.stage(f"rl-{name}", dict)["notes"]]
    many = 1 << recipe.rollout.group_size.bit_length() - 1
    curves = [
        Curve("Success on training levels", "success", runs, "%"),
        Curve(f"pass@{many} on training levels", f"pass@{many}", runs, "%"),
        Curve("Success on unseen levels", "eval_success", runs, "%"),
        Curve("Cross-entropy of SFT", "ce", sft_stages),
        Curve("Reward std within groups", "group_std", runs),
        Curve("Entropy", "entropy", runs),
        Curve("Tokens of a reply", "response_length", runs),
        Curve("Mutual information of prompts and reasoning, nats", "mi", runs),
        Curve(
            "How much reasoning depends on its prompt: mutual information a token over the spread between replies",
            "mi_z_ema",
            runs,
        ),
        Curve("Reasoning that fits its own prompt best", "retrieval@1", runs, "%"),
        Curve("Largest sampler-learner difference in log-probability", "mismatch", runs),
    ]
    stages.summarise(run, found, curves, notes)
