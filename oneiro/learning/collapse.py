"""Is the policy collapsing? What to watch during RL, and when to stop.

Two things go wrong in long runs. Attempts at one task come to score alike, and then nothing is left to learn from.
And thoughts stop depending on what was asked: entropy may still look healthy while the same template is written
whatever the state is. The second shows in the mutual information between prompts X and reasoning Z (RAGEN-2, arXiv
2604.06268), estimated from how well each reasoning fits its own prompt and how well the others:

    H(Z|X) = -mean log p(z_i | own x),   H(Z) = -mean log( 1/N sum_j p(z_i | x_j) ),   MI = H(Z) - H(Z|X) <= log N
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Episode, Row, Tokens, given, groups_of
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner
from oneiro.learning.settings import CollapseMonitorSettings
from oneiro.report.stats import pass_at_k

FIRST_STEPS = 10
"""Steps whose reward std within groups is what later steps are compared with."""
LOST = 0.01
EVALUATIONS = 5
"""Success on unseen levels below `LOST` this many times in a row is worth a word."""
DECAY = 0.9  # of the running deviation: about the last ten looks count
EPSILON = 1e-3
"""Added to a deviation before dividing by it."""
TOP = (1, 2, 4, 8)  # the k of retrieval@k, those below the number of prompts
REPLIES = 4
"""Replies to each prompt of a look, where there are as many: every reply is scored after every prompt, so that more
prompts would cost more."""


@dataclass
class CollapseMonitor:
    """Follows one RL stage. All it knows comes from the logged metrics, so `replay` brings it back after a restart."""

    settings: CollapseMonitorSettings
    reasoning: Callable[[Tokens], int] = len
    """How many leading tokens of a reply are reasoning."""
    reason: str | None = None
    """Why the run was stopped."""
    notes: list[str] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    alike: int = 0
    lost: int = 0
    deviation: float | None = None

    def measure(self, step: int, episodes: Sequence[Episode], learner: Learner) -> dict[str, float]:
        """pass@k within the batch and, every so often, the mutual information; to be logged."""
        metrics = pass_over(episodes)
        if self.settings.every and (step - 1) % self.settings.every == 0:
            pairs = Pairs.of(episodes, self.settings.samples, self.reasoning)
            if len(pairs.prompts) > 1:
                metrics |= information(cross(learner, pairs), pairs.own, pairs.lengths, self.deviation)
        return metrics

    def see(self, step: int, values: Mapping[str, Any]) -> str | None:
        """Take a step's metrics in; a text says why RL should end here."""
        if values.get("marginal_std_ema") is not None:
            self.deviation = values["marginal_std_ema"]
        if values.get("eval_success") is not None:
            self.lost = self.lost + 1 if values["eval_success"] < LOST else 0
            if self.lost == EVALUATIONS:
                self.notes.append(
                    f"success on unseen levels was below {LOST:.0%} in {EVALUATIONS} evaluations in a row (step {step})"
                )
        std = values["group_std"]
        if len(self.first) < FIRST_STEPS:
            self.first.append(std)
            return None
        # Against its own first steps: rewards of worlds differ in size, so that no fixed bar fits all.
        usual = float(np.mean(self.first))
        self.alike = self.alike + 1 if std <= self.settings.min_std * usual else 0
        if self.settings.stop and self.alike >= self.settings.patience:
            self.reason = self._say(step, std, usual, values["success"])
        return self.reason

    def replay(self, rows: Iterable[Mapping[str, Any]]) -> str | None:
        """Take in the metrics of the steps that were done before; the reason, if the last of them was the end."""
        self.first, self.notes, self.alike, self.lost, self.deviation, self.reason = [], [], 0, 0, None, None
        for row in rows:
            self.see(row["step"], row)
        return self.reason

    def _say(self, step: int, std: float, usual: float, success: float) -> str:
        if success > 0.9:
            advice = "there is little left to learn here"
        elif not usual:
            advice = (
                "no attempt has ever earned more than another: teach the form of a reply first, or pay for parts of it"
            )
        else:
            advice = "the policy has collapsed: try a lower rl.learner.optimiser.lr or a higher rl.learner.loss.entropy"
        return (
            f"RL ended at step {step}: for {self.alike} steps attempts at one task scored alike (reward std {std:.2g}, "
            f"{usual:.2g} in the first steps) with success at {success:.1%}; {advice} "
            "(collapse_monitor.stop=false goes on)"
        )


def pass_over(episodes: Sequence[Episode]) -> dict[str, float]:
    """pass@2, pass@4, ... of a batch, as far as its smallest group allows."""
    groups = [[e.success for e in group] for group in groups_of(episodes)]
    most = min(map(len, groups), default=0)
    ks = [2**power for power in range(1, most.bit_length())]
    return {f"pass@{k}": float(np.mean([pass_at_k(len(g), sum(g), k) for g in groups])) for k in ks}


@dataclass
class Pairs:
    """S reasonings and the N prompts they may have come from."""

    prompts: list[Tokens]
    replies: list[Tokens]
    own: NDArray[np.int64]
    """[S] which prompt each reasoning really had."""
    temperature: float = 1.0

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.array([len(reply) for reply in self.replies])

    @classmethod
    def of(cls, episodes: Sequence[Episode], samples: int, reasoning: Callable[[Tokens], int] = len) -> Pairs:
        """First replies, at most `samples`, spread evenly over the first `samples / REPLIES` prompts."""
        by_prompt: dict[bytes, list[tuple[Tokens, Tokens]]] = {}
        temperature = 1.0
        for row in (episode.rows[0] for episode in episodes if episode.rows):
            if (sampled := first_reply(row)) is not None:
                temperature = row.temperature
                prompt, reply = sampled[0], sampled[1][: reasoning(sampled[1])]
                if len(reply):
                    by_prompt.setdefault(prompt.tobytes(), []).append((prompt, reply))
        # At least two prompts, or there is nothing to tell apart.
        by_prefix = list(by_prompt.values())[: max(2, samples // REPLIES)]
        ranked = [(rank, j) for j, replies in enumerate(by_prefix) for rank in range(len(replies))]
        # By rank first: the first reply of each prompt, then the second of each.
        chosen = sorted(ranked)[:samples]
        used = sorted({j for _, j in chosen})
        return cls(
            [by_prefix[j][0][0] for j in used],
            [by_prefix[j][rank][1] for rank, j in chosen],
            np.array([used.index(j) for _, j in chosen], np.int64),
            temperature,
        )


def first_reply(row: Row) -> tuple[Tokens, Tokens] | None:
    """What stood before the first sampled token, and the sampled tokens that follow without a break."""
    sampled = row.sampled
    if not sampled.any():
        return None
    start = int(sampled.argmax())
    end = start + int(np.argmin(np.append(sampled[start:], False)))
    return row.tokens[:start], row.tokens[start:end]


def cross(learner: Learner, pairs: Pairs) -> NDArray[np.float64]:
    """[S, N]: the log-probability of every reasoning after every prompt."""
    examples = []
    for reply in pairs.replies:
        for prompt in pairs.prompts:
            example = Example.of(Row([given(prompt), given(reply, ce=1.0)]))
            # As it was sampled: information is about that policy.
            example.temperature = np.full(len(example), pairs.temperature, np.float32)
            examples.append(example)
    scores = [float(values.sum(dtype=np.float64)) for values in learner.logprobs(examples)[0]]
    return np.array(scores).reshape(len(pairs.replies), len(pairs.prompts))


def information(
    scores_SN: NDArray[np.float64],
    own_S: NDArray[np.int64],
    lengths_S: NDArray[np.int64],
    deviation: float | None = None,
) -> dict[str, float]:
    """Mutual information and what goes with it, in nats.

    `mi` is over whole reasonings, `mi_token` over their mean log-probability a token. `mi_z` divides the latter by
    the deviation of the marginal, `mi_z_ema` by its moving average, of which `deviation` is the last value.
    `retrieval@k` is how often a reasoning's own prompt is among the k it fits best, `retrieval_chance` what a blind
    guess gets at k = 1.
    """
    prompts = scores_SN.shape[1]
    per_token = scores_SN / lengths_S[:, None]
    matched, marginal = _score_own_prompts(per_token, own_S), _marginal(per_token)
    std = float(marginal.std())
    smooth = std if deviation is None else DECAY * deviation + (1 - DECAY) * std
    gain = float((matched - marginal).mean())
    metrics = {
        "mi": float((_score_own_prompts(scores_SN, own_S) - _marginal(scores_SN)).mean()),
        "mi_most": float(np.log(prompts)),
        "mi_token": gain,
        "mi_z": gain / (std + EPSILON),
        "mi_z_ema": gain / (smooth + EPSILON),
        "marginal_std_ema": smooth,
        "reasoning_nats": float(-matched.mean()),
        "retrieval_chance": 1 / prompts,
    }
    return metrics | {f"retrieval@{k}": retrieval(scores_SN, own_S, k) for k in TOP if k < prompts}


def retrieval(scores_SN: NDArray[np.float64], own_S: NDArray[np.int64], k: int) -> float:
    """How often the own prompt is among the k best; prompts that fit equally well are drawn by lot."""
    own = _score_own_prompts(scores_SN, own_S)[:, None]
    better, equal = (scores_SN > own).sum(axis=1), (scores_SN == own).sum(axis=1)
    return float(np.clip((k - better) / equal, 0.0, 1.0).mean())


def _score_own_prompts(scores_SN: NDArray[np.float64], own_S: NDArray[np.int64]) -> NDArray[np.float64]:
    """[S]: log p(z | own x)."""
    return scores_SN[np.arange(len(own_S)), own_S]


def _marginal(scores_SN: NDArray[np.float64]) -> NDArray[np.float64]:
    """[S]: log of the mean over prompts of p(z | x)."""
    most = scores_SN.max(axis=1, keepdims=True)  # before the exponential, which would be 0 for any long reply
    return np.log(np.exp(scores_SN - most).mean(axis=1)) + most[:, 0]
