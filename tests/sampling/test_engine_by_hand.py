"""The engine's pieces one by one, against loops over single rows and numbers worked by hand."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from oneiro.episode import FinishReason, SamplingParams
from oneiro.models.language import LanguageModel
from oneiro.runtime import seeds
from oneiro.sampling import draw as drawing
from oneiro.sampling import engine as engines
from oneiro.sampling.decode_batch import FREE, DecodeBatch
from oneiro.sampling.draw import draw, find, invert, truncate
from oneiro.sampling.engine import Engine, Sample, SamplingSettings
from oneiro.sampling.prefixes import NONE, Prefixes, Sharing

PROMPTS = [np.array([5, 6, 7]), np.array([9] * 12), np.array([5, 6, 7]), np.array([40, 3])]


# Drawing --------------------------------------------------------------------------------------------------------------


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


# Samples --------------------------------------------------------------------------------------------------------------


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
    monkeypatch.setitem(engines.LOOK_EVERY, tiny.backbone.device.type, steps)
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


# Shared prompts -------------------------------------------------------------------------------------------------------


def caches(prompts: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    size = (prompts, 2, length, 4)
    return [(torch.randn(size, generator=generator), torch.randn(size, generator=generator)) for _ in range(2)]


@pytest.mark.parametrize("owners", [[0, 1, 0, 1, 1, 0], [1, 0, 0, 1, 2, 2], [0, 0, 1, 1, 2, 2], [2, 1]])
def test_shared_prompts_score_and_mix_as_each_row_would_alone(owners: list[int]) -> None:
    kv_cache, lengths, count = caches(3, 5), torch.tensor([5, 2, 4]), len(owners)
    prefixes = Prefixes(kv_cache, lengths)
    rows = torch.arange(count) if owners != [2, 1] else torch.tensor([3, 1])
    prefixes.seat(rows, torch.tensor(owners))
    total = 6
    query = torch.randn(total, 2, 3, 4, generator=torch.Generator().manual_seed(1))
    scores = torch.full((total, 2, 3, 9), 7.0)
    prefixes.score(1, query, scores)
    weights = torch.rand(total, 2, 3, 9)
    mixed = torch.ones(total, 2, 3, 4)
    prefixes.mix(1, weights, mixed)
    key, value = kv_cache[1]
    seated = dict(zip(rows.tolist(), owners, strict=True))
    for row in range(total):
        if row not in seated:
            assert (scores[row] == 7).all() and (mixed[row] == 1).all()
            continue
        owner = seated[row]
        for head in range(2):
            expected = query[row, head] @ key[owner, head].T
            expected[:, int(lengths[owner]) :] = -torch.inf
            torch.testing.assert_close(scores[row, head, :, :5], expected)
            assert (scores[row, head, :, 5:] == 7).all()
            torch.testing.assert_close(mixed[row, head], 1 + weights[row, head, :, :5] @ value[owner, head])


def test_rows_share_prompts_by_batches_and_forget_those_that_nobody_continues() -> None:
    sharing, one, two = Sharing(8), caches(2, 3), caches(1, 6)
    assert sharing.batch.tolist() == [NONE] * 8 and sharing.start.tolist() == [0] * 8
    assert sharing.admit(slice(0, 4), one, torch.tensor([0, 1, 1, 0]), torch.tensor([3, 2, 2, 3]))
    assert sharing.admit(slice(4, 6), two, torch.tensor([0, 0]), torch.tensor([6, 6]))
    assert sharing.admit(slice(6, 8), two, torch.tensor([0, 0]), torch.tensor([6, 6]))
    assert sharing.batch.tolist() == [0, 0, 0, 0, 1, 1, 1, 1] and len(sharing.prefixes) == 2
    assert sharing.owner.tolist() == [0, 1, 1, 0, 0, 0, 0, 0] and sharing.start.tolist() == [3, 2, 2, 3, 6, 6, 6, 6]
    first, second = sharing.seated(8)
    assert (first.source is one, second.source is two, first.members, second.members) == (True, True, 2, 4)
    assert torch.as_tensor(first.rows).tolist() == [0, 3, 1, 2] and torch.as_tensor(second.rows).tolist() == [
        4,
        5,
        6,
        7,
    ]
    sharing.move(torch.tensor([7, 6]), torch.tensor([0, 2]))
    assert sharing.batch.tolist()[:4] == [1, 0, 1, 0] and sharing.start.tolist()[:4] == [6, 2, 6, 3]
    assert [torch.as_tensor(found.rows).tolist() for found in sharing.seated(6)] == [[3, 1], [0, 2, 4, 5]]
    assert [found.source is two for found in sharing.seated(1)] == [True]
    # A new batch gets a number of its own; three rows of one prompt and one of another are copied instead.
    three = caches(2, 3)
    assert sharing.admit(slice(1, 5), three, torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 2, 2]))
    assert sharing.batch.tolist()[:5] == [1, 2, 2, 2, 2]
    assert not sharing.admit(slice(1, 4), caches(2, 3), torch.tensor([0, 0, 1]), torch.tensor([1, 1, 2]))
    assert sharing.batch.tolist()[:5] == [1, NONE, NONE, NONE, 2] and sharing.start.tolist()[1:4] == [0, 0, 0]
    alike = torch.tensor([0] * 6 + [1, 2])
    assert not sharing.admit(slice(0, 8), caches(3, 3), alike, torch.ones(8, dtype=torch.long))
    assert sharing.admit(slice(2, 6), one, torch.tensor([0, 1, 1, 0]), torch.tensor([3, 2, 2, 3]))
    sharing.clear()
    assert sharing.prefixes == {} and sharing.batch.tolist() == [NONE] * 8 and sharing.start.tolist() == [0] * 8


def test_who_sits_where_is_found_anew_after_every_admission_and_move() -> None:
    sharing, one, two = Sharing(4), caches(1, 3), caches(1, 5)
    assert sharing.admit(slice(0, 4), one, torch.tensor([0] * 4), torch.tensor([3] * 4))
    assert [found.source is one for found in sharing.seated(4)] == [True]
    assert sharing.admit(slice(2, 4), two, torch.tensor([0, 0]), torch.tensor([5, 5]))
    assert [torch.arange(4)[found.rows].tolist() for found in sharing.seated(4)] == [[0, 1], [2, 3]]
    sharing.move(torch.tensor([2]), torch.tensor([0]))
    assert [torch.arange(4)[found.rows].tolist() for found in sharing.seated(4)] == [[1], [0, 2, 3]]
    # Also where the new rows have prompts of their own.
    assert not sharing.admit(slice(2, 4), caches(2, 3), torch.tensor([0, 1]), torch.tensor([3, 3]))
    assert [torch.arange(4)[found.rows].tolist() for found in sharing.seated(4)] == [[1], [0]]


# Rows on the device ---------------------------------------------------------------------------------------------------


def test_rows_begin_move_and_end_as_told(tiny: LanguageModel) -> None:
    batch = DecodeBatch(tiny.backbone, 4, 10, 5)
    assert batch.done.all() and (batch.forced == FREE).all() and int(batch.limit) == 5 and (batch.ends == FREE).all()
    batch.begin(3, [7, 8])
    assert int(batch.limit) == 3 and batch.ends.tolist() == [7, 8] + [FREE] * 6 and batch.done.all()
    batch.begin(2, [9])
    assert batch.ends.tolist() == [9] + [FREE] * 7
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
