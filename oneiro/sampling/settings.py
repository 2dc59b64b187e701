"""How a recipe says what is sampled; read without torch."""

from __future__ import annotations

import urllib.parse
from typing import Literal

from pydantic import Field, field_validator

from oneiro.episode import SamplingParams
from oneiro.recipe import Settings


class SamplingSettings(Settings):
    """How much to sample, and how."""

    max_tokens: int = Field(64, ge=1)
    """Longest sample."""
    temperature: float = Field(1.0, ge=0)
    """0 takes the most likely token."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Nucleus sampling: the most likely tokens that hold this much probability."""
    top_k: int = Field(0, ge=0)
    """Only the k most likely tokens; 0 means all."""
    stop: tuple[str, ...] = ()
    """Strings that end a sample once they appear in its text, besides the model's end tokens."""
    ignore_eos: bool = False
    """Sample exactly `max_tokens`, whatever comes (video frames, benchmarks)."""

    @property
    def params(self) -> SamplingParams:
        return SamplingParams(self.temperature, self.top_p, self.top_k)


class FleetSettings(Settings):
    """Servers that sample for RL, and how they are asked."""

    urls: tuple[str, ...] = Field(min_length=1)
    """Addresses without a path, such as http://node1:8000."""
    kind: Literal["vllm", "sglang"] = "vllm"
    """Or `sglang`."""
    model: str = "policy"
    """The name that vLLM serves the model by (`--served-model-name`)."""
    folder: str | None = None
    """Where new weights are handed over: a folder that the servers can read. None: in the run's directory."""
    staleness: int = Field(0, ge=0)
    """How many steps the servers' weights may be behind the policy's: 0, new weights before every step."""
    timeout_s: float = Field(600.0, gt=0)
    """Longest one request may take, from connect to last byte."""
    total_s: float = Field(6 * 3600.0, gt=0)
    """Longest one batch of prompts may take."""
    patience_s: float = Field(120.0, gt=0)
    """How long a run waits while no server answers, before it ends with a line that says so."""
    revive_s: float = Field(5.0, ge=0)
    """Seconds between questions to a server that was left out."""
    retries: int = Field(5, ge=0)
    """Failures of one prompt before the run ends."""
    concurrency: int = Field(32, ge=1, le=1024)
    """Requests under way at each server."""

    @field_validator("urls")
    @classmethod
    def _are_http(cls, urls: tuple[str, ...]) -> tuple[str, ...]:
        for url in urls:
            parts = urllib.parse.urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
                raise ValueError(f"{url!r} is no address such as http://node1:8000")
        return urls
