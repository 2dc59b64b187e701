"""How a recipe says what is sampled; read without torch."""

from __future__ import annotations

from pydantic import Field

from oneiro.episode import SamplingParams
from oneiro.recipe import Settings


class SamplingSettings(Settings):
    """How much to sample, and how."""

    max_tokens: int = Field(64, ge=1)
    temperature: float = Field(1.0, ge=0)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=0)
    stop: tuple[str, ...] = ()
    """Strings that end a sample once they appear in its text, besides the model's end tokens."""
    ignore_eos: bool = False
    """Sample exactly `max_tokens`, whatever comes (video frames, benchmarks)."""

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(self.temperature, self.top_p, self.top_k)
