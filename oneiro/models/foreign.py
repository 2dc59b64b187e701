"""Any other causal language model, through transformers' own layers: slower, and just as exact.

The library calls a registered attention function with queries, keys and values after their rotation. Ours hands them
to the attention plan of the moment, so that sharing, caching and batching work as in the house's own `Backbone`. A
model is admitted only if it then computes what it computes by itself.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from oneiro.errors import OneiroError
from oneiro.models.backbone import Attend, Backbone, Causal, Shape, has_own_forward

NAME = "oneiro"
PLAN: ContextVar[Attend | None] = ContextVar("attention plan", default=None)
"""None: somebody calls the model's own forward, and gets plain causal attention."""


class Unfit(Exception):
    """A kind of attention that no plan knows."""


def by_plan(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **special: Any,
) -> tuple[Tensor, None]:
    """transformers' attention interface: queries [B, H, T, D], keys and values [B, K, T, D] -> [B, T, H, D]."""
    for name in ("sliding_window", "softcap", "s_aux"):
        if special.get(name) is not None:
            raise Unfit(name)
    usual = query.shape[-1] ** -0.5
    if scaling is not None and scaling != usual:
        query = query * (scaling / usual)
    attend = PLAN.get() or Causal()
    return attend(module.layer_idx, query, key, value).transpose(1, 2).contiguous(), None  # type: ignore[arg-type]


class ForeignBackbone(Backbone):
    """The surface of `Backbone` over a model of any architecture."""

    waits = True
    keeps = 2.0
    """Autograd keeps the steps of its layers one by one; an estimate."""

    def __init__(self, model: Any) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        nn.Module.__init__(self)
        base = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.body, self.head = base.base_model, base.get_output_embeddings()
        self.output_vocab = None
        probe = torch.arange(6, device=self.head.weight.device)[None]
        with torch.no_grad():
            expected = base(input_ids=probe, use_cache=False).logits
        ALL_ATTENTION_FUNCTIONS.register(NAME, by_plan)
        base.config._attn_implementation = NAME
        seen = _Recorder()
        try:
            with torch.no_grad():
                found = self(probe, probe[0], seen) @ self.head.weight.T
        except Exception as error:  # every architecture fails in its own way; the person needs one line
            raise unsupported(base.config.model_type) from error
        layers = base.config.num_hidden_layers
        if sorted(seen.shapes) != list(range(layers)) or not _alike(found, expected):
            raise unsupported(base.config.model_type)
        (heads, dim), (kv_heads, value_dim) = seen.shapes[0]
        if len(set(seen.shapes.values())) > 1 or dim != value_dim:
            raise unsupported(base.config.model_type)
        vocabulary, width = self.head.weight.shape
        self.shape = Shape(
            layers=layers,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=dim,
            mlp=getattr(base.config, "intermediate_size", None) or 4 * width,
            vocabulary=vocabulary,
            parameters=sum(p.numel() for p in base.parameters()),
        )

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Token ids [B, T] at positions [T] or [B, T] -> final hidden states [B, T, d]."""
        plan = PLAN.set(attend)
        try:
            where = positions.expand(len(tokens), -1)
            return self.body(input_ids=tokens, position_ids=where, use_cache=False).last_hidden_state
        finally:
            PLAN.reset(plan)


class _Recorder(Causal):
    """Remembers which layers asked for attention, and with what shapes."""

    def __init__(self) -> None:
        self.shapes: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self.shapes[layer] = (query.shape[1], query.shape[3]), (key.shape[1], value.shape[3])
        return super().__call__(layer, query, key, value)


def _alike(found: Tensor, expected: Tensor) -> bool:
    """Equal up to the rounding of the weights' type."""
    tolerance = 1e-3 if found.dtype == torch.float32 else 5e-2
    return bool((found - expected).abs().max() <= tolerance * expected.abs().max())


def unsupported(architecture: str) -> OneiroError:
    return OneiroError(
        f"models of architecture '{architecture}' are not supported: their attention or head is of a kind that "
        "sampling and learning here cannot share; choose one with plain causal attention"
    )


def backbone_of(model: Any) -> Backbone:
    """Oneiro's own forward where it knows the architecture, else the model's own layers."""
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    return Backbone(model) if has_own_forward(base.config) else ForeignBackbone(model)
