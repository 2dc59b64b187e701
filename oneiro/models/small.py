"""Small models with random weights, of any architecture: the shape of the real one, a few thousand times smaller."""

from __future__ import annotations

import copy
from typing import Any

import torch

from oneiro.models.randomness import seeded

LAYERS, WIDTH, HEADS, KV_HEADS, HEAD_DIM, MLP, VOCABULARY, POSITIONS = 4, 64, 4, 2, 16, 96, 160, 256
SIZES: dict[str, Any] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), LAYERS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "word_embed_proj_dim", "dim"), WIDTH),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"), HEADS),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), KV_HEADS),
    **dict.fromkeys(("head_dim", "query_pre_attn_scalar"), HEAD_DIM),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size"), MLP),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), MLP // 2),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token"), 2),
    **dict.fromkeys(("vocab_size", "vocab_size_per_layer_input"), VOCABULARY),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), POSITIONS),
    **dict.fromkeys(("sliding_window", "attention_chunk_size", "window_size"), 8),
    "rotary_dim": HEAD_DIM // 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 12,
    "first_k_dense_replace": 1,
    "n_group": 1,
    "topk_group": 1,
    "topk_method": "greedy",
    "mamba_n_heads": HEADS,
    "mamba_d_head": 2 * WIDTH // HEADS,
    "mamba_d_ssm": 2 * WIDTH,
    "mamba_d_state": 8,
    "state_size": 8,
    "hidden_size_per_layer_input": 16,
    "num_kv_shared_layers": 0,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Names under which configurations keep their sizes."""
NEVER_NONE = ("head_dim", "num_key_value_heads", "num_experts_per_tok", "q_lora_rank")
"""Sizes that small ones need even where the configuration leaves them to be computed from large ones."""
LISTS = ("layer_types", "no_rope_layers", "mlp_layer_types", "layers_block_type")


def small_config(config: Any) -> Any:
    """The same configuration in small: kinds of layers, biases, caps, windows and scales stay."""
    known = config.to_dict()
    wanted = (name for name, value in known.items() if value is not None or name in NEVER_NONE)
    sizes = {name: SIZES[name] for name in wanted if name in SIZES}
    if "qk_rope_head_dim" in sizes:  # compressed keys, one for each query; a head's size is that of the part that turns
        sizes |= {"head_dim": sizes["qk_rope_head_dim"], "num_key_value_heads": HEADS}
    for name in LISTS:
        if isinstance(known.get(name), list):
            sizes[name] = first_kinds(known[name], LAYERS)
    return type(config)(**{**copy.deepcopy(known), **sizes})


def first_kinds(kinds: list[Any], count: int) -> list[Any]:
    """`count` entries with as many kinds as there are, in the order in which they first appear."""
    distinct = list(dict.fromkeys(kinds))
    return [*kinds[: count - len(distinct)], *distinct][:count] if len(distinct) <= count else distinct[:count]


def random_model(config: Any, seed: int = 0) -> Any:
    """A float32 model of that configuration; every weight is random, so that no bias or norm goes unnoticed."""
    from transformers import AutoModelForCausalLM

    generator = torch.Generator().manual_seed(seed)
    with seeded(seed):
        model = AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model
