"""Any other causal language model, through transformers' own layers: slower, and just as exact.

The library calls a registered attention function with queries, keys and values after their rotation. Ours hands them
to the attention plan of the moment, so that sharing, caching and batching work as in the house's own `Backbone`.
"""

from __future__ import annotations

import math
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from oneiro.models.attention import PLAIN, Attend, Causal, Rule
from oneiro.models.backbone import Backbone, Shape, base_of, take_wanted

NAME = "oneiro"
PLAN: ContextVar[Attend | None] = ContextVar("attention plan", default=None)
"""None: somebody calls the model's own forward, and gets plain causal attention."""


class Unfit(Exception):
    """A model whose layers cannot be computed with attention plans; says why."""


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
    usual = query.shape[-1] ** -0.5
    if scaling is not None and not math.isclose(scaling, usual):
        query = query * (scaling / usual)
    rule = Rule(special.get("sliding_window"), special.get("softcap"), special.get("s_aux"))
    attend = PLAN.get() or Causal()
    return attend(module.layer_idx, query, key, value, rule).transpose(1, 2).contiguous(), None  # type: ignore[arg-type]


class ForeignBackbone(Backbone):
    """The surface of `Backbone` over a model of any architecture."""

    waits = True
    keeps = 2.0
    """Autograd keeps the steps of its layers one by one; an estimate."""

    def __init__(self, model: Any) -> None:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        nn.Module.__init__(self)
        base = base_of(model)
        config = base.config.get_text_config()
        self.body, self.head = base.base_model, base.get_output_embeddings()
        if self.head is None or self.body is base:
            raise Unfit("its vocabulary head cannot be told from its layers")
        self._read_limits(config)
        ALL_ATTENTION_FUNCTIONS.register(NAME, by_plan)
        base.set_attn_implementation(NAME)
        heads, kv_heads, head_dim = self._heads(config.num_hidden_layers)
        vocabulary, width = self.head.weight.shape
        self.shape = Shape(
            layers=config.num_hidden_layers,
            width=width,
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            mlp=getattr(config, "intermediate_size", None) or 4 * width,
            vocabulary=vocabulary,
            parameters=sum(p.numel() for p in base.parameters()),
        )

    def _heads(self, layers: int) -> tuple[int, int, int]:
        """Query heads, key heads and their size, as the layers themselves use them."""
        seen, tokens = _Recorder(), torch.arange(2, device=self.head.weight.device)
        with torch.no_grad():
            self(tokens[None], tokens, seen)
        if sorted(seen.shapes) != list(range(layers)):
            raise Unfit("some of its layers do not attend, or attend in a way of their own")
        (heads, dim), (kv_heads, value_dim) = seen.shapes[0]
        if len(set(seen.shapes.values())) > 1 or dim != value_dim:
            raise Unfit("its layers have heads of different shapes")
        return heads, kv_heads, dim

    def forward(self, tokens: Tensor, positions: Tensor, attend: Attend, wanted: Tensor | None = None) -> Tensor:
        """Token ids [B, T] at positions [T] or [B, T] -> final hidden states [B, T, d], or those `wanted`, [N, d]."""
        plan = PLAN.set(attend)
        try:
            where = positions.expand(len(tokens), -1)
            output = self.body(input_ids=tokens, position_ids=where, use_cache=False)
        finally:
            PLAN.reset(plan)
        return self._scale(take_wanted(output.last_hidden_state, wanted))


class _Recorder(Causal):
    """Remembers which layers asked for attention, and with what shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: dict[int, tuple[tuple[int, int], tuple[int, int]]] = {}

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, rule: Rule = PLAIN) -> Tensor:
        self.shapes[layer] = (query.shape[1], query.shape[3]), (key.shape[1], value.shape[3])
        return super().__call__(layer, query, key, value, rule)
