"""Tokens from numbers: truncation, greedy, large vocabularies."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from oneiro.episode import SamplingParams
from oneiro.sampling import draw as drawing
from oneiro.sampling.draw import draw, find, invert, truncate


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
