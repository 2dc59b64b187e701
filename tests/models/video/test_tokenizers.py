"""Both tokenizers: the published sizes, shapes, what a frame may depend on, and folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from oneiro.models.video import blocks
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.blocks import Discriminator, DiscriminatorSettings, gradient_penalty, hinge
from oneiro.models.video.tokenizer import (
    CompressiveTokenizer,
    CompressiveTokenizerSettings,
    FrameTokenizer,
    FrameTokenizerSettings,
    Tokenizer,
    TokenizerSettings,
    images,
    pixels,
)
from oneiro.runtime.errors import OneiroError

FRAME = FrameTokenizerSettings(
    height=32, width=48, patch=2, channels=(16, 32, 32), layers=1, latent=8, levels=(8, 5, 5)
)
COMPRESSIVE = CompressiveTokenizerSettings(
    height=32, width=48, patch=2, channels=(16, 32), layers=1, latent=8, levels=(8, 5, 5), squares=2, attend_up_to=8
)
BOTH = pytest.mark.parametrize("settings", [FRAME, COMPRESSIVE], ids=["frame", "compressive"])


def segments(count: int, frames: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, frames, 3, 32, 48, generator=torch.Generator().manual_seed(seed))


def made(settings: TokenizerSettings) -> Tokenizer:
    """A tokenizer whose every part has a say: fresh attention looks at nothing in particular."""
    found = tokenizers.create(settings, seed=1, device="cpu").eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return found


def millions(module: torch.nn.Module) -> float:
    return round(sum(parameter.numel() for parameter in module.parameters()) / 1e6, 1)


# Published sizes ------------------------------------------------------------------------------------------------------


def test_the_published_frame_tokenizer_has_104_4_million_parameters_and_320_tokens() -> None:
    with torch.device("meta"):
        found = FrameTokenizer(FrameTokenizerSettings(height=256, width=320))
    assert (millions(found), millions(found.encoder), millions(found.decoder)) == (104.4, 61.1, 43.4)
    assert (found.frame_tokens, found.context_tokens, found.codes) == (320, 0, 4375)


def test_the_published_compressive_tokenizer_has_129_4_million_parameters_and_1280_and_80_tokens() -> None:
    with torch.device("meta"):
        found = CompressiveTokenizer(CompressiveTokenizerSettings(height=256, width=320))
    parts = found.context_encoder, found.encoder, found.context_decoder, found.decoder
    assert [millions(part) for part in parts] == [24.5, 28.9, 36.3, 39.7]
    assert millions(found) == 129.4
    assert (found.context_tokens, found.frame_tokens) == (1280, 80)
    # Two stages of the encoder and the middle of the decoder look at the context.
    assert sorted(found.encoder.cross) == ["2", "3"]


def test_the_published_discriminator_has_6_27_million_parameters_and_judges_4_by_5_patches() -> None:
    found = Discriminator(DiscriminatorSettings(), 256)
    assert sum(parameter.numel() for parameter in found.parameters()) == 6_271_105
    assert found(torch.rand(1, 3, 256, 320)).shape == (1, 1, 4, 5)


@pytest.mark.parametrize(("height", "width", "judged"), [(64, 64, (2, 2)), (16, 64, (2, 8)), (128, 128, (2, 2))])
def test_a_discriminator_of_small_frames_stops_halving_in_time(
    height: int, width: int, judged: tuple[int, int]
) -> None:
    found = Discriminator(DiscriminatorSettings(channels=(4, 4, 4, 4, 4, 4)), min(height, width))
    assert found(torch.rand(1, 3, height, width)).shape == (1, 1, *judged)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"heads": 3}, "no multiple of heads = 3"), ({"height": 8, "width": 8}, "greater than or equal to 16")],
)
def test_sizes_that_no_tokenizer_can_have_are_refused(wrong: dict[str, int], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        CompressiveTokenizerSettings(**{**COMPRESSIVE.model_dump(), **wrong})


def test_heads_must_divide_only_the_channels_that_look_at_the_context() -> None:
    # 32 high, folded by 2 and halved twice: features are 8, 4 and 4 high, and the first stage does not look.
    sizes = {**COMPRESSIVE.model_dump(), "channels": (16, 24, 12), "attend_up_to": 4, "heads": 12}
    assert CompressiveTokenizerSettings(**sizes).attending == {1: (4, 6), 2: (4, 6)}
    with pytest.raises(ValidationError, match="16 channels that look"):
        CompressiveTokenizerSettings(**{**sizes, "attend_up_to": 8})


# Shapes and dependence ------------------------------------------------------------------------------------------------


@BOTH
def test_frames_become_tokens_and_tokens_become_frames(settings: TokenizerSettings) -> None:
    tokenizer, frames = made(settings), segments(3, 5)
    context, tokens = tokenizer.encode(frames)
    assert context.shape == (3, tokenizer.context_tokens) and tokens.shape == (3, 5, tokenizer.frame_tokens)
    assert int(tokens.min()) >= 0 and int(tokens.max()) < tokenizer.codes == 200
    back = tokenizer.decode(context, tokens)
    assert back.shape == frames.shape and back.min() >= 0 and back.max() <= 1


@BOTH
def test_segments_and_frames_do_not_touch_each_other(settings: TokenizerSettings) -> None:
    tokenizer, frames = made(settings), segments(3, 4)
    context, tokens = tokenizer.encode(frames)
    alone_context, alone = tokenizer.encode(frames[1:2], frames[1:2, 0])
    assert torch.equal(alone_context, context[1:2]) and torch.equal(alone, tokens[1:2])
    _, one = tokenizer.encode(frames[1:2, 2:3], frames[1:2, 0])
    assert torch.equal(one, tokens[1:2, 2:3])
    whole, part = tokenizer.decode(context, tokens), tokenizer.decode(context[1:2], tokens[1:2, 2:3])
    assert torch.allclose(part[0, 0], whole[1, 2], atol=1e-5)


def test_a_frame_of_the_compressive_tokenizer_looks_at_its_context() -> None:
    tokenizer, frames = made(COMPRESSIVE), segments(1, 2)
    own, tokens = tokenizer.encode(frames)
    other, _ = tokenizer.encode(segments(1, 2, seed=5))
    assert not torch.equal(tokenizer.decode(own, tokens), tokenizer.decode(other, tokens))


def test_squares_are_cut_and_put_back_in_place() -> None:
    tokenizer = made(COMPRESSIVE)
    assert isinstance(tokenizer, CompressiveTokenizer)
    seen: list[torch.Tensor] = []
    tokenizer.to_code.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    latent: list[torch.Tensor] = []
    tokenizer.encoder.register_forward_hook(lambda _, __, out: latent.append(out[0]))
    tokenizer.encode(segments(1, 1))
    # Token (1, 2) of the grid holds rows 2..3 and columns 4..5 of every latent channel.
    expected = latent[0][0, :, 2:4, 4:6].reshape(-1)
    assert torch.equal(seen[0][0, 1, 2], expected)


@BOTH
def test_many_frames_go_through_in_parts(settings: TokenizerSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, frames = made(settings), segments(3, 3)
    context, tokens = tokenizer.encode(frames)
    whole = tokenizer.decode(context, tokens)
    monkeypatch.setitem(tokenizers.PIXELS_AT_ONCE, "cpu", 2 * 32 * 48)
    again_context, again = tokenizer.encode(frames)
    assert torch.equal(again_context, context) and torch.equal(again, tokens)
    assert torch.allclose(tokenizer.decode(context, tokens), whole, atol=1e-5)


@BOTH
def test_learning_reaches_every_parameter(settings: TokenizerSettings) -> None:
    tokenizer = made(settings).train()
    found = tokenizer.reconstruct(segments(2, 3))
    loss = (found.made - found.true).abs().mean()
    if found.context is not None and found.true_context is not None:
        loss = loss + (found.context - found.true_context).abs().mean()
    loss.backward()
    still = [name for name, p in tokenizer.named_parameters() if p.grad is None or not p.grad.abs().sum()]
    # A key's bias moves all scores alike, which softmax does not see.
    assert [name for name in still if not name.endswith("key.bias")] == []


@BOTH
def test_the_way_back_finds_the_gradients_of_torch_and_leaves_onednn_as_it_was(settings: TokenizerSettings) -> None:
    """On ARM it goes without oneDNN; elsewhere both ways are the same."""
    tokenizer, found = made(settings).train(), []
    for way in (torch.Tensor.backward, blocks.backward):
        tokenizer.zero_grad()
        way(tokenizer.reconstruct(segments(2, 3)).made.square().mean())
        found.append(torch.cat([p.grad.flatten() for p in tokenizer.parameters() if p.grad is not None]))
    assert torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-6 * float(found[0].abs().max()))
    assert torch.backends.mkldnn.enabled


# Folders --------------------------------------------------------------------------------------------------------------


@BOTH
def test_a_folder_brings_the_same_tokenizer_back(settings: TokenizerSettings, tmp_path: Path) -> None:
    tokenizer, frames = made(settings), segments(1, 3)
    again = tokenizers.load(tokenizer.save(tmp_path / "mine"), "cpu")
    assert again.settings == settings and not any(p.requires_grad for p in again.parameters())
    for before, after in zip(tokenizer.encode(frames), again.encode(frames), strict=True):
        assert torch.equal(before, after)


def test_the_same_seed_makes_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, two, three = (tokenizers.create(FRAME, seed, "cpu") for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.to_code.weight, two.to_code.weight)  # type: ignore[union-attr, arg-type]
    assert not torch.equal(one.to_code.weight, three.to_code.weight)  # type: ignore[union-attr, arg-type]


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match=r"no video tokenizer at .*tokenizer\.json"):
        tokenizers.load(tmp_path)


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    made(FRAME).save(tmp_path / "mine")
    (tmp_path / "mine" / "tokenizer.json").write_text('{"name": "frame", "channels": "many"}')
    with pytest.raises(OneiroError, match="does not describe a video tokenizer"):
        tokenizers.load(tmp_path / "mine")
    made(COMPRESSIVE).save(tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").write_text(FRAME.model_dump_json())
    with pytest.raises(OneiroError, match="do not fit"):
        tokenizers.load(tmp_path / "other")


@pytest.mark.parametrize("wrong", [{"height": 30}, {"channels": ()}, {"levels": (1, 5)}])
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        FrameTokenizerSettings(**{"height": 32, "width": 32, "channels": (8, 8, 8)} | wrong)  # type: ignore[arg-type]


def test_bytes_become_pixels_and_come_back() -> None:
    shown = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    frames = pixels(shown)
    assert frames.shape == (2, 3, 4, 5) and float(frames[1, 2, 3, 4]) == pytest.approx(119 / 255)
    assert np.array_equal(images(frames), shown)


# The discriminator's losses -------------------------------------------------------------------------------------------


def test_the_hinge_loss_by_hand() -> None:
    # True logits 2 and 0.5 cost 0 and 0.5; made logits -3 and 1 cost 0 and 2.
    assert float(hinge(torch.tensor([2.0, 0.5]), torch.tensor([-3.0, 1.0]))) == pytest.approx(1.25)


def test_the_gradient_penalty_is_measured_at_each_true_frame() -> None:
    class Linear(Discriminator):
        def forward(self, frames: torch.Tensor) -> torch.Tensor:
            return 0.5 * frames.flatten(1).sum(1)[:, None, None, None]

    # The gradient of half the sum of 12 numbers has the norm sqrt(12) / 2.
    frames = torch.rand(3, 3, 2, 2)
    expected = (12**0.5 / 2 - 1) ** 2
    assert float(gradient_penalty(Linear(DiscriminatorSettings(), 4), frames)) == pytest.approx(expected)
