"""The transformer that predicts frame tokens: a Llama from scratch whose tokens are no text."""

from __future__ import annotations

import torch
from pydantic import Field, model_validator

from oneiro.errors import nearest
from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.video.layout import Layout
from oneiro.recipe import Settings

PRECISE = 1e-6
SIZES = ("layers", "width", "heads", "mlp")
OVERLAYS = ("large", "published")
"""Names that shipped recipes give sizes to."""


class TransformerSettings(Settings):
    """Its size. With 12 layers of 768 it is the published one: 120 M or 127 M parameters, as the layout needs."""

    name: str = "small"
    """A label, by which a recipe's `models` section can give it other surroundings; any but `small` brings sizes."""
    layers: int = Field(4, ge=1)
    width: int = Field(128, ge=8)
    heads: int = Field(4, ge=1)
    mlp: int = Field(384, ge=8)
    tied: bool = False
    """One table for reading and predicting tokens; published: two."""

    @model_validator(mode="after")
    def _sizes_are_of_the_name(self) -> TransformerSettings:
        """A name that nothing gave sizes to would otherwise be the small model under another label."""
        if self.name != "small" and not self.model_fields_set.issuperset(SIZES):
            known = nearest(self.name, ("small", *OVERLAYS))
            raise ValueError(f"a model '{self.name}' needs sizes of its own, {', '.join(SIZES)}{known}")
        return self

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> TransformerSettings:
        if self.width % (2 * self.heads):
            raise ValueError(f"width {self.width} must be a multiple of 2 x heads = {2 * self.heads}")
        return self


def create(settings: TransformerSettings, layout: Layout, seed: int) -> LanguageModel:
    """Random weights for the tokens of a layout; only frame codes are ever predicted."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=layout.vocabulary,
        hidden_size=settings.width,
        intermediate_size=settings.mlp,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        num_key_value_heads=settings.heads,
        max_position_embeddings=8192,
        rms_norm_eps=PRECISE,
        tie_word_embeddings=settings.tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    config.output_vocab = layout.codes  # kept in config.json; the backbone reads it
    model = languages.initialised(LlamaForCausalLM(config), seed)
    if languages.default_device().type == "cuda":
        model = model.to(torch.bfloat16)  # as `load` does; the optimiser keeps the float32 truth
    return languages.assemble(settings.name, model, None)
