"""What a sample records: log-probabilities of the whole distribution, and an end exactly where a stop string ends."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oneiro.episode import FinishReason
from oneiro.models.language import LanguageModel
from oneiro.sampling.decode_batch import FREE
from oneiro.sampling.engine import Engine, SamplingSettings

PROMPT = [5, 6, 7, 8]


@pytest.mark.parametrize("cut", [{"top_p": 0.3}, {"top_k": 2}, {"top_p": 0.6, "top_k": 5}])
def test_truncated_sampling_records_the_log_probabilities_before_truncation(
    tiny: LanguageModel, cut: dict[str, float]
) -> None:
    sampling = SamplingSettings(max_tokens=12, temperature=0.8, ignore_eos=True, **cut)
    ((sample,),) = Engine(tiny).generate([PROMPT], 1, sampling, seed=4)
    tokens = torch.tensor([*PROMPT, *sample.tokens.tolist()])
    scores = (tiny.model(tokens[None]).logits[0] / 0.8).log_softmax(-1)
    expected = scores[len(PROMPT) - 1 : -1].gather(1, tokens[len(PROMPT) :, None])[:, 0].detach()
    np.testing.assert_allclose(sample.logprobs, expected, atol=2e-5)
    # Renormalised over what truncation left, they would add up to far more.
    assert expected.exp().max() < 0.95


@pytest.mark.parametrize("length", [1, 2, 9, 17])
def test_a_stop_string_over_many_tokens_ends_the_sample_with_its_last_token(tiny: LanguageModel, length: int) -> None:
    """The tokens are forced, one a letter; after them the model would go on."""
    letters = {tiny.decode(np.array([i])): i for i in range(len(tiny.tokenizer))}
    text = "_ G0 _ G1 _ G2 _ G3 _ G4"[:length]
    forced = np.full(40, FREE)
    forced[3 : 3 + length] = [letters[letter] for letter in text]
    sampling = SamplingSettings(max_tokens=40, stop=(text,), ignore_eos=True)
    engine = Engine(tiny)
    ((sample,),) = engine.generate([PROMPT], 1, sampling, [forced], seed=0)
    before = tiny.decode(sample.tokens[:-1])
    assert text not in before and tiny.decode(sample.tokens).endswith(text)
    assert sample.finish_reason is FinishReason.TOKEN
    if length > 2:  # a short one may also be sampled before
        assert len(sample.tokens) == 3 + length
    ((never,),) = engine.generate([PROMPT], 1, sampling.model_copy(update={"stop": (text + "!",)}), [forced], seed=0)
    assert len(never.tokens) == 40 and never.finish_reason is FinishReason.LENGTH
