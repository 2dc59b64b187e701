"""Blocks of the video models."""

from __future__ import annotations

import platform

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from oneiro.models.video import blocks
from oneiro.models.video.blocks import CrossAttention


def test_dropout_falls_on_attention_and_on_what_it_tells_and_only_in_training() -> None:
    torch.manual_seed(0)
    attention = CrossAttention(6, 4, heads=2, dropout=0.4)
    frames, context = torch.randn(4, 6, 2, 2), torch.randn(2, 6, 2, 2)
    asked = F.group_norm(frames, 2, eps=1e-6).flatten(2).transpose(1, 2)
    known = F.group_norm(context, 2, eps=1e-6).flatten(2).transpose(1, 2)

    def heads(x: Tensor) -> Tensor:
        return x.reshape(2, -1, 2, 3).transpose(1, 2)

    q, k, v = heads(attention.query(asked)), heads(attention.key(known)), heads(attention.value(known))
    for rate in (0.4, 0.0):
        attention.train(rate > 0)
        torch.manual_seed(3)
        found = attention(frames, context)
        torch.manual_seed(3)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=rate).transpose(1, 2).reshape(2, 8, 6)
        told = F.dropout(attention.out(mixed), rate).reshape(4, 4, 6).transpose(1, 2).reshape(4, 6, 2, 2)
        torch.testing.assert_close(found, F.silu(frames + told))


def test_onednn_is_on_again_after_a_way_back_that_fails() -> None:
    class Loss:
        def backward(self) -> None:
            seen.append(torch.backends.mkldnn.enabled)
            if len(seen) == 2:
                raise RuntimeError

    seen: list[bool] = []
    blocks.backward(Loss())  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        blocks.backward(Loss())  # type: ignore[arg-type]
    # Off on the way back on ARM alone, where torch's own kernels are quicker.
    assert seen == [platform.machine() not in ("aarch64", "arm64")] * 2 and torch.backends.mkldnn.enabled
