"""SPA (arXiv 2510.15047): an agent plays, learns the true dynamics from its own play, and then learns to act.

    self-play  ->  true states in place of the imagined ones  ->  SFT  ->  RL  ->  evaluation

Every variant of the recipe goes through the same stages with the same budget; they differ in one switch each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.agents import evaluate as evaluation
from oneiro.agents.evaluate import AgentEvaluationSettings
from oneiro.agents.hindsight import Hindsight
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.policies import ModelPolicy
from oneiro.agents.reply import reasoning_length
from oneiro.agents.rollout import attempts, attempts_at, play
from oneiro.episode import Episode, Row, describe_errors
from oneiro.learning import stages
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.loop import RlSettings
from oneiro.learning.settings import FilterSettings
from oneiro.learning.sft import SftSettings
from oneiro.learning.stages import Curve, Rollout
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.episodes import record
from oneiro.report.table import Cell
from oneiro.rundir.run import Run
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.systems.side_by_side import side_by_side
from oneiro.systems.spa.data import create_tiny, rows_of, shuffle_states
from oneiro.systems.spa.recipe import SpaRecipe, SpaVariant
from oneiro.systems.spa.self_play import recorded_play, self_play, self_play_stage
from oneiro.worlds.baselines import beyond_budget, budget_warning
from oneiro.worlds.levels import distinct_seeds
from oneiro.worlds.registry import config_for


def run(recipe: SpaRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    if not run.done("model") and (warning := budget_warning(recipe.world.name, budget_of(recipe))):
        run.say(warning)
    run.plan(stage_names(recipe))
    run.stage("model", lambda: stages.make_base(run, recipe.model, lambda: create_tiny(recipe)), main_only=True)
    for name in recipe.sft_variants:
        scripted = recipe.sft_data_of(recipe.variant(name))[1].scripted
        run.stage(self_play_stage(recipe, name), partial(self_play, recipe, run, name), main_only=scripted)
    side_by_side(run, train_variant, [(recipe, name) for name in recipe.variants], recipe.workers)
    compared = run.stage("compare", lambda: compare(recipe, run), main_only=True)
    summarise(recipe, run, compared)


def train_variant(run: Run, recipe: SpaRecipe, name: str) -> None:
    VariantRun(recipe, run, name).train()


def stage_names(recipe: SpaRecipe) -> list[str]:
    names = ["model", *(self_play_stage(recipe, name) for name in recipe.sft_variants)]
    for name in recipe.variants:
        variant = recipe.variant(name)
        kinds = {"sft": variant.sft, "rl": variant.rl, "evaluate": True}
        names += [f"{kind}-{name}" for kind, wanted in kinds.items() if wanted]
    return [*names, "compare"]


def budget_of(recipe: SpaRecipe) -> dict[str, Any]:
    """The world's settings with the actions that agents really have."""
    return evaluation.within(recipe.dialogue, recipe.world.name, recipe.world.settings)


class VariantRun:
    """One variant on its way through SFT, RL and evaluation, with the settings it changes already changed."""

    def __init__(self, recipe: SpaRecipe, run: Run, name: str) -> None:
        self.recipe, self.run, self.name = recipe, run, name
        self.variant = variant = recipe.variant(name)
        self.world = recipe.world_of(variant)
        self.dialogue = recipe.dialogue.model_copy(
            update={
                "world_model": variant.world_model,
                "state_reward": variant.state_reward or recipe.dialogue.state_reward,
            }
        )

        # A variant without states in its replies does not begin with one.
        self.response_prefix = (
            recipe.response_prefix if variant.world_model else recipe.response_prefix.partition("<observation>")[0]
        )

    def train(self) -> None:
        if self.variant.sft:
            self.run.stage(f"sft-{self.name}", self.sft)
        if self.variant.rl:
            self.run.stage(f"rl-{self.name}", self.rl)
        self.run.stage(f"evaluate-{self.name}", self.evaluate)

    @property
    def label(self) -> str:
        return f"{Path(self.recipe.model.name).name} {self.name}"

    @property
    def sft_settings(self) -> SftSettings:
        epochs = self.variant.epochs or self.recipe.sft.epochs
        return self.recipe.sft.model_copy(update={"epochs": epochs})

    @property
    def rl_settings(self) -> RlSettings:
        settings, weight = self.recipe.rl, self.variant.environment_ce
        if not weight:
            return settings
        # What the environment answered teaches in every group, also where all attempts scored alike.
        return settings.model_copy(update={"environment_ce": weight, "filter": FilterSettings(name="none")})

    def model(self, *after: str) -> LanguageModel:
        """The weights after the first of these stages that is done, else the base, with the metadata of the agent."""
        recipe = self.recipe
        language = stages.weights_after(self.run, [f"{stage}-{self.name}" for stage in after], recipe.model)
        return AgentMetadata(
            world=self.world,
            dialogue=self.dialogue,
            sampling=recipe.sampling,
            response_prefix=self.response_prefix,
            copies_state=self.variant.predict != "next",
        ).write(language)

    def sft(self) -> dict[str, Any]:
        """Learn the dynamics from recorded play."""
        recipe, run, stage = self.recipe, self.run, f"sft-{self.name}"
        language = self.model()
        rows, held_out = self.data(ChatFormat(language.tokenizer))
        seed = seeds.derive(recipe.seed, "sft")
        steps = stages.supervise(run, stage, f"SFT {self.name}", language, rows, held_out, self.sft_settings, seed)
        once = recipe.evaluation.model_copy(update={"samples": 1})
        played = self.play_levels(Engine(language, recipe.max_batch_size), "after SFT", once)
        run.episodes(stage, steps, [record(e) for e in played])
        measured = {name: vars(cell) for name, cell in evaluation.measure(evaluation.unbroken(played)[0], 1).items()}
        reached = measured["prediction"]["value"]
        shown = f", predicted state really reached {reached:.1%}" if reached is not None else ""
        run.say(f"{self.name} after SFT on {len(rows):,} rows: success {measured['success']['value']:.1%}{shown}")
        return {"rows": len(rows), "measured": measured}

    def data(self, chat: ChatFormat) -> tuple[list[Row], list[Row]]:
        """Rows to learn from and rows held out, by level."""
        settings = self.recipe.self_play
        malformed = self.variant.keep_malformed
        keep_malformed = settings.keep_malformed if malformed is None else malformed
        parts: tuple[list[Row], list[Row]] = ([], [])
        learned = self.learned_turns()
        played: Iterable[dict[str, Any]] = recorded_play(self.recipe, self.run, self.name)
        if self.variant.predict == "shuffled":
            played = shuffle_states(played, self.recipe.seed)
        for data in played:
            rows = rows_of(data, chat, self.dialogue, self.variant, self.response_prefix, keep_malformed, learned)
            if rows:
                aside = seeds.generator(self.recipe.seed, "held out", data["seed"]).random() < settings.held_out
                parts[aside].extend(rows)
        if not parts[0]:
            raise OneiroError(
                "self-play gave no reply in the demanded form; set self_play.keep_malformed=true or play more"
                if settings.hindsight is None
                else "no attempt of the self-play succeeded, so that hindsight knows no way to learn; raise "
                "self_play.group_size, or set self_play.hindsight=null"
            )
        return parts

    def learned_turns(self) -> Callable[[dict[str, Any]], bool]:
        """Which turns of the recorded play are learned."""
        share = self.recipe.self_play.hindsight
        if share is None:
            return lambda turn: True
        return Hindsight(recorded_play(self.recipe, self.run, self.name), share, self.recipe.seed)

    def rl(self) -> dict[str, Any]:
        """Learn to act; ends early when there is nothing left to learn from."""
        recipe, stage, language = self.recipe, f"rl-{self.name}", self.model("sft")
        if self.rl_settings.environment_ce and ChatFormat(language.tokenizer).rewrites:
            raise OneiroError(
                f"variant '{self.name}' learns from what the environment answers, but the chat template of "
                f"{recipe.model.name} rewrites earlier turns; choose a model whose template does not"
            )
        return stages.reinforce(
            self.run,
            stage,
            f"RL {self.name}",
            language,
            self.rollout,
            settings=self.rl_settings,
            seed=seeds.derive(recipe.seed, stage),
            monitor=CollapseMonitor(recipe.collapse_monitor, lambda tokens: reasoning_length(language, tokens)),
            max_batch_size=recipe.max_batch_size,
            evaluate_every=recipe.evaluation.every,
        )

    def rollout(self, engine: Engine) -> Rollout:
        """Training levels, each attempted by a group of episodes."""
        recipe, make_world = self.recipe, self.world.episode_maker()
        policy, chat = ModelPolicy(engine, recipe.sampling), ChatFormat(engine.language.tokenizer)

        def play_step(step: int) -> list[Episode]:
            seed = seeds.derive(recipe.seed, "rl", step)
            planned = attempts(recipe.rollout.prompts_per_step, recipe.rollout.group_size, "train", seed)
            return play(make_world, planned, policy, self.dialogue, chat, seed, self.response_prefix)

        # A dialogue that grows is one row of many replies.
        replies = self.dialogue.max_turns if self.dialogue.context == "full" and not chat.rewrites else 1
        return Rollout(
            play_step,
            record,
            evaluate=lambda step: self.eval_subset(engine, step),
            max_tokens=replies * recipe.sampling.max_tokens,
            validate=lambda: self.validate(engine),
            validation_metric="validation_success",
        )

    def eval_subset(self, engine: Engine, step: int) -> dict[str, float]:
        """How the policy of this step does on unseen levels."""
        settings = self.recipe.evaluation
        played, _ = evaluation.unbroken(self.play_levels(engine, f"evaluate {step}", settings))
        measured = evaluation.measure(played, settings.samples)
        values = {"eval_success": measured["success"].value, f"eval_pass@{settings.samples}": measured["pass@k"].value}
        return {name: value for name, value in values.items() if isinstance(value, float)}

    def validate(self, engine: Engine) -> dict[str, float]:
        """Success on unseen levels that the evaluation does not use, one attempt each, always with the same noise."""
        planned = attempts_at(self.validation_seeds(), 1, "eval")
        policy, chat = self.policy(engine, self.recipe.evaluation), ChatFormat(engine.language.tokenizer)
        seed = seeds.derive(self.recipe.seed, "validate")
        played = play(self.world.episode_maker(), planned, policy, self.dialogue, chat, seed, self.response_prefix)
        success, reward = (float(np.mean([getattr(e, name) for e in played])) for name in ("success", "score"))
        return {"validation_success": success, "validation_reward": reward}

    def validation_seeds(self) -> list[int]:
        """Distinct unseen levels beyond those of the evaluation."""
        select, settings = self.rl_settings.select, self.recipe.evaluation
        assert select is not None
        levels = distinct_seeds(self.world.maker(), "eval", settings.levels + select.cases, settings.first_seed)
        if len(levels) <= settings.levels:
            raise OneiroError(
                f"{self.world.name} has no unseen levels beside the {len(levels)} of the evaluation; lower "
                "evaluation.levels or leave rl.select out"
            )
        return levels[settings.levels :]

    def policy(self, engine: Engine, settings: AgentEvaluationSettings) -> ModelPolicy:
        sampling = self.recipe.sampling
        if settings.temperature is not None:
            sampling = sampling.model_copy(update={"temperature": settings.temperature})
        return ModelPolicy(engine, sampling)

    def evaluate(self) -> dict[str, Any]:
        """The variant's rows of the tables."""
        engine = Engine(self.model("rl", "sft"), self.recipe.max_batch_size)
        played = self.play_levels(engine, "evaluate", self.recipe.evaluation)
        self.run.episodes(f"evaluate-{self.name}", 0, [record(e) for e in played])
        if words := describe_errors(played):
            self.run.say(f"evaluation of {self.name}: {words}; their levels are left out")
        episodes, _ = evaluation.unbroken(played)
        rows = {"row": evaluation.agent_row(self.label, episodes, self.recipe.evaluation, self.response_prefix)}
        rows["lengths"] = evaluation.lengths_row(self.label, episodes) or []
        return {name: [cell if isinstance(cell, str) else vars(cell) for cell in row] for name, row in rows.items()}

    def play_levels(self, engine: Engine, what: str, settings: AgentEvaluationSettings) -> list[Episode]:
        chat, seed = ChatFormat(engine.language.tokenizer), seeds.derive(self.recipe.seed, what)
        policy = self.policy(engine, settings)
        made = self.world.episode_maker()
        return evaluation.attempt(made, policy, self.dialogue, chat, settings, seed, self.response_prefix)


# The report -----------------------------------------------------------------------------------------------------------


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
        measured_row = run.result(f"evaluate-{name}")
        for to, row in ((table, measured_row["row"]), (lengths, measured_row["lengths"])):
            rows.append((to, [cell if isinstance(cell, str) else Cell(**cell) for cell in row]))
    rows += [(table, measured.ceiling_row()), (lengths, measured.ceiling_lengths())]
    for to, cells in rows:
        if cells:
            to.add(*cells)
    warning = beyond_budget(measured.optima.best, config_for(world.name, budget).max_actions)
    return {"tables": [part.data() for part in (table, lengths) if part.rows], "warning": warning}


def table_place(variant: SpaVariant) -> int:
    """Where a variant stands in a table: controls first, those without states before those that copy them."""
    return variant.world_model + (variant.world_model and variant.predict == "next")


def summarise(recipe: SpaRecipe, run: Run, compared: dict[str, Any]) -> None:
    """Notes and curves of all variants."""
    runs = {name: f"rl-{name}" for name in recipe.variants if recipe.variant(name).rl}
    sft_stages = {name: f"sft-{name}" for name in recipe.sft_variants}
    notes = [f"{recipe.world.name} is {compared['warning']}."] if compared.get("warning") else []
    outlook = (
        "Predictions help RL only as far as they are right; what they are worth, the control shows."
        if recipe.world.maker()().deterministic
        else "Transitions are stochastic, so no prediction can always be right."
    )
    for name in sft_stages:
        cell = run.result(f"sft-{name}")["measured"]["prediction"]
        if cell["value"] is not None and recipe.variant(name).predict == "next":
            notes.append(
                f"Before RL began, {name} reached the state it had predicted in {cell['value']:.1%} of its turns "
                f"({cell['low']:.1%} to {cell['high']:.1%}, {cell['n']} levels). {outlook}"
            )
    for name in runs:
        notes += [f"{name}: {note}" for note in run.result(f"rl-{name}")["notes"]]
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
    stages.summarise(run, compared, curves, notes)
