"""The RL loop: play, keep the groups that teach, estimate advantages, update. It is handed its callbacks and knows no
world.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from oneiro import clock, seeds
from oneiro.clock import spent
from oneiro.episode import Episode, FinishReason, groups_of
from oneiro.learning import checkpoint, filters, losses
from oneiro.learning.algorithms import Grpo, Trajectory
from oneiro.learning.algorithms.base import trajectory
from oneiro.learning.algorithms.choice import AnyAlgorithm
from oneiro.learning.async_rollout import AsyncRollout, copy_of
from oneiro.learning.example import Example, families_of
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.optimiser import OptimiserSettings
from oneiro.models.backbone import Backbone
from oneiro.models.heads import ValueHead
from oneiro.models.language import LanguageModel
from oneiro.recipe import Settings


class RlSettings(Settings):
    steps: int = Field(50, ge=0)
    algorithm: AnyAlgorithm = Grpo()
    learner: LearnerSettings = LearnerSettings()
    critic: OptimiserSettings = OptimiserSettings(lr=1e-3)
    """The critic's optimiser, for algorithms that have one."""
    shared_backbone: bool = False
    """Put the value head on the policy's own body instead of a critic of its own."""
    filter: filters.FilterSettings = filters.FilterSettings()
    epochs: int = Field(1, ge=1)
    minibatches: int = Field(1, ge=1)
    """Optimiser steps per epoch over a batch of episodes."""
    kl_in_reward: float = Field(0.0, ge=0)
    kl_in_reward_kind: losses.KlKind = "k1"
    environment_ce: float = Field(0.0, ge=0)
    """Weight of cross-entropy on tokens the environment wrote (ECHO), against the policy's loss; the first prompt is
    left out.
    """
    async_rollout: bool = False
    """Play the next step while the present one is learnt, with weights one step old; worth it on a GPU."""
    checkpoint_every: int = Field(10, ge=1)
    keep_episodes_every: int = Field(10, ge=1)


@dataclass
class Callbacks:
    """What the loop is handed."""

    play: Callable[[int], list[Episode]]
    """Step number -> finished episodes; must be a pure function of the step and the weights."""
    log: Callable[[int, dict[str, float]], None]
    time: Callable[[int, dict[str, float]], None] = lambda step, values: None
    """Where a step's seconds went (`oneiro.clock`)."""
    keep: Callable[[int, Sequence[Episode]], None] = lambda step, episodes: None
    rewind: Callable[[int], str | None] = lambda step: None
    """Forgets what was logged after a step, from which the loop then goes on; a text: the run had ended there."""
    should_stop: Callable[[int, dict[str, float]], str | None] = lambda step, values: None
    """Looks at the metrics; a text stops the run with that reason."""
    extra_metrics: Callable[[int, Sequence[Episode], Learner], dict[str, float]] = lambda step, episodes, learner: {}
    """Further metrics of a step, taken while the policy is still the one that played."""


def actor_of(language: LanguageModel, settings: RlSettings) -> LanguageModel:
    """Who plays: the policy itself, or with `async_rollout` a copy that follows it."""
    return copy_of(language) if settings.async_rollout else language


def reinforce(
    language: LanguageModel,
    settings: RlSettings,
    folder: Path,
    seed: int,
    callbacks: Callbacks,
    actor: LanguageModel | None = None,
) -> Path:
    """Train for `settings.steps` steps, resuming from `folder`; returns the last checkpoint.

    `actor` is the model that `callbacks.play` plays with, as `actor_of` gives it.
    """
    updates = settings.steps * settings.epochs * settings.minibatches
    reference = copy.deepcopy(language.backbone).eval() if settings.learner.loss.kl or settings.kl_in_reward else None
    learners = make_learners(language, settings, learner_settings(settings), updates)
    start = checkpoint.restore(folder, language, learners)
    reason = callbacks.rewind(start)
    if start == 0:
        checkpoint.save(folder, 0, language, learners)
    with AsyncRollout(callbacks.play, language, actor or language) as rollout:
        for step in range(start, settings.steps):
            if reason:
                break
            clock.read()
            episodes = rollout.episodes(step)
            with spent("measuring"):
                extra = callbacks.extra_metrics(step + 1, episodes, learners["policy"])
            saves = (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps
            # A resumed run has only the checkpoint's weights, so what follows a checkpoint is played with those.
            if not saves:
                rollout.begin(step + 1)
            with spent("learning"):
                statistics = learn(episodes, settings, learners, reference, seeds.derive(seed, "minibatches", step))
            with spent("checkpointing"):
                statistics |= describe(episodes) | extra
                callbacks.log(step + 1, statistics)
                if (step + 1) % settings.keep_episodes_every == 0 or step + 1 == settings.steps:
                    callbacks.keep(step + 1, episodes)
                reason = callbacks.should_stop(step + 1, statistics)
                if saves or reason:
                    checkpoint.save(folder, step + 1, language, learners)
            callbacks.time(step + 1, clock.read())
    found = checkpoint.latest(folder)
    assert found is not None
    return found


def learner_settings(settings: RlSettings) -> LearnerSettings:
    """The learner's settings with what the loop and its algorithm have to say about the loss."""
    said: dict[str, object] = {}
    if settings.algorithm.aggregate is not None:
        said["aggregate"] = settings.algorithm.aggregate
    if settings.environment_ce:
        # A component is a mean over its tokens: what counts against the policy's loss is the component's weight.
        said["ce"] = settings.environment_ce
    return settings.learner.model_copy(update={"loss": settings.learner.loss.model_copy(update=said)})


def make_learners(
    language: LanguageModel, settings: RlSettings, learner_settings: LearnerSettings, updates: int
) -> dict[str, Learner]:
    """The policy's learner and, for algorithms that need one, the critic's."""
    if not settings.algorithm.critic:
        return {"policy": Learner(language.backbone, learner_settings, updates)}
    head = ValueHead(language.backbone.shape.width, language.backbone.device)
    if settings.shared_backbone:
        return {"policy": Learner(language.backbone, learner_settings, updates, head)}
    body: Backbone = copy.deepcopy(language.backbone)
    critic_settings = learner_settings.model_copy(update={"optimiser": settings.critic})
    return {
        "policy": Learner(language.backbone, learner_settings, updates),
        "critic": Learner(body, critic_settings, updates, head, has_lm_head=False),
    }


def learn(
    episodes: list[Episode], settings: RlSettings, learners: dict[str, Learner], reference: Backbone | None, seed: int
) -> dict[str, float]:
    """One batch of episodes into updates."""
    valid = [e for e in episodes if e.finish_reason is not FinishReason.ERROR and e.sampled_tokens]
    groups = filters.keep(groups_of(valid), settings.filter)
    std = float(np.mean([g.scores.std() for g in groups_of(valid)])) if valid else 0.0
    statistics = {"group_std": std, "groups_kept": float(len(groups))}
    kept = [episode for group in groups for episode in group.episodes]
    if not kept:
        return statistics
    examples = [[Example.of(row) for row in episode.rows] for episode in kept]
    flat = [example for rows in examples for example in rows]
    policy = learners["policy"]
    trajectories = [trajectory(episode, episode.group) for episode in kept]
    if settings.environment_ce:
        add_environment_ce(kept, examples)
    if reference is not None:
        own = policy.backbone
        policy.backbone = reference
        for example, scores in zip(flat, policy.logprobs(flat)[0], strict=True):
            example.columns["reference"] = scores
        policy.backbone = own
        penalise(trajectories, examples, kept, settings)
    critic = learners.get("critic") or (policy if policy.value_head is not None else None)
    if critic is not None:
        for example, values in zip(flat, critic.values(flat), strict=True):
            example.columns["values"] = values
        for t, rows, episode in zip(trajectories, examples, kept, strict=True):
            t.values = gather(rows, episode, "values")
    estimate = settings.algorithm.estimate(trajectories)
    scatter_over(examples, kept, "advantages", estimate.advantages)
    if estimate.returns is not None:
        scatter_over(examples, kept, "returns", estimate.returns)
    return statistics | update(flat, settings, learners, seed)


def update(flat: list[Example], settings: RlSettings, learners: dict[str, Learner], seed: int) -> dict[str, float]:
    """All epochs and minibatches; reports the first update (where sampler and learner must agree) and the last."""
    statistics: dict[str, float] = {}
    for epoch in range(settings.epochs):
        for part in minibatches(flat, settings.minibatches, seeds.derive(seed, epoch)):
            chosen = [flat[i] for i in part]
            for name, learner in learners.items():
                result = learner.update(chosen)
                prefix = "" if name == "policy" else f"{name}_"
                if prefix + "loss" not in statistics and name == "policy":
                    statistics["mismatch"] = result["largest_difference"]
                    statistics["mismatch_kl"] = result["approx_kl"]
                result.pop("largest_difference", None)
                statistics |= {prefix + key: value for key, value in result.items()}
    return statistics


def minibatches(flat: Sequence[Example], count: int, seed: int) -> list[list[int]]:
    """Rows in `count` random callbacks of about the same size, each in the rows' own order.

    Rows that share a prefix stay together where there is room, so that the prefix is computed once.
    """
    most = -(-len(flat) // count)
    pieces = [family[at : at + most] for family in families_of(flat) for at in range(0, len(family), most)]
    callbacks: list[list[int]] = [[] for _ in range(min(count, len(pieces)))]
    for number in seeds.generator(seed).permutation(len(pieces)):
        min(callbacks, key=len).extend(pieces[number])
    return [sorted(part) for part in callbacks]


def gather(rows: list[Example], episode: Episode, column: str) -> np.ndarray:
    """A column at the sampled tokens of all rows, in order."""
    return np.concatenate([e.columns[column][row.sampled] for e, row in zip(rows, episode.rows, strict=True)])


def scatter_over(
    examples: list[list[Example]], episodes: list[Episode], column: str, numbers: Sequence[np.ndarray]
) -> None:
    """The inverse of `gather`: numbers per sampled token back to their rows, 0 elsewhere."""
    for rows, episode, values in zip(examples, episodes, numbers, strict=True):
        start = 0
        for example, row in zip(rows, episode.rows, strict=True):
            found, at = np.zeros(len(example), np.float32), 0
            for segment in row.segments:
                end = at + len(segment.tokens)
                if segment.sampled:
                    found[at:end] = values[start : start + end - at]
                    start += end - at
                at = end
            example.columns[column] = found


def penalise(
    trajectories: list[Trajectory], examples: list[list[Example]], episodes: list[Episode], settings: RlSettings
) -> None:
    """Take the KL to the reference from each token's reward, and from the score."""
    if not settings.kl_in_reward:
        return
    import torch

    for t, rows, episode in zip(trajectories, examples, episodes, strict=True):
        reference = torch.from_numpy(gather(rows, episode, "reference"))
        own = np.concatenate([row.logprobs[row.sampled] for row in episode.rows])
        cost = losses.kl_estimate(torch.from_numpy(own), reference, settings.kl_in_reward_kind).numpy()
        t.rewards = (t.rewards - settings.kl_in_reward * cost).astype(np.float32)
        t.score -= settings.kl_in_reward * float(cost.sum())


def add_environment_ce(episodes: list[Episode], examples: list[list[Example]]) -> None:
    """Cross-entropy on given tokens that follow the first sampled one: what the environment answered."""
    for episode, rows in zip(episodes, examples, strict=True):
        for row, example in zip(episode.rows, rows, strict=True):
            after = np.cumsum(row.sampled) > 0
            example.weights["ce"] = example.weights["ce"] + (after & ~row.sampled).astype(np.float32)


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a batch of episodes extra like."""
    if not episodes:
        return {}
    count = len(episodes)
    turns = max(1, sum(len(e.rewards) for e in episodes))
    found = {
        "success": sum(e.success for e in episodes) / count,
        "reward": sum(e.score for e in episodes) / count,
        "turns": sum(len(e.rewards) for e in episodes) / count,
        "response_length": sum(e.sampled_tokens for e in episodes) / turns,
        "errors": sum(e.finish_reason is FinishReason.ERROR for e in episodes) / count,
    }
    for name in sorted({name for e in episodes for name in e.terms}):
        found[f"reward_{name}"] = sum(sum(e.terms.get(name, [])) for e in episodes) / count
    return found
