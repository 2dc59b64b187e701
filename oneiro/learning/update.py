"""One batch of episodes into updates: keep the groups that teach, make examples of their rows, estimate advantages,
learn in minibatches.

Groups are judged by their *raw* scores: a group whose members all score alike teaches nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from oneiro.episode import Episode, FinishReason, Floats, Row, groups_of
from oneiro.learning import finite, losses
from oneiro.learning.algorithms import Trajectory
from oneiro.learning.algorithms.base import StateValue, trajectory
from oneiro.learning.batch import Example, gather, prefix_groups, scatter
from oneiro.learning.learner import Learner
from oneiro.learning.rl_settings import RlSettings
from oneiro.learning.settings import CorrectionSettings, FilterSettings, ReferenceSettings
from oneiro.models.backbone import Backbone
from oneiro.runtime import seeds

NO_STD = 1e-9  # equal rewards, up to float rounding of their mean
Group = list[Episode]


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
    updated = train(examples, settings, learners, seed)
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
    std = float(np.mean([std_of(group) for group in groups])) if groups else 0.0
    statistics = {"group_std": std}
    if settings.filter.refill:
        statistics["groups_drawn"] = float(len(groups))
        groups = (keep_varied(groups) or groups)[:wanted]
    kept = keep_groups(groups, settings.filter)
    statistics["groups_kept"] = float(len(kept))
    policy = learners["policy"]
    critic = learners.get("critic") or (policy if policy.value_head is not None else None)
    learned = [episode for group in kept for episode in group]
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
    advantages = settings.algorithm.estimate(trajectories)
    finite.require_array("an advantage", np.concatenate(advantages))
    for episode, own, t, values in zip(learned, rows, trajectories, advantages, strict=True):
        scatter(own, "advantages", values)
        for row, example in zip(episode.rows, own, strict=True):
            row.advantages = example.columns["advantages"]
        if t.returns is not None:
            scatter(own, "returns", t.returns)
    if settings.algorithm.weighted:
        for example in examples:
            nothing = np.zeros(len(example), np.float32)
            weights = example.weights["policy"] * example.columns.pop("advantages")
            example.weights |= {"ce": weights, "policy": nothing, "kl": nothing}
    return [e for e in examples if any(weights.any() for weights in e.weights.values())], statistics


def learnable(episodes: Sequence[Episode]) -> list[Episode]:
    """Drop episodes that failed or in which the agent said nothing."""
    return [e for e in episodes if e.finish_reason is not FinishReason.ERROR and any(r.acts.any() for r in e.rows)]


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


def train(
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


def std_of(group: Group) -> float:
    """How much its members' scores differ."""
    return float(np.std([episode.score for episode in group]))


def keep_varied(groups: Sequence[Group]) -> list[Group]:
    """Those whose members score differently."""
    return [group for group in groups if std_of(group) > NO_STD]


def keep_groups(groups: Sequence[Group], settings: FilterSettings) -> list[Group]:
    """The groups to learn from, in their given order; may be empty."""
    if settings.name == "none" or not groups:
        return list(groups)
    stds = np.array([std_of(group) for group in groups])
    order = np.argsort(-stds, kind="stable")
    if settings.name == "softmax-top-p":
        weights = np.exp(stds - stds.max())
        return [groups[i] for i in sorted(_nucleus(weights, order, settings.keep))]
    if settings.name == "varied":
        chosen = order.tolist()
    elif settings.name == "fraction":
        chosen = order[: max(1, round(settings.keep * len(groups)))].tolist()
    else:
        chosen = _nucleus(stds, order, settings.keep)
    return [groups[i] for i in sorted(chosen) if stds[i] > NO_STD]


def _nucleus(weights: np.ndarray, order: np.ndarray, share: float) -> list[int]:
    """The first places of `order` that together hold this share of all weight."""
    cumulated = np.cumsum(weights[order])
    # A hair below the bar counts as reaching it, or rounding would ask for one group too many.
    return order[: int(np.searchsorted(cumulated, share * cumulated[-1] - 1e-9)) + 1].tolist()


class Reference:
    """What a KL is measured against: the policy as it was at the start of the stage, or one that follows it.

    Where only adapters learn, it is a copy of the adapters alone, put in place while it is scored: the base is shared.
    Where all weights learn, it is a second model.
    """

    def __init__(self, policy: Backbone, settings: ReferenceSettings) -> None:
        self.policy, self.settings = policy, settings
        adapters = any(not p.requires_grad for p in policy.parameters())
        self.model = None if adapters else copy.deepcopy(policy).requires_grad_(False).eval()
        # In float32, so that small moves are not rounded away where the policy computes in bfloat16.
        self.weights = {
            name: parameter.detach().float().clone()
            for name, parameter in policy.named_parameters()
            if parameter.requires_grad and (adapters or settings.sync_every)
        }

    def logprobs(self, examples: Sequence[Example], learner: Learner) -> list[Floats]:
        """Log-probability of every token that carries loss; [T] per example. `learner` is the policy's."""
        if self.model is not None:
            return learner.logprobs(examples, self.model)[0]
        theirs = {name: p.detach().clone() for name, p in self.policy.named_parameters() if name in self.weights}
        try:
            put(self.policy, self.weights)
            return learner.logprobs(examples, self.policy)[0]
        finally:
            put(self.policy, theirs)

    @torch.no_grad()
    def follow(self, step: int) -> None:
        """After step number `step`, counted from 1: move towards the policy if it is time."""
        if not self.settings.sync_every or step % self.settings.sync_every:
            return
        theirs = dict(self.policy.named_parameters())
        for name, mine in self.weights.items():
            mine.lerp_(theirs[name].float(), self.settings.mix)
        if self.model is not None:
            put(self.model, self.weights)

    def state(self) -> dict[str, Tensor]:
        """What a resumed run needs: nothing where the reference stays what it was at the start."""
        return self.weights if self.settings.sync_every else {}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for name, mine in self.weights.items():
            mine.copy_(tensors[name])
        if self.model is not None:
            put(self.model, self.weights)


@torch.no_grad()
def put(model: Backbone, weights: Mapping[str, Tensor]) -> None:
    own = dict(model.named_parameters())
    for name, tensor in weights.items():
        own[name].copy_(tensor)


# The sampler and the policy -------------------------------------------------------------------------------------------

# The sampler is not quite the policy: its kernels round otherwise, its weights may be older, it may truncate.
#
# The learner then recomputes the old policy's log-probabilities before the first update. The clipped ratio is against
# those; what the sampler did otherwise is corrected by a weight on each token, the importance
#
#   w = p_old(token) / p_sampler(token)
#
# TIS (truncated importance sampling) caps it. IcePop (arXiv 2510.18855) leaves out tokens whose weight is outside a
# band: they leave the mean too. Where top-p or top-k cut the distribution, the sampler's probability is the
# renormalised one.


def token_weights(old: Tensor, sampler: Tensor, settings: CorrectionSettings) -> tuple[Tensor, Tensor]:
    """Log-probabilities [N] of both -> the weight of each token's policy loss, and which tokens stay in it."""
    importance = (old - sampler).exp()
    if settings.name == "tis":
        kept = ~importance.isnan()
        return torch.where(kept, importance.clamp(max=settings.cap), 0.0), kept
    kept = (importance >= settings.low) & (importance <= settings.high)
    return torch.where(kept, importance, 0.0), kept


def correct(examples: Sequence[Example], learner: Learner, settings: CorrectionSettings) -> dict[str, float]:
    """Put `old` and `correction` beside the sampler's log-probabilities, take masked tokens out of the policy loss, and
    say how far sampler and learner are apart.
    """
    recomputed, _ = learner.logprobs(examples)
    log_mass = learner.log_kept_mass(examples)
    policy = np.concatenate([example.weights["policy"] for example in examples]) != 0
    for example, old, mass in zip(examples, recomputed, log_mass, strict=True):
        sampler = torch.from_numpy(example.logprobs - mass)
        weights, kept = token_weights(torch.from_numpy(old), sampler, settings)
        example.columns["old"], example.columns["correction"] = old, weights.numpy()
        example.weights["policy"] = np.where(kept.numpy(), example.weights["policy"], 0).astype(np.float32)

    def at_policy(arrays: Iterable[Floats]) -> Floats:
        return np.concatenate(list(arrays))[policy]

    return {
        **mismatch(at_policy(recomputed), at_policy(e.logprobs for e in examples)),
        "correction": float(at_policy(e.columns["correction"] for e in examples).mean()),
        "correction_masked": float((at_policy(e.weights["policy"] for e in examples) == 0).mean()),
        "kept_mass": float(np.exp(at_policy(log_mass)).mean()),
    }


def mismatch(learner: Floats, sampler: Floats) -> dict[str, float]:
    """Log-probabilities of the same tokens: the largest difference, and the KL from sampler to learner (k3)."""
    difference = learner.astype(np.float64) - sampler
    kl = np.expm1(difference) - difference
    return {"mismatch": float(np.abs(difference).max()), "mismatch_kl": float(kl.mean())}
