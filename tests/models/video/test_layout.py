"""Layouts: the published lengths and vocabularies, rows by hand, and a model that cannot say an illegal token."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner, LearnerSettings
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.video.layout import FREE, Layout
from oneiro.runtime.errors import OneiroError
from oneiro.sampling import decode_batch
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.video.model import TransformerSettings, create_transformer

SINGLE, MULTI = Layout.single_step(4375, 320, 13), Layout.multi_step(4375, 80, 1280, 13)
TINY = Layout.multi_step(codes=20, frame_tokens=3, context_tokens=4, action_tokens=2, future=2, bins=5)
PAIR = Layout.single_step(codes=20, frame_tokens=3, action_tokens=2, past=2, bins=5)


def test_the_published_lengths_vocabularies_and_offsets() -> None:
    assert (SINGLE.length, SINGLE.prompt_length, SINGLE.reply_length) == (1654, 1333, 320)
    assert (SINGLE.vocabulary, SINGLE.first_action, SINGLE.bos, SINGLE.eos) == (4633, 4375, 4631, 4632)
    assert (MULTI.length, MULTI.prompt_length, MULTI.reply_length) == (2024, 1373, 651 - 13)
    assert (MULTI.vocabulary, MULTI.first_context, MULTI.first_action, MULTI.bos) == (9008, 4375, 8750, 9006)


@pytest.mark.parametrize(("layout", "millions"), [(SINGLE, 120.4), (MULTI, 127.1)])
def test_the_published_transformers_have_their_parameter_counts(layout: Layout, millions: float) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    made = create_transformer(TransformerSettings(layers=1, width=24, heads=12, mlp=96), layout, 0)
    # The published sizes, counted without making them.
    sizes = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "head_dim": 64}
    with torch.device("meta"):
        full = LlamaForCausalLM(LlamaConfig.from_dict({**made.model.config.to_dict(), **sizes}))
    assert round(sum(p.numel() for p in full.parameters()) / 1e6, 1) == millions
    assert made.backbone.head_weight.shape == (4375, 24)


def test_a_multi_step_row_by_hand() -> None:
    context, frames = np.arange(4), np.arange(9).reshape(3, 3)
    actions = np.array([[0, 1], [2, 3], [4, 0]])
    row = TINY.row(context, frames, actions)
    expected = [20, 21, 22, 23, 0, 1, 2, 40, 41, 3, 4, 5, 42, 43, 6, 7, 8, 44, 40]
    assert row.tokens.tolist() == expected and len(row) == TINY.length == 19
    assert np.flatnonzero(row.weights("ce")).tolist() == [9, 10, 11, 14, 15, 16]
    assert row.prefix.tolist() == expected[:9] == TINY.prompt(context, frames, actions).tolist()
    assert TINY.force_actions(actions).tolist() == [FREE, FREE, FREE, 42, 43, FREE, FREE, FREE]


def test_a_single_step_row_by_hand() -> None:
    frames, actions = np.arange(9).reshape(3, 3), np.array([[0, 1], [2, 3], [4, 4]])
    row = PAIR.row(np.zeros(0, int), frames, actions)
    assert row.tokens.tolist() == [0, 1, 2, 20, 21, 3, 4, 5, 22, 23, 25, 6, 7, 8, 26]
    # BOS and EOS carry no loss, and the action behind the last frame is nowhere.
    assert np.flatnonzero(row.weights("ce")).tolist() == [11, 12, 13]
    assert PAIR.force_actions(actions).tolist() == [FREE] * 3
    # With a history, the second given frame is learned as well; the tokens are the same.
    longer = PAIR.row(np.zeros(0, int), frames, actions, history=0.5)
    assert np.array_equal(longer.tokens, row.tokens)
    assert longer.weights("ce").tolist() == [0.0] * 5 + [0.5] * 3 + [0.0] * 3 + [1.0] * 3 + [0.0]


@pytest.mark.parametrize("layout", [TINY, PAIR], ids=["multi", "single"])
def test_a_prompt_does_not_depend_on_later_frames(layout: Layout) -> None:
    random = np.random.default_rng(0)
    context, actions = random.integers(20, size=layout.context_tokens), random.integers(5, size=(3, 2))
    frames = random.integers(20, size=(3, 3))
    before = layout.prompt(context, frames, actions)
    frames[layout.past :], actions[layout.past :] = 0, 0
    assert np.array_equal(layout.prompt(context, frames, actions), before)


def test_a_sampled_reply_gives_its_frames_back() -> None:
    reply = np.array([1, 2, 3, 42, 43, 4, 5, 6], np.int32)
    assert TINY.reply_frames(reply).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_free_is_the_engines_own_sign() -> None:
    assert FREE == decode_batch.FREE


def test_a_layout_survives_json_and_a_wrong_one_is_refused() -> None:
    assert Layout.read(MULTI.data()) == MULTI
    with pytest.raises(OneiroError, match="not the layout of a video model"):
        Layout.read({"codes": 3, "colour": "red"})


# The model over it ----------------------------------------------------------------------------------------------------


@pytest.fixture
def model() -> LanguageModel:
    made = create_transformer(TransformerSettings(layers=2, width=32, heads=2, mlp=64), TINY, seed=1)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.backbone.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).to(parameter.device))
    return made


def test_only_frame_codes_come_out_and_actions_stand_where_they_are_forced(model: LanguageModel) -> None:
    actions = np.array([[0, 1], [2, 3], [4, 0]])
    prompt = TINY.prompt(np.arange(4), np.arange(9).reshape(3, 3), actions)
    sampling = SamplingSettings(max_tokens=TINY.reply_length, ignore_eos=True)
    (samples,) = Engine(model).generate([prompt], 64, sampling, [TINY.force_actions(actions)], seed=3)
    for sample in samples:
        assert sample.tokens[3:5].tolist() == [42, 43]
        assert TINY.reply_frames(sample.tokens).max() < 20
    segments = TINY.reply_segments(samples[0].segments())
    assert [(s.sampled, s.tag, s.turn) for s in segments] == [
        (True, "frame", 1),
        (False, "action", 1),
        (True, "frame", 2),
    ]


def test_sampler_and_learner_agree_over_the_spoken_tokens(model: LanguageModel) -> None:
    actions = np.array([[0, 1], [2, 3], [4, 0]])
    prompt = TINY.prompt(np.arange(4), np.arange(9).reshape(3, 3), actions)
    sampling = SamplingSettings(max_tokens=TINY.reply_length, ignore_eos=True)
    (samples,) = Engine(model).generate([prompt], 4, sampling, [TINY.force_actions(actions)], seed=3)
    from oneiro.episode import Row, given

    rows = [Row([given(prompt), *TINY.reply_segments(sample.segments())]) for sample in samples]
    learned, _ = Learner(model.backbone, LearnerSettings(), 1).logprobs([Example.of(row) for row in rows])
    for row, scores in zip(rows, learned, strict=True):
        assert np.allclose(scores[row.sampled], row.logprobs[row.sampled], atol=1e-4)
        assert row.sampled.sum() == 6


def test_what_may_be_spoken_and_that_nothing_is_text_survive_a_folder(model: LanguageModel, tmp_path: Path) -> None:
    model.metadata = {"predictor": "video", "layout": TINY.data()}
    again = languages.load(str(model.save(tmp_path / "mine")))
    assert again.tokenizer is None and again.end_tokens == [] and again.backbone.output_vocab == 20
    assert again.metadata == model.metadata
    assert torch.equal(again.backbone.head_weight, model.backbone.head_weight)


def test_an_update_leaves_unspoken_rows_of_the_head_alone(model: LanguageModel) -> None:
    before = model.backbone.head.weight.detach().clone()
    row = TINY.row(np.arange(4), np.arange(9).reshape(3, 3), np.zeros((3, 2), int))
    settings = LearnerSettings(optimiser={"weight_decay": 0.0})  # type: ignore[arg-type]
    Learner(model.backbone, settings, 1).update([Example.of(row)])
    after = model.backbone.head.weight.detach()
    assert not torch.equal(after[:20], before[:20]) and torch.equal(after[20:], before[20:])


# Rows, segment by segment ---------------------------------------------------------------------------------------------


def described(layout: Layout, **how: float) -> list[tuple[list[int], str, str, int, float]]:
    """Tokens, role, tag, turn and cross-entropy weight of a row's segments."""
    actions = np.arange(2 * layout.frames).reshape(-1, 2) % layout.bins
    frames = np.arange(3 * layout.frames).reshape(-1, 3)
    row = layout.row(np.arange(layout.context_tokens), frames, actions, **how)
    return [(s.tokens.tolist(), s.role, s.tag, s.turn, s.weights.get("ce", 0.0)) for s in row.segments]  # type: ignore[misc]


def test_the_segments_of_a_multi_step_row() -> None:
    assert described(TINY) == [
        ([20, 21, 22, 23, 0, 1, 2, 40, 41], "user", "past", 0, 0.0),
        ([3, 4, 5], "assistant", "frame", 1, 1.0),
        ([42, 43], "user", "action", 1, 0.0),
        ([6, 7, 8], "assistant", "frame", 2, 1.0),
        ([44, 40], "user", "action", 2, 0.0),
    ]


def test_the_segments_of_a_single_step_row_with_a_history() -> None:
    longer = Layout.single_step(codes=20, frame_tokens=3, action_tokens=2, past=3, bins=5)
    tail = [([9, 10, 11], "assistant", "frame", 1, 1.0), ([26], "user", "end", 1, 0.0)]
    whole = [0, 1, 2, 20, 21, 3, 4, 5, 22, 23, 6, 7, 8, 24, 20, 25]
    assert described(longer) == [(whole, "user", "past", 0, 0.0), *tail]
    assert described(longer, history=0.25) == [
        ([0, 1, 2, 20, 21], "user", "past", 0, 0.0),
        ([3, 4, 5], "user", "frame", 0, 0.25),
        ([22, 23], "user", "action", 0, 0.0),
        ([6, 7, 8], "user", "frame", 0, 0.25),
        ([24, 20], "user", "action", 0, 0.0),
        ([25], "user", "past", 0, 0.0),
        *tail,
    ]
    # Without marks and with a context: the rest of the prompt is empty, and the first given frame is never learned.
    several = Layout(20, 3, 2, past=2, future=1, context_tokens=4, bins=5)
    assert described(several, history=0.5) == [
        ([20, 21, 22, 23, 0, 1, 2, 40, 41], "user", "past", 0, 0.0),
        ([3, 4, 5], "user", "frame", 0, 0.5),
        ([42, 43], "user", "action", 0, 0.0),
        ([], "user", "past", 0, 0.0),
        ([6, 7, 8], "assistant", "frame", 1, 1.0),
        ([44, 40], "user", "action", 1, 0.0),
    ]


def test_sizes_of_layouts_by_hand() -> None:
    assert (TINY.frames, TINY.step_tokens, TINY.prompt_length, TINY.reply_length, TINY.length) == (3, 5, 9, 8, 19)
    assert (PAIR.frames, PAIR.step_tokens, PAIR.prompt_length, PAIR.reply_length, PAIR.length) == (3, 5, 11, 3, 15)
    assert (TINY.first_context, TINY.first_action, TINY.bos, TINY.eos, TINY.vocabulary) == (20, 40, 45, 46, 47)
    assert (PAIR.first_context, PAIR.first_action, PAIR.bos, PAIR.eos, PAIR.vocabulary) == (20, 20, 25, 26, 27)
    single, multi = Layout.single_step(9, 3, 2), Layout.multi_step(9, 3, 4, 2)
    assert (single.past, single.future, single.bins, single.context_tokens, single.marks) == (4, 1, 256, 0, True)
    assert (multi.past, multi.future, multi.bins, multi.context_tokens, multi.marks) == (1, 7, 256, 4, False)
    assert Layout(9, 3, 2, 1, 1) == Layout(9, 3, 2, 1, 1, context_tokens=0, bins=256, marks=False)


def test_an_opening_has_as_many_frames_as_there_are_and_forced_actions_follow_the_past() -> None:
    frames, actions = np.arange(6).reshape(2, 3), np.array([[0, 1], [2, 3]])
    assert TINY.opening(np.arange(4), frames, actions).tolist() == [20, 21, 22, 23, 0, 1, 2, 40, 41, 3, 4, 5, 42, 43]
    assert PAIR.opening(np.zeros(0, int), frames[:1], actions[:1]).tolist() == [0, 1, 2, 20, 21, 25]
    assert PAIR.opening(np.zeros(0, int), frames[:1], actions[:1]).dtype == np.int32
    three = Layout(20, 3, 2, past=2, future=3, bins=5)
    taken = np.arange(10).reshape(5, 2) % 5
    assert three.force_actions(taken).tolist() == [FREE] * 3 + [24, 20] + [FREE] * 3 + [21, 22] + [FREE] * 3
    assert three.reply_frames(np.arange(13, dtype=np.int32)).tolist() == [[0, 1, 2], [5, 6, 7], [10, 11, 12]]


def test_the_transformer_of_a_layout_is_a_llama_of_these_sizes() -> None:
    made = create_transformer(TransformerSettings(layers=2, width=32, heads=2, mlp=64, tied=True), TINY, seed=1)
    config = made.model.config
    assert (config.vocab_size, config.hidden_size, config.intermediate_size) == (47, 32, 64)
    assert (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads) == (2, 2, 2)
    assert (config.max_position_embeddings, config.rms_norm_eps, config.tie_word_embeddings) == (8192, 1e-6, True)
    assert (config.bos_token_id, config.eos_token_id, config.pad_token_id, config.output_vocab) == (
        None,
        None,
        None,
        20,
    )
    assert made.name == "small" and made.tokenizer is None and made.end_tokens == []
    same, other = (create_transformer(TransformerSettings(layers=1, width=8, heads=1), TINY, seed) for seed in (1, 2))
    assert not torch.equal(same.backbone.head_weight, other.backbone.head_weight)
    assert not same.model.config.tie_word_embeddings
