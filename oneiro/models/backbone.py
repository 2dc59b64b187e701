"""One forward for the Llama-like architectures, over the weights of a Hugging Face model.

Sampling and learning call the same blocks with a different *attention plan*: how keys and values of this call meet
those of earlier calls. So the engine's log-probabilities are the learner's by construction, and a new way to batch
(padded rows, a shared prefix, a cache) is a new plan, not a new model.

Llama, SmolLM, Mistral, Qwen, Granite and Gemma share this block. Their projections are fused here (one matmul for q, k,
v and one for gate, up); the Hugging Face parameters become views of the fused ones, so saving, loading and merging need
no conversion. Models with adapters keep their own modules and lose only the fusion.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from oneiro.models.attention import Attend, Prefill, Rule
from oneiro.models.heads import OutputHead
from oneiro.models.layer import Rotations, after_attention, before_attention, normalise, rotate

BY_MODULES = 2.6
"""Autograd keeps the steps of a layer with adapters one by one, and what enters an adapter in float32 too."""
NO_ROTATION = "none"
"""The kind of layer that knows no positions."""
FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "granite", "gemma", "gemma2", "gemma3_text")
BY_LENGTH = ("dynamic", "longrope")
"""Rotary positions that change with the length of the sequence, beyond the length of pre-training."""


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


class Block(nn.Module):
    """One layer: normalise, attend, normalise, feed forward."""

    def __init__(self, layer: Any, shape: Shape, index: int) -> None:
        super().__init__()
        attn, mlp = layer.self_attn, layer.mlp
        self.index, self.shape = index, shape
        self.attention_norm, self.mlp_norm = layer.input_layernorm, layer.post_attention_layernorm
        self.query_norm, self.key_norm = getattr(attn, "q_norm", None), getattr(attn, "k_norm", None)
        self.attention_out_norm = self.mlp_out_norm = None
        if hasattr(layer, "pre_feedforward_layernorm"):  # Gemma 2 and 3 also normalise what each half returns
            self.attention_out_norm, self.mlp_norm = layer.post_attention_layernorm, layer.pre_feedforward_layernorm
            self.mlp_out_norm = layer.post_feedforward_layernorm
        self.out, self.down, self.activation = attn.o_proj, mlp.down_proj, mlp.act_fn
        self.residual = float(getattr(layer, "residual_multiplier", 1.0))
        usual = shape.head_dim**-0.5
        self.query_scale = 1.0 if math.isclose(attn.scaling, usual) else attn.scaling / usual
        window = attn.sliding_window if hasattr(attn, "sliding_window") else None
        if attn.config.model_type == "mistral":
            window = attn.config.sliding_window
        self.rule = Rule(window, getattr(attn, "attn_logit_softcapping", None))
        # SmolLM3 leaves rotary positions out of some layers; Gemma 3 turns local and global layers differently.
        self.rotary: str | None = getattr(attn, "layer_type", None) if getattr(attn, "use_rope", True) else NO_ROTATION
        self.projections = [attn.q_proj, attn.k_proj, attn.v_proj], [mlp.gate_proj, mlp.up_proj]
        self.fused = all(type(m) is nn.Linear for group in self.projections for m in group)
        self.written_out = self.fused and self._is_plain()
        """Whether the halves of a layer with written-out gradients compute it."""
        if self.fused:
            self.qkv_weight, self.qkv_bias = fuse(self.projections[0])
            self.gate_up_weight, self.gate_up_bias = fuse(self.projections[1])
        else:
            self.adapters = nn.ModuleList(m for group in self.projections for m in group)

    def _is_plain(self) -> bool:
        """Whether the layer is Llama's or Qwen's: RMS norms, SiLU, biases at most on queries, keys and values."""
        from transformers.activations import ACT2FN

        linears = [self.out, self.down, *self.projections[1]]
        norms = [self.attention_norm, self.mlp_norm]
        return (
            all(type(m) is nn.Linear for m in linears)
            and all(m.bias is None for m in linears)
            and all(is_plain_norm(m) for m in norms)
            and (self.query_norm is None or is_plain_norm(self.query_norm))
            and self.mlp_out_norm is None
            and self.residual == 1
            and isinstance(self.activation, type(ACT2FN["silu"]))
        )

    def forward(self, hidden: Tensor, rotations: Rotations, attend: Attend, wanted: Tensor | None = None) -> Tensor:
        """hidden [B, T, d] -> [B, T, d]; with flat places `wanted` [N] only what comes out there, [N, d]."""
        if not self.written_out:
            return take_wanted(self._by_modules(hidden, rotations, attend), wanted)
        norms = (self.query_norm.weight, self.key_norm.weight) if self.query_norm is not None else None  # type: ignore[union-attr]
        query, key, value = before_attention(
            hidden,
            self.attention_norm.weight,
            self.attention_norm.variance_epsilon,
            self.qkv_weight,
            self.qkv_bias,
            norms,
            rotations,
            (self.shape.heads, self.shape.kv_heads, self.shape.head_dim),
        )
        mixed = self._attend(query, key, value, attend).transpose(1, 2).flatten(2)
        return after_attention(
            take_wanted(hidden, wanted),
            take_wanted(mixed, wanted),
            self.out.weight,
            self.mlp_norm.weight,
            self.mlp_norm.variance_epsilon,
            self.gate_up_weight,
            self.down.weight,
        )

    def _by_modules(self, hidden: Tensor, rotations: Rotations, attend: Attend) -> Tensor:
        """The same layer through its own modules, which may carry adapters, biases and further norms."""
        normed = apply_norm(self.attention_norm, hidden)
        if self.fused:
            qkv = F.linear(normed, self.qkv_weight, self.qkv_bias)
        else:
            qkv = torch.cat([project(normed) for project in self.projections[0]], dim=-1)
        own, shared = self.shape.heads, self.shape.kv_heads
        query, key, value = qkv.unflatten(-1, (own + 2 * shared, -1)).split([own, shared, shared], dim=2)
        if self.query_norm is not None:
            query, key = apply_norm(self.query_norm, query), apply_norm(self.key_norm, key)
        if rotations is not None:
            query, key = rotate(query, *rotations), rotate(key, *rotations)
        mixed = self._attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attend)
        hidden = self._add(hidden, self.out(mixed.transpose(1, 2).flatten(2)), self.attention_out_norm)
        normed = apply_norm(self.mlp_norm, hidden)
        if self.fused:
            gate, up = F.linear(normed, self.gate_up_weight, self.gate_up_bias).chunk(2, dim=-1)
        else:
            gate, up = (project(normed) for project in self.projections[1])
        return self._add(hidden, self.down(self.activation(gate) * up), self.mlp_out_norm)

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, attend: Attend) -> Tensor:
        """Attention plans scale by the head's size; a layer that wants another scale brings it with its queries."""
        if self.query_scale != 1:
            query = query * self.query_scale
        return attend(self.index, query, key, value, self.rule)

    def _add(self, hidden: Tensor, change: Tensor, norm: nn.Module | None) -> Tensor:
        if norm is not None:
            change = norm(change)
        return hidden + (change if self.residual == 1 else change * self.residual)


class Backbone(nn.Module):
    """Embedding, blocks and final norm of a causal language model; the vocabulary head is applied by who needs it."""

    waits = False
    """Whether a forward on a GPU may wait for it, so that it cannot be recorded as a CUDA graph."""
    gradient_checkpointing = False
    """Keep only what enters a layer for the backward pass, and compute the layer again."""
    keeps = 1.0
    """What a token keeps for the backward pass, in units of `Shape.kept`."""
    compute_dtype: torch.dtype | None = None
    """What shards of another type are gathered in; None: the type of the weights."""
    output_vocab: int | None = None
    """Only the first so many tokens are ever predicted, sampled or learned; None: all."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        base = base_of(model)
        config = base.config
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
        self.embedding_scale = float(getattr(base.model, "embedding_multiplier", 1.0))
        blocks = [Block(layer, self.shape, i) for i, layer in enumerate(base.model.layers)]
        self.blocks = nn.ModuleList(blocks)
        self._rotary_kinds = [block.rotary for block in blocks]
        self.norm = base.model.norm
        self.head = base.lm_head
        self.output_vocab = getattr(config, "output_vocab", None)
        self._read_limits(config)
        # Products in 8 bits look at their inputs on the way.
        self.waits = bool(getattr(base, "is_loaded_in_8bit", False))
        if not all(block.written_out for block in blocks):
            self.keeps = BY_MODULES
        self._rotary = base.model.rotary_emb
        self._tables: dict[str | None, tuple[Tensor, Tensor]] = {}

    def _read_limits(self, config: Any) -> None:
        """What a configuration says about the head, and how far positions reach."""
        self.logit_scale = logit_scale(config)
        self.logit_softcap: float | None = getattr(config, "final_logit_softcapping", None)
        self.most_positions = most_positions(config)
        """A sequence has no more tokens than this; None: as many as memory holds."""

    @property
    def head_weight(self) -> Tensor:
        """[V, d], or the rows of tokens that may be spoken; the embedding itself where the two are tied."""
        return self.head.weight if self.output_vocab is None else self.head.weight[: self.output_vocab]

    @property
    def output(self) -> OutputHead:
        """What turns final hidden states into logits."""
        bias = getattr(self.head, "bias", None)
        return OutputHead(self.head_weight, bias if bias is None else bias[: self.output_vocab], self.logit_softcap)

    @property
    def device(self) -> torch.device:
        return self.head.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """What layers compute in."""
        return self.compute_dtype or self.head.weight.dtype

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend, wanted: Tensor | None = None) -> Tensor:
        """Token ids [B, T] at positions [T] or [B, T] -> final hidden states [B, T, d].

        With flat places `wanted` [N] only those, [N, d]: elsewhere the last layer ends with its attention.
        """
        hidden = self.embedding(tokens)
        if self.embedding_scale != 1:
            hidden = hidden * self.embedding_scale
        rotations = self.rotations(positions, hidden)
        # A plan that remembers must see every layer once, so what it saw cannot be computed again.
        gradient_checkpointing = (
            self.gradient_checkpointing and torch.is_grad_enabled() and not isinstance(attend, Prefill)
        )
        for block, kind in zip(self.blocks, self._rotary_kinds, strict=True):
            rest = rotations[kind], attend, wanted if block.index == self.shape.layers - 1 else None
            if gradient_checkpointing:
                hidden = checkpoint(block, hidden, *rest, use_reentrant=False)
            else:
                hidden = block(hidden, *rest)
        return self._scale(apply_norm(self.norm, hidden))

    def _scale(self, hidden: Tensor) -> Tensor:
        """Logits that are scaled by a number are those of hidden states that are."""
        return hidden if self.logit_scale == 1 else hidden * self.logit_scale

    def rotations(self, positions: Tensor, like: Tensor) -> dict[str | None, Rotations]:
        """For every kind of layer cosines and sines [..., T, 1, D/2] of the rotary embedding, from tables grown as
        positions need it; None for layers that turn nothing.
        """
        needed = int(positions.max()) + 1 if positions.device.type == "cpu" else 0
        rotations: dict[str | None, Rotations] = {NO_ROTATION: None}
        for kind in dict.fromkeys(self._rotary_kinds):
            if kind == NO_ROTATION:
                continue
            if kind not in self._tables or len(self._tables[kind][0]) < needed:
                self._tables[kind] = self._table(kind, needed, like)
            cos, sin = self._tables[kind]
            rotations[kind] = cos[positions][..., None, :], sin[positions][..., None, :]
        return rotations

    @torch.no_grad()
    def _table(self, kind: str | None, needed: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [positions, D/2]. Its size is no sequence's length: it ends where positions do, so that
        rotations which depend on the length stay those of the length of pre-training.
        """
        size = max(256, 1 << (needed - 1).bit_length())
        if like.device.type != "cpu":
            size = int(self._rotary.config.max_position_embeddings)
        if self.most_positions is not None:
            size = max(needed, min(size, self.most_positions))
        where = torch.arange(size, device=like.device)[None]
        two_kinds = isinstance(self._rotary.rope_type, dict)
        cos, sin = self._rotary(like[:1, :1].float(), where, *([kind] if two_kinds else []))
        half = cos.shape[-1] // 2
        return cos[0, :, :half].to(like.dtype), sin[0, :, :half].to(like.dtype)


def take_wanted(values: Tensor, wanted: Tensor | None) -> Tensor:
    """values [B, T, d] -> those at flat places [N], as [N, d]; all of them where none are named."""
    return values if wanted is None else values.flatten(0, 1).index_select(0, wanted)


def base_of(model: Any) -> Any:
    """The transformers model, below an adapter where there is one."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def has_own_forward(config: Any) -> bool:
    """Whether `Backbone` computes models of this configuration."""
    return config.model_type in FAMILIES


def is_plain_norm(module: Any) -> bool:
    """Whether a norm is Llama's: root mean square, times a weight. Gemma's is times one more than its weight."""
    return hasattr(module, "variance_epsilon")


def apply_norm(module: Any, x: Tensor) -> Tensor:
    return normalise(x, module.weight, module.variance_epsilon) if is_plain_norm(module) else module(x)


def logit_scale(config: Any) -> float:
    """What logits are multiplied by before anything else happens to them."""
    scale = getattr(config, "logit_scale", None) or getattr(config, "lm_head_multiplier", None) or 1.0
    return float(scale) / float(getattr(config, "logits_scaling", None) or 1.0)


def most_positions(config: Any) -> int | None:
    """How many tokens a sequence may have; where rotations depend on the length, those of pre-training."""
    most = getattr(config, "max_position_embeddings", None)
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in rope.values() if all(isinstance(value, dict) for value in rope.values()) else [rope]:
        if parameters.get("rope_type") in BY_LENGTH:
            trained = parameters.get("original_max_position_embeddings")
            most = min(size for size in (trained, most) if size is not None)
    return most


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
