"""Which models may come in: those that compute here what they compute by themselves.

A model that is loaded is copied in part, in float32: its embedding, its first layers (one of each kind) and its head,
with real weights and a window of a few tokens. The copy is asked by transformers' own forward and by ours, in every way
in which sampling and learning will ask: rows alone, rows behind a shared prefix, packed groups, one token at a time.
A model that gives different answers is refused by name.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from oneiro.models.attention import AfterPrefix, Causal, Prefill, PrefixGroups
from oneiro.models.backbone import Backbone, base_of, has_own_forward
from oneiro.models.foreign import ForeignBackbone, Unfit
from oneiro.models.randomness import seeded
from oneiro.runtime.errors import OneiroError

TOLERANCE = 2e-4
"""Largest difference of a logit, as a part of the largest logit."""
WINDOW = 5
"""What a sliding window is cut to while it is tested."""
PREFIX, ROW, ROWS = 9, 7, 2
"""Tokens of the shared prefix, tokens of a row behind it, rows."""


def backbone_of(model: Any) -> Backbone:
    """Oneiro's own forward where it knows the architecture, else the model's own layers."""
    base = base_of(model)
    try:
        return Backbone(model) if has_own_forward(base.config) else ForeignBackbone(model)
    except Exception as error:  # every architecture fails in its own way; the person needs one line
        raise refusal(base.config, error) from error


def admit(model: Any) -> None:
    """Refuse a model that would be computed wrongly. Call it before `backbone_of`, which rearranges weights."""
    if differences := probe(model):
        way, worst = max(differences.items(), key=lambda item: item[1])
        if not worst <= TOLERANCE:
            reason = Unfit(f"{way}, its logits differ by {worst:.0e} of the largest")
            raise refusal(base_of(model).config, reason) from reason


@torch.no_grad()
def probe(model: Any) -> dict[str, float]:
    """For each way of asking, the largest difference of our logits from those of transformers, relative to the largest
    of them.
    """
    base = base_of(model)
    # Weights in a few bits compute with errors of their own: a small model of the same kind answers for them.
    part = random_model(small_config(without_quantisation(base.config))) if is_quantised(base) else excerpt(base)
    generator = torch.Generator().manual_seed(0)
    most = part.get_input_embeddings().weight.shape[0]
    device = part.get_input_embeddings().weight.device
    prefix, rows = (torch.randint(0, most, size, generator=generator).to(device) for size in ((1, PREFIX), (ROWS, ROW)))
    wholes = torch.cat([prefix.expand(ROWS, -1), rows], 1)
    expected = part(input_ids=wholes, use_cache=False).logits
    backbone = backbone_of(part)
    expected = expected[..., : backbone.output_vocab]
    scale = expected.abs().max()
    try:
        return {
            way: float((backbone.output.logits(hidden) - expected[:, start:]).abs().max() / scale)
            for way, start, hidden in ways(backbone, prefix, rows)
        }
    except OneiroError:
        raise
    except Exception as error:  # every architecture fails in its own way; the person needs one line
        raise refusal(base.config, error) from error


def ways(backbone: Backbone, prefix: Tensor, rows: Tensor) -> Iterator[tuple[str, int, Tensor]]:
    """Every way to compute rows [R, T] behind a prefix [1, P]: its name, where its answer starts, hidden states."""
    count, length = rows.shape
    start, order = prefix.shape[1], torch.arange(prefix.shape[1] + length, device=rows.device)
    owner, lengths = rows.new_zeros(count), rows.new_tensor([start])
    yield "row by row", 0, backbone(torch.cat([prefix.expand(count, -1), rows], 1), order, Causal())

    remember = Prefill()
    backbone(prefix, order[:start], remember)
    behind = order[start:].expand(count, -1)
    yield (
        "behind a shared prefix",
        start,
        backbone(rows, behind, AfterPrefix(remember.kv_cache, owner, lengths, length)),
    )

    row_id = torch.cat([rows.new_zeros(start), *(rows.new_full((length,), i + 1) for i in range(count))])[None]
    positions = torch.cat([order[:start], *(order[start:] for _ in range(count))])[None]
    packed = torch.cat([prefix, rows.reshape(1, -1)], 1)
    hidden = backbone(packed, positions, PrefixGroups(row_id, backbone.head_weight.dtype))
    yield "in packed groups", start, hidden[0, start:].unflatten(0, (count, length))

    cache, steps = (
        [(key.expand(count, -1, -1, -1), value.expand(count, -1, -1, -1)) for key, value in remember.kv_cache],
        [],
    )
    for step in range(length):
        plan = _Remembering(cache, start + step, count)
        steps.append(backbone(rows[:, step : step + 1], order[start + step : start + step + 1], plan))
        cache = plan.grown
    yield "token by token", start, torch.cat(steps, 1)


class _Remembering(AfterPrefix):
    """One token of each row behind what the cache holds, and the cache with that token."""

    def __init__(self, kv_cache: list[tuple[Tensor, Tensor]], length: int, rows: int) -> None:
        every = torch.arange(rows, device=kv_cache[0][0].device)
        super().__init__(kv_cache, every, every.new_full((rows,), length), 1)
        self.grown: list[tuple[Tensor, Tensor]] = []

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, *rule: Any) -> Tensor:
        past = self.kv_cache[layer]
        self.grown.append((torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)))
        return super().__call__(layer, query, key, value, *rule)


def excerpt(base: Any) -> Any:
    """A float32 copy of the embedding, the first layers and the head; windows are cut short, so that a short text
    reaches past them.
    """
    with first_layers(base):
        part = copy.deepcopy(base)
    part = part.float()
    for module in [part.config.get_text_config(), *part.modules()]:
        for name in ("sliding_window", "attention_chunk_size"):
            if isinstance(getattr(module, name, None), int):
                setattr(module, name, WINDOW)
    return part


@contextmanager
def first_layers(base: Any) -> Iterator[None]:
    """For a while the model has only its first layers, one of each kind at least."""
    config = base.config.get_text_config()
    count = config.num_hidden_layers
    lists = [
        (module, name)
        for module in base.modules()
        for name, child in module.named_children()
        if isinstance(child, nn.ModuleList) and len(child) == count
    ]
    if len(lists) != 1:  # an architecture of its own: all of it
        yield
        return
    parent, name = lists[0]
    layers = getattr(parent, name)
    kept = first_of_each([layer_kind(config, layer, i) for i, layer in enumerate(layers)])
    setattr(parent, name, layers[:kept])
    config.num_hidden_layers = kept
    try:
        yield
    finally:
        setattr(parent, name, layers)
        config.num_hidden_layers = count


def first_of_each(kinds: list[Any]) -> int:
    """The least number of first entries, two or more, that hold one of each kind."""
    return min(len(kinds), max(2, *(kinds.index(kind) + 1 for kind in kinds)))


def layer_kind(config: Any, layer: nn.Module, index: int) -> tuple[Any, ...]:
    """What tells one layer from another: its modules, and what the configuration lists for it."""
    lists = (getattr(config, name, None) for name in ("layer_types", "no_rope_layers", "mlp_layer_types"))
    return (repr(layer), *(kinds[index] if isinstance(kinds, list) else None for kinds in lists))


def is_quantised(base: Any) -> bool:
    return getattr(base, "is_quantized", False)


def without_quantisation(config: Any) -> Any:
    config = copy.deepcopy(config)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    return config


def refusal(config: Any, reason: Exception) -> OneiroError:
    why = f" ({reason})" if isinstance(reason, Unfit) else ""
    return OneiroError(
        f"models of architecture '{config.model_type}' are not supported: sampling and learning here would not compute "
        f"what the model computes by itself{why}; choose another model (docs: models, 'Architectures')"
    )


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
