"""The transformer that predicts frame tokens: a Llama from scratch whose tokens are no text."""

from __future__ import annotations

import torch

from oneiro.models import language as languages
from oneiro.models.language import LanguageModel
from oneiro.models.video.layout import Layout
from oneiro.models.video.settings import TransformerSettings

PRECISE = 1e-6


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
    model = languages.initialise(LlamaForCausalLM, config, seed)
    if languages.default_device().type == "cuda":
        model = model.to(torch.bfloat16)  # as `load` does; the optimiser keeps the float32 truth
    return languages.assemble(settings.name, model, None)
