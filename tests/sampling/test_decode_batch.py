"""Rows on the device."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from oneiro.episode import SamplingParams
from oneiro.models.language import LanguageModel
from oneiro.sampling import decode_batch as drawing
from oneiro.sampling.decode_batch import FREE, DecodeBatch, draw, find, invert, truncate


def test_rows_begin_move_and_end_as_told(tiny: LanguageModel) -> None:
    batch = DecodeBatch(tiny.backbone, 4, 10, 5)
    assert batch.done.all() and (batch.forced == FREE).all() and int(batch.limit) == 5 and (batch.ends == FREE).all()
    batch.begin(3, [7, 8])
    assert int(batch.limit) == 3 and batch.ends.tolist() == [7, 8] + [FREE] * 6 and batch.done.all()
    batch.position.fill_(9)
    batch.begin(2, [9])
    # Graphs also compute rows that nobody holds: they write to their first place, which every cache has.
    assert batch.ends.tolist() == [9] + [FREE] * 7 and batch.position.tolist() == [0] * 4
    for number, tensor in enumerate((batch.token, batch.position, batch.count)):
        tensor.copy_(torch.arange(4) + 10 * number)
    batch.done.copy_(torch.tensor([True, False, True, False]))
    for tensor in (batch.uniforms, batch.logprobs, batch.forced, batch.tokens):
        tensor.copy_(torch.arange(20).view(4, 5))
    for keys, values in batch.kv_cache:
        keys.copy_(torch.arange(4.0).view(4, 1, 1, 1).expand_as(keys))
        values.copy_(10 + torch.arange(4.0).view(4, 1, 1, 1).expand_as(values))
    batch.move(torch.tensor([3]), torch.tensor([0]))
    assert batch.token.tolist() == [3, 1, 2, 3] and batch.position.tolist() == [13, 11, 12, 13]
    assert batch.count.tolist() == [23, 21, 22, 23] and batch.done.tolist() == [False, False, True, True]
    for tensor in (batch.uniforms, batch.logprobs, batch.forced, batch.tokens):
        assert tensor[0].tolist() == [15, 16, 17, 18, 19] and tensor[1].tolist() == [5, 6, 7, 8, 9]
    for keys, values in batch.kv_cache:
        assert keys[:, 0, 0, 0].tolist() == [3, 1, 2, 3] and values[:, 0, 0, 0].tolist() == [13, 11, 12, 13]


def kept(probabilities: list[float], how: SamplingParams) -> set[int]:
    """The top-k and then the nucleus, by their definitions: ties at the k-th place all stay."""
    alive = list(range(len(probabilities)))
    if how.top_k and how.top_k < len(alive):
        least = sorted(probabilities, reverse=True)[how.top_k - 1]
        alive = [i for i in alive if probabilities[i] >= least]
    if how.top_p < 1:
        total, before, chosen = sum(probabilities[i] for i in alive), 0.0, []
        for i in sorted(alive, key=lambda i: -probabilities[i]):
            if before / total < how.top_p - 1e-7:
                chosen.append(i)
            before += probabilities[i]
        alive = chosen
    return set(alive)


@pytest.mark.parametrize("top_k", [0, 1, 3, 6, 7])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.55, 0.01])
def test_a_draw_is_where_its_number_falls_among_what_truncation_leaves(top_k: int, top_p: float) -> None:
    logits = torch.tensor([[0.3, -1.0, 2.0, 0.3, 1.1, -0.4], [1.0, 1.7, -2.0, 0.1, 0.5, 0.6]])
    how = SamplingParams(temperature=0.7, top_p=top_p, top_k=top_k)
    for number in (0.0, 0.2, 0.5, 0.77, 0.99):
        tokens, logprobs = draw(logits, torch.full((2,), number), how)
        for row in range(2):
            scores = [math.exp(v / 0.7) for v in logits[row].tolist()]
            probabilities = [s / sum(scores) for s in scores]
            alive, mass = sorted(kept(probabilities, how)), 0.0
            total = sum(probabilities[i] for i in alive)
            for token in alive:
                mass += probabilities[token]
                if mass > number * total:
                    break
            assert int(tokens[row]) == token
            assert float(logprobs[row]) == pytest.approx(math.log(probabilities[token]), abs=1e-5)
    left = truncate(logits / 0.7, how)
    for row in range(2):
        scores = [math.exp(v / 0.7) for v in logits[row].tolist()]
        alive_set = kept([s / sum(scores) for s in scores], how)
        assert {i for i in range(6) if left[row, i] > -math.inf} == alive_set
        for i in alive_set:
            assert float(left[row, i]) == pytest.approx(float(logits[row, i]) / 0.7)


def test_greedy_takes_the_best_and_says_its_probability_at_temperature_1() -> None:
    logits = torch.tensor([[0.0, 1.0, 0.5]], dtype=torch.float64)
    tokens, logprobs = draw(logits, torch.tensor([0.99]), SamplingParams(temperature=0.0, top_p=0.1))
    assert tokens.tolist() == [1] and logprobs.dtype == torch.float32
    assert float(logprobs) == pytest.approx(1 - math.log(1 + math.e + math.e**0.5), abs=1e-6)


def test_the_place_of_a_number_is_the_first_above_it_and_never_past_the_last_weight() -> None:
    cumulated = torch.tensor([[0.0, 0.25, 0.25, 1.0, 1.0]])
    places = [int(find(cumulated, torch.tensor([[at]]))) for at in (0.0, 0.2, 0.25, 0.9, 1.0, 2.0)]
    assert places == [1, 1, 3, 3, 3, 3]


@pytest.mark.parametrize("vocabulary", [1024, 1025, 1280, 1300])
def test_blocks_of_a_large_vocabulary_find_what_one_cumulated_row_finds(vocabulary: int) -> None:
    generator = torch.Generator().manual_seed(0)
    # Whole numbers add up without rounding, so that both ways must agree exactly; some blocks are empty.
    weights = torch.randint(0, 3, (60, vocabulary), generator=generator).float()
    weights[:20, :256] = 0
    weights[10:30, 256:700] = 0
    uniforms = torch.rand(60, generator=generator)
    uniforms[0], uniforms[1] = 0.0, 1 - 2**-24
    expected = []
    for row, number in zip(weights.double(), uniforms.double(), strict=True):
        running = row.cumsum(0)
        expected.append(int((running <= float(np.float32(number) * np.float32(running[-1]))).sum()))
    assert invert(weights, uniforms).tolist() == expected
    assert drawing.SMALL == 1024 and drawing.BLOCK == 256
