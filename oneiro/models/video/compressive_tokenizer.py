"""The compressive tokenizer (iVideoGPT, arXiv 2405.15223, with FSQ): a context frame in full, and few tokens a frame.

What stands still is in the context's tokens. A frame's own encoder and decoder look at the context's features, so its
few tokens need only say what has moved.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from oneiro.models.video.blocks import CrossAttention, Decoder, Encoder
from oneiro.models.video.settings import CompressiveTokenizerSettings
from oneiro.models.video.tokenizer import Reconstruction, Tokenizer


class CompressiveTokenizer(Tokenizer):
    """A context into h x w tokens, each frame into (h/s) x (w/s) for squares of side s."""

    def __init__(self, settings: CompressiveTokenizerSettings) -> None:
        super().__init__(settings)
        (high, wide), side = settings.grid, settings.squares
        self.side = side
        self.context_tokens, self.frame_tokens = high * wide, (high // side) * (wide // side)
        channels, layers, latent, digits = settings.channels, settings.layers, settings.latent, len(settings.levels)
        cross = {
            stage: CrossAttention(channels[stage], height * width, settings.heads, settings.dropout)
            for stage, (height, width) in settings.attending.items()
        }
        self.context_encoder = Encoder(channels, layers, latent, attention=False, patch=settings.patch)
        self.encoder = Encoder(channels, layers, latent, attention=True, patch=settings.patch, cross=cross)
        top = channels[-1]
        stages = [(width, place < len(channels) - 1) for place, width in enumerate(reversed(channels))]
        self.context_decoder = Decoder(top, stages, layers + 1, latent, attention=False, patch=settings.patch)
        meeting = CrossAttention(top, high * wide, settings.heads, settings.dropout)
        self.decoder = Decoder(top, stages, layers + 1, latent, attention=True, patch=settings.patch, cross=meeting)
        self.to_context, self.from_context = nn.Conv2d(latent, digits, 1), nn.Conv2d(digits, latent, 1)
        square = latent * side * side
        self.to_code, self.from_code = nn.Linear(square, digits), nn.Linear(digits, square)

    def encode(self, frames: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `Tokenizer.encode`."""
        known = frames[:, 0] if context is None else context
        contexts, moved = [], []
        for start, end in self._parts(frames):
            codes, features = self._context_codes(known[start:end])
            contexts.append(self.fsq.indices(codes).flatten(1))
            own = self._codes(frames[start:end].flatten(0, 1), features)
            moved.append(self.fsq.indices(own).flatten(1).unflatten(0, (end - start, -1)))
        return torch.cat(contexts), torch.cat(moved)

    def decode(self, context: Tensor, frames: Tensor) -> Tensor:
        """See `Tokenizer.decode`."""
        grid = self.settings.grid[0] // self.side, self.settings.grid[1] // self.side
        made = []
        for start, end in self._parts(frames):
            known = self.fsq.code(context[start:end].unflatten(-1, self.settings.grid))
            features = self.context_decoder.middle(self.context_decoder.start(self.from_context(known.movedim(-1, 1))))
            codes = self.fsq.code(frames[start:end].flatten(0, 1).unflatten(-1, grid))
            made.append(self._frames(codes, features).clamp(0, 1).unflatten(0, (end - start, -1)))
        return torch.cat(made)

    def reconstruct(self, frames: Tensor) -> Reconstruction:
        """See `Tokenizer.reconstruct`: the first frame is the context, the others are made from their few tokens."""
        context, later = frames[:, 0], frames[:, 1:].flatten(0, 1)
        known, features = self._context_codes(context)
        codes = self._codes(later, features)
        made_context, middle = self.context_decoder(self.from_context(known.movedim(-1, 1)))
        made = self._frames(codes, middle)
        return Reconstruction(made, later, self.mean_frame + made_context, context, self.fsq.indices(codes.detach()))

    def _parts(self, frames: Tensor) -> list[tuple[int, int]]:
        """Segments that go through together: whole ones, and not too many frames."""
        count, length = frames.shape[:2]
        step = max(1, self.at_once // max(1, length))
        return list(pairwise([*range(0, count, step), count]))

    def _context_codes(self, context: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Contexts [N, 3, H, W] -> codes [N, h, w, K] and the encoder's features."""
        latent, features = self.context_encoder(2 * (context - self.mean_frame))
        return self.fsq(self.to_context(latent).movedim(1, -1)), features

    def _codes(self, frames: Tensor, features: list[Tensor]) -> Tensor:
        """Frames [N * T, 3, H, W] of N contexts -> codes [N * T, h/s, w/s, K]."""
        latent, _ = self.encoder(2 * (frames - self.mean_frame), features)
        side = self.side
        squares = latent.unflatten(2, (-1, side)).unflatten(4, (-1, side))  # [M, c, h/s, s, w/s, s]
        return self.fsq(self.to_code(squares.permute(0, 2, 4, 1, 3, 5).flatten(3)))

    def _frames(self, codes: Tensor, middle: Tensor) -> Tensor:
        squares = self.from_code(codes).unflatten(-1, (-1, self.side, self.side))  # [M, h/s, w/s, c, s, s]
        latent = squares.permute(0, 3, 1, 4, 2, 5).flatten(4, 5).flatten(2, 3)
        return self.mean_frame + self.decoder(latent, middle)[0]
