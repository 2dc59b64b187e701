"""Prompts that are kept once and read once a step for all rows that begin with them, in the form a GPU uses."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneiro.episode import FinishReason, PrefixGroup, Row, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.attention import Rule, attention
from oneiro.models.language import LanguageModel
from oneiro.sampling.decode_batch import DecodeBatch
from oneiro.sampling.engine import Engine, SamplingSettings, find_shares
from oneiro.sampling.prefixes import NONE
from oneiro.sampling.prompt_store import (
    ContinueStored,
    PromptStore,
    Share,
    chunk_tokens,
    common_length,
    common_prefixes,
)

LONG, OTHER = (np.random.default_rng(0).integers(5, 60, (2, 40))).tolist()
PROMPTS = [np.array(tokens) for tokens in (LONG, OTHER[:13], LONG, [*LONG[:30], 7, 8, 9], LONG[:30] + OTHER[:19], [5])]
"""Two equal ones, two that leave them after 30 tokens, as later turns of a game do, and two with other beginnings."""


def rows(engine: Engine, n: int = 3, **sampling: object) -> list[Row]:
    sampled = engine.generate(PROMPTS, n, SamplingSettings(max_tokens=20, **sampling), seed=3)  # type: ignore[arg-type]
    return [Row([given(p), *s.segments()]) for p, samples in zip(PROMPTS, sampled, strict=True) for s in samples]


@pytest.mark.parametrize(("n", "width", "temperature"), [(3, 64, 1.0), (3, 5, 0.7), (1, 64, 1.0), (1, 2, 1.0)])
def test_rows_that_share_prompts_sample_as_each_would_alone(
    tiny: LanguageModel, n: int, width: int, temperature: float
) -> None:
    """Also where slots are few, so that rows move and prompts are stored again."""
    alone = rows(Engine(tiny, share_from=0), n, temperature=temperature)
    engine = Engine(tiny, width, share_from=13)
    shared = rows(engine, n, temperature=temperature)
    assert engine._batch is not None and engine._batch.store is not None and engine._batch.store.used
    examples = [Example.of(row) for row in shared]
    recomputed, _ = Learner(tiny.backbone, LearnerSettings(), 1).logprobs(examples)
    for mine, theirs, example, logprobs in zip(shared, alone, examples, recomputed, strict=True):
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)
        mask = example.weights["policy"] != 0
        assert mask.any()
        np.testing.assert_allclose(example.logprobs[mask], logprobs[mask], atol=2e-5)


def test_rows_wait_until_there_is_a_place_for_their_prompt(tiny: LanguageModel) -> None:
    class Cramped(Engine):
        def decode_batch(self, *sizes: int) -> DecodeBatch:  # type: ignore[override]
            rows, capacity, steps, ends, _, prompt_capacity = sizes
            return super().decode_batch(rows, capacity, steps, ends, 1, prompt_capacity)

    alone, shared = rows(Engine(tiny, share_from=0)), rows(Cramped(tiny, 8, share_from=13))
    for mine, theirs in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)


def test_stops_end_rows_that_share_a_prompt_where_they_end_alone(tiny: LanguageModel) -> None:
    sampling = SamplingSettings(max_tokens=40, stop=("e", "0"))
    alone, shared = (
        Engine(tiny, 8, share_from=least).generate([PROMPTS[0]], 24, sampling, seed=5)[0] for least in (0, 13)
    )
    assert len({len(sample.tokens) for sample in alone}) > 3
    assert any(sample.finish_reason is FinishReason.TOKEN for sample in alone)
    for mine, theirs in zip(shared, alone, strict=True):
        assert mine.finish_reason is theirs.finish_reason
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)


def test_a_prompt_that_is_shared_is_kept_once(tiny: LanguageModel) -> None:
    engine = Engine(tiny, 64, share_from=13)
    engine.generate([PROMPTS[0]], 16, SamplingSettings(max_tokens=6), seed=0)
    batch = engine._batch
    assert batch is not None and batch.store is not None and batch.kv_cache[0][0].shape[:3] == (16, 4, 6)
    assert batch.store.kv_cache[0][0].shape[:3] == (1, 4, 40)
    # The next call shares nothing: rows hold their prompts, and no longer look into the store.
    engine.generate([PROMPTS[5]], 16, SamplingSettings(max_tokens=4), seed=0)
    assert engine._batch is batch and not batch.store.used and not batch.store.places


def test_there_is_room_for_twice_the_prompts_that_full_slots_share(tiny: LanguageModel) -> None:
    # Six prompts of four samples: eight slots hold two prompts, twice as many and one are kept; never more than six.
    prompts = [np.array([first, *LONG]) for first in range(6)]
    for slots, kept in ((8, 5), (24, 6)):
        engine = Engine(tiny, slots, share_from=13)
        engine.generate(prompts, 4, SamplingSettings(max_tokens=2), seed=0)
        assert engine._batch is not None and engine._batch.store is not None and engine._batch.store.prompts == kept


def test_what_prompts_share_is_found_where_it_spares_enough() -> None:
    # One row each: all four that begin alike share 30 tokens, which spares 3 x 30 of 176.
    shares, groups = find_shares(PROMPTS, range(6), 1, 13)
    assert groups == 1 and shares == [Share(0, 30), Share(), Share(0, 30), Share(0, 30), Share(0, 30), Share()]
    # Three rows each: 5 x 40 and 2 x 33 and 2 x 49 are more than 11 x 30.
    shares, groups = find_shares(PROMPTS, range(6), 3, 13)
    assert groups == 4 and [share.length for share in shares] == [40, 13, 40, 33, 49, 0]
    assert shares[0].group == shares[2].group and len({share.group for share in shares}) == 5
    # Only the chosen ones count, and nothing is shared below the least length or for less than a quarter.
    shares, groups = find_shares(PROMPTS, [2, 1, 5, 4], 1, 13)
    assert groups == 1 and [share.length for share in shares] == [0, 0, 30, 0, 30, 0]
    assert find_shares(PROMPTS, [0, 2, 3], 1, 40)[1] == 1 and find_shares(PROMPTS, [0, 2, 3], 1, 41)[1] == 0
    assert find_shares(PROMPTS, range(6), 1, 40)[1] == 0  # 40 of 176
    assert find_shares(PROMPTS, range(6), 1, 0)[1] == 0


def test_places_are_given_to_prompts_and_taken_back(tiny: LanguageModel) -> None:
    store, shape = PromptStore(tiny.backbone, 40, 2, 5), tiny.backbone.shape
    cache = [(torch.randn(3, shape.kv_heads, 6, shape.head_dim),) * 2 for _ in range(shape.layers)]
    shares = [Share(7, 3), Share(), Share(7, 3), Share(4, 5)]
    store.admit(slice(0, 4), cache, torch.tensor([2, 0, 2, 1]), shares)
    assert store.places == {7: 0, 4: 1} and store.free == 0 and store.used and store.longest == 5
    assert store.place_of[:5].tolist() == [0, NONE, 0, 1, NONE] and store.start[:5].tolist() == [3, 0, 3, 5, 0]
    assert store.length.tolist() == [3, 5]
    assert store.kv_cache[1][0][0, :, :3].equal(cache[1][0][2, :, :3])
    assert store.kv_cache[1][1][1].equal(cache[1][1][1, :, :5])
    assert store.tiles() == (2, 128) and store.tile_prompt.tolist()[:3] == [0, 1, NONE]
    assert store.tile_rows[:2, :3].tolist() == [[0, 2, NONE], [3, NONE, NONE]]
    store.move(torch.tensor([3]), torch.tensor([0]))
    store.keep(2)
    assert store.places == {4: 1} and store.place_of[:4].tolist() == [1, NONE, NONE, NONE] and store.free == 1
    assert store.start[:2].tolist() == [5, 0]
    store.admit(slice(2, 40), cache, torch.zeros(38, dtype=torch.long), [Share(9, 4)] * 38)
    assert store.places == {4: 1, 9: 0} and store.length.tolist() == [4, 5]
    # 38 rows are three tiles of 16, beside one row of the other prompt; as many as a power of two, and all that fit.
    assert store.tiles()[0] == 4 and store.tile_prompt.tolist() == [1, 0, 0, 0]
    assert [int((line >= 0).sum()) for line in store.tile_rows] == [1, 16, 16, 6]
    store.clear()
    assert not store.places and not store.used and store.start.tolist() == [0] * 40 and store.tiles()[0] == 1


def test_chunks_are_as_long_as_keeps_a_gpu_busy() -> None:
    assert chunk_tokens(1000, 48) == 128  # 8 of them x 48 programs: more than 264
    assert chunk_tokens(4000, 48) == 512 and chunk_tokens(4000, 1) == 128 and chunk_tokens(100, 1) == 128
    assert chunk_tokens(1000, 3000) == 1024 and chunk_tokens(200, 192) == 128


RULES = [Rule(), Rule(window=7), Rule(softcap=2.0), Rule(sinks=torch.linspace(-1, 2, 6)), Rule(11, 3.0, torch.ones(6))]


@pytest.mark.parametrize("rule", RULES, ids=["plain", "window", "softcap", "sinks", "all"])
def test_both_parts_together_are_attention_to_everything(rule: Rule) -> None:
    """Rows 0, 2 and 3 share a prompt of 9 tokens, row 1 has its own; a window may hide all of the prompt."""
    generator = torch.Generator().manual_seed(0)
    prompt, new, own = (torch.randn(2, size, 2, n, 4, generator=generator) for size, n in ((1, 9), (4, 1), (4, 12)))
    query, start, position = torch.randn(4, 6, 1, 4, generator=generator), [9, 0, 9, 9], [12, 8, 9, 20]
    store = object.__new__(PromptStore)
    store.kv_cache, store.length, store.start = [(prompt[0], prompt[1])], torch.tensor([9]), torch.tensor(start)
    store.tile_prompt, store.tile_rows = torch.tensor([0, NONE]), torch.tensor([[3, NONE, 0, 2], [NONE] * 4])
    store._tiles = 2, 128
    cache = own[0].clone(), own[1].clone()
    mixed = ContinueStored([cache], torch.tensor(position), store, None)(0, query, new[0], new[1], rule)
    for row in range(4):
        at = position[row] - start[row]
        assert cache[0][row, :, at].equal(new[0, row, :, 0]) and cache[1][row, :, at].equal(new[1, row, :, 0])
        key, value = (
            torch.cat(
                [*([prompt[i, :1]] if start[row] else []), own[i, row : row + 1, :, :at], new[i, row : row + 1]], 2
            )
            for i in range(2)
        )
        back = position[row] - torch.arange(position[row] + 1)
        mask = (back < (rule.window or 99))[None, None, None]
        torch.testing.assert_close(mixed[row], attention(query[row : row + 1], key, value, rule, mask=mask)[0])


def test_prompts_are_grouped_by_what_they_begin_with() -> None:
    def arrays(*prompts: list[int]) -> list[np.ndarray]:
        return [np.array(prompt) for prompt in prompts]

    one, other = arrays([1, 2, 3, 4], [1, 2, 9])
    assert common_length(one, other) == 2 == common_length(other, one)
    assert common_length(one, one) == 4 and common_length(one, one[:3]) == 3 and common_length(one[1:], one) == 0
    prompts = arrays([1, 2, 3, 4], [5, 5], [1, 2, 9], [1, 2, 3, 7, 7], [1], [5, 5])
    # 1 2 3 for two rows spares 3 tokens, 1 2 for three spares 4; 1 for four would spare 3.
    assert common_prefixes(prompts, 1, 1) == [PrefixGroup(2, [0, 3, 2]), PrefixGroup(2, [1, 5])]
    assert common_prefixes(prompts, 1, 3) == [PrefixGroup(3, [0, 3])]
    # One that has less in common with others takes nothing from them, wherever it is sorted.
    assert common_prefixes(arrays([1, 0], [1, 2, 3, 4], [1, 2, 3, 4], [1, 9]), 1, 1) == [PrefixGroup(4, [1, 2])]
    # With two rows each, a prompt shares all of itself.
    assert common_prefixes(prompts[:1], 2, 4) == [PrefixGroup(4, [0])] and common_prefixes(prompts[:1], 2, 5) == []
    assert common_prefixes(prompts[:2], 1, 1) == [] == common_prefixes([], 2, 1)
