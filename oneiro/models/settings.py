"""Settings of language models. Recipes are read without torch, so they live apart from what they configure."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.errors import OneiroError

Quantise = Literal["4bit", "8bit"]


class LoraSettings(Settings):
    """A low-rank adapter, by default on every linear projection of the layers."""

    rank: int = Field(16, ge=1)
    """Rank of the update."""
    alpha: int = 32
    """Its scale, divided by the rank."""
    targets: tuple[str, ...] = ()
    """Names of the projections that get one, such as `q_proj`; none named: all."""
    dropout: float = Field(0.0, ge=0, lt=1)
    """Of what enters the adapter, while it learns."""
    rslora: bool = False
    """Scale by alpha / sqrt(rank) instead of alpha / rank (rsLoRA, arXiv 2312.03732)."""
    dora: bool = False
    """Learn a magnitude for each output besides (DoRA, arXiv 2402.09353)."""


class ModelSettings(Settings):
    """Which model, and for `tiny` its size."""

    name: str = "tiny"
    """`tiny`, `smollm2-135m`, a Hugging Face name, or a folder."""
    layers: int = Field(4, ge=1)
    """Size of `tiny`: blocks."""
    width: int = Field(128, ge=8)
    """Hidden size."""
    heads: int = Field(4, ge=1)
    """Attention heads."""
    mlp: int = Field(384, ge=8)
    """Width of the feed-forward part."""
    vocabulary: int = Field(384, ge=280)
    """Largest vocabulary of the tokenizer that `tiny` trains on the run's own text."""
    chat_template: str | None = None
    """`chatml` or a file with a Jinja template; None: the tokenizer's own, or ChatML, with a notice, where it has none.
    What is used is saved with the weights.
    """
    lora: LoraSettings | None = None
    quantise: Quantise | None = None
    """Load the weights in `4bit` (QLoRA) or `8bit`; only an adapter can then learn. Needs bitsandbytes."""

    @model_validator(mode="after")
    def _only_adapters_learn_in_few_bits(self) -> ModelSettings:
        if self.quantise and self.lora is None and not _is_adapter(self.name):
            raise ValueError(f"quantise={self.quantise} leaves no weights that can learn: set model.lora.rank too")
        if self.quantise and self.name == "tiny":
            raise ValueError("'tiny' is made from scratch, there is nothing to quantise")
        return self

    @property
    def parameters(self) -> int | None:
        """About how many `tiny` has; None for a model that comes with its own size."""
        if self.name != "tiny":
            return None
        return self.width * (self.vocabulary + self.layers * (4 * self.width + 3 * self.mlp))

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> ModelSettings:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 x heads = {2 * self.heads}")
        return self


def _is_adapter(name: str) -> bool:
    from oneiro.models.language import is_adapter  # brings torch, which only this question needs

    return is_adapter(name)


KNOWN = ("tiny", "smollm2-135m")
"""Models that need no folder and no hub."""


def require_place(name: str) -> None:
    """One line for a name that can be no model: not known, no folder, and not written as the hub writes names."""
    path = Path(name).expanduser()
    if name in KNOWN or path.is_dir():
        return
    if name.startswith((".", "/", "~")) or name.count("/") != 1 or path.parent.is_dir():
        close = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.5)
        meant = f" (did you mean '{close[0]}'?)" if close else ""
        raise OneiroError(
            f"no model folder at '{name}'{meant}; give a folder with config.json, a hub name like org/model, or "
            "smollm2-135m"
        )


def require_words(name: str) -> None:
    """One line for a folder of weights without a tokenizer, as a model that reads and writes text needs one."""
    path = Path(name).expanduser()
    if (path / "config.json").is_file() and not any(path.glob("*token*")):
        raise OneiroError(f"the model folder '{name}' has no tokenizer; put tokenizer.json beside its config.json")
