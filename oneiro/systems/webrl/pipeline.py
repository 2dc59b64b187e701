"""WebRL (arXiv 2411.02337): a web agent that improves in phases on tasks grown from its own failures.

    demonstrations -> SFT -> [ grow tasks -> critic's band and gates -> roll out -> outcome labels
                              -> replay by perplexity -> critic, then actor -> evaluate ] x phases

Variants (ablations and baselines) start from the same SFT model, and from the same first phase of play unless their
tasks come about in another way (`no-curriculum`, `random-tasks`).
"""

from __future__ import annotations

from typing import Any

from oneiro.episode import Episode, Row
from oneiro.learning import stages
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner
from oneiro.models import language as languages
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime import files, seeds
from oneiro.runtime.errors import OneiroError
from oneiro.systems.webrl import agent as agents
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl import playing, tables
from oneiro.systems.webrl.curriculum.growth import Curriculum
from oneiro.systems.webrl.episodes import task_of, turns_of
from oneiro.systems.webrl.outcome import (
    Features,
    JudgePrompt,
    LanguageJudge,
    NoisyOracle,
    Oracle,
    OutcomeModel,
    Rules,
    balance,
    confusion,
    label,
    perturb,
    require_precision,
)
from oneiro.systems.webrl.phases import Phases, evaluate, keys_of
from oneiro.systems.webrl.recipe import WebrlRecipe
from oneiro_web.env import WebConfig
from oneiro_web.tasks import Task

HELD_OUT = 4
"""One trajectory in so many measures an outcome model instead of training it."""
SFT_HELD_OUT = 0.03
"""Part of the demonstrations that measure the loss."""


def run(recipe: WebrlRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    variants = [Phases(recipe, run, name) for name in ("", *recipe.variants)]
    control = [stages.BUDGET, stages.CONTINUED, tables.CONTROL_EVALUATION] if recipe.sft_continued else []
    run.plan([*FIRST, *(name for phases in variants for name in phases.stage_names()), *control, "compare"])
    run.stage("tests", lambda: draw_tests(recipe, run))
    run.stage("demonstrations", lambda: demonstrate(recipe, run))
    run.stage("model", lambda: agents.make_model(recipe, run, demonstrations(run)), main_only=True)
    run.stage("sft", lambda: sft(recipe, run))
    run.stage("evaluate-sft", lambda: evaluate(recipe, run, agents.agent_after(recipe, run, None), "evaluate-sft"))
    run.stage("start", lambda: start(recipe, run))
    run.stage("outcome", lambda: outcome(recipe, run))
    outcomes, keys = outcome_models(recipe, run), tested_keys(recipe, run)
    for phases in variants:
        phases.train(outcomes, keys)
    if recipe.sft_continued:
        continue_sft(recipe, run, variants[0])
    compared = run.stage("compare", lambda: tables.compare(recipe, run, variants))
    tables.summarise(recipe, run, variants, compared)


FIRST = ("tests", "demonstrations", "model", "sft", "evaluate-sft", "start", "outcome")


def draw_tests(recipe: WebrlRecipe, run: Run) -> dict[str, Any]:
    """The tasks of both test splits, fixed before anything is trained."""
    counts = {}
    for split in recipe.splits:
        tasks = playing.split_tasks(recipe, split)
        files.write_lines(run.path / f"{split}.jsonl", [task.model_dump(mode="json") for task in tasks])
        counts[split] = len(tasks)
    return counts


def tested_keys(recipe: WebrlRecipe, run: Run) -> list[str]:
    """What no training task may be."""
    rows = [row for split in recipe.splits for row in read_lines(run.path / f"{split}.jsonl")]
    return keys_of([Task.model_validate(row) for row in rows])


def first_curriculum(recipe: WebrlRecipe, run: Run) -> Curriculum:
    return Curriculum(
        recipe.curriculum,
        recipe.tasks.trained_templates(),
        WebConfig.model_validate(recipe.world_settings()),
        tested_keys(recipe, run),
        seeds.derive(recipe.seed, "curriculum"),
    )


def demonstrate(recipe: WebrlRecipe, run: Run) -> dict[str, Any]:
    """The oracle does the first tasks; only what it finished is learned."""
    count, templates = recipe.tasks.demonstrations, recipe.tasks.demonstrated_templates()
    tasks = first_curriculum(recipe, run).initial(count, templates)
    folder = run.path / "phase_0"
    files.write_lines(folder / "tasks.jsonl", [{"task": task.model_dump(mode="json")} for task in tasks])
    with run.progress("demonstrations", len(tasks)) as bar:
        played = playing.play_chunks(
            recipe,
            tasks,
            lambda: (playing.oracle_policy(recipe), None),
            folder / "oracle",
            seeds.derive(recipe.seed, "demonstrations"),
            advance=bar.advance,
        )
    done = [t for t in played if t.success]
    if not done:
        raise OneiroError("the oracle finished none of the tasks within dialogue.max_turns; raise it")
    records.write(folder / "demonstrations.jsonl", done)
    turns = sum(len(turns_of(episode)) for episode in done)
    run.say(f"{len(done)} demonstrations of {len(templates)} templates, {turns} turns")
    return {"tasks": len(tasks), "demonstrations": len(done), "steps": turns}


def demonstrations(run: Run) -> list[Episode]:
    return list(records.read(run.path / "phase_0" / "demonstrations.jsonl"))


def sft(recipe: WebrlRecipe, run: Run) -> dict[str, Any]:
    """Supervised learning on the demonstrations."""
    parts: tuple[list[Episode], list[Episode]] = ([], [])
    for number, t in enumerate(demonstrations(run)):
        aside = seeds.generator(recipe.seed, "held out", number).random() < SFT_HELD_OUT and number > 0
        parts[aside].append(t)
    return {"demonstrations": len(parts[0]), **agents.imitate(recipe, run, *parts)}


def continue_sft(recipe: WebrlRecipe, run: Run, phases: Phases) -> None:
    """What more SFT would have made of the seconds of the main run's phases."""
    assert recipe.sft_continued is not None
    spent = [name for name in phases.stage_names() if not name.endswith("-evaluate")]

    def seconds() -> float:
        return sum(run.info["stages"][name]["seconds"] for name in spent)

    def begin() -> tuple[LanguageModel, list[Row], None]:
        language = stages.weights_after(run, ["sft"], recipe.model)
        form = agents.row_format(recipe, language)
        # Those that measured SFT's loss are learned here too: the control shall lack nothing.
        return language, [row for shown in demonstrations(run) for row in form.rows(shown, recipe.page_weight)], None

    def measure() -> dict[str, Any]:
        language = stages.weights_after(run, [stages.CONTINUED], recipe.model)
        return evaluate(recipe, run, agents.LanguageAgent(recipe, language), tables.CONTROL_EVALUATION)

    stages.continue_sft(run, recipe.sft_continued, begin, seconds, seeds.derive(recipe.seed, stages.CONTINUED))
    run.stage(tables.CONTROL_EVALUATION, measure)


def start(recipe: WebrlRecipe, run: Run) -> dict[str, Any]:
    """The SFT model plays the first tasks: what it cannot do is what the curriculum grows from."""
    tasks = [Task.model_validate(row["task"]) for row in read_lines(run.path / "phase_0" / "tasks.jsonl")]
    tasks = tasks[: recipe.curriculum.tasks]

    def policy() -> tuple[Any, Any]:
        return agents.agent_after(recipe, run, None).policy(recipe.sampling.temperature)

    folder = run.path / "phase_0"
    with run.progress("first failures", len(tasks)) as bar:
        played = playing.play_chunks(
            recipe, tasks, policy, folder / "rollouts", seeds.derive(recipe.seed, "start"), advance=bar.advance
        )
    curriculum = first_curriculum(recipe, run)
    curriculum.note(0, tasks, records.solved_shares(played, [t.success for t in played], len(tasks)))
    files.write_json(folder / "curriculum.json", curriculum.state())
    return {"tasks": len(tasks), "success": records.success_rate(played), "failures": len(curriculum.failures)}


# The outcome model ----------------------------------------------------------------------------------------------------


def outcome(recipe: WebrlRecipe, run: Run) -> dict[str, Any]:
    """Train the outcome model where it learns, measure it on held-out trajectories, refuse one that is too often
    wrong.
    """
    settings = recipe.outcome
    if settings.name == "lm":
        language = stages.base_weights(run, recipe.model)
        prompt = JudgePrompt(ChatFormat(language.tokenizer), settings.max_tokens)
        learned, _ = read_judged(recipe, run)
        rows = [prompt.row(t, t.success) for t in learned]
        stages.supervise(
            run, "outcome-lm", "outcome model", language, rows, [], settings.sft, seeds.derive(recipe.seed, "outcome")
        )
    _, held_out = read_judged(recipe, run)
    measured: dict[str, Any] = {}
    for name, model in outcome_models(recipe, run).items():
        labels = [label(score, settings) for score in model.scores(held_out)]
        measured[name] = confusion(labels, [t.success for t in held_out])
    require_precision(measured[settings.name], settings)
    return {"held_out": len(held_out), "measured": measured}


def read_judged(recipe: WebrlRecipe, run: Run) -> tuple[list[Episode], list[Episode]]:
    """Trajectories with true labels to learn from and to be measured on, by task: done, perturbed, the policy's own."""
    seed = seeds.derive(recipe.seed, "outcome data")
    shown = demonstrations(run)[: recipe.outcome.trajectories]
    own = records.read_folder(run.path / "phase_0" / "rollouts")[: recipe.outcome.trajectories]
    every = [*shown, *(bad for t in shown for bad in perturb(t, seed)), *own]
    parts: tuple[list[Episode], list[Episode]] = ([], [])
    for t in every:
        parts[seeds.derive(seed, task_of(t)) % HELD_OUT == 0].append(t)
    return balance(parts[0], seed), balance(parts[1], seed)


def outcome_models(recipe: WebrlRecipe, run: Run) -> dict[str, OutcomeModel]:
    """The one that labels, and those reported beside it."""
    settings = recipe.outcome
    seed = seeds.derive(recipe.seed, "outcome")
    models: dict[str, OutcomeModel] = {}
    for name in dict.fromkeys((settings.name, *settings.compare)):
        if name == "oracle":
            models[name] = Oracle()
        elif name == "noisy":
            models[name] = NoisyOracle(settings.false_positives, settings.false_negatives, seed)
        elif name == "rules":
            models[name] = Rules()
        elif name == "features":
            models[name] = Features(read_judged(recipe, run)[0])
        else:
            models[name] = language_judge(recipe, run)
    return models


def language_judge(recipe: WebrlRecipe, run: Run) -> LanguageJudge:
    """The trained judge of this run."""
    folder = run.path / "checkpoints" / "outcome-lm"
    language = languages.load(recipe.model.model_copy(update={"name": str(folder), "lora": None}))
    learner = Learner(language.backbone, recipe.outcome.sft.learner, 1)

    def logprobs(rows: Any) -> list[float]:
        examples = [Example.of(row) for row in rows]
        scores, _ = learner.logprobs(examples)
        return [float((e.weights["ce"] * s).sum()) for e, s in zip(examples, scores, strict=True)]

    return LanguageJudge(JudgePrompt(ChatFormat(language.tokenizer), recipe.outcome.max_tokens), logprobs)
