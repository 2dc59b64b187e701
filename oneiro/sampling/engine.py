"""The built-in engine: batched decoding with a key-value cache, on CPU and CUDA, over the learner's own weights.

Every distinct prompt is computed once and shared by all its samples. A finished row's slot goes to the next waiting
sample. Log-probabilities are exact: the learner, given the same tokens, computes the same numbers to float tolerance.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oneiro.episode import FinishReason, Floats, Sample, Tokens, group_by_prefix
from oneiro.models.attention import Prefill
from oneiro.models.language import LanguageModel
from oneiro.runtime import distributed, seeds
from oneiro.runtime.clock import spent
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.decode_batch import FREE, DecodeBatch, KVCache
from oneiro.sampling.prompt_store import Share, common_prefixes, power_of_two
from oneiro.sampling.settings import SamplingSettings

STEPS_PER_CHECK = {"cpu": 1, "cuda": 16}
"""Decoding steps between checks which rows are done: a check makes a GPU wait for its queue to drain."""
PREFILL_TOKENS = {"cpu": 16384, "cuda": 65536}
"""Padded prompt tokens computed at once."""
PART_OF_A_CHARACTER = "\ufffd"
SHARE_FROM = {"cpu": 0, "cuda": 200}
"""The least number of tokens that rows share through a store; 0: never. Each row reads fewer by itself as fast."""
CACHE_PART = 3
"""Keys and values of all rows take no more than this part of a GPU's memory: fewer rows are then decoded at once."""


@dataclass(slots=True)
class _Prefix:
    """A prompt that has been computed: its place in a prefilled batch, and how many samples still wait for it."""

    kv_cache: KVCache
    hidden: Tensor
    place: int
    length: int
    waiting: int


class Engine:
    """Samples from a language model whose weights may change between calls."""

    def __init__(self, language: LanguageModel, max_batch_size: int = 256, share_from: int | None = None) -> None:
        """Prompts that begin with the same `share_from` tokens are kept and read once for all rows; 0: never; None:
        what suits the device.
        """
        self.language = language
        self.max_batch_size = max_batch_size
        self.share_from = SHARE_FROM.get(language.backbone.device.type, 0) if share_from is None else share_from
        self._batch: DecodeBatch | None = None
        self._finishers: dict[tuple[str, ...], NDArray[np.bool_]] = {}

    def generate(
        self,
        prompts: Sequence[Tokens | Sequence[int]],
        n: int = 1,
        sampling: SamplingSettings | None = None,
        forced: Sequence[Tokens | None] | None = None,
        seed: int | Sequence[int] = 0,
    ) -> list[list[Sample]]:
        """`n` samples for every prompt.

        `forced[i]` is an array [max_tokens] of token ids for prompt i with `FREE` where the model chooses. The result
        depends on the prompts, their order, `sampling` and `seed`, not on the number of slots. With a seed for each
        prompt, a prompt's samples do not depend on the other prompts either. Each rank of a torchrun decodes a part of
        the prompts, with the random numbers that they would have had in one process.
        """
        if not len(prompts):
            return []
        sampling = sampling or SamplingSettings()
        with spent("sampling"):
            parts = portions(prompts, distributed.world_size())
            return distributed.divide(
                parts, lambda own: self.generate_some(own, prompts, n, sampling, forced, seed) if own else []
            )

    @torch.inference_mode()
    def generate_some(
        self,
        chosen: Sequence[int],
        prompts: Sequence[Tokens | Sequence[int]],
        n: int,
        sampling: SamplingSettings,
        forced: Sequence[Tokens | None] | None,
        seed: int | Sequence[int],
    ) -> list[list[Sample]]:
        """What `generate` gives for the chosen prompts, without computing the others."""
        return _Call(self, prompts, n, sampling, forced, seed, chosen).samples()

    def decode_batch(
        self, rows: int, capacity: int, steps: int, ends: int = 8, prompts: int = 0, prompt_capacity: int = 0
    ) -> DecodeBatch:
        """The device's rows; kept between calls, with their CUDA graphs, and made anew only when something outgrows
        them.
        """
        if self._batch is None or not self._batch.fits(rows, capacity, steps, ends, prompts, prompt_capacity):
            self._batch = None  # free the old cache before the new one is made
            if self.language.backbone.device.type == "cuda":
                rows = min(roomy(rows), max(rows, self.most_rows(capacity, prompts * roomy(prompt_capacity) / rows)))
                capacity, steps = roomy(capacity), roomy(steps)
                if prompts:
                    prompts, prompt_capacity = power_of_two(prompts), roomy(prompt_capacity)
            self._batch = DecodeBatch(self.language.backbone, rows, capacity, steps, ends, prompts, prompt_capacity)
        return self._batch

    def most_rows(self, capacity: int, stored: float = 0.0) -> int:
        """How many rows of so many positions, and so many `stored` for each, a GPU may hold at once; how many there
        are changes no result.
        """
        backbone = self.language.backbone
        if backbone.device.type != "cuda":
            return sys.maxsize
        row = (roomy(capacity) + stored) * backbone.shape.remembered * backbone.head_weight.itemsize
        return max(1, int(torch.cuda.get_device_properties(backbone.device).total_memory / CACHE_PART / row))

    def finishers(self, stops: tuple[str, ...]) -> NDArray[np.bool_]:
        """[V]: whether a token can complete one of the stop strings, so that only those rows are decoded to text."""
        if stops not in self._finishers:
            # A token that is part of a character's bytes decodes to a mark of its own: it may complete anything.
            lasts = {stop[-1] for stop in stops} | {PART_OF_A_CHARACTER}
            texts = self.language.tokenizer.batch_decode([[i] for i in range(self.language.backbone.shape.vocabulary)])
            self._finishers[stops] = np.array([any(last in text for last in lasts) for text in texts])
        return self._finishers[stops]


def portions(prompts: Sequence[Tokens | Sequence[int]], ranks: int) -> list[list[int]]:
    """Which prompts each rank takes: as many each, and equal ones together, so that they are computed once."""
    if ranks == 1:
        return [list(range(len(prompts)))]
    alike: dict[bytes, list[int]] = {}
    for i, prompt in enumerate(prompts):
        alike.setdefault(np.asarray(prompt, np.int64).tobytes(), []).append(i)
    order = [i for same in alike.values() for i in same]
    return [sorted(part.tolist()) for part in np.array_split(np.array(order, int), ranks)]


def find_shares(
    prompts: Sequence[NDArray[np.int64]], chosen: Sequence[int], n: int, least: int
) -> tuple[list[Share], int]:
    """What each prompt has in common with other rows, `n` of which continue each chosen one, and how many groups there
    are. Nothing where it would spare less than a quarter of what rows read of their prompts.
    """
    shares = [Share()] * len(prompts)
    groups = common_prefixes([prompts[i] for i in chosen], n, least) if least else []
    spared = sum((n * len(group.rows) - 1) * group.length for group in groups)
    if 4 * spared < n * sum(len(prompts[i]) for i in chosen):
        return shares, 0
    for number, group in enumerate(groups):
        for row in group.rows:
            shares[chosen[row]] = Share(number, group.length)
    return shares, len(groups)


def uniforms(seed: int | Sequence[int], prompts: int, n: int, steps: int) -> Floats:
    """[prompts * n, steps] random numbers: of one generator, or of one for each prompt."""
    if isinstance(seed, int):
        return seeds.generator(seed, "sample").random((prompts * n, steps), dtype=np.float32)
    if len(seed) != prompts:
        raise ValueError(f"{prompts} prompts need as many seeds, not {len(seed)}")
    return np.concatenate([seeds.generator(own, "sample").random((n, steps), dtype=np.float32) for own in seed])


def roomy(size: int) -> int:
    """A little more than is asked for, in few distinct sizes, so that calls which grow slowly fit what is there."""
    step = max(64, (1 << (size - 1).bit_length()) // 8)
    return -(-size // step) * step


class _Call:
    """One `generate` call: the queue, the rows in their slots, and what has come out so far."""

    def __init__(
        self,
        engine: Engine,
        prompts: Sequence[Tokens | Sequence[int]],
        n: int,
        sampling: SamplingSettings,
        forced: Sequence[Tokens | None] | None,
        seed: int | Sequence[int],
        chosen: Sequence[int],
    ) -> None:
        self.engine, self.n, self.sampling = engine, n, sampling
        self.backbone = engine.language.backbone
        self.device = self.backbone.device
        self.prompts = [np.asarray(prompt, np.int64) for prompt in prompts]
        if any(len(prompt) == 0 for prompt in self.prompts):
            raise ValueError("every prompt needs at least one token")
        total, steps = len(prompts) * n, sampling.max_tokens
        self.uniforms = torch.from_numpy(uniforms(seed, len(prompts), n, steps))
        self.forced = torch.full((total, steps), FREE, dtype=torch.long)
        for i, row in enumerate(forced or ()):
            if row is not None:
                self.forced[i * n : (i + 1) * n, : len(row)] = torch.from_numpy(np.asarray(row, np.int64))
        # Long prompts first: rows admitted together are padded to the longest of them.
        wanted = [i * n + k for i in chosen for k in range(n)]
        self.queue = sorted(wanted, key=lambda i: (-len(self.prompts[i // n]), i))[::-1]
        self.groups = group_by_prefix(self.prompts)
        self.group_of = {prompt: number for number, group in enumerate(self.groups) for prompt in group.rows}
        """The group of each prompt: equal prompts are computed once."""
        self.prefixes: dict[int, _Prefix] = {}
        """Groups whose prompt is computed and still has samples waiting."""
        longest = max(len(prompt) for prompt in self.prompts)
        most = self.backbone.most_positions
        if most is not None and longest + steps > most:
            raise OneiroError(
                f"a prompt of {longest} tokens and {steps} new ones do not fit into the {most} positions of model "
                f"'{engine.language.name}'; shorten the prompt or ask for fewer tokens"
            )
        ends = [] if sampling.ignore_eos else engine.language.end_tokens
        self.shares, groups = find_shares(self.prompts, chosen, n, engine.share_from)
        """What each prompt has in common with others."""
        own = max(len(self.prompts[i]) - self.shares[i].length for i in chosen) + steps
        stored = max(self.shares[i].length for i in chosen)
        # Room for twice the prompts that full slots share: samples that are longer than others keep theirs.
        per_row = 2 * groups / max(1, len(wanted))
        self.width = min(engine.max_batch_size, max(1, len(wanted)), engine.most_rows(own, per_row * roomy(stored)))
        prompts_kept = min(groups, 1 + int(per_row * self.width))
        self.batch = engine.decode_batch(self.width, own, steps, len(ends), prompts_kept, stored)
        self.batch.begin(steps, ends)
        self.stop_tokens = 2 * max((len(stop.encode()) for stop in sampling.stop), default=0) + 8
        """So many tokens hold any stop string, though each may be one byte, and some may have no text."""
        self.rows: list[int] = []
        """Which sample each slot holds; the slots in use are always the first ones."""
        self.checked = np.zeros(total, np.int64)
        """How many tokens of a sample have been searched for stop strings."""
        self.out: list[Sample | None] = [None] * total

    def samples(self) -> list[list[Sample]]:
        while self.queue or self.rows:
            free = self.width - len(self.rows)
            roomy_enough = free >= max(1, self.width // 8) or free >= len(self.queue)
            if not (self.queue and roomy_enough and self.admit(free)):
                self.advance()
            self.retire()
        samples = [sample for sample in self.out if sample is not None]
        return [samples[i : i + self.n] for i in range(0, len(samples), self.n)]

    def advance(self) -> None:
        """Steps up to the next look; where every sample has the same length, up to its end."""
        steps = STEPS_PER_CHECK.get(self.device.type, 1)
        if self.sampling.ignore_eos and not self.sampling.stop:
            steps = self.sampling.max_tokens - int(self.batch.count[: len(self.rows)].max())
        for _ in range(steps):
            self.batch.advance(len(self.rows), self.sampling.params)

    def admit(self, free: int) -> bool:
        """Fill free slots from the queue, and say whether any were. Prompts are computed by the batch, and a batch is
        given up as soon as the slots have what they need of it: beside them no more than one has to fit into memory.
        """
        chosen = self.next_samples(free)
        waiting = chosen
        while waiting:
            ready = self.prefill(waiting)
            self.seat(waiting[:ready])
            waiting = waiting[ready:]
        return bool(chosen)

    def next_samples(self, free: int) -> list[int]:
        """From the queue, as many as there are free slots, and free places for the prompts that they share."""
        store = self.batch.store
        chosen: list[int] = []
        new: set[int] = set()
        while self.queue and len(chosen) < free:
            share = self.shares[self.queue[-1] // self.n]
            if store is not None and share.length and share.group not in store.places:
                new.add(share.group)
                if len(new) > store.free:
                    break
            chosen.append(self.queue.pop())
        return chosen

    def prefill(self, samples: Sequence[int]) -> int:
        """Compute the first prompts of these samples that are new, as one right-padded batch; each is computed once in
        a call. Returns how many samples may be seated then.
        """
        batch: list[int] = []
        ready = size = 0
        for sample in samples:
            group = self.group_of[sample // self.n]
            if group not in self.prefixes and group not in batch:
                # The first is the longest: the queue is sorted.
                size = size or max(1, PREFILL_TOKENS.get(self.device.type, 16384) // self.groups[group].length)
                if len(batch) == size:
                    break
                batch.append(group)
            ready += 1
        if batch:
            self.compute(batch)
        return ready

    def compute(self, batch: Sequence[int]) -> None:
        """Prefill the prompts of these groups."""
        groups = [self.groups[number] for number in batch]
        lengths = [group.length for group in groups]
        tokens = torch.zeros(len(groups), max(lengths), dtype=torch.long)
        for b, group in enumerate(groups):
            tokens[b, : group.length] = torch.from_numpy(self.prompts[group.rows[0]])
        plan = Prefill()
        positions = torch.arange(max(lengths), device=self.device)
        lasts = torch.tensor([b * max(lengths) + length - 1 for b, length in enumerate(lengths)], device=self.device)
        last_hidden = self.backbone(tokens.to(self.device), positions, plan, lasts)
        for b, (number, group) in enumerate(zip(batch, groups, strict=True)):
            self.prefixes[number] = _Prefix(plan.kv_cache, last_hidden, b, group.length, self.n * len(group.rows))

    def seat(self, chosen: Sequence[int]) -> None:
        """Copy into free slots what their prompts have left behind, and draw their first token."""
        batches: dict[int, list[tuple[int, _Prefix]]] = {}
        for i in chosen:
            group = self.group_of[i // self.n]
            prefix = self.prefixes[group]
            batches.setdefault(id(prefix.kv_cache), []).append((i, prefix))
            prefix.waiting -= 1
            if not prefix.waiting:
                del self.prefixes[group]
        for members in batches.values():
            samples = [i for i, _ in members]
            slots, steps = slice(len(self.rows), len(self.rows) + len(samples)), self.sampling.max_tokens
            self.batch.uniforms[slots, :steps] = self.uniforms[samples].to(self.device)
            self.batch.forced[slots, :steps] = self.forced[samples].to(self.device)
            owner = torch.tensor([prefix.place for _, prefix in members], device=self.device)
            lengths = torch.tensor([prefix.length for _, prefix in members], device=self.device)
            first, shares = members[0][1], [self.shares[sample // self.n] for sample in samples]
            self.batch.admit(slots, first.kv_cache, owner, lengths, first.hidden[owner], self.sampling.params, shares)
            self.rows += samples

    def retire(self) -> None:
        """Take out the samples that are done and close the gaps: rows from the end move into the freed slots."""
        count = len(self.rows)
        done = self.batch.done[:count].cpu().numpy().copy()
        stopped = self.find_stops(done) if self.sampling.stop else {}
        if not done.any():
            return
        finished = np.flatnonzero(done)
        index = torch.from_numpy(finished).to(self.device)
        counts = self.batch.count[index].cpu().numpy()
        tokens = self.batch.tokens[index].cpu().numpy().astype(np.int32)
        logprobs = self.batch.logprobs[index].cpu().numpy()
        ends = set(() if self.sampling.ignore_eos else self.engine.language.end_tokens)
        for place, slot in enumerate(finished):
            sample, length = self.rows[slot], stopped.get(int(slot), int(counts[place]))
            forced = (self.forced[sample, :length] != FREE).numpy()
            ended = int(slot) in stopped or int(tokens[place, length - 1]) in ends
            self.out[sample] = Sample(
                tokens[place, :length].copy(),
                logprobs[place, :length].copy(),
                forced,
                FinishReason.TOKEN if ended else FinishReason.LENGTH,
                self.sampling.params,
            )
        alive = np.flatnonzero(~done)
        holes, movers = finished[finished < len(alive)], alive[alive >= len(alive)]
        if len(holes):
            self.batch.move(torch.from_numpy(movers).to(self.device), torch.from_numpy(holes).to(self.device))
            for hole, mover in zip(holes, movers, strict=True):
                self.rows[hole] = self.rows[mover]
        del self.rows[len(alive) :]
        self.batch.done[len(alive) : count] = True
        if self.batch.store is not None:
            self.batch.store.keep(len(alive))

    def find_stops(self, done: NDArray[np.bool_]) -> dict[int, int]:
        """Find rows whose text holds a stop string, and the length up to it; marks them in `done`."""
        count = len(self.rows)
        counts, tokens = self.batch.count[:count].cpu().numpy(), self.batch.tokens[:count].cpu().numpy()
        starts = self.checked[self.rows]
        first, end = int(starts.min()), int(counts.max())
        places = np.arange(first, end)
        new = (places >= starts[:, None]) & (places < counts[:, None])
        finishing = new & self.engine.finishers(self.sampling.stop)[tokens[:, first:end]]
        lengths: dict[int, int] = {}
        for slot, place in np.argwhere(finishing).tolist():
            at = first + place
            text = self.engine.language.decode(tokens[slot, max(0, at + 1 - self.stop_tokens) : at + 1])
            if slot not in lengths and any(stop in text for stop in self.sampling.stop):
                lengths[slot], done[slot] = at + 1, True
        self.checked[self.rows] = counts
        return lengths
