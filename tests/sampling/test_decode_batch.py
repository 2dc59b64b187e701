"""Rows on the device."""

from __future__ import annotations

import torch

from oneiro.models.language import LanguageModel
from oneiro.sampling.decode_batch import FREE, DecodeBatch


def test_rows_begin_move_and_end_as_told(tiny: LanguageModel) -> None:
    batch = DecodeBatch(tiny.backbone, 4, 10, 5)
    assert batch.done.all() and (batch.forced == FREE).all() and int(batch.limit) == 5 and (batch.ends == FREE).all()
    batch.begin(3, [7, 8])
    assert int(batch.limit) == 3 and batch.ends.tolist() == [7, 8] + [FREE] * 6 and batch.done.all()
    batch.position.fill_(9)
    batch.begin(2, [9])
    # Graphs also compute rows that nobody holds: they write to their first place, which every cache has.
    assert batch.ends.tolist() == [9] + [FREE] * 7 and batch.position.tolist() == [0] * 4
    for number, tensor in enumerate((batch.token, batch.position, batch.count)):
        tensor.copy_(torch.arange(4) + 10 * number)
    batch.done.copy_(torch.tensor([True, False, True, False]))
    for tensor in (batch.uniforms, batch.logprobs, batch.forced, batch.tokens):
        tensor.copy_(torch.arange(20).view(4, 5))
    for keys, values in batch.kv_cache:
        keys.copy_(torch.arange(4.0).view(4, 1, 1, 1).expand_as(keys))
        values.copy_(10 + torch.arange(4.0).view(4, 1, 1, 1).expand_as(values))
    batch.move(torch.tensor([3]), torch.tensor([0]))
    assert batch.token.tolist() == [3, 1, 2, 3] and batch.position.tolist() == [13, 11, 12, 13]
    assert batch.count.tolist() == [23, 21, 22, 23] and batch.done.tolist() == [False, False, True, True]
    for tensor in (batch.uniforms, batch.logprobs, batch.forced, batch.tokens):
        assert tensor[0].tolist() == [15, 16, 17, 18, 19] and tensor[1].tolist() == [5, 6, 7, 8, 9]
    for keys, values in batch.kv_cache:
        assert keys[:, 0, 0, 0].tolist() == [3, 1, 2, 3] and values[:, 0, 0, 0].tolist() == [13, 11, 12, 13]
