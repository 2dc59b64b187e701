"""The rows being decoded, on the device: everything one step reads or writes.

A step touches no Python number and waits for nothing, so on a GPU it is captured once as a CUDA graph and replayed.
On a CPU the same step runs as it is, over just the rows in use. Rows that continue one prompt read its keys and values
together instead of each having a copy: from a `PromptStore`, or on a CPU as they were computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.episode import SamplingParams
from oneiro.models.attention import PLAIN, Attend, Rule, weights
from oneiro.models.backbone import Backbone
from oneiro.models.kernels import triton_module
from oneiro.sampling.prefixes import ContinueShared, KVCache, Sharing
from oneiro.sampling.prompt_store import ContinueStored, PromptStore, Share

FREE = -1
"""In a row of forced tokens: this position is sampled."""


class DecodeBatch:
    """Key-value cache and per-row state for up to `rows` rows of `capacity` positions and `steps` new tokens.

    With `prompts`, rows may share so many, of up to `prompt_capacity` tokens, besides the positions of their own.
    """

    def __init__(
        self,
        backbone: Backbone,
        rows: int,
        capacity: int,
        steps: int,
        most_ends: int = 8,
        prompts: int = 0,
        prompt_capacity: int = 0,
    ) -> None:
        self.backbone, self.rows, self.capacity, self.steps = backbone, rows, capacity, steps
        shape, device, dtype = backbone.shape, backbone.device, backbone.head_weight.dtype
        size = (rows, shape.kv_heads, capacity, shape.head_dim)
        self.kv_cache: KVCache = [
            (torch.zeros(size, dtype=dtype, device=device), torch.zeros(size, dtype=dtype, device=device))
            for _ in range(shape.layers)
        ]
        self.token = torch.zeros(rows, dtype=torch.long, device=device)
        """The last token of each row; not in the cache yet."""
        self.position = torch.zeros(rows, dtype=torch.long, device=device)
        """Where that token belongs."""
        self.count = torch.zeros(rows, dtype=torch.long, device=device)
        """New tokens so far."""
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.uniforms = torch.zeros(rows, steps, device=device)
        self.forced = torch.full((rows, steps), FREE, dtype=torch.long, device=device)
        self.tokens = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rows, steps, device=device)
        self.limit = torch.tensor(steps, device=device)
        self.ends = torch.full((max(8, 1 << (most_ends - 1).bit_length()),), FREE, dtype=torch.long, device=device)
        self._every = torch.arange(rows, device=device)
        self.kernels = gpu_kernels(device, shape.head_dim)
        self.store = PromptStore(backbone, rows, prompts, prompt_capacity) if prompts else None
        self.sharing = Sharing(rows) if device.type == "cpu" and self.store is None else None
        self._graphs: dict[tuple[int, SamplingParams, tuple[int, int] | None], torch.cuda.CUDAGraph] = {}

    def fits(self, rows: int, capacity: int, steps: int, ends: int, prompts: int = 0, prompt_capacity: int = 0) -> bool:
        enough = self.rows >= rows and self.capacity >= capacity and self.steps >= steps and len(self.ends) >= ends
        if self.store is None:
            return enough and not prompts
        return enough and self.store.prompts >= prompts and self.store.capacity >= prompt_capacity

    def begin(self, limit: int, ends: list[int]) -> None:
        """Prepare for a new call."""
        self.done.fill_(True)
        self.position.fill_(0)  # a row that nobody holds writes here, too
        if self.sharing is not None:
            self.sharing.clear()
        if self.store is not None:
            self.store.clear()
        self.limit.fill_(limit)
        self.ends.fill_(FREE)
        self.ends[: len(ends)] = torch.tensor(ends, dtype=torch.long, device=self.ends.device)

    def admit(
        self,
        slots: slice,
        kv_cache: KVCache,
        owner: Tensor,
        lengths: Tensor,
        hidden: Tensor,
        how: SamplingParams,
        shares: Sequence[Share] = (),
    ) -> None:
        """Rows `slots` continue prefixes `owner` of a prefilled batch; draws their first token from `hidden` [n, d]."""
        if self.store is not None and (self.store.used or any(share.length for share in shares)):
            self.store.admit(slots, kv_cache, owner, shares)
            self._copy_rest(slots, kv_cache, owner, lengths)
        elif self.sharing is None or not self.sharing.admit(slots, kv_cache, owner, lengths):
            width = kv_cache[0][0].shape[2]
            for (keys, values), (key, value) in zip(self.kv_cache, kv_cache, strict=True):
                keys[slots, :, :width] = key[owner]
                values[slots, :, :width] = value[owner]
        self.position[slots] = lengths - 1
        self.count[slots] = 0
        self.done[slots] = False
        self._take(hidden, slots, how)

    def _copy_rest(self, slots: slice, kv_cache: KVCache, owner: Tensor, lengths: Tensor) -> None:
        """What rows have of their prompts behind the part that is stored, to the beginning of their own cache."""
        assert self.store is not None
        start = self.store.start[slots]
        width = int((lengths - start).max())
        if not width:
            return
        # [n, 1, width]; behind a prompt's end lies whatever comes: a row writes there before it looks.
        at = (start[:, None] + torch.arange(width, device=start.device)).clamp(max=kv_cache[0][0].shape[2] - 1)[:, None]
        heads = torch.arange(kv_cache[0][0].shape[1], device=start.device)[:, None]
        for mine, theirs in zip(self.kv_cache, kv_cache, strict=True):
            for cache, computed in zip(mine, theirs, strict=True):
                cache[slots, :, :width] = computed[owner[:, None, None], heads, at]

    def advance(self, rows: int, how: SamplingParams) -> None:
        """One new token for each of the first `rows` rows that is not done."""
        if self.token.device.type != "cuda" or self.backbone.waits:
            self._step(rows, how)
            return
        rows = min(self.rows, 1 << max(3, rows - 1).bit_length())
        kind = rows, how, self.store.tiles() if self.store is not None and self.store.used else None
        if kind not in self._graphs:
            self._graphs[kind] = self._capture(rows, how)
        self._graphs[kind].replay()

    def _capture(self, rows: int, how: SamplingParams) -> torch.cuda.CUDAGraph:
        """Record a step. The dry runs before it may write only where nothing is read: every row counts as done."""
        saved = self.done.clone()
        self.done.fill_(True)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step(rows, how)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # a learner may be at work beside it
            self._step(rows, how)
        self.done.copy_(saved)
        return graph

    def _step(self, rows: int, how: SamplingParams) -> None:
        position = self.position[:rows]
        plan: Attend
        if self.store is not None and self.store.used:
            plan = ContinueStored(self.kv_cache, position, self.store, self.kernels)
        elif self.sharing is not None:
            plan = ContinueShared(self.kv_cache, position, self.sharing)
        else:
            plan = _Continue(self.kv_cache, position, self.capacity, self.kernels)
        hidden = self.backbone(self.token[:rows, None], position[:, None], plan)
        self._take(hidden[:, 0], slice(0, rows), how)

    def _take(self, hidden: Tensor, slots: slice, how: SamplingParams) -> None:
        """Sample the next token of every row, or take the forced one, and record it for rows that are not done."""
        logits = self.backbone.output.logits(hidden)
        if self.kernels and how.temperature and how.whole:
            self.kernels.take(self, logits, self._every[slots], how.temperature, FREE)
            return
        done, count, last = self.done[slots], self.count[slots], self.token[slots]
        tokens, stored = self.tokens[slots], self.logprobs[slots]
        at = count.clamp(max=self.steps - 1)[:, None]
        drawn, logprobs = draw(logits, self.uniforms[slots].gather(1, at)[:, 0], how)
        wanted = self.forced[slots].gather(1, at)[:, 0]
        free = wanted == FREE
        token = torch.where(free, drawn, wanted)
        tokens.scatter_(1, at, torch.where(done[:, None], tokens.gather(1, at), token[:, None]))
        stored.scatter_(
            1, at, torch.where(done[:, None], stored.gather(1, at), torch.where(free, logprobs, 0.0)[:, None])
        )
        last.copy_(torch.where(done, last, token))
        count += ~done
        self.position[slots] += ~done
        done |= (token[:, None] == self.ends).any(1) | (count >= self.limit)

    def move(self, sources: Tensor, targets: Tensor) -> None:
        """Copy whole rows into freed slots."""
        state = [
            self.token,
            self.position,
            self.count,
            self.done,
            self.uniforms,
            self.forced,
            self.tokens,
            self.logprobs,
        ]
        for tensor in [*state, *(tensor for layer in self.kv_cache for tensor in layer)]:
            tensor[targets] = tensor[sources]
        self.done[sources] = True
        if self.sharing is not None:
            self.sharing.move(sources, targets)
        if self.store is not None:
            self.store.move(sources, targets)


class _Continue:
    """Attention plan of a step: row b writes its key and value at position[b] and sees everything up to it."""

    def __init__(self, kv_cache: KVCache, position: Tensor, seen: int, kernels: GpuKernels | None) -> None:
        self.kv_cache, self.position, self.seen, self.kernels = kv_cache, position, seen, kernels
        self._biases: dict[int | None, Tensor] = {}
        if kernels is None:
            heads = kv_cache[0][0].shape[1]
            self.row = torch.arange(len(position) * heads, device=position.device)
            self.at = position.repeat_interleave(heads)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        keys, values = self.kv_cache[layer]
        rows, heads, _, dim = query.shape
        # Query heads that share a key head become that head's queries: grouped attention without repeating keys.
        grouped = query.reshape(rows, keys.shape[1], heads // keys.shape[1], dim)
        if self.kernels:
            mixed = self.kernels.attend(grouped, key, value, keys, values, self.position, rule)
            return mixed.view(rows, heads, 1, dim)
        return self._plain(grouped, key, value, keys.flatten(0, 1), values.flatten(0, 1), rule).view_as(query)

    def _plain(self, query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor, rule: Rule) -> Tensor:
        """Rows and heads as one dimension, two batched products: for one query each the library's kernel is slower."""
        keys[self.row, self.at] = key.flatten(0, 2)
        values[self.row, self.at] = value.flatten(0, 2)
        count, scale = len(self.row), query.shape[-1] ** -0.5
        past = keys[:count, : self.seen].transpose(1, 2)
        scores = torch.baddbmm(self._bias(rule.window), query.flatten(0, 1), past, alpha=scale)
        mixing = weights(scores.view(*query.shape[:3], -1), rule).flatten(0, 1)
        return torch.bmm(mixing, values[:count, : self.seen])

    def _bias(self, window: int | None) -> Tensor:
        """[rows x heads, 1, seen], -inf where a row may not look; the same for all layers with one window."""
        if window not in self._biases:
            distance = self.at[:, None] - torch.arange(self.seen, device=self.at.device)
            hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
            bias = torch.zeros_like(hidden, dtype=self.kv_cache[0][0].dtype)
            self._biases[window] = bias.masked_fill_(hidden, -torch.inf)[:, None]
        return self._biases[window]


@dataclass(frozen=True)
class GpuKernels:
    """Parts of a step that are one launch each on a GPU."""

    attend: Callable[..., Tensor]
    attend_prompts: Callable[..., None]
    take: Callable[..., None]


def gpu_kernels(device: torch.device, head_dim: int) -> GpuKernels | None:
    """The Triton kernels where there is a GPU and Triton; None means plain torch over the whole cache."""
    kernels = triton_module("oneiro.sampling.kernels", device.type)
    if kernels is None or head_dim & (head_dim - 1):  # a tile's sides are powers of two
        return None
    return GpuKernels(kernels.decode_attention, kernels.prompt_attention, kernels.take)


BLOCK = 256  # words summed at once: first the block is found, then the word in it
SMALL = 1024
"""Up to so many words a vocabulary is cumulated whole."""


def draw(logits: Tensor, uniforms: Tensor, how: SamplingParams) -> tuple[Tensor, Tensor]:
    """Logits [B, V] and uniforms [B] -> token ids [B] and log-probabilities [B].

    Log-probabilities are those of the temperature-scaled distribution before truncation, which is what the learner
    recomputes; the segment remembers `how`.
    """
    logits = logits.float()
    if how.temperature == 0:
        tokens = logits.argmax(-1)
        return tokens, torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0]
    if how.temperature != 1:
        logits = logits / how.temperature
    probabilities = logits.softmax(-1)
    weights = probabilities if how.whole else probabilities.where(truncate(logits, how) > -torch.inf, 0.0)
    tokens = invert(weights, uniforms)
    # Whatever is drawn has a probability well above the smallest float: its logarithm is as exact as the learner's.
    return tokens, probabilities.gather(1, tokens[:, None])[:, 0].log_()


def invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Where each uniform falls in its row's cumulated weights: weights [B, V], uniforms [B] -> indices [B].

    A large vocabulary is read once instead of being cumulated whole: first among sums of blocks, then inside a block.
    """
    rows, vocabulary = weights.shape
    if vocabulary <= SMALL:
        cumulated = weights.cumsum(-1)
        return find(cumulated, uniforms[:, None] * cumulated[:, -1:])[:, 0]
    if vocabulary % BLOCK:
        weights = F.pad(weights, (0, -vocabulary % BLOCK))
    padded = weights.view(rows, -1, BLOCK)
    blocks = padded.sum(-1).cumsum(-1)
    threshold = uniforms[:, None] * blocks[:, -1:]
    block = find(blocks, threshold)
    before = torch.where(block > 0, blocks.gather(1, (block - 1).clamp_(min=0)), 0.0)
    inside = padded[torch.arange(rows, device=weights.device), block[:, 0]].cumsum(-1)
    return (block * BLOCK + find(inside, threshold - before))[:, 0]


def find(cumulated: Tensor, threshold: Tensor) -> Tensor:
    """The first place above each threshold [B, 1] in cumulated weights [B, n].

    Thresholds are scaled by the total, rather than trusting it to be 1; still, rounding may point just past the last
    place that has any weight: then it is that place.
    """
    last = (cumulated < cumulated[:, -1:]).sum(-1, keepdim=True)
    return torch.minimum(torch.searchsorted(cumulated, threshold, right=True), last)


def truncate(logits: Tensor, how: SamplingParams) -> Tensor:
    """Minus infinity outside the top-k and the nucleus; at least the best token stays."""
    if how.top_k and how.top_k < logits.shape[1]:
        least = logits.topk(how.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, -torch.inf)
    if how.top_p < 1:
        ordered, order = logits.sort(descending=True, dim=-1)
        probabilities = ordered.softmax(-1)
        outside = probabilities.cumsum(-1) - probabilities >= how.top_p
        logits = logits.masked_fill(outside.scatter(1, order, outside), -torch.inf)
    return logits
