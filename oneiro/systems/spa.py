"""SPA (arXiv 2510.15047): an agent plays, learns the true dynamics from its own play, and then learns to act.

    self-play  ->  true states in place of the imagined ones  ->  SFT  ->  RL  ->  evaluation

Every variant of the recipe goes through the same stages with the same budget; they differ in one switch each.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from oneiro import seeds
from oneiro.agents import evaluate as evaluation
from oneiro.agents.chat import ChatFormat
from oneiro.agents.dialogue import DialogueSettings
from oneiro.agents.evaluate import EvaluationSettings
from oneiro.agents.play import play, tasks
from oneiro.agents.policies import ModelPolicy, Policy, ScriptedPolicy, mixture
from oneiro.agents.reply import TAG_TOKENS
from oneiro.agents.subject import Habits
from oneiro.episode import Episode, Row
from oneiro.errors import OneiroError, nearest
from oneiro.learning import loop, sft
from oneiro.learning.loop import RlSettings
from oneiro.learning.sft import SftSettings
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel, ModelSettings
from oneiro.recipe import Recipe, Settings
from oneiro.report.table import Cell
from oneiro.run import Run, read_lines
from oneiro.sampling.engine import Engine, Limits
from oneiro.systems.spa_data import rows_of, sample_texts
from oneiro.worlds.choice import WorldChoice


class SelfPlaySettings(Settings):
    """Where the world model's data comes from."""

    policy: Literal["self", "random", "mixture"] = "self"
    """The model itself, uniformly random actions, or a mixture with the oracle. `tiny` cannot speak yet: random."""
    oracle_share: float = Field(0.5, ge=0, le=1)
    batches: int = Field(5, ge=1)
    levels: int = Field(32, ge=1)
    """Levels in a batch."""
    members: int = Field(8, ge=1)
    held_out: float = Field(0.05, ge=0, lt=1)
    """Part of the levels kept for measuring the loss; whole trajectories, never single turns."""
    keep_malformed: bool = False


class RolloutSettings(Settings):
    groups: int = Field(32, ge=1)
    members: int = Field(8, ge=1)


class Variant(Settings):
    """One arm of a comparison."""

    world_model: bool = True
    """Replies carry the observed and the predicted state."""
    sft: bool = True
    rl: bool = True
    mask_states: bool = False
    """Leave the true states out of the SFT loss (the paper's ablation, and what the released code does)."""
    true_states: bool = True
    """Put the true states in place of the imagined ones; without it the model learns its own beliefs."""


VARIANTS: dict[str, Variant] = {
    "spa": Variant(),
    "no-world-model": Variant(world_model=False),
    "masked-states": Variant(mask_states=True),
    "self-belief": Variant(true_states=False),
    "sft-only": Variant(rl=False),
    "vanilla-rl": Variant(world_model=False, sft=False),
    "state-estimation-rl": Variant(sft=False),
}


class SpaRecipe(Recipe):
    """Everything SPA does, in order."""

    world: WorldChoice = WorldChoice(name="frozen-lake")
    model: ModelSettings = ModelSettings()
    variants: list[str] = Field(["spa", "no-world-model"], min_length=1)
    dialogue: DialogueSettings = DialogueSettings()
    limits: Limits = Limits(max_tokens=400)
    primed: str = "<think>"
    """What every reply is made to begin with."""
    slots: int = Field(256, ge=1)
    """Rows decoded at once."""
    self_play: SelfPlaySettings = SelfPlaySettings()
    sft: SftSettings = SftSettings()
    rollout: RolloutSettings = RolloutSettings()
    rl: RlSettings = RlSettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @field_validator("variants")
    @classmethod
    def _known_variants(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in VARIANTS:
                raise ValueError(f"no variant called '{name}'{nearest(name, VARIANTS)}")
        return names


def run(recipe: SpaRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    run.stage("model", lambda: make_model(recipe, run))
    run.stage("self-play", lambda: self_play(recipe, run))
    for name in recipe.variants:
        Arm(recipe, run, name).train()
    found = run.stage("compare", lambda: compare(recipe, run))
    summarise(recipe, run, found)


def make_model(recipe: SpaRecipe, run: Run) -> dict[str, Any]:
    """The weights every arm starts from. `tiny` is made here; its tokenizer is trained on the world's own text."""
    if recipe.model.name == "tiny":
        if recipe.self_play.policy == "self":
            raise OneiroError("'tiny' cannot play yet: set self_play.policy=random (or mixture)")
        texts = sample_texts(recipe.world.maker(), recipe.dialogue, recipe.seed)
        made = languages.create_tiny(recipe.model, texts, seeds.derive(recipe.seed, "weights"), TAG_TOKENS)
        made.save(run.path / "checkpoints" / "base")
    else:
        made = languages.load(recipe.model)
    shape = made.backbone.shape
    run.say(f"model {recipe.model.name}: {shape.parameters:,} parameters, vocabulary {shape.vocabulary:,}")
    return {"parameters": shape.parameters, "vocabulary": shape.vocabulary}


def base_model(recipe: SpaRecipe, run: Run) -> LanguageModel:
    if recipe.model.name == "tiny":
        base = languages.load(str(run.path / "checkpoints" / "base"))
        return languages.with_lora(base, recipe.model.lora)
    return languages.load(recipe.model)


def self_play(recipe: SpaRecipe, run: Run) -> dict[str, Any]:
    """Play the training levels, batch by batch; a batch that is on disk is not played again."""
    settings = recipe.self_play
    policy, chat, primed = player(recipe, run)
    solved = episodes = 0
    with run.progress("self-play", settings.batches) as bar:
        for batch in range(settings.batches):
            path = run.path / "episodes" / f"self-play-{batch:06d}.jsonl.gz"
            if not path.exists():
                seed = seeds.derive(recipe.seed, "self-play", batch)
                attempts = tasks(settings.levels, settings.members, "train", seed)
                played = play(recipe.world.maker(), attempts, policy, recipe.dialogue, chat, seed, primed)
                run.episodes("self-play", batch, [evaluation.record(e) for e in played])
            records = list(read_lines(path))
            solved, episodes = solved + sum(r["success"] for r in records), episodes + len(records)
            bar.advance(1, success=solved / episodes)
    run.say(f"self-play: {episodes:,} trajectories, {solved / episodes:.1%} solved")
    return {"episodes": episodes, "success": solved / episodes}


def player(recipe: SpaRecipe, run: Run) -> tuple[Policy, ChatFormat | None, str]:
    """Who plays for data."""
    settings, dialogue = recipe.self_play, recipe.dialogue
    if settings.policy == "self":
        language = base_model(recipe, run)
        return ModelPolicy(Engine(language, recipe.slots), recipe.limits), ChatFormat(language.tokenizer), recipe.primed
    share = settings.oracle_share if settings.policy == "mixture" else 0.0
    most = dialogue.actions_per_turn if settings.policy == "random" else 1
    return ScriptedPolicy(mixture(share), (1, most), dialogue.think, dialogue.world_model), None, ""


class Arm:
    """One variant on its way through SFT and RL."""

    def __init__(self, recipe: SpaRecipe, run: Run, name: str) -> None:
        self.recipe, self.run, self.name = recipe, run, name
        self.variant = VARIANTS[name]
        self.dialogue = recipe.dialogue.model_copy(update={"world_model": self.variant.world_model})

    def train(self) -> None:
        if self.variant.sft:
            self.run.stage(f"sft-{self.name}", self.sft)
        if self.variant.rl:
            self.run.stage(f"rl-{self.name}", self.rl)
        self.run.stage(f"evaluate-{self.name}", self.evaluate)

    def model(self, *stages: str) -> LanguageModel:
        """The weights after the last of `stages` that this variant has, else the base."""
        for stage in stages:
            folder = self.run.path / "checkpoints" / f"{stage}-{self.name}"
            if folder.exists() and self.run.done(f"{stage}-{self.name}"):
                return self.taught(languages.load(str(folder)))
        return self.taught(base_model(self.recipe, self.run))

    def taught(self, language: LanguageModel) -> LanguageModel:
        recipe = self.recipe
        habits = Habits(world=recipe.world, dialogue=self.dialogue, limits=recipe.limits, primed=recipe.primed)
        language.habits = habits.model_dump(mode="json")
        return language

    def sft(self) -> dict[str, Any]:
        recipe, run, stage = self.recipe, self.run, f"sft-{self.name}"
        language = self.model()
        rows, held_out = self.data(ChatFormat(language.tokenizer))
        steps = sft.steps_of(recipe.sft, len(rows))
        with run.progress(f"SFT {self.name}", steps) as bar:

            def log(step: int, values: dict[str, float]) -> None:
                run.log(stage, step, values)
                bar.advance(1, loss=values["loss"])

            def rewind(step: int) -> None:
                run.rewind(stage, step)
                bar.advance(step)

            seed = seeds.derive(recipe.seed, "sft")
            sft.train(language, rows, held_out, recipe.sft, run.checkpoint_dir(stage), seed, log, rewind)
        played = self.played(language, "after SFT", recipe.evaluation.model_copy(update={"samples": 1}))
        run.episodes(stage, steps, [evaluation.record(e) for e in played])
        found = {name: vars(cell) for name, cell in evaluation.measure(played, 1).items()}
        reached = found["prediction"]["value"]
        shown = f", predicted state really reached {reached:.1%}" if reached is not None else ""
        run.say(f"{self.name} after SFT on {len(rows):,} rows: success {found['success']['value']:.1%}{shown}")
        return {"rows": len(rows), "measured": found}

    def data(self, chat: ChatFormat) -> tuple[list[Row], list[Row]]:
        """Rows to learn from and rows held out, by level."""
        settings = self.recipe.self_play
        records = [
            record
            for batch in range(settings.batches)
            for record in read_lines(self.run.path / "episodes" / f"self-play-{batch:06d}.jsonl.gz")
        ]
        parts: tuple[list[Row], list[Row]] = ([], [])
        for record in records:
            aside = seeds.generator(self.recipe.seed, "held out", record["seed"]).random() < settings.held_out
            parts[aside].extend(
                rows_of(record, chat, self.dialogue, self.variant, self.recipe.primed, settings.keep_malformed)
            )
        if not parts[0]:
            raise OneiroError(
                "self-play gave no reply in the demanded form; set self_play.keep_malformed=true or play more"
            )
        return parts

    def rl(self) -> dict[str, Any]:
        recipe, run, stage = self.recipe, self.run, f"rl-{self.name}"
        language = self.model("sft")
        policy, chat = ModelPolicy(Engine(language, recipe.slots), recipe.limits), ChatFormat(language.tokenizer)
        make_world = recipe.world.maker()

        def play_step(step: int) -> list[Episode]:
            seed = seeds.derive(recipe.seed, "rl", step)
            attempts = tasks(recipe.rollout.groups, recipe.rollout.members, "train", seed)
            return play(make_world, attempts, policy, self.dialogue, chat, seed, recipe.primed)

        with run.progress(f"RL {self.name}", recipe.rl.steps) as bar:

            def log(step: int, values: dict[str, float]) -> None:
                run.log(stage, step, values)
                bar.advance(1, success=values["success"])

            def rewind(step: int) -> None:
                run.rewind(stage, step)
                bar.advance(step)

            def keep(step: int, episodes: Sequence[Episode]) -> None:
                run.episodes(stage, step, [evaluation.record(e) for e in episodes])

            parts = loop.Parts(play_step, log, lambda step, values: run.time(stage, step, values), keep, rewind)
            loop.reinforce(language, recipe.rl, run.checkpoint_dir(stage), seeds.derive(recipe.seed, stage), parts)
        return {}

    def evaluate(self) -> dict[str, Any]:
        language = self.model("rl", "sft")
        episodes = self.played(language, "evaluate", self.recipe.evaluation)
        self.run.episodes(f"evaluate-{self.name}", 0, [evaluation.record(e) for e in episodes])
        row = evaluation.agent_row(self.label, episodes, self.recipe.evaluation)
        return {"row": [cell if isinstance(cell, str) else vars(cell) for cell in row]}

    def played(self, language: LanguageModel, what: str, settings: EvaluationSettings) -> list[Episode]:
        policy = ModelPolicy(Engine(language, self.recipe.slots), self.recipe.limits)
        chat, seed = ChatFormat(language.tokenizer), seeds.derive(self.recipe.seed, what)
        return evaluation.attempt(
            self.recipe.world.maker(), policy, self.dialogue, chat, settings, seed, self.recipe.primed
        )

    @property
    def label(self) -> str:
        return f"{Path(self.recipe.model.name).name} {self.name}"


def compare(recipe: SpaRecipe, run: Run) -> dict[str, Any]:
    """The honest table: chance below, the arms, the ceiling above."""
    table = evaluation.table(recipe.world.name, recipe.evaluation)
    table.add(*evaluation.random_row(recipe.world.name, recipe.world.settings, recipe.evaluation))
    for name in sorted(recipe.variants, key=lambda name: VARIANTS[name].world_model):
        row = run.stage(f"evaluate-{name}", dict)["row"]
        table.add(*(cell if isinstance(cell, str) else Cell(**cell) for cell in row))
    best = evaluation.ceiling_row(recipe.world.name, recipe.world.settings, recipe.evaluation)
    if best is not None:
        table.add(*best)
    return {"table": table.data()}


def summarise(recipe: SpaRecipe, run: Run, found: dict[str, Any]) -> None:
    """Console table, `summary.json` and what the report draws."""
    arms = {name: f"rl-{name}" for name in recipe.variants if VARIANTS[name].rl}
    taught = {name: f"sft-{name}" for name in recipe.variants if VARIANTS[name].sft}
    notes = []
    for name in taught:
        cell = run.stage(f"sft-{name}", dict)["measured"]["prediction"]
        if cell["value"] is not None:
            notes.append(
                f"Before RL began, {name} reached the state it had predicted in {cell['value']:.1%} of its turns "
                f"({cell['low']:.1%} to {cell['high']:.1%}, {cell['n']} levels). RL can only choose among "
                "futures that the model can foresee: with SFT cut short it stays where chance is."
            )
    run.summary(
        {
            "tables": [found["table"]],
            "curves": [
                {"title": "Success on training levels", "key": "success", "stages": arms, "unit": "%"},
                {"title": "Cross-entropy of SFT", "key": "ce", "stages": taught},
                {"title": "Reward spread inside groups", "key": "group_std", "stages": arms},
                {"title": "Entropy", "key": "entropy", "stages": arms},
                {"title": "Largest sampler-learner difference in log-probability", "key": "mismatch", "stages": arms},
            ],
            "notes": notes,
        }
    )
