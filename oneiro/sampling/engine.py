"""The built-in engine: batched decoding with a key-value cache, on CPU and CUDA, over the learner's own weights.

Every distinct prompt is computed once and shared by all its samples. A finished row's slot goes to the next waiting sample.
Log-probabilities are exact: the learner, given the same tokens, computes the same numbers to float tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from oneiro import seeds
from oneiro.episode import Draw, Floats, Segment, Stop, Tokens
from oneiro.models.backbone import Remember, attention
from oneiro.models.language import LanguageModel
from oneiro.recipe import Settings
from oneiro.sampling.draw import draw

FREE = -1
"""In a row of forced tokens: this position is sampled."""


class Limits(Settings):
    """How much to sample, and how."""

    max_tokens: int = Field(64, ge=1)
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    stop: tuple[str, ...] = ()
    """Strings that end a sample once they appear in its text, besides the model's end tokens."""
    ignore_end: bool = False
    """Sample exactly `max_tokens`, whatever comes (video frames, benchmarks)."""

    @property
    def draw(self) -> Draw:
        return Draw(self.temperature, self.top_p, self.top_k)


@dataclass(slots=True)
class Sample:
    """What came out for one prompt: tokens [T], log-probabilities [T], and which tokens were forced rather than sampled."""

    tokens: Tokens
    logprobs: Floats
    forced: NDArray[np.bool_]
    stop: Stop
    draw: Draw

    def segments(self, role: str = "assistant", turn: int = 0, tag: str = "") -> list[Segment]:
        """Runs of one author: forced tokens are given, the others sampled."""
        if not len(self.tokens):
            return []
        edges = [0, *(np.flatnonzero(np.diff(self.forced)) + 1), len(self.tokens)]
        found = []
        for start, end in zip(edges, edges[1:], strict=False):
            if self.forced[start]:
                found.append(Segment(self.tokens[start:end], role="forced", turn=turn, tag=tag))
            else:
                found.append(
                    Segment(self.tokens[start:end], True, role, tag, turn, self.logprobs[start:end], self.draw, self.stop)
                )
        return found


@dataclass(slots=True)
class _Prefix:
    """A prompt's keys and values per layer [K, P, D], and its last hidden state [d]."""

    memory: list[tuple[Tensor, Tensor]]
    hidden: Tensor
    length: int
    waiting: int


class _Cache:
    """Keys and values [slots, K, capacity, D] per layer; an attention plan for one new token a row."""

    def __init__(self, engine: Engine, slots: int, capacity: int) -> None:
        shape, weight = engine.language.backbone.shape, engine.language.backbone.head_weight
        size = (slots, shape.kv_heads, capacity, shape.head_dim)
        self.layers = [
            (torch.zeros(size, dtype=weight.dtype, device=weight.device), torch.zeros(size, dtype=weight.dtype, device=weight.device))
            for _ in range(shape.layers)
        ]
        self.capacity = capacity

    def admit(self, slot: int, prefix: _Prefix) -> None:
        for (keys, values), (key, value) in zip(self.layers, prefix.memory, strict=True):
            keys[slot, :, : prefix.length] = key
            values[slot, :, : prefix.length] = value

    def move(self, sources: NDArray[np.int64], targets: NDArray[np.int64]) -> None:
        """Copy rows into freed slots."""
        source, target = torch.from_numpy(sources), torch.from_numpy(targets)
        for keys, values in self.layers:
            keys[target] = keys[source]
            values[target] = values[source]

    def at(self, positions: Tensor) -> _Cache:
        """Plan the next call: row b writes at positions[b] and sees everything up to it."""
        self.positions = positions
        self.rows = torch.arange(len(positions), device=positions.device)
        self.seen = int(positions.max()) + 1
        self.mask = (torch.arange(self.seen, device=positions.device) <= positions[:, None])[:, None, None]
        return self

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = self.layers[layer]
        batch, heads, _, dim = query.shape
        keys[self.rows, :, self.positions] = key[:, :, 0]
        values[self.rows, :, self.positions] = value[:, :, 0]
        # Query heads that share a key head become that head's queries: grouped attention without repeating keys.
        grouped = query.view(batch, keys.shape[1], heads // keys.shape[1], dim)
        mixed = attention(grouped, keys[:batch, :, : self.seen], values[:batch, :, : self.seen], mask=self.mask)
        return mixed.reshape(batch, heads, 1, dim)


class Engine:
    """Samples from a language model whose weights may change between calls."""

    def __init__(self, language: LanguageModel, slots: int = 256) -> None:
        self.language = language
        self.slots = slots
        self._finishers: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    @torch.inference_mode()
    def generate(
        self,
        prompts: Sequence[Tokens | Sequence[int]],
        n: int = 1,
        limits: Limits | None = None,
        forced: Sequence[Tokens | None] | None = None,
        seed: int = 0,
    ) -> list[list[Sample]]:
        """`n` samples for every prompt.

        `forced[i]` is an array [max_tokens] of token ids for prompt i with `FREE` where the model chooses. The result depends
        on the prompts, their order, `limits` and `seed`, not on the number of slots.
        """
        limits = limits or Limits()
        total = len(prompts) * n
        if not total:
            return []
        return _Call(self, prompts, n, limits, forced, seed).samples()

    def finishers(self, stops: tuple[str, ...]) -> NDArray[np.bool_]:
        """[V]: whether a token can complete one of the stop strings, so that only those rows are decoded to text."""
        if stops not in self._finishers:
            lasts = {stop[-1] for stop in stops}
            texts = self.language.tokenizer.batch_decode([[i] for i in range(self.language.backbone.shape.vocabulary)])
            self._finishers[stops] = np.array([any(last in text for last in lasts) for text in texts])
        return self._finishers[stops]


class _Call:
    """One `generate` call: the queue, the slots and what has come out so far."""

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Tokens | Sequence[int]],
        n: int,
        limits: Limits,
        forced: Sequence[Tokens | None] | None,
        seed: int,
    ) -> None:
        self.engine, self.n, self.limits = engine, n, limits
        self.backbone = engine.language.backbone
        self.device = self.backbone.device
        self.prompts = [np.asarray(prompt, np.int64) for prompt in prompts]
        if any(len(prompt) == 0 for prompt in self.prompts):
            raise ValueError("every prompt needs at least one token")
        total = len(prompts) * n
        steps = limits.max_tokens
        self.uniforms = seeds.generator(seed, "sample").random((total, steps), dtype=np.float32)
        self.forced = None
        if forced is not None and any(row is not None for row in forced):
            self.forced = np.full((total, steps), FREE, np.int64)
            for i, row in enumerate(forced):
                if row is not None:
                    self.forced[i * n : (i + 1) * n, : len(row)] = row
        self.tokens = np.zeros((total, steps), np.int32)
        self.logprobs = np.zeros((total, steps), np.float32)
        self.counts = np.zeros(total, np.int64)
        self.stops: list[Stop] = [Stop.LENGTH] * total
        self.ends = np.array([] if limits.ignore_end else engine.language.end_tokens, np.int64)
        # Long prompts first: rows admitted together are padded to the longest of them.
        self.queue = sorted(range(total), key=lambda i: (-len(self.prompts[i // n]), i))[::-1]
        self.prefixes: dict[bytes, _Prefix] = {}
        self.demand: dict[bytes, int] = {}
        for prompt in self.prompts:
            key = prompt.tobytes()
            self.demand[key] = self.demand.get(key, 0) + n
        slots = min(engine.slots, total)
        self.slots = slots
        longest = max(len(prompt) for prompt in self.prompts)
        self.cache = _Cache(engine, slots, longest + steps)
        # Active rows are dense: row b of every array below is slot b.
        self.rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self.lengths: NDArray[np.int64] = np.zeros(0, np.int64)

    def samples(self) -> list[list[Sample]]:
        while self.queue or len(self.rows):
            free = self.slots - len(self.rows)
            if self.queue and (free >= max(1, self.slots // 8) or free >= len(self.queue)):
                self.admit(free)
            else:
                self.step()
        out = [self.collect(i) for i in range(len(self.stops))]
        return [out[i : i + self.n] for i in range(0, len(out), self.n)]

    def collect(self, i: int) -> Sample:
        count = self.counts[i]
        forced = np.zeros(count, bool) if self.forced is None else self.forced[i, :count] != FREE
        return Sample(self.tokens[i, :count], self.logprobs[i, :count], forced, self.stops[i], self.limits.draw)

    def admit(self, free: int) -> None:
        """Fill free slots from the queue: prefill what is new, copy what is shared, and sample the first token."""
        chosen = [self.queue.pop() for _ in range(min(free, len(self.queue)))]
        keys = [self.prompts[i // self.n].tobytes() for i in chosen]
        new = {key: self.prompts[i // self.n] for key, i in zip(keys, chosen, strict=True) if key not in self.prefixes}
        self.prefill(list(new.values()))
        hidden = []
        for i, key in zip(chosen, keys, strict=True):
            prefix = self.prefixes[key]
            self.cache.admit(len(self.rows), prefix)
            self.rows = np.append(self.rows, i)
            self.lengths = np.append(self.lengths, prefix.length)
            hidden.append(prefix.hidden)
            prefix.waiting -= 1
            if not prefix.waiting:
                del self.prefixes[key]
        start = len(self.rows) - len(chosen)
        self.extend(torch.stack(hidden), np.arange(start, len(self.rows)))

    def prefill(self, prompts: list[NDArray[np.int64]], budget: int = 16384) -> None:
        """Compute new prompts in right-padded batches of at most `budget` tokens."""
        while prompts:
            longest = max(len(prompt) for prompt in prompts[: max(1, budget // len(prompts[0]))])
            batch, prompts = prompts[: max(1, budget // longest)], prompts[max(1, budget // longest) :]
            longest = max(len(prompt) for prompt in batch)
            tokens = torch.zeros(len(batch), longest, dtype=torch.long)
            for b, prompt in enumerate(batch):
                tokens[b, : len(prompt)] = torch.from_numpy(prompt)
            plan = Remember()
            hidden = self.backbone(tokens.to(self.device), torch.arange(longest, device=self.device), plan)
            for b, prompt in enumerate(batch):
                length = len(prompt)
                memory = [(key[b, :, :length], value[b, :, :length]) for key, value in plan.memory]
                key = prompt.tobytes()
                self.prefixes[key] = _Prefix(memory, hidden[b, length - 1], length, self.demand[key])

    def step(self) -> None:
        """One token for every active row."""
        last = torch.from_numpy(self.tokens[self.rows, self.counts[self.rows] - 1].astype(np.int64)).to(self.device)
        positions = torch.from_numpy(self.lengths).to(self.device)
        hidden = self.backbone(last[:, None], positions[:, None], self.cache.at(positions))
        self.lengths = self.lengths + 1
        self.extend(hidden[:, 0], np.arange(len(self.rows)))

    def extend(self, hidden: Tensor, slots: NDArray[np.int64]) -> None:
        """Draw the next token of the given slots from their hidden states, and retire the rows that are finished."""
        rows = self.rows[slots]
        at = self.counts[rows]
        logits = hidden @ self.backbone.head_weight.T
        uniforms = torch.from_numpy(self.uniforms[rows, at]).to(self.device)
        drawn, logprobs = draw(logits, uniforms, self.limits.draw)
        tokens, scores = drawn.cpu().numpy(), logprobs.cpu().numpy()
        if self.forced is not None:
            wanted = self.forced[rows, at]
            tokens = np.where(wanted == FREE, tokens, wanted)
            scores = np.where(wanted == FREE, scores, 0.0)
        self.tokens[rows, at], self.logprobs[rows, at] = tokens, scores
        self.counts[rows] = at + 1
        stopped = np.isin(tokens, self.ends)
        if self.limits.stop:
            for b in np.flatnonzero(self.engine.finishers(self.limits.stop)[tokens] & ~stopped):
                row = rows[b]
                text = self.engine.language.decode(self.tokens[row, max(0, at[b] - 31) : at[b] + 1])
                stopped[b] = any(stop in text for stop in self.limits.stop)
        for row in rows[stopped]:
            self.stops[row] = Stop.TOKEN
        finished = stopped | (at + 1 >= self.limits.max_tokens)
        if finished.any():
            self.retire(slots[finished])

    def retire(self, slots: NDArray[np.int64]) -> None:
        """Close the gaps: rows from the end take the freed slots."""
        alive = np.ones(len(self.rows), bool)
        alive[slots] = False
        count = int(alive.sum())
        holes = np.flatnonzero(~alive[:count])
        movers = count + np.flatnonzero(alive[count:])
        if len(holes):
            self.cache.move(movers, holes)
            self.rows[holes], self.lengths[holes] = self.rows[movers], self.lengths[movers]
        self.rows, self.lengths = self.rows[:count].copy(), self.lengths[:count].copy()
