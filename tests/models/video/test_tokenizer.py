"""Video tokenizers beside a plain second implementation."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.models.video import blocks
from oneiro.models.video import tokenizer as tokenizers
from oneiro.models.video.tokenizer import (
    CompressiveTokenizer,
    CompressiveTokenizerSettings,
    FrameTokenizer,
    FrameTokenizerSettings,
    Fsq,
    Tokenizer,
    TokenizerSettings,
    images,
    pixels,
)
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError

SIZE = {"height": 32, "width": 48, "patch": 2, "layers": 2, "latent": 6, "levels": (8, 5, 4)}


FRAME = FrameTokenizerSettings(**SIZE, channels=(16, 24, 48))


COMPRESSIVE = CompressiveTokenizerSettings(**SIZE, channels=(16, 24, 48), squares=2, attend_up_to=4, heads=3)


def made(settings: TokenizerSettings) -> Tokenizer:
    """A tokenizer whose every weight is drawn, and whose mean frame is no grey."""
    found = tokenizers.create(settings, seed=1, device="cpu").eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        found.mean_frame.copy_(torch.rand(found.mean_frame.shape, generator=generator))
    return found


class Plain:
    """The published architecture as plain functions of named weights."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.weights, self.settings, self.mean = tokenizer.state_dict(), tokenizer.settings, tokenizer.mean_frame

    def of(self, name: str) -> tuple[Tensor, Tensor]:
        return self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]

    def conv(self, name: str, x: Tensor, size: int = 3) -> Tensor:
        weight, bias = self.of(name)
        assert weight.shape[2:] == (size, size)
        return F.conv2d(x, weight, bias, padding=size // 2)

    def norm(self, name: str, x: Tensor) -> Tensor:
        """Group norm by its definition; 32 groups, or the greatest common divisor with the channels."""
        weight, bias = self.of(name)
        grouped = x.reshape(len(x), math.gcd(32, x.shape[1]), -1)
        centred = grouped - grouped.mean(-1, keepdim=True)
        unit = (centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()).view_as(x)
        return unit * weight[:, None, None] + bias[:, None, None]

    def residual(self, name: str, x: Tensor) -> Tensor:
        hidden = self.conv(f"{name}.conv1", F.silu(self.norm(f"{name}.norm1", x)))
        hidden = self.conv(f"{name}.conv2", F.silu(self.norm(f"{name}.norm2", hidden)))
        return hidden + (self.conv(f"{name}.shortcut", x, 1) if f"{name}.shortcut.weight" in self.weights else x)

    def rows(self, name: str, x: Tensor) -> Tensor:
        return self.norm(name, x).flatten(2).transpose(1, 2)

    def middle(self, name: str, x: Tensor, attention: bool) -> Tensor:
        x = self.residual(f"{name}.first", x)
        if attention:
            rows = self.rows(f"{name}.attention.norm", x)
            q, k, v = (F.linear(rows, *self.of(f"{name}.attention.{part}")) for part in ("query", "key", "value"))
            mixed = torch.softmax(q @ k.transpose(1, 2) / x.shape[1] ** 0.5, dim=-1) @ v
            x = x + F.linear(mixed, *self.of(f"{name}.attention.out")).transpose(1, 2).reshape(x.shape)
        return self.residual(f"{name}.last", x)

    def cross(self, name: str, frames: Tensor, context: Tensor) -> Tensor:
        """Each frame by itself looks at the context it belongs to."""
        each, heads, found = len(frames) // len(context), 3, []
        for place, frame in enumerate(frames):
            asked = self.rows(f"{name}.norm", frame[None])[0] + self.weights[f"{name}.place"]
            known = self.rows(f"{name}.context_norm", context[place // each][None])[0]
            known = known + self.weights[f"{name}.context_place"]
            q = F.linear(asked, *self.of(f"{name}.query")).chunk(heads, dim=-1)
            k = F.linear(known, *self.of(f"{name}.key")).chunk(heads, dim=-1)
            v = F.linear(known, *self.of(f"{name}.value")).chunk(heads, dim=-1)
            size = q[0].shape[-1] ** 0.5
            mixed = [torch.softmax(a @ b.T / size, dim=-1) @ c for a, b, c in zip(q, k, v, strict=True)]
            told = F.linear(torch.cat(mixed, dim=-1), *self.of(f"{name}.out"))
            found.append(F.silu(frame + told.T.reshape(frame.shape)))
        return torch.stack(found)

    def encode(
        self, name: str, frames: Tensor, attention: bool, context: list[Tensor] | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        patch, stages = self.settings.patch, len(self.settings.channels)
        x = 2 * (frames - self.mean)
        n, c, h, w = x.shape
        folded = x.reshape(n, c, h // patch, patch, w // patch, patch).permute(0, 1, 3, 5, 2, 4)
        hidden, features = self.conv(f"{name}.start", folded.reshape(n, -1, h // patch, w // patch)), []
        for stage in range(stages):
            for layer in range(2):
                hidden = self.residual(f"{name}.stages.{stage}.{layer}", hidden)
            if stage < stages - 1:
                padded = torch.cat([hidden, torch.zeros_like(hidden[..., :1])], dim=-1)
                padded = torch.cat([padded, torch.zeros_like(padded[..., :1, :])], dim=-2)
                hidden = F.conv2d(padded, *self.of(f"{name}.stages.{stage}.2.conv"), stride=2)
            if context is not None and f"{name}.cross.{stage}.place" in self.weights:
                hidden = self.cross(f"{name}.cross.{stage}", hidden, context[stage])
            features.append(hidden)
        hidden = self.middle(f"{name}.middle", hidden, attention)
        return self.conv(f"{name}.out", F.silu(self.norm(f"{name}.norm", hidden))), features

    def decode(
        self, name: str, latent: Tensor, layers: int, doubles: list[bool], attention: bool, context: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        middle = self.middle(f"{name}.middle", self.conv(f"{name}.start", latent), attention)
        hidden = middle if context is None else self.cross(f"{name}.cross", middle, context)
        for stage, double in enumerate(doubles):
            for layer in range(layers):
                hidden = self.residual(f"{name}.stages.{stage}.{layer}", hidden)
            if double:
                twice = hidden.repeat_interleave(2, dim=2).repeat_interleave(2, dim=3)
                hidden = self.conv(f"{name}.stages.{stage}.{layers}.conv", twice)
        out, patch = self.conv(f"{name}.out", F.silu(self.norm(f"{name}.norm", hidden))), self.settings.patch
        n, _, h, w = out.shape
        unfolded = out.reshape(n, 3, patch, patch, h, w).permute(0, 1, 4, 2, 5, 3)
        return self.mean + unfolded.reshape(n, 3, h * patch, w * patch), middle


def check(tokenizer: Tokenizer, settings: TokenizerSettings) -> tuple[Tensor, Plain]:
    found = Plain(tokenizer)
    return torch.rand(2, 3, 3, 32, 48, generator=torch.Generator().manual_seed(4)), found


@torch.no_grad()
def test_the_frame_tokenizer_is_the_published_one() -> None:
    tokenizer = made(FRAME)
    frames, plain = check(tokenizer, FRAME)
    flat = frames.flatten(0, 1)
    digits = plain.conv("to_code", plain.encode("encoder", flat, True)[0], 1).movedim(1, -1)
    codes = tokenizer.fsq(digits)
    context, tokens = tokenizer.encode(frames)
    assert context.shape == (2, 0) and context.dtype == torch.long
    assert torch.equal(tokens.flatten(0, 1), tokenizer.fsq.indices(codes).flatten(1))
    back, _ = plain.decode(
        "decoder", plain.conv("from_code", codes.movedim(-1, 1), 1), 2, [False, True, True], True, None
    )
    assert back.min() < 0 and back.max() > 1
    torch.testing.assert_close(tokenizer.decode(context, tokens).flatten(0, 1), back.clamp(0, 1), rtol=1e-4, atol=1e-4)
    found = tokenizer.reconstruct(frames)
    torch.testing.assert_close(found.made, back, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.true, flat) and found.context is None and found.true_context is None
    assert found.indices is not None and torch.equal(found.indices.flatten(1), tokens.flatten(0, 1))


@torch.no_grad()
def test_the_compressive_tokenizer_is_the_published_one() -> None:
    tokenizer = made(COMPRESSIVE)
    frames, plain = check(tokenizer, COMPRESSIVE)
    assert sorted(tokenizer.encoder.cross) == ["1", "2"]  # type: ignore[union-attr, arg-type]

    def squares(latent: Tensor) -> Tensor:
        """[M, c, h, w] -> [M, h/2, w/2, c * 4]: channel, then row, then column of a square."""
        return (
            torch.stack([latent[:, :, y:4:2, x:6:2] for y in (0, 1) for x in (0, 1)], dim=2)
            .flatten(1, 2)
            .movedim(1, -1)
        )

    def through(context: Tensor, later: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        latent, features = plain.encode("context_encoder", context, False)
        known = tokenizer.fsq(plain.conv("to_context", latent, 1).movedim(1, -1))
        own, _ = plain.encode("encoder", later, True, features)
        codes = tokenizer.fsq(F.linear(squares(own), *plain.of("to_code")))
        start = plain.conv("from_context", known.movedim(-1, 1), 1)
        shown, middle = plain.decode("context_decoder", start, 3, [True, True, False], False, None)
        flat = F.linear(codes, *plain.of("from_code")).unflatten(-1, (6, 2, 2))
        whole = torch.zeros(len(later), 6, 4, 6)
        for y in (0, 1):
            for x in (0, 1):
                whole[:, :, y::2, x::2] = flat[..., y, x].movedim(-1, 1)
        back, _ = plain.decode("decoder", whole, 3, [True, True, False], True, middle)
        return known, codes, shown, back

    known, codes, _, back = through(frames[:, 0], frames.flatten(0, 1))
    context, tokens = tokenizer.encode(frames)
    assert torch.equal(context, tokenizer.fsq.indices(known).flatten(1))
    assert torch.equal(tokens.flatten(0, 1), tokenizer.fsq.indices(codes).flatten(1))
    assert back.min() < 0 and back.max() > 1
    torch.testing.assert_close(tokenizer.decode(context, tokens).flatten(0, 1), back.clamp(0, 1), rtol=1e-4, atol=1e-4)

    # A context that is no frame of the segment.
    other = frames.flip(0)[:, 2]
    known, codes, _, _ = through(other, frames.flatten(0, 1))
    context, tokens = tokenizer.encode(frames, other)
    assert torch.equal(context, tokenizer.fsq.indices(known).flatten(1))
    assert torch.equal(tokens.flatten(0, 1), tokenizer.fsq.indices(codes).flatten(1))

    # While it learns, the first frame is the context, and only the later ones are made.
    found = tokenizer.reconstruct(frames)
    _, codes, shown, back = through(frames[:, 0], frames[:, 1:].flatten(0, 1))
    torch.testing.assert_close(found.made, back, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(found.context, shown, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.true, frames[:, 1:].flatten(0, 1)) and found.true_context is not None
    assert torch.equal(found.true_context, frames[:, 0])
    assert found.indices is not None and torch.equal(found.indices, tokenizer.fsq.indices(codes))


@pytest.mark.parametrize(("at_once", "parts"), [(2, [(0, 1), (1, 2)]), (6, [(0, 2)]), (5, [(0, 1), (1, 2)])])
def test_segments_go_through_whole(at_once: int, parts: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = made(COMPRESSIVE)
    monkeypatch.setitem(tokenizers.PIXELS_AT_ONCE, "cpu", at_once * 32 * 48)
    assert tokenizer.at_once == at_once
    assert tokenizer._parts(torch.zeros(2, 3, 1)) == parts  # type: ignore[operator]
    monkeypatch.setitem(tokenizers.PIXELS_AT_ONCE, "cpu", 1)
    assert tokenizer.at_once == 1


def test_a_fresh_tokenizer_draws_the_mean_frame_and_its_places_are_zero() -> None:
    tokenizer = tokenizers.create(COMPRESSIVE, 0, "cpu")
    assert torch.equal(tokenizer.mean_frame, torch.full((3, 32, 48), 0.5))
    frames = torch.rand(1, 2, 3, 32, 48)
    assert torch.equal(tokenizer.decode(*tokenizer.encode(frames)), torch.full((1, 2, 3, 32, 48), 0.5))
    places = [p for name, p in tokenizer.named_parameters() if name.endswith("place")]
    assert len(places) == 6 and not any(p.any() for p in places)
    assert tokenizer.parameter_count == sum(p.numel() for p in tokenizer.parameters()) and tokenizer.codes == 160


def test_the_newest_tokenizer_of_a_stage_is_loaded(tmp_path: Path) -> None:
    for step, seed in ((2, 1), (10, 2)):
        tokenizers.create(FRAME, seed, "cpu").save(tmp_path / f"step-{step:06d}" / "tokenizer")
    found = tokenizers.load(tmp_path, "cpu")
    assert torch.equal(found.to_code.weight, tokenizers.create(FRAME, 2, "cpu").to_code.weight)  # type: ignore[union-attr, arg-type]
    assert not found.training
    # Half of the file is as good as none, and one flipped bit is told by the manifest of the checkpoint.
    files.write_manifest(tmp_path / "step-000010", step=10)
    weights = tmp_path / "step-000010" / "tokenizer" / "tokenizer.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    with pytest.raises(OneiroError, match="is damaged"):
        tokenizers.load(tmp_path, "cpu")
    (tmp_path / "step-000010" / "manifest.json").unlink()
    weights.write_bytes(data[:-9])
    with pytest.raises(OneiroError, match="cannot be read"):
        tokenizers.load(tmp_path, "cpu")


ONE_LAYER_FRAME = FrameTokenizerSettings(
    height=32, width=48, patch=2, channels=(16, 32, 32), layers=1, latent=8, levels=(8, 5, 5)
)


ONE_LAYER_COMPRESSIVE = CompressiveTokenizerSettings(
    height=32, width=48, patch=2, channels=(16, 32), layers=1, latent=8, levels=(8, 5, 5), squares=2, attend_up_to=8
)


BOTH = pytest.mark.parametrize("settings", [ONE_LAYER_FRAME, ONE_LAYER_COMPRESSIVE], ids=["frame", "compressive"])


def segments(count: int, frames: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, frames, 3, 32, 48, generator=torch.Generator().manual_seed(seed))


def create_perturbed(settings: TokenizerSettings) -> Tokenizer:
    """A tokenizer whose every part has a say: fresh attention looks at nothing in particular."""
    found = tokenizers.create(settings, seed=1, device="cpu").eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return found


def millions(module: torch.nn.Module) -> float:
    return round(sum(parameter.numel() for parameter in module.parameters()) / 1e6, 1)


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


@BOTH
def test_frames_become_tokens_and_tokens_become_frames(settings: TokenizerSettings) -> None:
    tokenizer, frames = create_perturbed(settings), segments(3, 5)
    context, tokens = tokenizer.encode(frames)
    assert context.shape == (3, tokenizer.context_tokens) and tokens.shape == (3, 5, tokenizer.frame_tokens)
    assert int(tokens.min()) >= 0 and int(tokens.max()) < tokenizer.codes == 200
    back = tokenizer.decode(context, tokens)
    assert back.shape == frames.shape and back.min() >= 0 and back.max() <= 1


@BOTH
def test_segments_and_frames_do_not_touch_each_other(settings: TokenizerSettings) -> None:
    tokenizer, frames = create_perturbed(settings), segments(3, 4)
    context, tokens = tokenizer.encode(frames)
    alone_context, alone = tokenizer.encode(frames[1:2], frames[1:2, 0])
    assert torch.equal(alone_context, context[1:2]) and torch.equal(alone, tokens[1:2])
    _, one = tokenizer.encode(frames[1:2, 2:3], frames[1:2, 0])
    assert torch.equal(one, tokens[1:2, 2:3])
    whole, part = tokenizer.decode(context, tokens), tokenizer.decode(context[1:2], tokens[1:2, 2:3])
    assert torch.allclose(part[0, 0], whole[1, 2], atol=1e-5)


def test_a_frame_of_the_compressive_tokenizer_looks_at_its_context() -> None:
    tokenizer, frames = create_perturbed(ONE_LAYER_COMPRESSIVE), segments(1, 2)
    own, tokens = tokenizer.encode(frames)
    other, _ = tokenizer.encode(segments(1, 2, seed=5))
    assert not torch.equal(tokenizer.decode(own, tokens), tokenizer.decode(other, tokens))


def test_squares_are_cut_and_put_back_in_place() -> None:
    tokenizer = create_perturbed(ONE_LAYER_COMPRESSIVE)
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
    tokenizer, frames = create_perturbed(settings), segments(3, 3)
    context, tokens = tokenizer.encode(frames)
    whole = tokenizer.decode(context, tokens)
    monkeypatch.setitem(tokenizers.PIXELS_AT_ONCE, "cpu", 2 * 32 * 48)
    again_context, again = tokenizer.encode(frames)
    assert torch.equal(again_context, context) and torch.equal(again, tokens)
    assert torch.allclose(tokenizer.decode(context, tokens), whole, atol=1e-5)


@BOTH
def test_learning_reaches_every_parameter(settings: TokenizerSettings) -> None:
    tokenizer = create_perturbed(settings).train()
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
    tokenizer, found = create_perturbed(settings).train(), []
    for way in (torch.Tensor.backward, blocks.backward):
        tokenizer.zero_grad()
        way(tokenizer.reconstruct(segments(2, 3)).made.square().mean())
        found.append(torch.cat([p.grad.flatten() for p in tokenizer.parameters() if p.grad is not None]))
    assert torch.allclose(found[0], found[1], rtol=1e-3, atol=1e-6 * float(found[0].abs().max()))
    assert torch.backends.mkldnn.enabled


@BOTH
def test_a_folder_brings_the_same_tokenizer_back(settings: TokenizerSettings, tmp_path: Path) -> None:
    tokenizer, frames = create_perturbed(settings), segments(1, 3)
    again = tokenizers.load(tokenizer.save(tmp_path / "mine"), "cpu")
    assert again.settings == settings and not any(p.requires_grad for p in again.parameters())
    for before, after in zip(tokenizer.encode(frames), again.encode(frames), strict=True):
        assert torch.equal(before, after)


def test_the_same_seed_makes_the_same_weights_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, two, three = (tokenizers.create(ONE_LAYER_FRAME, seed, "cpu") for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.to_code.weight, two.to_code.weight)  # type: ignore[union-attr, arg-type]
    assert not torch.equal(one.to_code.weight, three.to_code.weight)  # type: ignore[union-attr, arg-type]


def test_a_folder_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(OneiroError, match=r"no video tokenizer at .*tokenizer\.json"):
        tokenizers.load(tmp_path)


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    create_perturbed(ONE_LAYER_FRAME).save(tmp_path / "mine")
    (tmp_path / "mine" / "tokenizer.json").write_text('{"name": "frame", "channels": "many"}')
    with pytest.raises(OneiroError, match="does not describe a video tokenizer"):
        tokenizers.load(tmp_path / "mine")
    create_perturbed(ONE_LAYER_COMPRESSIVE).save(tmp_path / "other")
    (tmp_path / "other" / "tokenizer.json").write_text(ONE_LAYER_FRAME.model_dump_json())
    with pytest.raises(OneiroError, match="do not fit"):
        tokenizers.load(tmp_path / "other")


def test_bytes_become_pixels_and_come_back() -> None:
    shown = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    frames = pixels(shown)
    assert frames.shape == (2, 3, 4, 5) and float(frames[1, 2, 3, 4]) == pytest.approx(119 / 255)
    assert np.array_equal(images(frames), shown)


def test_every_byte_becomes_a_pixel_and_comes_back() -> None:
    every = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1).repeat(3, axis=-1)
    frames = pixels(every)
    assert frames.shape == (1, 3, 16, 16) and float(frames.min()) == 0 and float(frames.max()) == 1
    assert float(frames[0, 0, 8, 0]) == np.float32(128 / 255)
    np.testing.assert_array_equal(images(frames), every)
    beyond = torch.tensor([-1.0, 0.0, 0.2, 1.0, 7.0]).view(1, 1, 5).expand(3, 1, 5)
    assert images(beyond)[0, :, 0].tolist() == [0, 0, 51, 255, 255]
    # Of half precision only the numbers are coarse: 131/256 of 255 is 130.49, and 130.5 in half precision.
    assert images(torch.full((3, 1, 1), 131 / 256).bfloat16()).flatten().tolist() == [130] * 3


def test_the_published_levels_make_4375_codes_with_the_published_basis() -> None:
    fsq = Fsq((7, 5, 5, 5, 5))
    assert fsq.codes == 4375
    assert fsq.basis.tolist() == [1, 7, 35, 175, 875]


@pytest.mark.parametrize(("levels", "codes"), [((8, 6, 5), 240), ((8, 5, 5, 5), 1000), ((8, 8, 8, 6, 5), 15360)])
def test_every_index_has_its_own_code_and_comes_back_from_it(levels: tuple[int, ...], codes: int) -> None:
    fsq = Fsq(levels)
    every = torch.arange(codes)
    assert fsq.codes == codes
    assert torch.equal(fsq.indices(fsq.code(every)), every)
    assert len(fsq.code(every).unique(dim=0)) == codes
    assert fsq.code(every).abs().max() <= 1


def test_the_first_entry_is_the_lowest_digit() -> None:
    fsq = Fsq((7, 5))
    # (-1, -1) is index 0; one level up in the first entry adds 1, in the second 7.
    assert fsq.indices(torch.tensor([[-1.0, -1.0], [-2 / 3, -1.0], [-1.0, -0.5], [1.0, 1.0]])).tolist() == [0, 1, 7, 34]


def test_bounding_follows_the_formula_for_even_and_odd_levels() -> None:
    z = torch.tensor([0.3, -1.2])
    expected = []
    for number, level in zip(z.tolist(), (8, 5), strict=True):
        reach = (level - 1) * 1.001 / 2
        offset = 0.5 if level % 2 == 0 else 0.0
        expected.append(math.tanh(number + math.atanh(offset / reach)) * reach - offset)
    assert Fsq((8, 5)).bound(z).tolist() == pytest.approx(expected, abs=1e-6)


def test_huge_inputs_reach_the_outermost_levels_and_no_further() -> None:
    fsq = Fsq((8, 5))
    codes = fsq(torch.tensor([[1e4, 1e4], [-1e4, -1e4]]))
    # Eight levels lie at -4 .. 3 quarters, five at -2 .. 2 halves.
    assert codes.tolist() == [[0.75, 1.0], [-1.0, -1.0]]
    assert fsq.indices(codes).tolist() == [39, 0]


def test_rounding_lets_the_gradient_of_the_bounded_value_pass() -> None:
    fsq = Fsq((7, 5))
    z = torch.tensor([[0.3, -0.7]], requires_grad=True)
    fsq(z).sum().backward()
    again = torch.tensor([[0.3, -0.7]], requires_grad=True)
    (fsq.bound(again) / torch.tensor([3, 2])).sum().backward()
    assert torch.allclose(z.grad, again.grad)  # type: ignore[arg-type]


def test_half_precision_does_not_move_a_code() -> None:
    fsq = Fsq((7, 5, 5, 5, 5))
    z = torch.randn(64, 5, generator=torch.Generator().manual_seed(0)).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        inside = fsq(z)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, fsq(z.float()))


def test_constants_are_no_weights() -> None:
    assert (
        Fsq((8, 5)).state_dict() == {}
        and Fsq((8, 5)).levels.tolist() == [8, 5]
        and Fsq((8, 5)).middle.tolist() == [4, 2]
    )
