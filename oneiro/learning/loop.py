"""The RL loop: play, keep the groups that teach, estimate advantages, update. It is handed its callbacks and knows no
world.
"""

from __future__ import annotations

import contextlib
import copy
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from oneiro.episode import Episode, FinishReason, Floats, Row, groups_of
from oneiro.learning import checkpoint, filters, finite, losses
from oneiro.learning.algorithms import Trajectory
from oneiro.learning.algorithms.base import StateValue, trajectory
from oneiro.learning.async_rollout import AsyncRollout, copy_of
from oneiro.learning.correction import correct
from oneiro.learning.example import Example, gather, scatter
from oneiro.learning.example import groups_of as prefix_groups
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.learning.reference import Reference
from oneiro.learning.rl_settings import RlSettings
from oneiro.models.backbone import Backbone
from oneiro.models.heads import ValueHead
from oneiro.models.language import LanguageModel
from oneiro.runtime import clock, distributed, seeds
from oneiro.runtime.clock import spent
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.interrupt import Saving


@dataclass
class Callbacks:
    """What the loop is handed."""

    play: Callable[[int], list[Episode]]
    """Step number -> finished episodes; must be a pure function of the step and the weights."""
    log: Callable[[int, dict[str, float]], None]
    time: Callable[[int, dict[str, float]], None] = lambda step, values: None
    """Where a step's seconds went (`oneiro.runtime.clock`)."""
    keep: Callable[[int, Sequence[Episode]], None] = lambda step, episodes: None
    rewind: Callable[[int], str | None] = lambda step: None
    """Forgets what was logged after a step, from which the loop then goes on; a text: the run had ended there."""
    should_stop: Callable[[int, dict[str, float]], str | None] = lambda step, values: None
    """Looks at the metrics; a text stops the run with that reason."""
    extra_metrics: Callable[[int, Sequence[Episode], Learner], dict[str, float]] = lambda step, episodes, learner: {}
    """Further metrics of a step, taken while the policy is still the one that played."""
    say: Callable[[str], object] = warnings.warn
    """Gets a line for people, such as that a checkpoint was damaged."""


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
    max_tokens: int | None = None,
    saving: Saving | None = None,
) -> Path:
    """Train for `settings.steps` steps, resuming from `folder`; returns the last checkpoint.

    `actor` is the model that `callbacks.play` plays with, as `actor_of` gives it. `max_tokens` is the most tokens that
    a row may sample, for the aggregation `constant`. `saving` decides about checkpoints between those by steps: there
    are none with `async_rollout`, where a checkpoint decides with which weights the next step is played.
    """
    updates = settings.steps * settings.updates_per_step
    compared = settings.learner.loss.kl or settings.kl_in_reward
    reference = Reference(language.backbone, settings.reference) if compared else None
    others = {"reference": reference} if reference is not None else {}
    learners = make_learners(language, settings, learner_settings(settings, max_tokens), updates, seed)
    start = checkpoint.restore(folder, language, learners, others, callbacks.say, settings.keep_checkpoints)
    finite.require_start(language.name, modules(learners))
    reason = callbacks.rewind(start)
    if start == 0:
        checkpoint.save(folder, 0, language, learners, others)
    saving = saving or Saving()
    waits = contextlib.nullcontext() if settings.async_rollout else saving.defer()
    with AsyncRollout(callbacks.play, language, actor or language) as rollout, waits:
        for step in range(start, settings.steps):
            if reason:
                break
            clock.read()
            episodes = rollout.episodes(step)
            wanted = len(groups_of(episodes))
            episodes = refill(episodes, wanted, step, settings, rollout.more)
            with spent("measuring"):
                extra = callbacks.extra_metrics(step + 1, episodes, learners["policy"])
            saves = (step + 1) % settings.checkpoint_every == 0 or step + 1 == settings.steps
            # A resumed run has only the checkpoint's weights, so what follows a checkpoint is played with those.
            if not saves:
                rollout.begin(step + 1)
            with spent("learning"), finite.at_step(step + 1):
                # The schedule follows the steps, also past one without anything to learn.
                for learner in learners.values():
                    learner.updates = step * settings.updates_per_step
                own = seeds.derive(seed, "minibatches", step)
                statistics = learn(episodes, settings, learners, reference, own, wanted)
                finite.require_weights(modules(learners))
                if reference is not None:
                    reference.follow(step + 1)
            with spent("checkpointing"):
                # The main process's numbers are everyone's, so that all ranks stop at the same step.
                statistics = distributed.broadcast(statistics | describe(episodes) | extra)
                callbacks.log(step + 1, statistics)
                if settings.keeps(step + 1):
                    callbacks.keep(step + 1, episodes)
                reason = callbacks.should_stop(step + 1, statistics)
            # Before the checkpoint, from which a resumed run goes on without looking back; the save has its own line.
            callbacks.time(step + 1, clock.read())
            if saves or reason or (saving.due() and not settings.async_rollout):
                with spent("checkpointing"):
                    checkpoint.save(folder, step + 1, language, learners, others, settings.keep_checkpoints)
                    saving.done()
                callbacks.time(step + 1, clock.read())
            saving.stop()
    return checkpoint.last(folder)


def modules(learners: dict[str, Learner]) -> list[nn.Module]:
    """Everything that learns."""
    heads = [learner.value_head for learner in learners.values() if learner.value_head is not None]
    return [*(learner.backbone for learner in learners.values()), *heads]


def refill(
    episodes: list[Episode], wanted: int, step: int, settings: RlSettings, more: Callable[[int], list[Episode]]
) -> list[Episode]:
    """The episodes of a step and, as long as too few of their groups vary, those of further batches.

    Batches are numbered on behind the last step, so that each is a pure function of its number too.
    """
    bound = settings.filter.refill
    for number in range(settings.steps + step * bound, settings.steps + (step + 1) * bound):
        if len(filters.keep_varied(groups_of(learnable(episodes)))) >= wanted:
            break
        shift = 1 + max((episode.group for episode in episodes), default=0)
        episodes = episodes + [replace(episode, group=episode.group + shift) for episode in more(number)]
    return episodes


def learnable(episodes: Sequence[Episode]) -> list[Episode]:
    """Drop episodes that failed or in which the agent said nothing."""
    return [e for e in episodes if e.finish_reason is not FinishReason.ERROR and any(r.acts.any() for r in e.rows)]


def learner_settings(settings: RlSettings, max_tokens: int | None = None) -> LearnerSettings:
    """The learner's settings with what the loop and its algorithm have to say about the loss."""
    loss = settings.learner.loss
    updates: dict[str, object] = {**settings.algorithm.loss, "max_tokens": loss.max_tokens or max_tokens}
    if settings.algorithm.aggregate is not None:
        updates["aggregate"] = settings.algorithm.aggregate
    if updates.get("aggregate", loss.aggregate) == "constant" and updates["max_tokens"] is None:
        raise OneiroError(
            "the aggregation 'constant' divides by the most tokens that a row may sample; set learner.loss.max_tokens"
        )
    if settings.environment_ce:
        # A component is a mean over its tokens: what counts against the policy's loss is the component's weight.
        updates["ce"] = settings.environment_ce
    return settings.learner.model_copy(update={"loss": loss.model_copy(update=updates)})


def make_learners(
    language: LanguageModel, settings: RlSettings, learner_settings: LearnerSettings, updates: int, seed: int = 0
) -> dict[str, Learner]:
    """The policy's learner and, for algorithms that need one, the critic's."""
    needs_critic, shared = settings.algorithm.critic, settings.shared_backbone
    head = ValueHead(language.backbone.shape.width, language.backbone.device) if needs_critic else None
    policy = Learner(language.backbone, learner_settings, updates, head if shared else None, seed=seed)
    checkpoint.adopt_masters(language, policy)
    if not needs_critic or shared:
        return {"policy": policy}
    body: Backbone = copy.deepcopy(language.backbone)
    critic_settings = learner_settings.model_copy(update={"optimiser": settings.critic})
    return {"policy": policy, "critic": Learner(body, critic_settings, updates, head, has_lm_head=False, seed=seed)}


def learn(
    episodes: list[Episode],
    settings: RlSettings,
    learners: dict[str, Learner],
    reference: Reference | None,
    seed: int,
    wanted: int | None = None,
) -> dict[str, float]:
    """One batch of episodes into updates; after a refill, of those of `wanted` groups."""
    examples, statistics = prepare(episodes, settings, learners, reference, wanted)
    if not examples:
        return statistics
    updated = update(examples, settings, learners, seed)
    # A correction's numbers of the mismatch stand: an update's own do not know of truncation.
    return updated | statistics


def prepare(
    episodes: list[Episode],
    settings: RlSettings,
    learners: dict[str, Learner],
    reference: Reference | None = None,
    wanted: int | None = None,
    state_values: Callable[[Sequence[Episode]], Sequence[StateValue]] | None = None,
) -> tuple[list[Example], dict[str, float]]:
    """Everything before the first update: groups kept, rows as examples, advantages. No examples: nothing to learn."""
    valid = learnable(episodes)
    finite.require_array("a reward", [reward for episode in valid for reward in episode.rewards])
    groups = groups_of(valid)
    std = float(np.mean([group.scores.std() for group in groups])) if groups else 0.0
    statistics = {"group_std": std}
    if settings.filter.refill:
        statistics["groups_drawn"] = float(len(groups))
        groups = (filters.keep_varied(groups) or groups)[:wanted]
    kept = filters.keep(groups, settings.filter)
    statistics["groups_kept"] = float(len(kept))
    policy = learners["policy"]
    critic = learners.get("critic") or (policy if policy.value_head is not None else None)
    learned = [episode for group in kept for episode in group.episodes]
    rows = [examples_of(episode, settings) for episode in learned]
    examples = [example for own in rows for example in own]
    if settings.mask_truncated:
        statistics["masked"] = sum(map(is_truncated, learned)) / max(1, len(learned))
    if not any(example.weights[name].any() for example in examples for name in ("policy", "ce")):
        return [], statistics
    if settings.algorithm.recompute:
        add_column(examples, "old", policy.logprobs(examples)[0])
    elif settings.correction.name != "none":
        statistics |= correct(examples, policy, settings.correction)
    if reference is not None:
        add_column(examples, "reference", reference.logprobs(examples, policy))
    if critic is not None:
        add_column(examples, "values", critic.values(examples))
    trajectories = [trajectory_of(episode, own, settings) for episode, own in zip(learned, rows, strict=True)]
    if state_values is not None:
        for t, (values, after) in zip(trajectories, state_values(learned), strict=True):
            t.values, t.last_value = t.spread(values), after
    finite.require_array("a token's reward after its penalty", np.concatenate([t.rewards for t in trajectories]))
    estimate = settings.algorithm.estimate(trajectories)
    finite.require_array("an advantage", np.concatenate(estimate.advantages))
    for place, own in enumerate(rows):
        scatter(own, "advantages", estimate.advantages[place])
        for row, example in zip(learned[place].rows, own, strict=True):
            row.advantages = example.columns["advantages"]
        if estimate.returns is not None:
            scatter(own, "returns", estimate.returns[place])
    if settings.algorithm.weighted:
        for example in examples:
            nothing = np.zeros(len(example), np.float32)
            weights = example.weights["policy"] * example.columns.pop("advantages")
            example.weights |= {"ce": weights, "policy": nothing, "kl": nothing}
    return [e for e in examples if any(weights.any() for weights in e.weights.values())], statistics


def examples_of(episode: Episode, settings: RlSettings) -> list[Example]:
    """The rows of an episode, with the weights that the settings give their tokens."""
    examples = [Example.of(row) for row in episode.rows]
    if settings.mask_truncated and is_truncated(episode):
        for example in examples:
            example.weights["policy"][:] = 0
    if settings.environment_ce:
        for row, example in zip(episode.rows, examples, strict=True):
            example.weights["ce"] = example.weights["ce"] + environment_tokens(row)
    return examples


def trajectory_of(episode: Episode, examples: Sequence[Example], settings: RlSettings) -> Trajectory:
    """What an algorithm sees: rewards after the KL penalty, and values where there is a critic."""
    made = trajectory(episode, episode.group)
    if "values" in examples[0].columns:
        made.values = gather(examples, (example.columns["values"] for example in examples))
    if settings.kl_in_reward:
        # The old policy's log-probabilities, recomputed where that was asked for, else the sampler's.
        own = gather(examples, (example.columns.get("old", example.logprobs) for example in examples))
        reference = gather(examples, (example.columns["reference"] for example in examples))
        cost = losses.kl_estimate(
            torch.from_numpy(own), torch.from_numpy(reference), settings.kl_in_reward_kind
        ).numpy()
        made.rewards = (made.rewards - settings.kl_in_reward * cost).astype(np.float32)
        made.score -= settings.kl_in_reward * float(cost.sum())
    return made


def is_truncated(episode: Episode) -> bool:
    """Whether the token limit cut one of its replies."""
    segments = (segment for row in episode.rows for segment in row.segments)
    return any(segment.sampled and segment.finish_reason is FinishReason.LENGTH for segment in segments)


def add_column(examples: Sequence[Example], name: str, values: Sequence[Floats]) -> None:
    for example, column in zip(examples, values, strict=True):
        example.columns[name] = column


def environment_tokens(row: Row) -> Floats:
    """1 on given tokens that follow the first sampled one: what the environment answered."""
    return ((np.cumsum(row.sampled) > 0) & ~row.sampled).astype(np.float32)


def update(
    flat: list[Example],
    settings: RlSettings,
    learners: dict[str, Learner],
    seed: int,
    log: Callable[[int, dict[str, float]], None] = lambda number, values: None,
) -> dict[str, float]:
    """All epochs and minibatches; reports the first update (where sampler and learner must agree) and the last.
    `log` gets each of the policy's or, without one, the critic's updates by its number.
    """
    statistics: dict[str, float] = {}
    number = 0
    for epoch in range(settings.epochs):
        for part in minibatches(flat, settings.minibatches, seeds.derive(seed, epoch)):
            chosen = [flat[i] for i in part]
            for name, learner in learners.items():
                result = learner.update(chosen)
                prefix = "" if name == "policy" else f"{name}_"
                if prefix + "loss" not in statistics and name == "policy" and "largest_difference" in result:
                    statistics["mismatch"] = result["largest_difference"]
                    statistics["mismatch_kl"] = result["approx_kl"]
                result.pop("largest_difference", None)
                statistics |= {prefix + key: value for key, value in result.items()}
                if name == next(iter(learners)):
                    number += 1
                    log(number, result)
    return statistics


def minibatches(flat: Sequence[Example], count: int, seed: int) -> list[list[int]]:
    """Rows in `count` random parts of about the same size, each in the rows' own order.

    Rows that share a prefix stay together where there is room, so that the prefix is computed once.
    """
    most = -(-len(flat) // count)
    pieces = [group.rows[at : at + most] for group in prefix_groups(flat) for at in range(0, len(group.rows), most)]
    parts: list[list[int]] = [[] for _ in range(min(count, len(pieces)))]
    for number in seeds.generator(seed).permutation(len(pieces)):
        min(parts, key=len).extend(pieces[number])
    return [sorted(part) for part in parts]


def describe(episodes: Sequence[Episode]) -> dict[str, float]:
    """What a batch of episodes looks like."""
    if not episodes:
        return {}
    count = len(episodes)
    turns = max(1, sum(len(e.rewards) for e in episodes))
    means = {
        "success": sum(e.success for e in episodes) / count,
        "reward": sum(e.score for e in episodes) / count,
        "turns": sum(len(e.rewards) for e in episodes) / count,
        "response_length": sum(e.sampled_tokens for e in episodes) / turns,
        "errors": sum(e.finish_reason is FinishReason.ERROR for e in episodes) / count,
    }
    for name in sorted({name for e in episodes for name in e.terms}):
        means[f"reward_{name}"] = sum(sum(e.terms.get(name, [])) for e in episodes) / count
    return means
