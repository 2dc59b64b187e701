"""One forward for the Llama-like architectures, over the weights of a Hugging Face model.

Sampling and learning call the same blocks with a different *attention plan*: how keys and values of this call meet
those of earlier calls. So the engine's log-probabilities are the learner's by construction, and a new way to batch
(padded rows, a shared prefix, a cache) is a new plan, not a new model.

Llama, SmolLM, Mistral, Qwen2 and Qwen3 share this block. Their projections are fused here (one matmul for q, k, v and
one for gate, up); the Hugging Face parameters become views of the fused ones, so saving, loading and merging need no
conversion. Models with adapters keep their own modules and lose only the fusion.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from oneiro.errors import OneiroError
from oneiro.models.kernels import triton_module
from oneiro.models.layer import after_attention, before_attention, normalise, split_heads

WITH_ADAPTERS = 2.6
"""Autograd keeps the steps of a layer with adapters one by one, and what enters an adapter in float32 too."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3")


class Attend(Protocol):
    """An attention plan: given this call's queries [B, H, T, D] and keys, values [B, K, T, D], mix [B, H, T, D]."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Shape:
    """Sizes every room needs to know."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    parameters: int

    @property
    def kept(self) -> int:
        """About how many numbers a token keeps for the backward pass."""
        attention = (self.heads + 2 * self.kv_heads) * self.head_dim
        return self.layers * (4 * self.width + 2 * attention + 2 * self.mlp)

    @property
    def remembered(self) -> int:
        """How many numbers of a token are kept for the tokens after it: a key and a value in every layer."""
        return 2 * self.layers * self.kv_heads * self.head_dim


class Causal:
    """Rows stand alone: position t sees positions up to t. Right padding needs no mask, nothing real looks at it."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, causal=True)


class Prefill(Causal):
    """Causal, and keeps every layer's keys and values, with their graph, for `AfterPrefix` or a cache."""

    def __init__(self) -> None:
        self.kv_cache: list[tuple[Tensor, Tensor]] = []

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.kv_cache.append((key, value))
        return super().__call__(layer, query, key, value)


class AfterPrefix:
    """Rows that continue a shared prefix: each sees its own prefix's keys and, causally, itself.

    `kv_cache` holds keys and values [G, K, P, D] of G prefixes, `owner` [B] says whose row it is, `lengths` [G] how
    much of each padded prefix is real.
    """

    def __init__(self, kv_cache: list[tuple[Tensor, Tensor]], owner: Tensor, lengths: Tensor, row_length: int) -> None:
        self.kv_cache, self.owner = kv_cache, owner
        padded = kv_cache[0][0].shape[2]
        seen = torch.arange(padded, device=owner.device) < lengths[owner, None]
        own = torch.ones(row_length, row_length, dtype=torch.bool, device=owner.device).tril()
        rows = len(owner)
        self.mask = torch.cat(
            [seen[:, None, :].expand(rows, row_length, padded), own.expand(rows, row_length, row_length)], dim=2
        )[:, None]

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        past_key, past_value = self.kv_cache[layer]
        key = torch.cat([past_key[self.owner], key], dim=2)
        value = torch.cat([past_value[self.owner], value], dim=2)
        return attention(query, key, value, mask=self.mask)


class PrefixGroups:
    """Sequences of a prefix and rows that continue it: a token sees, causally, the prefix and its own row.

    `row_id` [B, T] is 0 in the prefix, the row's number in a row, -1 in padding.
    """

    def __init__(self, row_id: Tensor, dtype: torch.dtype) -> None:
        self.row_id, self.dtype = row_id, dtype
        self.kernels = triton_module("oneiro.models.kernels.prefix_groups", row_id.device.type)

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if self.kernels is not None and self.kernels.fits(query):
            return self.kernels.group_attention(query, key, value, self.layout)
        heads = query.shape[1]
        if heads != key.shape[1]:  # kernels that take a mask want as many key heads as query heads
            key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
        return attention(query, key, value, mask=self.bias.expand(-1, heads, -1, -1))

    @cached_property
    def layout(self) -> Any:
        """For the kernels: where rows begin and end."""
        return self.kernels.GroupLayout(self.row_id)

    @cached_property
    def bias(self) -> Tensor:
        """For attention with a mask: [B, 1, T, T], -inf where a token may not look."""
        row_id, order = self.row_id, torch.arange(self.row_id.shape[1], device=self.row_id.device)
        seen = (row_id[:, None, :] == 0) | (row_id[:, None, :] == row_id[:, :, None])
        seen &= order[None, :] <= order[:, None]
        return torch.zeros(seen.shape, dtype=self.dtype, device=row_id.device).masked_fill_(~seen, -torch.inf)[:, None]


def attention(query: Tensor, key: Tensor, value: Tensor, causal: bool = False, mask: Tensor | None = None) -> Tensor:
    """Scaled dot-product attention with grouped key-value heads."""
    grouped = query.shape[1] != key.shape[1]
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, enable_gqa=grouped)


class Block(nn.Module):
    """One layer: normalise, attend, normalise, feed forward."""

    def __init__(self, layer: Any, shape: Shape, index: int) -> None:
        super().__init__()
        attn, mlp = layer.self_attn, layer.mlp
        self.index, self.shape = index, shape
        self.attention_norm, self.mlp_norm = layer.input_layernorm, layer.post_attention_layernorm
        self.query_norm, self.key_norm = getattr(attn, "q_norm", None), getattr(attn, "k_norm", None)
        self.out, self.down = attn.o_proj, mlp.down_proj
        # SmolLM3 leaves rotary positions out of some layers.
        self.rotary = bool(getattr(attn, "use_rope", True))
        self.projections = [attn.q_proj, attn.k_proj, attn.v_proj], [mlp.gate_proj, mlp.up_proj]
        self.fused = all(type(m) is nn.Linear for group in self.projections for m in group)
        if self.fused:
            self.qkv_weight, self.qkv_bias = fuse(self.projections[0])
            self.gate_up_weight, _ = fuse(self.projections[1])
        else:
            self.adapters = nn.ModuleList(m for group in self.projections for m in group)

    def forward(self, hidden: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """hidden [B, T, d] -> [B, T, d]."""
        if not self.fused:
            return self._with_adapters(hidden, cos, sin, attend)
        norms = (self.query_norm.weight, self.key_norm.weight) if self.query_norm is not None else None  # type: ignore[union-attr]
        query, key, value = before_attention(
            hidden,
            self.attention_norm.weight,
            self.attention_norm.variance_epsilon,
            self.qkv_weight,
            self.qkv_bias,
            norms,
            (cos, sin) if self.rotary else None,
            (self.shape.heads, self.shape.kv_heads, self.shape.head_dim),
        )
        mixed = attend(self.index, query, key, value)
        return after_attention(
            hidden,
            mixed,
            self.out.weight,
            self.mlp_norm.weight,
            self.mlp_norm.variance_epsilon,
            self.gate_up_weight,
            self.down.weight,
        )

    def _with_adapters(self, hidden: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """The same layer through its own modules, which carry the adapters."""
        normed = normalise(hidden, self.attention_norm.weight, self.attention_norm.variance_epsilon)
        qkv = torch.cat([project(normed) for project in self.projections[0]], dim=-1)
        norms = (self.query_norm.weight, self.key_norm.weight) if self.query_norm is not None else None  # type: ignore[union-attr]
        heads = self.shape.heads, self.shape.kv_heads, self.shape.head_dim
        epsilon = self.attention_norm.variance_epsilon
        query, key, value = split_heads(qkv, norms, (cos, sin) if self.rotary else None, heads, epsilon)
        mixed = attend(self.index, query, key, value)
        hidden = hidden + self.out(mixed.transpose(1, 2).flatten(2))
        normed = normalise(hidden, self.mlp_norm.weight, self.mlp_norm.variance_epsilon)
        gate, up = (project(normed) for project in self.projections[1])
        return hidden + self.down(F.silu(gate) * up)


class Backbone(nn.Module):
    """Embedding, blocks and final norm of a causal language model; the vocabulary head is applied by who needs it."""

    waits = False
    """Whether a forward on a GPU may wait for it, so that it cannot be recorded as a CUDA graph."""
    gradient_checkpointing = False
    """Keep only what enters a layer for the backward pass, and compute the layer again."""
    keeps = 1.0
    """What a token keeps for the backward pass, in units of `Shape.kept`."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        config = base.config
        if getattr(config, "sliding_window", None) and getattr(
            config, "use_sliding_window", config.model_type == "mistral"
        ):
            raise OneiroError("models with sliding-window attention are not supported; choose one with full attention")
        heads = config.num_attention_heads
        self.shape = Shape(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=heads,
            kv_heads=config.num_key_value_heads or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            mlp=config.intermediate_size,
            vocabulary=config.vocab_size,
            parameters=sum(p.numel() for p in base.parameters()),
        )
        self.embedding = base.model.embed_tokens
        self.blocks = nn.ModuleList(Block(layer, self.shape, i) for i, layer in enumerate(base.model.layers))
        self.norm = base.model.norm
        self.head = base.lm_head
        self.output_vocab: int | None = getattr(config, "output_vocab", None)
        """Only the first so many tokens are ever predicted, sampled or learned; None: all."""
        if not all(block.fused for block in self.blocks):
            self.keeps = WITH_ADAPTERS
        self._rotary = base.model.rotary_emb
        self._tables: tuple[Tensor, Tensor] | None = None

    @property
    def head_weight(self) -> Tensor:
        """[V, d], or the rows of tokens that may be spoken; the embedding itself where the two are tied."""
        return self.head.weight if self.output_vocab is None else self.head.weight[: self.output_vocab]

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Token ids [B, T] at positions [T] or [B, T] -> final hidden states [B, T, d]."""
        hidden = self.embedding(tokens)
        cos, sin = self.rotations(positions, hidden)
        # A plan that remembers must see every layer once, so what it saw cannot be computed again.
        gradient_checkpointing = (
            self.gradient_checkpointing and torch.is_grad_enabled() and not isinstance(attend, Prefill)
        )
        for block in self.blocks:
            if gradient_checkpointing:
                hidden = checkpoint(block, hidden, cos, sin, attend, use_reentrant=False)
            else:
                hidden = block(hidden, cos, sin, attend)
        return normalise(hidden, self.norm.weight, self.norm.variance_epsilon)

    def rotations(self, positions: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [..., T, 1, D/2] of the rotary embedding, from a table grown as positions need it."""
        needed = int(positions.max()) + 1 if positions.device.type == "cpu" else 0
        if self._tables is None or len(self._tables[0]) < needed:
            size = max(256, 1 << (max(needed, 1) - 1).bit_length())
            if positions.device.type != "cpu":
                size = int(self._rotary.config.max_position_embeddings)
            with torch.no_grad():
                cos, sin = self._rotary(like[:1, :1].float(), torch.arange(size, device=like.device)[None])
            half = cos.shape[-1] // 2
            self._tables = cos[0, :, :half].to(like.dtype), sin[0, :, :half].to(like.dtype)
        cos, sin = self._tables
        return cos[positions][..., None, :], sin[positions][..., None, :]


def has_own_forward(config: Any) -> bool:
    """Whether `Backbone` computes models of this configuration."""
    return config.model_type in FAMILIES and getattr(config, "hidden_act", "silu") == "silu"


def fuse(linears: list[nn.Linear]) -> tuple[nn.Parameter, nn.Parameter | None]:
    """Stack several projections into one parameter and let the originals be views of it."""
    weight = nn.Parameter(torch.cat([linear.weight.detach() for linear in linears]))
    bias = None
    if linears[0].bias is not None:
        bias = nn.Parameter(torch.cat([linear.bias.detach() for linear in linears]))
    start = 0
    for linear in linears:
        rows = linear.out_features
        linear.weight.data = weight.data[start : start + rows]
        if bias is not None:
            linear.bias.data = bias.data[start : start + rows]
        start += rows
    return weight, bias
