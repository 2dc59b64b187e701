"""The learner: one forward, any mix of loss components, one optimiser step.

It knows examples, not worlds or algorithms. The same class is the policy's learner and, with a value head and without
an LM head, the separate critic's.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from oneiro.episode import Floats, SamplingParams
from oneiro.learning import finite, head, losses
from oneiro.learning.batch import Batch, Example, batches
from oneiro.learning.distributed import strategy_of
from oneiro.learning.distributed.thread_parallel import ThreadParallel
from oneiro.learning.optimiser import Optimiser, learning_rate
from oneiro.learning.settings import LearnerSettings
from oneiro.models.backbone import Backbone
from oneiro.models.heads import OutcomeHead, ValueHead
from oneiro.models.randomness import seeded
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.threads import PARAMETERS_PER_THREAD

MICRO_BATCH_BYTES = {"cpu": 64 << 20, "cuda": 16 << 30}
"""What a micro-batch may keep for its backward pass, unless the settings count tokens."""
PART_OF_GPU = 6
"""But no more than this part of a GPU's memory."""
FEWEST_TOKENS = 1024
"""Below so many tokens adding up gradients costs more than the tokens."""
VANISHING, PATIENCE = 1e-4, 20
"""Updates that change less than this part of the bfloat16 weights, so many times in a row, are worth a warning: SFT
changes a tenth of them at a time, RL at a learning rate of 1e-5 about one in a hundred.
"""


class Learner:
    """Updates a backbone, and a value head on it if there is one."""

    def __init__(
        self,
        backbone: Backbone,
        settings: LearnerSettings,
        steps: int,
        value_head: ValueHead | OutcomeHead | None = None,
        has_lm_head: bool = True,
        seed: int = 0,
    ) -> None:
        self.backbone, self.settings, self.steps = backbone, settings, steps
        self.value_head, self.has_lm_head, self.seed = value_head, has_lm_head, seed
        self.computes = backbone
        """What computes an update: the backbone itself, or this rank's shards of it."""
        backbone.gradient_checkpointing = settings.gradient_checkpointing
        self.optimiser: Optimiser
        self.updates = 0
        self.vanishing = 0
        """Updates in a row that changed nearly no weight."""
        self.parallel = strategy_of(settings)
        self.parallel.setup(self)

    def trained_parameters(self, backbone: Backbone) -> list[tuple[str, nn.Parameter]]:
        """What learns, by name."""
        named = [(name, p) for name, p in backbone.named_parameters() if p.requires_grad]
        if not self.has_lm_head:
            # A critic's vocabulary head is never used; where it is tied to the embedding it is that embedding.
            named = [(name, p) for name, p in named if name != "head.weight"]
        if self.value_head is not None:
            named += [(f"value.{name}", p) for name, p in self.value_head.named_parameters()]
        return named

    def hidden(self, named: Sequence[tuple[str, nn.Parameter]]) -> list[str]:
        """Names of the matrices inside the layers."""
        return hidden_matrices(self.computes, named)

    def logprobs(
        self, examples: Sequence[Example], backbone: Backbone | None = None
    ) -> tuple[list[Floats], list[Floats]]:
        """Log-probability and entropy of every token that carries loss, 0 elsewhere; each [T] per example.

        `backbone`: another model of the same shape, such as the reference, instead of the one that learns.
        """
        logprobs, entropies = self.parallel.score(self, Learner.measure_logprobs, examples, backbone)
        return logprobs, entropies

    def log_kept_mass(self, examples: Sequence[Example]) -> list[Floats]:
        """Logarithm of the probability that top-p and top-k left in play at every token that carries loss; 0 where
        nothing was cut.
        """
        by_example = [np.zeros(len(e), np.float32) for e in examples]
        cut: dict[SamplingParams, list[int]] = {}
        for i, example in enumerate(examples):
            if not example.sampling.whole:
                cut.setdefault(example.sampling, []).append(i)
        for places in cut.values():
            (masses,) = self.parallel.score(self, Learner.measure_kept_mass, [examples[i] for i in places])
            for i, mass in zip(places, masses, strict=True):
                by_example[i] = mass
        return by_example

    def values(self, examples: Sequence[Example]) -> list[Floats]:
        """The value head's estimate before every token that carries loss; [T] per example."""
        return self.parallel.score(self, Learner.measure_values, examples)[0]

    # What one rank computes

    @torch.no_grad()
    def measure_logprobs(self, examples: Sequence[Example], backbone: Backbone | None) -> tuple[list[Floats], ...]:
        scored = self.computes if backbone is None else backbone
        by_example = [np.zeros(len(e), np.float32) for e in examples], [np.zeros(len(e), np.float32) for e in examples]
        for batch in self._batches(examples):
            scores = head.score(batch.hidden(scored), scored.output, batch.targets, batch.columns["temperature"])
            for values, flat in zip(by_example, scores, strict=True):
                scatter(values, batch, flat)
        return by_example

    @torch.no_grad()
    def measure_kept_mass(self, examples: Sequence[Example], backbone: Backbone | None) -> tuple[list[Floats], ...]:
        """All examples share temperature and truncation, because the mass is computed with one setting for a batch."""
        by_example = [np.zeros(len(e), np.float32) for e in examples]
        params = examples[0].sampling if examples else SamplingParams()
        for batch in self._batches(examples):
            hidden, columns = batch.hidden(self.computes), batch.columns
            mass = head.log_kept_mass(hidden, self.computes.output, batch.targets, columns["temperature"], params)
            scatter(by_example, batch, mass)
        return (by_example,)

    @torch.no_grad()
    def measure_values(self, examples: Sequence[Example], backbone: Backbone | None) -> tuple[list[Floats], ...]:
        assert self.value_head is not None
        by_example = [np.zeros(len(e), np.float32) for e in examples]
        for batch in self._batches(examples):
            scatter(by_example, batch, self.value_head(batch.hidden(self.computes)))
        return (by_example,)

    def accumulate(self, scaled: Sequence[Example], seed: int) -> Statistics:
        """Add the gradients of examples whose weights add up to the loss (`add_weights`)."""
        if self.thread_parallel is not None:
            return self.thread_parallel.accumulate(self, scaled)
        with adapter_dropout(self.computes, seed):
            return self.accumulate_part(scaled)

    def accumulate_part(self, scaled: Sequence[Example]) -> Statistics:
        """The same in one thread, with dropout as it is."""
        statistics = Statistics()
        for batch in self._batches(scaled):
            self._accumulate(batch, statistics)
        return statistics

    @cached_property
    def thread_parallel(self) -> ThreadParallel | None:
        """The threads that share an update, where there are several. A larger model's operations share them instead."""
        backbone, wanted = self.backbone, self.settings.update_threads
        small = backbone.device.type == "cpu" and backbone.shape.parameters < PARAMETERS_PER_THREAD
        if wanted == 1 or not small or self.computes is not backbone or adapter_dropouts(backbone):
            return None
        return ThreadParallel(self, wanted)

    def _accumulate(self, batch: Batch, statistics: Statistics) -> None:
        settings = self.settings.loss
        hidden = batch.hidden(self.computes)
        total = hidden.new_zeros((), dtype=torch.float32)
        if self.has_lm_head:
            columns, output = batch.columns, self.computes.output
            if settings.importance_sampling == "sequence" and "advantages" in columns:
                # A row's ratio needs all of its tokens before any is differentiated: the head looks twice.
                scores, _ = head.score(hidden.detach(), output, batch.targets, columns["temperature"])
                columns["row_log_ratio"] = losses.row_log_ratio(scores, columns, batch.rows, len(batch.places))
            if settings.row is not None and "advantages" in columns:
                scores, _ = head.score(hidden.detach(), output, batch.targets, columns["temperature"])
                columns["row_value"], columns["row_slope"] = losses.row_loss(
                    scores, columns, batch.rows, len(batch.places), settings
                )

            def objective(logprobs: Tensor, entropies: Tensor, part: slice) -> Tensor:
                return losses.token_losses(logprobs, entropies, {k: v[part] for k, v in columns.items()}, settings)

            lm_loss, logprobs, entropies = head.loss(hidden, output, batch.targets, columns["temperature"], objective)
            total = total + lm_loss
            statistics.add_policy(logprobs, entropies, columns, settings)
        if self.value_head is not None:
            values, error = losses.critic_loss(self.value_head, hidden, batch.columns, settings.value_clip)
            total = total + settings.value * (batch.columns["policy"] * error).sum()
            statistics.add_values(values.detach(), batch.columns)
        statistics.add("loss", total.detach())
        total.backward()

    # An update

    def update(self, examples: Sequence[Example]) -> dict[str, float]:
        """One optimiser step on all examples; returns what happened."""
        scaled = add_weights(examples, self.settings.loss)
        statistics = self.parallel.accumulate(self, scaled, seeds.derive(self.seed, "dropout", self.updates))
        rate = learning_rate(self.settings.optimiser, self.updates, self.steps)
        teaches = any(weights["ce"].any() for weights in (e.weights for e in examples))
        try:
            norm = self.parallel.step(self, rate)
        except finite.NotFiniteError:
            finite.require(statistics.means(teaches))  # a loss that is not finite is the cause
            raise
        self.updates += 1
        metrics = {**statistics.means(teaches), "grad_norm": norm, "lr": rate}
        if (changed := self.optimiser.changed) is not None:
            metrics["weights_changed"] = float(changed)
            self._warn_of_lost_updates(metrics["weights_changed"], rate)
        finite.require(metrics)
        return metrics

    def _warn_of_lost_updates(self, changed: float, rate: float) -> None:
        """Masters keep what rounding drops, so small steps add up; steps this small need thousands of updates to."""
        self.vanishing = self.vanishing + 1 if changed < VANISHING else 0
        if self.vanishing == PATIENCE:
            warnings.warn(
                f"{PATIENCE} updates in a row at a learning rate of {rate:.1e} changed less than {VANISHING:.0e} of "
                "the weights: raise the learning rate, or make many more updates",
                stacklevel=2,
            )

    @property
    def token_budget(self) -> int:
        """Padded tokens in one micro-batch."""
        if self.settings.token_budget is not None:
            return self.settings.token_budget
        kept = self.backbone.shape.kept * self.backbone.keeps * self.backbone.head_weight.itemsize
        device = self.backbone.device
        most = MICRO_BATCH_BYTES[device.type]
        if device.type == "cuda":
            most = min(most, torch.cuda.get_device_properties(device).total_memory // PART_OF_GPU)
        return max(FEWEST_TOKENS, int(most / kept))

    def require_positions(self, examples: Sequence[Example]) -> None:
        """See that the model has room for every row: of all ranks, before they are divided, so that all refuse."""
        longest, most = max((len(e) for e in examples), default=0), self.backbone.most_positions
        if most is not None and longest > most:
            raise OneiroError(f"a row has {longest} tokens, more than the {most} positions of the model; shorten it")

    def _batches(self, examples: Sequence[Example]) -> Iterable[Batch]:
        made = batches(examples, self.token_budget, self.backbone.device, packed=self.parallel.packed)
        return self.parallel.pad(self, made)


def add_weights(examples: Sequence[Example], settings: losses.LossSettings) -> list[Example]:
    """The examples with weights that add up to the loss, and beside them those that add up to means over tokens."""
    weights = losses.normalise(examples, settings.aggregate, settings.max_tokens)
    means = weights if settings.aggregate == "token-mean" else losses.normalise(examples, "token-mean")
    return [
        replace(e, weights=w, columns={**e.columns, "mean_policy": m["policy"], "mean_kl": m["kl"]})
        for e, w, m in zip(examples, weights, means, strict=True)
    ]


class Statistics:
    """Means over the tokens of an update, whatever the loss is; read from the device once, at the end."""

    def __init__(self) -> None:
        self.sums: dict[str, Tensor] = {}
        self.largest_difference: Tensor | None = None

    def add(self, name: str, value: Tensor) -> None:
        self.sums[name] = self.sums[name] + value if name in self.sums else value

    def add_policy(
        self, logprobs: Tensor, entropies: Tensor, columns: dict[str, Tensor], settings: losses.LossSettings
    ) -> None:
        if "advantages" in columns:
            weight = columns["mean_policy"]
            difference = torch.where(weight != 0, logprobs - losses.old_logprobs(columns), 0.0)
            ratio = difference.exp()
            self.add("entropy", weight @ entropies)
            self.add("approx_kl", weight @ (ratio - 1 - difference))
            if "row_log_ratio" in columns:
                ratio = columns["row_log_ratio"].exp()
            self.add("ratio", weight @ ratio)
            outside = (ratio < 1 - settings.clip_low) | (ratio > 1 + settings.clip_high)
            self.add("clip_fraction", weight @ outside.float())
            # On the first update of a batch the weights are still the sampler's: any difference is a mismatch.
            if len(difference):
                largest = difference.abs().max()
                seen = self.largest_difference
                self.largest_difference = largest if seen is None else torch.maximum(seen, largest)
        if "reference" in columns:
            self.add("reference_kl", columns["mean_kl"] @ losses.kl_estimate(logprobs, columns["reference"], "k3"))
        self.add("ce", columns["ce"] @ -logprobs)

    def add_values(self, values: Tensor, columns: dict[str, Tensor]) -> None:
        self.add("value", columns["mean_policy"] @ values)
        self.add("value_error", columns["mean_policy"] @ (values - columns["returns"]).square())

    def on_cpu(self) -> Statistics:
        """The same, to be sent."""
        moved = Statistics()
        moved.sums = {name: value.cpu() for name, value in self.sums.items()}
        moved.largest_difference = None if self.largest_difference is None else self.largest_difference.cpu()
        return moved

    def merge(self, other: Statistics) -> None:
        """Take in those of other examples of the same update."""
        for name, value in other.sums.items():
            self.add(name, value.to(self.sums[name].device) if name in self.sums else value)
        mine, theirs = self.largest_difference, other.largest_difference
        if mine is None or theirs is None:
            self.largest_difference = theirs if mine is None else mine
        else:
            self.largest_difference = torch.maximum(mine, theirs.to(mine.device))

    def means(self, teaches: bool) -> dict[str, float]:
        """`teaches`: whether any token carried cross-entropy."""
        sums = dict(self.sums)
        if not teaches:
            sums.pop("ce", None)
        if self.largest_difference is not None:
            sums["largest_difference"] = self.largest_difference
        return dict(zip(sums, torch.stack([value.double() for value in sums.values()]).tolist(), strict=True))


@contextmanager
def adapter_dropout(backbone: Backbone, seed: int) -> Iterator[None]:
    """Switch the dropout of adapters on, drawn from a seed of its own. Sampling and scoring never drop anything."""
    if not (dropouts := adapter_dropouts(backbone)):
        yield
        return
    with seeded(seed, backbone.device):
        for module in dropouts:
            module.train()
        try:
            yield
        finally:
            for module in dropouts:
                module.eval()


def adapter_dropouts(backbone: Backbone) -> list[nn.Dropout]:
    return [m for n, m in backbone.named_modules() if "lora_dropout" in n and isinstance(m, nn.Dropout)]


def hidden_matrices(backbone: Backbone, named: Sequence[tuple[str, nn.Parameter]]) -> list[str]:
    """Names of the matrices inside the layers: neither embeddings nor heads, norms or biases."""
    outside = {id(m.weight) for m in backbone.modules() if isinstance(m, nn.Embedding)} | {id(backbone.head.weight)}
    return [n for n, p in named if p.dim() == 2 and id(p) not in outside and not n.startswith("value.")]


def scatter(by_example: list[Floats], batch: Batch, flat: Tensor) -> None:
    """Put per-token results [N] back where their tokens stand."""
    numbers = flat.float().cpu().numpy()
    start = 0
    for i, at in batch.places:
        by_example[i][at] = numbers[start : start + len(at)]
        start += len(at)
