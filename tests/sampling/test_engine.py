from __future__ import annotations

import copy
import sys
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from oneiro.episode import FinishReason, Row, Sample, SamplingParams, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling import engine
from oneiro.sampling import engine as engines
from oneiro.sampling.decode_batch import DecodeBatch, draw, invert
from oneiro.sampling.engine import FREE, Engine, SamplingSettings
from oneiro.sampling.prefixes import Sharing
from tests.conftest import make_tiny

PROMPTS = [np.array([5, 6, 7]), np.array([9] * 12), np.array([5, 6, 7]), np.array([40, 3])]


def rows(engine: Engine, **sampling: object) -> list[Row]:
    sampled = engine.generate(PROMPTS, n=3, sampling=SamplingSettings(max_tokens=20, **sampling), seed=3)  # type: ignore[arg-type]
    return [Row([given(p), *s.segments()]) for p, samples in zip(PROMPTS, sampled, strict=True) for s in samples]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_sampled_logprobs_are_the_learners(tiny: LanguageModel, temperature: float) -> None:
    examples = [Example.of(row) for row in rows(Engine(tiny, max_batch_size=5), temperature=temperature)]
    recomputed, _ = Learner(tiny.backbone, LearnerSettings(), 1).logprobs(examples)
    for example, logprobs in zip(examples, recomputed, strict=True):
        mask = example.weights["policy"] != 0
        assert mask.sum() > 0
        np.testing.assert_allclose(logprobs[mask], example.logprobs[mask], atol=2e-5)


def test_sampled_logprobs_are_those_of_transformers(tiny: LanguageModel) -> None:
    for row in rows(Engine(tiny, max_batch_size=4)):
        tokens = torch.from_numpy(row.tokens.astype(np.int64))
        scores = tiny.model(tokens[None]).logits[0].log_softmax(-1)
        expected = scores[:-1].gather(1, tokens[1:, None])[:, 0].detach().numpy()
        mask = row.sampled[1:]
        np.testing.assert_allclose(row.logprobs[1:][mask], expected[mask], atol=2e-5)


def test_the_number_of_slots_changes_nothing(tiny: LanguageModel) -> None:
    few, many = rows(Engine(tiny, max_batch_size=2)), rows(Engine(tiny, max_batch_size=64))
    for a, b in zip(few, many, strict=True):
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_prompts_computed_in_many_batches_change_nothing(tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = rows(Engine(tiny))
    kept: list[int] = []
    seat = engine._Call.seat

    def counted(call: engine._Call, samples: Sequence[int]) -> None:
        kept.append(len(call.prefixes))
        seat(call, samples)

    monkeypatch.setattr(engine, "PREFILL_TOKENS", {"cpu": 12})
    monkeypatch.setattr(engine._Call, "seat", counted)
    for a, b in zip(whole, rows(Engine(tiny)), strict=True):
        np.testing.assert_array_equal(a.tokens, b.tokens)
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)
    assert kept == [1, 2]  # the long prompt was given up before the short ones came


def test_a_cache_has_a_little_room_to_grow_and_few_sizes() -> None:
    sizes = [engine.roomy(size) for size in range(1, 5000)]
    assert all(size <= room <= max(size + 63, 1.25 * size) for size, room in enumerate(sizes, start=1))
    assert len(set(sizes)) < 25


def grouped() -> LanguageModel:
    """Two query heads for every key head."""
    from transformers import LlamaConfig, LlamaForCausalLM

    from oneiro.models.backbone import Backbone

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=330,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    language = make_tiny()
    language.model = LlamaForCausalLM(config)
    language.backbone = Backbone(language.model)
    return language


def test_grouped_key_heads_decode_like_the_full_forward() -> None:
    test_sampled_logprobs_are_those_of_transformers(grouped())


SPECIAL: dict[str, dict[str, object]] = {
    "mistral": {"sliding_window": 5},
    "gemma2": {"sliding_window": 5, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 2.0, "head_dim": 8},
    "gemma3_text": {"sliding_window": 5, "head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "granite": {"attention_multiplier": 0.5, "logits_scaling": 0.25, "embedding_multiplier": 3.0},
    "phi": {"num_key_value_heads": 4},
    "gpt_oss": {"sliding_window": 5, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1},
}
"""Windows, caps, scales, biases of the head, sinks."""


@pytest.mark.parametrize(
    ("family", "kernel"),
    [
        *((family, "shared prompts") for family in SPECIAL),
        ("gpt_oss", "a cache of its own"),
        *(
            pytest.param(family, "a cache of its own", marks=pytest.mark.thorough)
            for family in SPECIAL
            if family != "gpt_oss"
        ),
    ],
)
def test_every_kind_of_attention_decodes_like_the_full_forward(
    family: str, kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    from oneiro.models.admission import backbone_of

    sizes = {
        "vocab_size": 330,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": 2,
    }
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**{**sizes, **SPECIAL[family]})).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    if kernel == "a cache of its own":
        monkeypatch.setattr("oneiro.sampling.decode_batch.Sharing", lambda rows: None)
    before = copy.deepcopy(model)
    language = make_tiny()
    language.model = model
    language.backbone = backbone_of(model)
    sampled = rows(Engine(language, max_batch_size=4))
    language.model = before  # transformers' own attention judges
    assert max(len(row.tokens) for row in sampled) > 15
    for row in sampled:
        tokens = torch.from_numpy(row.tokens.astype(np.int64))
        scores = before(tokens[None]).logits[0].log_softmax(-1)
        expected = scores[:-1].gather(1, tokens[1:, None])[:, 0].detach().numpy()
        mask = row.sampled[1:]
        np.testing.assert_allclose(row.logprobs[1:][mask], expected[mask], atol=5e-5)


def test_prompts_beyond_the_positions_of_a_model_are_refused(tiny: LanguageModel) -> None:
    most = tiny.backbone.most_positions
    assert most == 4096
    Engine(tiny).generate([np.ones(most - 1, np.int64)], sampling=SamplingSettings(max_tokens=1))
    with pytest.raises(OneiroError, match="a prompt of 4096 tokens and 1 new ones do not fit into the 4096 positions"):
        Engine(tiny).generate([np.ones(most, np.int64)], sampling=SamplingSettings(max_tokens=1))


def test_a_model_may_have_many_end_tokens(tiny: LanguageModel) -> None:
    tiny.model.generation_config.eos_token_id = list(range(20, 60))
    (samples,) = Engine(tiny).generate(PROMPTS[:1], n=40, sampling=SamplingSettings(max_tokens=30), seed=1)
    ended = [sample for sample in samples if sample.finish_reason is FinishReason.TOKEN]
    assert len({int(sample.tokens[-1]) for sample in ended}) > 8
    ends = set(tiny.end_tokens)
    assert all(not ends & set(sample.tokens[:-1].tolist()) for sample in samples)


FACES = 6 * "\U0001f600"
"""24 tokens of a byte each."""


@pytest.mark.parametrize("stop", ["\u00e9", "\u3002", "\u3002\u00e9", FACES, "0 1 2 3 4 5 6 7 8 9 8 7 6 5 4 3 2 1 0"])
def test_a_stop_string_of_many_tokens_stops(tiny: LanguageModel, stop: str) -> None:
    told = tiny.encode(f"x{stop}")
    assert len(told) > 2 * len(stop) + 8 or stop != FACES
    assert len(told) > len(stop)  # some of its characters take several tokens, or there are very many of them
    forced = np.array([*told, *tiny.encode("and then some more")])
    sampling = SamplingSettings(max_tokens=len(forced), stop=(stop,))
    ((sample,),) = Engine(tiny).generate(PROMPTS[:1], sampling=sampling, forced=[forced])
    assert sample.finish_reason is FinishReason.TOKEN
    assert tiny.decode(sample.tokens) == f"x{stop}"


def test_a_mask_covers_exactly_the_sampled_tokens(tiny: LanguageModel) -> None:
    for row in rows(Engine(tiny)):
        given_length = len(row.segments[0])
        assert not row.sampled[:given_length].any()
        assert row.sampled[given_length:].all()
        assert row.weights("policy").sum() == sum(len(s) for s in row.segments if s.sampled)


def test_each_distinct_prompt_is_computed_once(tiny: LanguageModel) -> None:
    computed = 0
    forward = tiny.backbone.forward

    def count(tokens: torch.Tensor, *rest: object) -> torch.Tensor:
        nonlocal computed
        computed += tokens.shape[0] if tokens.shape[1] > 1 else 0
        return forward(tokens, *rest)  # type: ignore[arg-type]

    tiny.backbone.forward = count  # type: ignore[method-assign]
    Engine(tiny, max_batch_size=3).generate(PROMPTS, n=5, sampling=SamplingSettings(max_tokens=6, ignore_eos=True))
    assert computed == 3  # four prompts, two of them alike


def test_sampling_stops_at_end_tokens_and_stop_strings(tiny: LanguageModel) -> None:
    end = tiny.end_tokens[0]
    ended = 0
    for samples in Engine(tiny).generate(
        PROMPTS, n=50, sampling=SamplingSettings(max_tokens=40, stop=("a", "Left")), seed=1
    ):
        for sample in samples:
            text = tiny.decode(sample.tokens[:-1])
            assert "a" not in text and "Left" not in text and end not in sample.tokens[:-1]
            last = tiny.decode(sample.tokens)
            if sample.finish_reason is FinishReason.TOKEN:
                ended += 1
                assert sample.tokens[-1] == end or "a" in last or "Left" in last
            else:
                assert len(sample.tokens) == 40
    assert ended > 0


def test_forced_tokens_appear_where_they_must_and_count_as_given(tiny: LanguageModel) -> None:
    forced = np.full(8, FREE)
    forced[2:4] = [11, 12]
    sampling = SamplingSettings(max_tokens=8, ignore_eos=True)
    (samples, free) = Engine(tiny).generate(PROMPTS[:2], n=3, sampling=sampling, forced=[forced, None], seed=2)
    for sample in samples:
        assert list(sample.tokens[2:4]) == [11, 12]
        parts = sample.segments()
        assert [(len(s), s.sampled) for s in parts] == [(2, True), (2, False), (4, True)]
        row = Row([given(PROMPTS[0]), *parts])
        example = Example.of(row)
        (scores,), _ = Learner(tiny.backbone, LearnerSettings(), 1).logprobs([example])
        mask = row.sampled
        assert mask.sum() == 6
        np.testing.assert_allclose(scores[mask], row.logprobs[mask], atol=2e-5)
    assert all(not sample.forced.any() for sample in free)


def test_the_same_seed_samples_the_same_and_another_seed_does_not(tiny: LanguageModel) -> None:
    def tokens(seed: int) -> list[list[int]]:
        sampled = Engine(tiny).generate(
            PROMPTS, n=2, sampling=SamplingSettings(max_tokens=10, ignore_eos=True), seed=seed
        )
        return [list(s.tokens) for samples in sampled for s in samples]

    assert tokens(1) == tokens(1)
    assert tokens(1) != tokens(2)


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.5, 0.3, 0.0, 0.2])
    n = 20_000
    uniforms = torch.rand(n, generator=torch.Generator().manual_seed(0))
    tokens, logprobs = draw(probabilities.log().expand(n, 4), uniforms, SamplingParams())
    counts = torch.bincount(tokens, minlength=4) / n
    assert counts[2] == 0
    torch.testing.assert_close(counts, probabilities, atol=0.012, rtol=0)
    torch.testing.assert_close(logprobs.exp(), probabilities[tokens])


@pytest.mark.parametrize(
    ("how", "allowed"),
    [
        (SamplingParams(top_k=2), {0, 1}),
        (SamplingParams(top_p=0.5), {0}),
        (SamplingParams(top_p=0.51), {0, 1}),
        (SamplingParams(temperature=0), {0}),
    ],
)
def test_truncation_keeps_only_the_likeliest(how: SamplingParams, allowed: set[int]) -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log().expand(2000, 4)
    tokens, _ = draw(logits, torch.linspace(0, 0.9999, 2000), how)
    assert set(tokens.tolist()) == allowed


def test_draws_over_a_large_vocabulary_follow_the_distribution() -> None:
    """Several blocks, and a vocabulary that no block size divides; tokens of weight 0 are never chosen."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.rand(3000, generator=generator) ** 8
    weights[::3] = 0
    n = 100_000
    uniforms = torch.rand(n, generator=generator)
    tokens = torch.cat([invert(weights.expand(2000, 3000), part) for part in uniforms.split(2000)])
    counts = torch.bincount(tokens, minlength=3000).double()
    assert not counts[weights == 0].any()
    expected = n * (weights / weights.sum()).double()
    common = expected > 20
    z = (counts - expected)[common] / expected[common].sqrt()
    assert z.abs().max() < 5 and abs(float(z.square().mean()) - 1) < 0.25


@pytest.mark.parametrize("vocabulary", [700, 2000])
def test_the_ends_of_the_unit_interval_draw_real_tokens(vocabulary: int) -> None:
    weights = torch.zeros(2, vocabulary)
    weights[:, [3, 600]] = 0.5
    ends = invert(weights, torch.tensor([0.0, 1.0 - 2**-24]))
    assert ends.tolist() == [3, 600]


@pytest.mark.parametrize("slots", [64, 11])
def test_rows_that_share_a_prompt_attend_as_if_each_had_a_copy(slots: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of unequal length, grouped key heads, rows that end early, and slots that are filled again."""
    language = grouped()
    sampling = SamplingSettings(max_tokens=14, stop=("e", "o", "r"))

    def sampled() -> list[Sample]:
        found = Engine(language, max_batch_size=slots).generate([*PROMPTS, PROMPTS[0]], n=5, sampling=sampling, seed=3)
        return [sample for samples in found for sample in samples]

    shared = sampled()
    assert len({len(sample.tokens) for sample in shared}) > 3
    monkeypatch.setattr(Sharing, "admit", lambda *_: False)
    for a, b in zip(shared, sampled(), strict=True):
        assert a.tokens.tolist() == b.tokens.tolist()
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=2e-6)


def test_prompts_are_shared_where_rows_come_in_groups_of_like_size() -> None:
    kv_cache = [(torch.zeros(2, 1, 3, 4), torch.zeros(2, 1, 3, 4))]
    lengths = torch.tensor([3, 3, 2, 2])
    sharing = Sharing(8)
    assert not sharing.admit(slice(0, 2), kv_cache, torch.tensor([0, 1]), lengths[[0, 2]])
    assert sharing.admit(slice(2, 6), kv_cache, torch.tensor([0, 0, 1, 1]), lengths)
    assert sharing.start.tolist() == [0, 0, 3, 3, 2, 2, 0, 0]
    (found,) = sharing.seat_rows(6)
    assert (found.members, torch.as_tensor(found.rows).tolist()) == (2, [2, 3, 4, 5])
    sharing.move(torch.tensor([5]), torch.tensor([2]))
    sharing.seat_rows(5)
    assert torch.as_tensor(found.rows).tolist() == [3, 2, 4]
    assert sharing.seat_rows(2) == []


def test_a_sample_comes_apart_into_runs_of_one_author() -> None:
    how = SamplingParams(0.5)
    forced = np.array([True, False, False, True, True, False])
    sample = Sample(np.arange(6), np.arange(6) * -0.5, forced, FinishReason.LENGTH, how)
    found = sample.segments(role="robot", turn=3, tag="move")
    assert [s.tokens.tolist() for s in found] == [[0], [1, 2], [3, 4], [5]]
    assert [(s.sampled, s.role, s.turn, s.tag) for s in found] == [
        (False, "forced", 3, "move"),
        (True, "robot", 3, "move"),
        (False, "forced", 3, "move"),
        (True, "robot", 3, "move"),
    ]
    first = found[1]
    assert first.logprobs is not None and first.logprobs.tolist() == [-0.5, -1.0]
    assert first.params is how and first.finish_reason is FinishReason.LENGTH
    plain = Sample(np.arange(2), np.zeros(2), np.zeros(2, bool), FinishReason.TOKEN, how).segments()
    assert [(s.role, s.turn, s.tag) for s in plain] == [("assistant", 0, "")]
    assert Sample(np.arange(0), np.zeros(0), np.zeros(0, bool), FinishReason.TOKEN, how).segments() == []


def test_sizes_grow_by_eighths_and_by_64_at_least() -> None:
    assert [engines.roomy(size) for size in (1, 64, 65, 512, 513, 1000, 1024, 1025, 1300)] == [
        64, 64, 128, 512, 640, 1024, 1024, 1280, 1536,
    ]  # fmt: skip


def test_what_was_sampled_is_the_inverse_of_seeded_numbers(tiny: LanguageModel) -> None:
    """Each sample of each prompt by itself, with transformers' own forward and its own row of numbers."""
    sampling = SamplingSettings(max_tokens=6, temperature=0.8, top_k=40)
    found = Engine(tiny, max_batch_size=3).generate(PROMPTS, n=2, sampling=sampling, seed=11)
    numbers = seeds.generator(11, "sample").random((8, 6), dtype=np.float32)
    for i, sample in enumerate(sample for samples in found for sample in samples):
        tokens = torch.from_numpy(PROMPTS[i // 2])
        for step in range(len(sample.tokens)):
            logits = tiny.model(tokens[None]).logits[0, -1:].detach()
            drawn, logprob = draw(logits, torch.tensor([numbers[i, step]]), sampling.params)
            assert int(drawn) == sample.tokens[step]
            assert float(logprob) == pytest.approx(float(sample.logprobs[step]), abs=5e-5)
            tokens = torch.cat([tokens, drawn])
        ended = int(sample.tokens[-1]) in tiny.end_tokens
        assert sample.finish_reason is (FinishReason.TOKEN if ended else FinishReason.LENGTH)
        assert len(sample.tokens) == 6 or ended
        assert sample.tokens.dtype == np.int32 and sample.params == sampling.params


def test_a_call_without_prompts_or_with_an_empty_one(tiny: LanguageModel) -> None:
    assert Engine(tiny).generate([]) == []
    with pytest.raises(ValueError, match="at least one token"):
        Engine(tiny).generate([np.array([1]), np.zeros(0, int)])
    for few_or_many in ([1], [1, 2, 3]):
        with pytest.raises(ValueError, match=f"2 prompts need as many seeds, not {len(few_or_many)}"):
            Engine(tiny).generate(PROMPTS[:2], seed=few_or_many)
    tiny.backbone.most_positions = None
    ((one,),) = Engine(tiny).generate([[1, 2]])
    assert len(one.tokens) <= 64  # the usual settings, one sample


def test_forced_tokens_may_end_a_sample_and_be_fewer_than_it_has(tiny: LanguageModel) -> None:
    end = tiny.end_tokens[0]
    sampling = SamplingSettings(max_tokens=9)
    forced = [np.array([11, end, 12]), None, np.array([13])]
    found = Engine(tiny).generate(PROMPTS[:3], n=2, sampling=sampling, forced=forced, seed=1)
    for sample in found[0]:
        assert sample.tokens.tolist() == [11, end] and sample.finish_reason is FinishReason.TOKEN
        assert sample.forced.tolist() == [True, True] and sample.logprobs.tolist() == [0, 0]
    for sample in found[2]:
        assert sample.tokens[0] == 13 and sample.forced.tolist() == [True] + [False] * (len(sample.tokens) - 1)
    free = Engine(tiny).generate(PROMPTS[:3], n=2, sampling=SamplingSettings(max_tokens=9, ignore_eos=True), seed=1)
    assert all(len(s.tokens) == 9 and s.finish_reason is FinishReason.LENGTH for group in free for s in group)


def test_rows_are_kept_between_calls_as_long_as_they_suffice(tiny: LanguageModel) -> None:
    engine = Engine(tiny, max_batch_size=5)
    assert engine.most_rows(10) == sys.maxsize
    first = engine.decode_batch(4, 20, 8, 3)
    assert (first.rows, first.capacity, first.steps, len(first.ends)) == (4, 20, 8, 8)
    assert engine.decode_batch(4, 20, 8, 8) is first and engine.decode_batch(1, 1, 1) is first
    for larger in ((5, 20, 8, 8), (4, 21, 8, 8), (4, 20, 9, 8), (4, 20, 8, 9)):
        assert not first.fits(*larger) and first.fits(4, 20, 8, 8)
        engine._batch = first
        assert engine.decode_batch(*larger) is not first
    assert len(DecodeBatch(tiny.backbone, 1, 2, 2, 9).ends) == 16 and len(DecodeBatch(tiny.backbone, 1, 2, 2).ends) == 8
    # Fewer slots than samples; as many as samples where there are few.
    engine._batch = None
    engine.generate(PROMPTS, n=2, sampling=SamplingSettings(max_tokens=3))
    assert engine._batch is not None and (engine._batch.rows, engine._batch.capacity, engine._batch.steps) == (5, 15, 3)
    engine._batch = None
    engine.generate(PROMPTS[:1], n=2, sampling=SamplingSettings(max_tokens=3))
    assert engine._batch.rows == 2  # type: ignore[attr-defined]


def test_a_freed_slot_counts_as_done_and_movers_fill_the_gaps(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(tiny, max_batch_size=6)
    retire, seen = engines._Call.retire, []

    def watched(call: engines._Call) -> None:
        before = list(call.rows)
        done = call.batch.done[: len(before)].tolist()
        retire(call)
        stay = [row for row, over in zip(before, done, strict=True) if not over]
        assert sorted(call.rows) == sorted(stay)
        # Rows that need not move do not; slots beyond those in use are done.
        assert all(before[slot] == row for slot, row in enumerate(call.rows) if not done[slot])
        assert call.batch.done[len(call.rows) :].all() and not call.batch.done[: len(call.rows)].any()
        for slot, row in enumerate(call.rows):
            assert torch.equal(call.batch.uniforms[slot, : call.sampling.max_tokens], call.uniforms[row])
        seen.append(sum(done))

    monkeypatch.setattr(engines._Call, "retire", watched)
    tiny.model.generation_config.eos_token_id = list(range(0, 330, 5))
    engine.generate(PROMPTS, n=6, sampling=SamplingSettings(max_tokens=12), seed=2)
    assert max(seen) >= 1 and sum(seen) == 24


def test_waiting_samples_are_seated_when_an_eighth_of_the_slots_is_free(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    admitted: list[tuple[int, int, int]] = []
    admit = engines._Call.admit

    def watched(call: engines._Call, free: int) -> None:
        admitted.append((free, len(call.rows), len(call.queue)))
        admit(call, free)

    monkeypatch.setattr(engines._Call, "admit", watched)
    tiny.model.generation_config.eos_token_id = list(range(0, 330, 9))
    engine = Engine(tiny, max_batch_size=16)
    engine.generate(PROMPTS, n=10, sampling=SamplingSettings(max_tokens=12), seed=2)
    assert admitted[0] == (16, 0, 40)
    assert len(admitted) > 3 and all(free == 16 - rows for free, rows, _ in admitted)
    # Two free slots are enough; one only where one sample waits.
    assert all(free >= 2 or waiting == 1 for free, _, waiting in admitted) and any(free == 2 for free, _, _ in admitted)


def test_only_tokens_that_may_complete_a_stop_string_are_looked_at(tiny: LanguageModel) -> None:
    engine = Engine(tiny)
    found = engine.finishers(("xa", "b"))
    assert engine.finishers(("xa", "b")) is found and len(found) == tiny.backbone.shape.vocabulary
    for token in range(len(found)):
        text = tiny.decode([token])
        assert found[token] == ("a" in text or "b" in text or "\ufffd" in text), token


@pytest.mark.parametrize("steps", [1, 3, 16])
def test_the_first_stop_string_ends_a_sample_however_many_steps_are_looked_at_at_once(
    tiny: LanguageModel, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.STEPS_PER_CHECK, tiny.backbone.device.type, steps)
    told = tiny.encode("hello world hello world")
    for stop, length in (("hello", 0), ("ello w", 0), (" world", 0), ("never said", len(told))):
        sampling = SamplingSettings(max_tokens=len(told), stop=("another", stop))
        ((sample,),) = Engine(tiny).generate(PROMPTS[:1], sampling=sampling, forced=[np.array(told)])
        text = tiny.decode(sample.tokens)
        if length:
            assert len(sample.tokens) == length and sample.finish_reason is FinishReason.LENGTH
            continue
        assert stop in text and stop not in tiny.decode(sample.tokens[:-1])
        assert sample.finish_reason is FinishReason.TOKEN and len(sample.logprobs) == len(sample.forced) == len(
            sample.tokens
        )


def test_a_stop_string_of_long_characters_is_seen_whole_though_each_byte_is_a_token(tiny: LanguageModel) -> None:
    stop = "\u6f22" * 20  # three bytes each, which the tokenizer has never seen
    told = tiny.encode(stop + "hello")
    assert len(told) > 60
    sampling = SamplingSettings(max_tokens=len(told), stop=(stop,))
    ((sample,),) = Engine(tiny).generate(PROMPTS[:1], sampling=sampling, forced=[np.array(told)])
    assert len(sample.tokens) == 60 and sample.finish_reason is FinishReason.TOKEN


def test_a_stop_string_left_in_a_slot_by_an_earlier_sample_stops_nobody(tiny: LanguageModel) -> None:
    """A slot keeps the tokens of whoever was there before, behind those of the sample that is there now."""
    told, stop = tiny.encode("hello world"), tiny.encode("!")
    tokens = torch.tensor([[*told, *stop], [*told, *stop], [*stop, *told]])
    call = object.__new__(engines._Call)
    call.engine, call.sampling, call.rows = Engine(tiny), SamplingSettings(stop=("!",)), [4, 1, 0]
    call.batch = SimpleNamespace(tokens=tokens, count=torch.tensor([len(told), len(told) + 1, 1 + len(told)]))  # type: ignore[assignment]
    call.checked, call.stop_tokens = np.array([1, 0, 0, 0, 0]), 16
    done = np.zeros(3, bool)
    # The first row has no stop string yet; of the last one the first token has been looked at already.
    assert call.find_stops(done) == {1: len(told) + 1} and done.tolist() == [False, True, False]
    assert call.checked.tolist() == [1 + len(told), len(told) + 1, 0, 0, len(told)]


def test_a_prompt_longer_than_a_batch_of_prompts_is_computed_alone(
    tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    compute = engines._Call.compute
    monkeypatch.setattr(
        engines._Call, "compute", lambda call, batch: (computed.append(len(batch)), compute(call, batch))[1]
    )
    for room, expected in ((4, [1, 1, 1]), (24, [2, 1]), (36, [3])):
        monkeypatch.setitem(engines.PREFILL_TOKENS, "cpu", room)
        prompts = [np.array([5 + number] * 12) for number in range(3)]
        Engine(tiny).generate(prompts, sampling=SamplingSettings(max_tokens=1), seed=0)
        assert computed == expected
        computed.clear()


def test_one_free_slot_of_few_is_filled_at_once(tiny: LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    free_slots: list[tuple[int, int]] = []
    admit = engines._Call.admit
    monkeypatch.setattr(
        engines._Call, "admit", lambda call, free: (free_slots.append((free, len(call.queue))), admit(call, free))[1]
    )
    tiny.model.generation_config.eos_token_id = list(range(0, 330, 9))
    Engine(tiny, max_batch_size=4).generate(PROMPTS, n=6, sampling=SamplingSettings(max_tokens=12), seed=2)
    assert any(free == 1 and waiting > 1 for free, waiting in free_slots)
