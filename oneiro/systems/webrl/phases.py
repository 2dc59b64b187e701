"""One phase after another, each a folder `phase_k/` and a chain of stages that a resumed run skips or does again.

    tasks.jsonl            the phase's tasks, with the operator that made each
    growth.json            the curriculum after they were grown
    rollouts/*.jsonl       the episodes that were played
    labels.jsonl           what the outcome model said of each episode
    curriculum.json        the curriculum after it heard of the failures
    replay_selected.jsonl  past turns that are learned from again
    critic/  actor/        the networks after the phase; learner/ is the actor's optimiser
    steps.jsonl            the algorithm's number for every turn
    metrics.json           what was measured

Every file is written whole, and every stage is a function of the files before it: a phase killed anywhere ends with the
same bytes.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.agents.linear import turn_numbers
from oneiro.episode import Episode, with_outcome
from oneiro.learning.algorithms.base import StateValue
from oneiro.learning.algorithms.webrl import Rft
from oneiro.rundir.records import read_lines
from oneiro.rundir.run import Run
from oneiro.runtime import files, seeds
from oneiro.systems.webrl import agent as agents
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl import playing
from oneiro.systems.webrl.agent import Agent, OutcomeCritic, auc
from oneiro.systems.webrl.curriculum.growth import Curriculum
from oneiro.systems.webrl.curriculum.operators import task_key
from oneiro.systems.webrl.episodes import Lesson, in_band, key_of, select_replay, stored_turns, task_of, turns_of
from oneiro.systems.webrl.outcome import OutcomeModel, confusion, label
from oneiro.systems.webrl.recipe import FIXED_TASKS, OFFLINE, REPLAYING, ReplaySettings, WebrlRecipe
from oneiro_web.env import WebConfig
from oneiro_web.tasks import Task

FRESH_TASKS = 8
"""One new task in so many measures the critic instead of training it."""
DEMONSTRATIONS = 0
"""The phase that stored demonstrations are counted under."""
Stage = Callable[[int], dict[str, Any]]


class Phases:
    """The phases of one variant, all from the same SFT start. Variants whose tasks come about like the main run's share
    its first phase's play.
    """

    def __init__(self, recipe: WebrlRecipe, run: Run, variant: str = "") -> None:
        self.recipe = recipe.of_variant(variant) if variant else recipe
        self.run, self.variant = run, variant
        self.algorithm = self.recipe.algorithm
        self.offline = isinstance(self.algorithm, OFFLINE)
        self.base = run.path / variant if variant else run.path
        shares = self.recipe.curriculum == recipe.curriculum
        self.first_play = (run.path if shares else self.base) / "phase_1"
        """Where the first phase's play is."""
        self.latest: tuple[int, Agent] | None = None
        """The actor in memory and the phase it comes from, so that the next stage need not load it."""
        self.labelled: dict[int, tuple[list[Episode], list[int | None]]] = {}
        """What `read_labelled` has read."""

    def train(self, outcomes: dict[str, OutcomeModel], test_keys: Sequence[str]) -> None:
        """All phases. `outcomes` label episodes; no training task has one of `test_keys`."""
        self.outcomes, self.test_keys = outcomes, test_keys
        for k in range(1, self.recipe.phases + 1):
            for name, work in self.stages(k).items():
                self.run.stage(self.stage(k, name), lambda k=k, work=work: work(k))  # type: ignore[misc]
        self.latest = None
        self.labelled.clear()

    def stages(self, k: int) -> dict[str, Stage]:
        """Those that a phase of this variant has, in order."""
        # The first play may be the main run's; offline algorithms learn from it in every phase.
        plays = self.first_play == self.folder(1) if k == 1 else not self.offline
        stages: dict[str, Stage] = {}
        if plays:
            stages |= {"tasks": self.tasks, "rollout": self.rollout, "labels": self.labels}
        if isinstance(self.algorithm, REPLAYING) and self.recipe.replay.enabled:
            stages["replay"] = self.replay
        if self.algorithm.outcome_critic:
            stages["critic"] = self.critic
        stages["actor"] = self.actor
        if k % self.recipe.evaluation.every == 0 or k == self.recipe.phases:
            stages["evaluate"] = self.evaluate
        return stages

    def stage_names(self) -> list[str]:
        return [self.stage(k, name) for k in range(1, self.recipe.phases + 1) for name in self.stages(k)]

    def stage(self, k: int, name: str) -> str:
        return f"{self.variant}-phase-{k}-{name}" if self.variant else f"phase-{k}-{name}"

    # Where things are -------------------------------------------------------------------------------------------------

    def folder(self, k: int) -> Path:
        """Where a phase of this variant writes."""
        return self.base / f"phase_{k}"

    def play_folder(self, k: int) -> Path:
        """Where the episodes that a phase learns from lie: perhaps the main run's, or the first phase's."""
        if k == DEMONSTRATIONS:
            return self.run.path / "phase_0"
        return self.first_play if k == 1 or self.offline else self.folder(k)

    def tasks_of(self, k: int) -> list[Task]:
        return [Task.model_validate(row["task"]) for row in read_lines(self.play_folder(k) / "tasks.jsonl")]

    def read_labelled(self, k: int) -> tuple[list[Episode], list[int | None]]:
        """A phase's episodes and what the outcome model said of each; demonstrations are successes."""
        # Replay looks at all past phases in every phase; parsing their tokens again would take longer than learning.
        if k not in self.labelled:
            self.labelled[k] = self._read_labelled(k)
        return self.labelled[k]

    def _read_labelled(self, k: int) -> tuple[list[Episode], list[int | None]]:
        folder = self.play_folder(k)
        if k == DEMONSTRATIONS:
            episodes = list(records.read(folder / "demonstrations.jsonl"))
            return episodes, [1] * len(episodes)
        return records.read_folder(folder / "rollouts"), [row["label"] for row in read_lines(folder / "labels.jsonl")]

    def actor_after(self, k: int) -> Agent:
        """The actor after phase k; after phase 0, the one after SFT."""
        if self.latest is None or self.latest[0] != k:
            self.latest = k, agents.agent_after(self.recipe, self.run, self.folder(k) if k else None)
        return self.latest[1]

    def drop(self, k: int, name: str) -> None:
        """Forget a state that nobody reads any more. Phase k + 1 still does where it is interrupted."""
        shutil.rmtree(self.folder(k) / name, ignore_errors=True)

    def curriculum(self, k: int) -> Curriculum:
        """As it is after phase k."""
        recipe = self.recipe
        made = Curriculum(
            recipe.curriculum,
            recipe.tasks.trained_templates(),
            WebConfig.model_validate(recipe.world_settings()),
            self.test_keys,
            seeds.derive(recipe.seed, "curriculum"),
        )
        state = self.play_folder(k) / "curriculum.json"
        if state.exists():
            made.restore(files.read_json(state))
        return made

    # Stages -----------------------------------------------------------------------------------------------------------

    def tasks(self, k: int) -> dict[str, Any]:
        """New tasks; without a curriculum the given ones, and the first phase's where the algorithm wants no others."""
        folder, recipe = self.folder(k), self.recipe
        repeated = self._repeat_tasks(k) if not recipe.curriculum.grow else []
        if k > 1 and isinstance(self.algorithm, FIXED_TASKS):
            repeated = list(read_lines(self.first_play / "tasks.jsonl"))
        if repeated:
            files.write_lines(folder / "tasks.jsonl", repeated)
            origins = dict(sorted(Counter(row["origin"] for row in repeated).items()))
            counts = {"repeated": len(repeated)}
            return {"tasks": len(repeated), "counts": counts, "widened": False, "origins": origins}
        curriculum = self.curriculum(k - 1)
        # The first phase has no critic yet, and tasks that are drawn at random are not chosen by one.
        judged = k > 1 and self.algorithm.outcome_critic and recipe.curriculum.choose == "failures"
        judged = judged and self.discriminates(k - 1)
        critic = agents.critic_after(recipe, self.run, self.folder(k - 1)) if judged else None

        def values(tasks: Sequence[Task]) -> Sequence[float]:
            assert critic is not None
            return [float(value) for value in critic.values(playing.first_turns(recipe, tasks))]

        grown = curriculum.grow(k, values if critic is not None else None)
        rows = [
            {"origin": origin, "value": value, "task": task.model_dump(mode="json")}
            for task, origin, value in zip(grown.tasks, grown.origins, grown.values, strict=True)
        ]
        files.write_lines(folder / "tasks.jsonl", rows)
        files.write_json(folder / "growth.json", curriculum.state())
        if grown.widened:
            self.run.say(f"phase {k}: too few tasks in the critic's band, it was widened")
        origins = dict(sorted(Counter(grown.origins).items()))
        return {"tasks": len(rows), "counts": grown.counts, "widened": grown.widened, "origins": origins}

    def _repeat_tasks(self, k: int) -> list[dict[str, Any]]:
        """As many attempts as a phase has tasks, at the tasks of phase 0 in turn, where the phase before left off."""
        rows = list(read_lines(self.run.path / "phase_0" / "tasks.jsonl"))
        count = self.recipe.curriculum.tasks
        chosen = [rows[place % len(rows)] for place in range((k - 1) * count, k * count)]
        return [{"origin": "given", "value": None, **row} for row in chosen]

    def rollout(self, k: int) -> dict[str, Any]:
        """Every task attempted by the actor of the phase before."""
        recipe, tasks = self.recipe, self.tasks_of(k)

        def actor() -> tuple[Any, Any]:
            return self.actor_after(k - 1).policy(recipe.sampling.temperature)

        with self.run.progress(f"rollouts of phase {k}", len(tasks) * recipe.attempts) as bar:
            seed = seeds.derive(recipe.seed, "rollout", k)
            folder = self.folder(k) / "rollouts"
            episodes = playing.play_chunks(recipe, tasks, actor, folder, seed, recipe.attempts, bar.advance)
        lost = len(tasks) * recipe.attempts - len(episodes)
        steps, success = sum(len(turns_of(e)) for e in episodes), records.success_rate(episodes)
        self.run.say(f"phase {k}: {len(episodes)} episodes, {steps} turns, {success:.1%} done, {lost} lost to errors")
        return {"trajectories": len(episodes), "steps": steps, "success": success, "lost": lost}

    def labels(self, k: int) -> dict[str, Any]:
        """What the outcome model says, beside what is true; the curriculum learns of the failures."""
        folder, settings = self.folder(k), self.recipe.outcome
        episodes = records.read_folder(folder / "rollouts")
        truth = [episode.success for episode in episodes]
        scores = {name: model.scores(episodes) for name, model in self.outcomes.items()}
        labels = {name: [label(score, settings) for score in own] for name, own in scores.items()}
        own = labels[settings.name]
        rows = [
            {"trajectory": key_of(episode), "label": given, "score": round(score, 6), "truth": int(episode.success)}
            for episode, given, score in zip(episodes, own, scores[settings.name], strict=True)
        ]
        files.write_lines(folder / "labels.jsonl", rows)
        tasks = self.tasks_of(k)
        curriculum = self.curriculum(k - 1)
        if (folder / "growth.json").exists():
            curriculum.restore(files.read_json(folder / "growth.json"))
        curriculum.note(k, tasks, records.solved_shares(episodes, own, len(tasks)))
        files.write_json(folder / "curriculum.json", curriculum.state())
        return {"outcome": {name: confusion(given, truth) for name, given in labels.items()}}

    def replay(self, k: int) -> dict[str, Any]:
        """Past successful turns whose mean probability under the actor, 1 / perplexity, is in the band."""
        settings, recipe = self.recipe.replay, self.recipe
        past = [self.read_labelled(phase) for phase in range(k)]
        phases = [episodes for episodes, _ in past]
        good = [[bool(given) for given in labels] for _, labels in past]
        places = stored_turns(phases, good, settings.per_task)
        seed = seeds.derive(recipe.seed, "replay", k)
        if settings.scored is not None and len(places) > settings.scored:
            order = seeds.generator(seed, "scored").permutation(len(places))[: settings.scored]
            places = [places[i] for i in sorted(order)]
        stored = [(phases[phase][episode], turn) for phase, episode, turn in places]
        # A band that takes everything needs no probabilities, which cost a forward pass over all stored turns.
        scored = settings.band != ReplaySettings.EVERYTHING
        probabilities = self.actor_after(k - 1).confidences(stored) if scored else [1.0] * len(stored)
        new = sum(len(turns_of(episode)) for episode in self.read_labelled(k)[0])
        chosen = select_replay(places, probabilities, new, settings.band, settings.cap, seed)
        rows = [
            {"phase": phase, "trajectory": episode, "step": turn, "rank_score": probability}
            for (phase, episode, turn), probability in chosen
        ]
        files.write_lines(self.folder(k) / "replay_selected.jsonl", rows)
        inside = sum(in_band(p, settings.band) for p in probabilities)
        return {"stored": len(probabilities), "in_band": inside, "selected": len(rows), "new": new}

    def lessons(self, k: int) -> list[Lesson]:
        """What a phase learns from: all new turns with a label, and the replayed ones."""
        episodes, labels = self.read_labelled(k)
        new: list[Lesson] = [
            (with_outcome(episode, float(given)), range(len(turns_of(episode))))
            for episode, given in zip(episodes, labels, strict=True)
            if given is not None
        ]
        turns: dict[tuple[int, int], list[int]] = {}
        for row in read_lines(self.folder(k) / "replay_selected.jsonl"):
            turns.setdefault((row["phase"], row["trajectory"]), []).append(row["step"])
        phases = {phase: self.read_labelled(phase)[0] for phase in sorted({phase for phase, _ in turns})}
        return new + [
            (with_outcome(phases[phase][number], 1.0), sorted(chosen))
            for (phase, number), chosen in sorted(turns.items())
        ]

    def critic(self, k: int) -> dict[str, Any]:
        """Learns the outcome in every state."""
        recipe, stage = self.recipe, self.stage(k, "critic")
        critic = agents.critic_after(recipe, self.run, self.folder(k - 1) if k > 1 else None)
        self.run.rewind(stage, -1)
        # Some new tasks are not learned from: on tasks that it has learned a critic would look better than it is.
        fresh = {number for number in range(len(self.tasks_of(k))) if number % FRESH_TASKS == FRESH_TASKS - 1}
        episodes, labels = self.read_labelled(k)
        new = len([given for given in labels if given is not None])
        lessons = [
            lesson for number, lesson in enumerate(self.lessons(k)) if number >= new or lesson[0].group not in fresh
        ]
        turns = [turns_of(episode)[place] for episode, places in lessons for place in places]
        outcomes = [episode.score for episode, places in lessons for _ in places]
        seed = seeds.derive(recipe.seed, "critic", k)
        means = critic.fit(turns, outcomes, seed, lambda step, values: self.run.log(stage, step, values))
        critic.save(self.folder(k) / "critic")
        self.drop(k - 2, "critic")
        known = [
            (turns_of(e)[0], float(given))
            for e, given in zip(episodes, labels, strict=True)
            if given is not None and e.group in fresh
        ]
        values = critic.values([turn for turn, _ in known])
        return {**means, "states": len(turns), "auc": auc(values.tolist(), [outcome for _, outcome in known])}

    def discriminates(self, k: int) -> bool:
        """Whether the critic of phase k told the successes of fresh tasks from their failures."""
        measured: float | None = self.run.result(self.stage(k, "critic"))["auc"]
        return measured is not None and measured >= self.recipe.curriculum.min_auc

    def actor(self, k: int) -> dict[str, Any]:
        """The algorithm, on all new turns and the replayed ones. Its reference is the actor before the phase, which is
        scored before the first update (`Algorithm.recompute`).
        """
        recipe, stage = self.recipe, self.stage(k, "actor")
        self.run.rewind(stage, -1)
        actor, lessons = self.actor_after(k - 1), self.lessons(k)
        if isinstance(self.algorithm, Rft):
            lessons = records.instructive(lessons, self.algorithm.known)
        values = None
        if self.algorithm.outcome_critic:
            values = state_values(agents.critic_after(recipe, self.run, self.folder(k)), lessons, recipe)
        # A token critic's values are not known outside the loop.
        estimated = not self.algorithm.critic
        numbers = turn_numbers(self.algorithm, [episode for episode, _ in lessons], values) if estimated else []
        rows: list[dict[str, Any]] = [
            {"task": task_of(e), "step": place, "outcome": e.score, "target": round(float(own[place]), 6)}
            for (e, places), own in zip(lessons, numbers, strict=estimated)
            for place in places
        ]
        files.write_lines(self.folder(k) / "steps.jsonl", rows)
        seed = seeds.derive(recipe.seed, "actor", k)
        result = actor.learn(
            self.algorithm, lessons, values, numbers, seed, lambda step, update: self.run.log(stage, step, update)
        )
        actor.save(self.folder(k))
        self.latest = k, actor
        self.drop(k - 2, agents.LEARNER)
        return {**result, "positive": float(np.mean([row["target"] > 0 for row in rows])) if rows else 0.0}

    def evaluate(self, k: int) -> dict[str, Any]:
        """The actor after the phase on both test splits."""
        measured = evaluate(self.recipe, self.run, self.actor_after(k), self.stage(k, "evaluate"))
        before = [self.stage(k, name) for name in self.stages(k) if name != "evaluate"]
        done = {name.rpartition("-")[2]: self.run.result(name) for name in before if self.run.done(name)}
        files.write_json(self.folder(k) / "metrics.json", {**done, "evaluate": measured})
        return measured


def state_values(critic: OutcomeCritic, lessons: Sequence[Lesson], recipe: WebrlRecipe) -> list[StateValue]:
    """The critic's values that the numbers of the lessons' turns need: of each turn's own state and of the next."""
    wanted = [
        (number, place)
        for number, (_, places) in enumerate(lessons)
        for place in sorted({near for place in places for near in (place, place + 1)})
    ]
    turns = []
    for number, place in wanted:
        episode = lessons[number][0]
        own = turns_of(episode)
        turns.append(own[place] if place < len(own) else records.turn_after(episode, recipe.dialogue))
    values = [np.zeros(len(turns_of(episode)), np.float32) for episode, _ in lessons]
    after = [0.0] * len(lessons)
    for (number, place), value in zip(wanted, critic.values(turns), strict=True):
        if place < len(values[number]):
            values[number][place] = value
        else:
            after[number] = float(value)
    return list(zip(values, after, strict=True))


def evaluate(recipe: WebrlRecipe, run: Run, agent: Agent, stage: str) -> dict[str, Any]:
    """Success on every task of both test splits, as lists that pair with those of other agents."""
    policy, chat = agent.policy(recipe.evaluation.temperature)
    measured: dict[str, Any] = {}
    for number, split in enumerate(recipe.splits):
        tasks = [Task.model_validate(row) for row in read_lines(run.path / f"{split}.jsonl")]
        episodes = playing.play_tasks(recipe, tasks, policy, seeds.derive(recipe.seed, split), chat)
        success = {episode.group: int(episode.success) for episode in episodes}
        run.episodes(stage, number, [records.record(episode) for episode in episodes])
        measured[split] = {
            "success": [success.get(place, 0) for place in range(len(tasks))],
            "sites": [task.sites[0] for task in tasks],
            "templates": [str(task.intent_template_id) for task in tasks],
            "ends": dict(sorted(Counter(map(ending, episodes)).items())),
            "lost": len(tasks) - len(episodes),
        }
    means = {split: float(np.mean(own["success"])) if own["success"] else 0.0 for split, own in measured.items()}
    run.say(f"{stage}: " + ", ".join(f"{split} {mean:.1%}" for split, mean in means.items()))
    return measured


def ending(episode: Episode) -> str:
    """How an attempt ended: done, or which kind of failure."""
    if episode.success:
        return "done"
    turns = turns_of(episode)
    replies = [turn["reply"] for turn in turns]
    if not records.is_valid(turns[-1]):
        return "unparsable"
    if len(replies) > 2 and len(set(replies[-3:])) == 1:
        return "stuck"
    return "wrong" if episode.finish_reason == "failed" else "out of actions"


def keys_of(tasks: Sequence[Task]) -> list[str]:
    return [task_key(task) for task in tasks]
