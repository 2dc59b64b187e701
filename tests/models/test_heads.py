"""Output and value heads."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from oneiro.models.backbone import Backbone
from oneiro.models.heads import OutputHead, ValueHead

SIZES = {
    "vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 300,
}  # fmt: skip


def llama(**more: Any) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**{**SIZES, **more})).eval()


def test_a_head_turns_states_into_logits_and_knows_the_slope_of_its_cap() -> None:
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5)
    plain = hidden @ weight.T
    torch.testing.assert_close(OutputHead(weight).logits(hidden), plain)
    torch.testing.assert_close(OutputHead(weight, bias).logits(hidden), plain + bias)
    torch.testing.assert_close(OutputHead(weight, bias, 0.7).logits(hidden), 0.7 * torch.tanh((plain + bias) / 0.7))
    product = plain.clone()
    slope = OutputHead(weight, None, 0.7).finish_(product)
    x = plain.clone().requires_grad_()
    (0.7 * torch.tanh(x / 0.7)).sum().backward()
    torch.testing.assert_close(slope, x.grad)
    assert OutputHead(weight).finish_(plain) is None
    limited = Backbone(llama(output_vocab=20))
    assert limited.output_vocab == 20 and limited.head_weight.shape == (20, 16)
    limited.head.bias = nn.Parameter(torch.arange(50.0))
    assert limited.output.bias is not None and limited.output.bias.tolist() == list(range(20))
    head = ValueHead(4)
    assert head(torch.ones(2, 4).bfloat16()).tolist() == [0, 0]
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
        head.linear.bias.fill_(0.5)
    assert head(torch.eye(4)).tolist() == [1.5, 2.5, 3.5, 4.5]
