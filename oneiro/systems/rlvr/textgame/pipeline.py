"""RLVR-World (arXiv 2505.13934) on text games: a language model learns to predict what a command does, from verified
rewards.

    data  ->  model  ->  SFT on true answers  ->  GRPO on the verified reward  ->  evaluation

An episode is one question with one sampled answer; the answers to one question are a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oneiro import seeds
from oneiro.agents.evaluate import record
from oneiro.episode import Episode
from oneiro.learning.collapse import CollapseMonitor
from oneiro.learning.learner import Learner
from oneiro.learning.loop import actor_of
from oneiro.models.chat import ChatFormat
from oneiro.run import Run
from oneiro.sampling.engine import Engine
from oneiro.systems import stages
from oneiro.systems.rlvr.textgame.data import Data, data_stage, open_data, row_order, sft_data, true_rows
from oneiro.systems.rlvr.textgame.episodes import describe, play
from oneiro.systems.rlvr.textgame.evaluate import eval_subset, evaluate, tables
from oneiro.systems.rlvr.textgame.evaluation import some
from oneiro.systems.rlvr.textgame.model import Answerer, lora_merged, model_after, model_stage
from oneiro.systems.rlvr.textgame.recipe import RlvrRecipe

__all__ = ["RlvrRecipe", "run"]


def run(recipe: RlvrRecipe, run: Run) -> None:
    """The whole pipeline inside a run directory."""
    run.stage("data", lambda: data_stage(recipe, run))
    data = open_data(recipe.data, run)
    run.stage("model", lambda: model_stage(recipe, run, data))
    start = None
    if recipe.sft_data.rows:
        run.stage(start := "sft", lambda: sft(recipe, run, data))
    before = run.stage("evaluate-start", lambda: evaluated(recipe, run, data, start))
    said = run.stage("rl", lambda: rl(recipe, run, data, start))
    after = run.stage("evaluate-rlvr", lambda: evaluated(recipe, run, data, "rl"))
    measured = {"SFT" if start else "base": before, "RLVR": after}
    compared = run.stage("compare", lambda: compare(recipe, data, measured))
    summarise(run, compared, [*verdict(measured), *said["notes"]])


def sft(recipe: RlvrRecipe, run: Run, data: Data) -> dict[str, Any]:
    """Learn right answers, as far as the recipe goes."""
    language, task = model_after(recipe, run, None), data.task(recipe)
    chat = ChatFormat(language.tokenizer)
    rows = sft_data(recipe, run, data, task, chat)
    tests = some(data.test, recipe.sft_data.held_out, recipe.seed) if recipe.sft_data.held_out else []
    held_out = true_rows(task, chat, tests, [[number] for number in range(len(tests))])
    steps = stages.supervise(
        run,
        "sft",
        "SFT",
        language,
        rows,
        held_out,
        recipe.sft,
        seeds.derive(recipe.seed, "sft"),
        [len(family) for family in rows.families],
    )
    return {"rows": len(rows), "steps": steps}


def rl(recipe: RlvrRecipe, run: Run, data: Data, start: str | None) -> dict[str, Any]:
    """Learn from verified rewards; ends early when there is nothing left to learn from."""
    language = model_after(recipe, run, start)
    if recipe.merge_lora:
        language = lora_merged(language)
    actor = actor_of(language, recipe.rl)
    answerer = Answerer(data.task(recipe), Engine(actor, recipe.max_batch_size), recipe.sampling)
    order = row_order(data.train, recipe.sampler, recipe.task.transition, seeds.derive(recipe.seed, "rl"))
    prompts_per_step, group_size = recipe.rollout.prompts_per_step, recipe.rollout.group_size
    monitor = CollapseMonitor(recipe.collapse_monitor)

    def play_step(step: int) -> list[Episode]:
        cases = [data.train[order.row(i)] for i in range(step * prompts_per_step, (step + 1) * prompts_per_step)]
        return play(answerer, cases, group_size, seeds.derive(recipe.seed, "rl", step))

    def extra_metrics(step: int, episodes: Sequence[Episode], learner: Learner) -> dict[str, float]:
        found = describe(episodes) | monitor.measure(step, episodes, learner)
        if recipe.evaluation.every and (step - 1) % recipe.evaluation.every == 0:
            found |= eval_subset(recipe, data, answerer)
        return found

    seed = seeds.derive(recipe.seed, "rl updates")
    notes = stages.reinforce(
        run, "rl", "RLVR", language, actor, recipe.rl, seed, monitor, play_step, record, extra_metrics
    )
    return {"notes": notes}


def evaluated(recipe: RlvrRecipe, run: Run, data: Data, stage: str | None) -> dict[str, Any]:
    """A model's rows of the tables."""
    language = model_after(recipe, run, stage)
    answerer = Answerer(data.task(recipe), Engine(language, recipe.max_batch_size), recipe.sampling)
    found = evaluate(recipe, run, data, answerer, f"evaluate-{'rlvr' if stage == 'rl' else 'start'}")
    parts = found["steps"]["all"]
    shown = ", ".join(f"{name} {part['accuracy']:.1f} %" for name, part in parts.items() if part["cases"])
    run.say(f"{stage or recipe.model.name}: exact answers to test rows: {shown}")
    return found


def compare(recipe: RlvrRecipe, data: Data, measured: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {"tables": [table.data() for table in tables(recipe, data, measured)]}


def verdict(measured: dict[str, dict[str, Any]]) -> list[str]:
    """What RLVR added to its start on steps that change something, in a sentence."""
    (first, before), (last, after) = ((name, row["steps"]["all"]["changed"]) for name, row in measured.items())
    if not before["cases"]:
        return []
    shown = "{accuracy:.1f} % ({low:.1f} to {high:.1f})"
    said = [
        f"Of {before['cases']} test steps that change something, {first} predicts {shown.format(**before)} exactly and "
        f"{last} {shown.format(**after)}: {apart(before, after)}. An answer that nothing changes gets none of them."
    ]
    drawn = [row["sampled"]["changed"] for row in measured.values() if "changed" in row.get("sampled", {})]
    if len(drawn) == 2:
        one, two = ("{value:.1%} ({low:.1%} to {high:.1%})".format(**cell) for cell in drawn)
        said.append(f"Of sampled answers to them {one} were exact, then {two}: {apart(*drawn)}.")
    return said


def apart(before: dict[str, Any], after: dict[str, Any]) -> str:
    return "the intervals are apart" if after["low"] > before["high"] else "the intervals overlap"


def summarise(run: Run, compared: dict[str, Any], notes: Sequence[str]) -> None:
    """`summary.json` and what the report row_order."""
    stage, lesson = {"RLVR": "rl"}, {"SFT": "sft"}
    curves: list[tuple[str, str, dict[str, str], str]] = [
        ("Exact answers to steps that change something, sampled", "success_changed", stage, "%"),
        ("Exact answers to steps that change nothing, sampled", "success_unchanged", stage, "%"),
        ("Test steps that change something, greedy", "eval_changed", stage, "%"),
        ("Test steps that change nothing, greedy", "eval_unchanged", stage, "%"),
        ("Reward", "reward", stage, ""),
        ("Reward for exact answers", "reward_exact", stage, ""),
        ("Reward for the overlap of true and claimed changes", "reward_overlap", stage, ""),
        ("Cross-entropy of SFT", "ce", lesson, ""),
        ("Unreadable answers", "malformed", stage, "%"),
        ("Reward std within groups", "group_std", stage, ""),
        ("Entropy", "entropy", stage, ""),
        ("Tokens of an answer", "response_length", stage, ""),
        ("Largest sampler-learner difference in log-probability", "mismatch", stage, ""),
    ]
    run.summary(
        {
            "tables": compared["tables"],
            "curves": [{"title": t, "key": k, "stages": s, "unit": u} for t, k, s, u in curves],
            "notes": list(notes),
        }
    )
