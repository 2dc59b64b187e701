"""The per-frame tokenizer: a convolutional autoencoder whose latent is rounded (FSQ); every frame stands alone."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from oneiro.models.video.blocks import Decoder, Encoder
from oneiro.models.video.tokenizer import FrameTokenizerSettings, Reconstruction, Tokenizer


class FrameTokenizer(Tokenizer):
    """Frames of H x W pixels into (H/f) x (W/f) tokens, row by row."""

    def __init__(self, settings: FrameTokenizerSettings) -> None:
        super().__init__(settings)
        self.frame_tokens, self.context_tokens = settings.grid[0] * settings.grid[1], 0
        channels, latent, digits = settings.channels, settings.latent, len(settings.levels)
        self.encoder = Encoder(channels, settings.layers, latent, attention=True, patch=settings.patch)
        self.to_code, self.from_code = nn.Conv2d(latent, digits, 1), nn.Conv2d(digits, latent, 1)
        # The decoder's stages have the channels of the stage below them, and all but the first double.
        widths = [*reversed(channels[:-1]), channels[0]]
        stages = [(width, place > 0) for place, width in enumerate(widths)]
        self.decoder = Decoder(channels[-1], stages, settings.layers, latent, attention=True, patch=settings.patch)

    def encode(self, frames: Tensor, context: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """See `Tokenizer.encode`; there is no context here."""
        flat = frames.flatten(0, 1)
        indices = [self.fsq.indices(self._codes(part)).flatten(1) for part in flat.split(self.at_once)]
        return frames.new_zeros(len(frames), 0, dtype=torch.long), torch.cat(indices).unflatten(0, frames.shape[:2])

    def decode(self, context: Tensor, frames: Tensor) -> Tensor:
        """See `Tokenizer.decode`."""
        flat = frames.flatten(0, 1).unflatten(-1, self.settings.grid)
        parts = flat.split(self.at_once)
        made = [self._frames(self.fsq.code(part)).clamp(0, 1) for part in parts]
        return torch.cat(made).unflatten(0, frames.shape[:2])

    def reconstruct(self, frames: Tensor) -> Reconstruction:
        """See `Tokenizer.reconstruct`."""
        flat = frames.flatten(0, 1)
        codes = self._codes(flat)
        return Reconstruction(self._frames(codes), flat, indices=self.fsq.indices(codes.detach()))

    def _codes(self, frames: Tensor) -> Tensor:
        """Frames [M, 3, H, W] -> codes [M, h, w, K]."""
        return self.fsq(self.to_code(self.encoder(2 * (frames - self.mean_frame))[0]).movedim(1, -1))

    def _frames(self, codes: Tensor) -> Tensor:
        return self.mean_frame + self.decoder(self.from_code(codes.movedim(-1, 1)))[0]
