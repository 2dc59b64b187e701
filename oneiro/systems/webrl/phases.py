"""One phase after another, each a folder `phase_k/` and a chain of stages that a resumed run skips or does again.

    tasks.jsonl            the phase's tasks, with the operator that made each
    growth.json            the curriculum after they were grown
    rollouts/*.jsonl       what was played
    labels.jsonl           what the outcome model said of each trajectory
    curriculum.json        the curriculum after it heard of the failures
    replay_selected.jsonl  past steps that are learned from again
    critic/  actor/        the networks after the phase
    steps.jsonl            the objective's number for every step
    metrics.json           what was measured

Every file is written whole, and every stage is a function of the files before it: a phase killed anywhere ends with the
same bytes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.learning.algorithms.webrl import GroupObjective, SftOnly
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime import files, seeds
from oneiro.systems.webrl import playing, replay
from oneiro.systems.webrl import trajectories as records
from oneiro.systems.webrl.backends import Agent, Backend, OutcomeCritic, backend_of
from oneiro.systems.webrl.critic import auc
from oneiro.systems.webrl.curriculum import Curriculum, task_key
from oneiro.systems.webrl.outcome import OutcomeModel, confusion, label
from oneiro.systems.webrl.recipe import SPLITS, WebrlRecipe
from oneiro.systems.webrl.replay import Stored
from oneiro.systems.webrl.samples import Sample
from oneiro.systems.webrl.trajectories import Trajectory
from oneiro_web.tasks import Task

DEMONSTRATIONS = 0
"""The phase that stored demonstrations are counted under."""


class Phases:
    """The phases of one variant, all from the same SFT start. Variants whose tasks come about like the main run's share
    its first phase's play.
    """

    def __init__(
        self, recipe: WebrlRecipe, run: Run, variant: str, outcomes: dict[str, OutcomeModel], test_keys: Sequence[str]
    ) -> None:
        self.recipe = recipe.of_variant(variant) if variant else recipe
        self.run, self.variant, self.outcomes, self.test_keys = run, variant, outcomes, test_keys
        self.objective = self.recipe.algorithm
        self.base = run.path / variant if variant else run.path
        shares = self.recipe.curriculum == recipe.curriculum
        self.first_play = (run.path if shares else self.base) / "phase_1"
        """Where the first phase's play is."""

    def train(self) -> None:
        """All phases."""
        if isinstance(self.objective, SftOnly):
            return
        for k in range(1, self.recipe.phases + 1):
            for name in STAGES:
                if name in self.stages(k):
                    self.run.stage(self.stage(k, name), lambda k=k, name=name: getattr(self, name)(k))  # type: ignore[misc]

    def stages(self, k: int) -> list[str]:
        """Those that a phase of this variant has."""
        played = ["tasks", "rollout", "labels"] if self._plays(k) else []
        kept = {
            "replay": self.objective.replay and self.recipe.replay.enabled,
            "critic": self._has_critic,
            "actor": True,
            "evaluate": True,
        }
        return [*played, *(name for name, wanted in kept.items() if wanted)]

    def stage_names(self) -> list[str]:
        if isinstance(self.objective, SftOnly):
            return []
        return [self.stage(k, name) for k in range(1, self.recipe.phases + 1) for name in self.stages(k)]

    def stage(self, k: int, name: str) -> str:
        return f"{self.variant}-phase-{k}-{name}" if self.variant else f"phase-{k}-{name}"

    def _plays(self, k: int) -> bool:
        """Whether a phase has play of its own."""
        if k == 1:
            return self.first_play == self.folder(1)
        return not self.objective.offline

    @property
    def _has_critic(self) -> bool:
        return self.objective.critic and not isinstance(self.objective, GroupObjective)

    # Where things are -------------------------------------------------------------------------------------------------

    def folder(self, k: int) -> Path:
        """What a phase learns."""
        return self.base / f"phase_{k}"

    def play_folder(self, k: int) -> Path:
        """What a phase learns from."""
        if k == DEMONSTRATIONS:
            return self.run.path / "phase_0"
        return self.first_play if k == 1 or self.objective.offline else self.folder(k)

    def tasks_of(self, k: int) -> list[Task]:
        return [Task.model_validate(row["task"]) for row in read_lines(self.play_folder(k) / "tasks.jsonl")]

    def labelled(self, k: int) -> tuple[list[Trajectory], list[int | None]]:
        """A phase's trajectories and what the outcome model said of each; demonstrations are successes."""
        if k == DEMONSTRATIONS:
            found = list(records.read(self.run.path / "phase_0" / "demonstrations.jsonl"))
            return found, [1] * len(found)
        folder = self.play_folder(k)
        said = [row["label"] for row in read_lines(folder / "labels.jsonl")]
        return records.read_folder(folder / "rollouts"), said

    def actor_after(self, k: int) -> Agent:
        """The actor after phase k; after phase 0, the one after SFT."""
        return self.backend.load(self.folder(k) / "actor") if k else self.backend.after_sft()

    def critic_after(self, k: int) -> OutcomeCritic:
        """The critic after phase k; after phase 0, a new one."""
        critic = self.backend.critic()
        if k:
            critic.load(self.folder(k) / "critic")
        return critic

    @cached_property
    def backend(self) -> Backend:
        return backend_of(self.recipe, self.run)

    # Stages -----------------------------------------------------------------------------------------------------------

    def tasks(self, k: int) -> dict[str, Any]:
        """New tasks; without a curriculum the given ones, and the first phase's where the objective wants no others."""
        folder, recipe = self.folder(k), self.recipe
        repeated = self._given(k) if not recipe.curriculum.grow else []
        if k > 1 and not self.objective.fresh_tasks:
            repeated = list(read_lines(self.first_play / "tasks.jsonl"))
        if repeated:
            files.write_text(folder / "tasks.jsonl", "".join(json.dumps(row) + "\n" for row in repeated))
            origins = dict(sorted(Counter(row["origin"] for row in repeated).items()))
            counts = {"repeated": len(repeated)}
            return {"tasks": len(repeated), "counts": counts, "widened": False, "origins": origins}
        curriculum = self.curriculum(k - 1)
        judged = k > 1 and self._has_critic and recipe.curriculum.choose == "failures"
        critic = self.critic_after(k - 1) if judged else None

        def values(tasks: Sequence[Task]) -> Sequence[float]:
            assert critic is not None
            return [float(value) for value in critic.values(playing.first_steps(recipe, tasks))]

        grown = curriculum.grow(k, values if critic is not None else None)
        rows = [
            {"origin": origin, "value": value, "task": task.model_dump(mode="json")}
            for task, origin, value in zip(grown.tasks, grown.origins, grown.values, strict=True)
        ]
        files.write_text(folder / "tasks.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        files.write_json(folder / "growth.json", curriculum.state())
        if grown.widened:
            self.run.say(f"phase {k}: too few tasks in the critic's band, it was widened")
        origins = dict(sorted(Counter(grown.origins).items()))
        return {"tasks": len(rows), "counts": grown.counts, "widened": grown.widened, "origins": origins}

    def _given(self, k: int) -> list[dict[str, Any]]:
        """As many attempts as a phase has tasks, at the tasks of phase 0 in turn, where the phase before left off."""
        rows = list(read_lines(self.run.path / "phase_0" / "tasks.jsonl"))
        count = self.recipe.curriculum.tasks
        chosen = [rows[place % len(rows)] for place in range((k - 1) * count, k * count)]
        return [{"origin": "given", "value": None, **row} for row in chosen]

    def curriculum(self, k: int) -> Curriculum:
        """As it is after phase k."""
        recipe = self.recipe
        config = type(playing.world_of(recipe)().config).model_validate(recipe.world_settings())
        made = Curriculum(
            recipe.curriculum,
            recipe.tasks.trained_templates(),
            config,  # type: ignore[arg-type]
            self.test_keys,
            seeds.derive(recipe.seed, "curriculum"),
        )
        folder = self.play_folder(k)
        if (folder / "curriculum.json").exists():
            made.restore(files.read_json(folder / "curriculum.json"))
        return made

    def rollout(self, k: int) -> dict[str, Any]:
        """Every task attempted by the actor of the phase before."""
        recipe, tasks = self.recipe, self.tasks_of(k)

        def actor() -> tuple[Any, Any]:
            return self.actor_after(k - 1).policy(recipe.sampling.temperature)

        with self.run.progress(f"rollouts of phase {k}", len(tasks) * recipe.attempts) as bar:
            seed = seeds.derive(recipe.seed, "rollout", k)
            folder = self.folder(k) / "rollouts"
            found = playing.play_chunks(recipe, tasks, actor, folder, seed, recipe.attempts, bar.advance)
        lost = len(tasks) * recipe.attempts - len(found)
        steps, success = sum(map(len, found)), records.success_rate(found)
        self.run.say(f"phase {k}: {len(found)} trajectories, {steps} steps, {success:.1%} done, {lost} lost to errors")
        return {"trajectories": len(found), "steps": steps, "success": success, "lost": lost}

    def labels(self, k: int) -> dict[str, Any]:
        """What the outcome model says, beside what is true; the curriculum learns of the failures."""
        folder, settings = self.folder(k), self.recipe.outcome
        found = records.read_folder(folder / "rollouts")
        truth = [t.success for t in found]
        said = {name: model.scores(found) for name, model in self.outcomes.items()}
        labels = {name: [label(score, settings) for score in scores] for name, scores in said.items()}
        own = labels[settings.name]
        rows = [
            {"trajectory": t.key, "label": given, "score": round(score, 6), "truth": int(t.success)}
            for t, given, score in zip(found, own, said[settings.name], strict=True)
        ]
        files.write_text(folder / "labels.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        tasks = self.tasks_of(k)
        curriculum = self.curriculum(k - 1)
        if (folder / "growth.json").exists():
            curriculum.restore(files.read_json(folder / "growth.json"))
        done = {t.group for t, given in zip(found, own, strict=True) if given}
        curriculum.note(k, tasks, [number in done for number in range(len(tasks))])
        files.write_json(folder / "curriculum.json", curriculum.state())
        return {"outcome": {name: confusion(given, truth) for name, given in labels.items()}}

    def replay(self, k: int) -> dict[str, Any]:
        """Past successful steps whose perplexity under the actor is in the band."""
        settings, recipe = self.recipe.replay, self.recipe
        stored, new = self.stored(k), sum(map(len, self.labelled(k)[0]))
        seed = seeds.derive(recipe.seed, "replay", k)
        if settings.scored is not None and len(stored[1]) > settings.scored:
            order = seeds.generator(seed, "scored").permutation(len(stored[1]))[: settings.scored]
            stored = stored[0], [stored[1][i] for i in sorted(order)]
        steps = [stored[0][place.phase][place.trajectory].steps[place.step] for place in stored[1]]
        probabilities = self.actor_after(k - 1).confidences(steps)
        chosen = replay.select(stored[1], probabilities, new, settings.band, settings.cap, seed)
        rows = [{"phase": s.phase, "trajectory": s.trajectory, "step": s.step, "rank_score": p} for s, p in chosen]
        files.write_text(self.folder(k) / "replay_selected.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        inside = sum(replay.in_band(p, settings.band) for p in probabilities)
        return {"stored": len(probabilities), "in_band": inside, "selected": len(rows), "new": new}

    def stored(self, k: int) -> tuple[dict[int, list[Trajectory]], list[Stored]]:
        """The successes of all phases before k, and their steps."""
        phases: dict[int, list[Trajectory]] = {}
        good: dict[int, list[bool]] = {}
        for past in range(k):
            found, said = self.labelled(past)
            phases[past], good[past] = found, [bool(given) for given in said]
        return phases, replay.stored_steps(phases, good, self.recipe.replay.per_task)  # type: ignore[arg-type]

    def samples(self, k: int) -> list[Sample]:
        """What a phase learns from: all new steps with a label, and the replayed ones."""
        found, said = self.labelled(k)
        new = [
            Sample(t, range(len(t)), float(given)) for t, given in zip(found, said, strict=True) if given is not None
        ]
        path = self.folder(k) / "replay_selected.jsonl"
        if not path.exists():
            return new
        places = [Stored(row["phase"], row["trajectory"], row["step"]) for row in read_lines(path)]
        by_trajectory: dict[tuple[int, int], list[int]] = {}
        for place in places:
            by_trajectory.setdefault((place.phase, place.trajectory), []).append(place.step)
        phases = {phase: self.labelled(phase)[0] for phase in sorted({place.phase for place in places})}
        return new + [
            Sample(phases[phase][number], sorted(steps), 1.0)
            for (phase, number), steps in sorted(by_trajectory.items())
        ]

    def critic(self, k: int) -> dict[str, Any]:
        """Both heads learn the outcome in every state."""
        settings, critic, stage = self.recipe.critic, self.critic_after(k - 1), self.stage(k, "critic")
        self.run.rewind(stage, -1)
        samples = self.samples(k)
        steps = [s.steps[t] for s in samples for t in s.places]
        outcomes = [s.outcome for s in samples for _ in s.places]

        def log(step: int, values: dict[str, float]) -> None:
            self.run.log(stage, step, values)

        seed = seeds.derive(self.recipe.seed, "critic", k)
        means = critic.train(steps, outcomes, settings, seed, log)
        critic.save(self.folder(k) / "critic")
        found, said = self.labelled(k)
        pairs = [(t, given) for t, given in zip(found, said, strict=True) if given is not None]
        values = critic.values([t.steps[0] for t, _ in pairs])
        return {**means, "states": len(steps), "auc": auc(values.tolist(), [float(g) for _, g in pairs])}

    def actor(self, k: int) -> dict[str, Any]:
        """The objective, on all new steps and the replayed ones; the reference is the actor before the phase."""
        recipe, stage = self.recipe, self.stage(k, "actor")
        self.run.rewind(stage, -1)
        actor, samples = self.actor_after(k - 1), self.samples(k)
        seed = seeds.derive(recipe.seed, "actor", k)

        def log(step: int, values: dict[str, float]) -> None:
            self.run.log(stage, step, values)

        critic = self.critic_after(k) if self._has_critic else None
        result, numbers = actor.regress(self.objective, samples, critic, recipe.actor, seed, log)
        rows = [
            {"task": s.trajectory.task_id, "step": t, "outcome": s.outcome, "target": round(number, 6)}
            for s, own in zip(samples, numbers, strict=False)
            for t, number in zip(s.places, own, strict=True)
        ]
        files.write_text(self.folder(k) / "steps.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
        actor.save(self.folder(k) / "actor", playing.metadata(recipe).model_dump(mode="json"))
        return result

    def evaluate(self, k: int) -> dict[str, Any]:
        """The actor after the phase on both test splits."""
        found = evaluate(self.recipe, self.run, self.actor_after(k), self.stage(k, "evaluate"))
        kept = ("tasks", "rollout", "labels", "replay", "critic", "actor")
        done = {name: self.run.stage(self.stage(k, name), dict) for name in kept if self.run.done(self.stage(k, name))}
        files.write_json(self.folder(k) / "metrics.json", {**done, "evaluate": found})
        return found


STAGES = ("tasks", "rollout", "labels", "replay", "critic", "actor", "evaluate")


def evaluate(recipe: WebrlRecipe, run: Run, agent: Agent, stage: str) -> dict[str, Any]:
    """Success on every task of both test splits, as lists that pair with those of other agents."""
    policy, chat = agent.policy(recipe.evaluation.temperature)
    found: dict[str, Any] = {}
    for number, split in enumerate(SPLITS):
        rows = list(read_lines(run.path / f"{split}.jsonl"))
        tasks = [Task.model_validate(row) for row in rows]
        played = playing.played(recipe, tasks, policy, seeds.derive(recipe.seed, split), chat)
        success = {t.group: int(t.success) for t in played}
        run.episodes(stage, number, [records.summary(t) for t in played])
        found[split] = {
            "success": [success.get(place, 0) for place in range(len(tasks))],
            "sites": [task.sites[0] for task in tasks],
            "templates": [str(task.intent_template_id) for task in tasks],
            "ends": dict(sorted(Counter(ending(t) for t in played).items())),
            "lost": len(tasks) - len(played),
        }
    means = {split: float(np.mean(found[split]["success"])) if found[split]["success"] else 0.0 for split in SPLITS}
    run.say(f"{stage}: " + ", ".join(f"{split} {mean:.1%}" for split, mean in means.items()))
    return found


def ending(t: Trajectory) -> str:
    """How an attempt ended: done, or which kind of failure."""
    if t.success:
        return "done"
    replies = [step.reply for step in t.steps]
    if not t.steps[-1].valid:
        return "unparsable"
    if len(replies) > 2 and len(set(replies[-3:])) == 1:
        return "stuck"
    return "wrong" if t.finish_reason == "failed" else "out of actions"


def keys_of(tasks: Sequence[Task]) -> list[str]:
    return [task_key(task) for task in tasks]
