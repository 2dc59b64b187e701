"""Attention beside a plain loop over queries."""

from __future__ import annotations

import math

import pytest
import torch

from oneiro.models.attention import AfterPrefix, Causal, Prefill, PrefixGroups, Rule, attention

RULES = {
    "plain": Rule(),
    "window": Rule(window=3),
    "wide window": Rule(window=50),
    "softcap": Rule(softcap=0.8),
    "sinks": Rule(sinks=torch.tensor([0.5, -1.0, 2.0, 0.0])),
    "all": Rule(2, 0.8, torch.tensor([0.5, -1.0, 2.0, 0.0])),
}


def drawn(*size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def one(query: torch.Tensor, seen: list[tuple[torch.Tensor, torch.Tensor]], rule: Rule, head: int) -> torch.Tensor:
    """One query [D] over the keys and values [D] that it may see, nearest last; the window keeps the nearest."""
    if rule.window is not None:
        seen = seen[-rule.window :]
    scores = [float(query @ key) / len(query) ** 0.5 for key, _ in seen]
    if rule.softcap is not None:
        scores = [rule.softcap * math.tanh(s / rule.softcap) for s in scores]
    total = sum(math.exp(s) for s in scores) + (math.exp(float(rule.sinks[head])) if rule.sinks is not None else 0.0)
    mixed = torch.zeros_like(query)
    for score, (_, value) in zip(scores, seen, strict=True):
        mixed += math.exp(score) / total * value
    return mixed


@pytest.mark.parametrize("length", [4, 6])
@pytest.mark.parametrize("shared", [4, 2, 1])
@pytest.mark.parametrize("rule", RULES)
def test_rows_alone(rule: str, shared: int, length: int) -> None:
    query, key, value = drawn(2, 4, length, 8), drawn(2, shared, length, 8, seed=1), drawn(2, shared, length, 8, seed=2)
    plan = Prefill()
    found = plan(0, query, key, value, RULES[rule])
    again = Causal()(0, query, key, value, RULES[rule])
    assert torch.equal(found, again)
    assert plan.kv_cache[0][0] is key and plan.kv_cache[0][1] is value
    for b in range(2):
        for h in range(4):
            k = h * shared // 4
            for t in range(length):
                seen = [(key[b, k, s], value[b, k, s]) for s in range(t + 1)]
                torch.testing.assert_close(
                    found[b, h, t], one(query[b, h, t], seen, RULES[rule], h), atol=1e-5, rtol=1e-4
                )


@pytest.mark.parametrize("shared", [4, 2])
@pytest.mark.parametrize("rule", RULES)
def test_rows_behind_shared_prefixes_and_in_packed_groups(rule: str, shared: int) -> None:
    lengths, owner, own = [5, 2], [1, 0, 1], 4
    past = drawn(2, shared, 5, 8, seed=3), drawn(2, shared, 5, 8, seed=4)
    query, key, value = drawn(3, 4, own, 8), drawn(3, shared, own, 8, seed=1), drawn(3, shared, own, 8, seed=2)
    plan = AfterPrefix([past], torch.tensor(owner), torch.tensor(lengths), own)
    found = plan(0, query, key, value, RULES[rule])
    expected = torch.zeros_like(found)
    for b in range(3):
        for h in range(4):
            k = h * shared // 4
            for t in range(own):
                seen = [(past[0][owner[b], k, s], past[1][owner[b], k, s]) for s in range(lengths[owner[b]])]
                seen += [(key[b, k, s], value[b, k, s]) for s in range(t + 1)]
                expected[b, h, t] = one(query[b, h, t], seen, RULES[rule], h)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)

    # The same rows packed: prefix 0 and row 1; prefix 1 and rows 0, 2; three padded places behind the first.
    sequences = [(0, [1]), (1, [0, 2])]
    width = 2 + 4 + 4
    row_id = torch.full((2, width), -1)
    packed = [torch.zeros(2, heads, width, 8) for heads in (4, shared, shared)]
    for s, (prefix, rows) in enumerate(sequences):
        at = lengths[prefix]
        row_id[s, :at] = 0
        packed[1][s, :, :at], packed[2][s, :, :at] = past[0][prefix, :, :at], past[1][prefix, :, :at]
        for number, row in enumerate(rows, 1):
            row_id[s, at : at + own] = number
            for whole, part in zip(packed, (query, key, value), strict=True):
                whole[s, :, at : at + own] = part[row]
            at += own
    groups = PrefixGroups(row_id, torch.float32)(0, packed[0], packed[1], packed[2], RULES[rule])
    for s, (prefix, rows) in enumerate(sequences):
        for number, row in enumerate(rows):
            start = lengths[prefix] + number * own
            torch.testing.assert_close(groups[s, :, start : start + own], expected[row], atol=1e-5, rtol=1e-4)


def test_masks_of_truth_and_of_numbers_mean_the_same() -> None:
    query, key, value = drawn(2, 4, 3, 8), drawn(2, 2, 5, 8, seed=1), drawn(2, 2, 5, 8, seed=2)
    seen = torch.rand(2, 1, 3, 5, generator=torch.Generator().manual_seed(5)) > 0.4
    seen[..., 0] = True
    numbers = torch.zeros(seen.shape).masked_fill_(~seen, -torch.inf)
    for rule in (Rule(), Rule(softcap=0.7)):
        truth = attention(query, key, value, rule, mask=seen)
        torch.testing.assert_close(truth, attention(query, key, value, rule, mask=numbers))
        torch.testing.assert_close(truth, attention(query, key, value, rule, mask=seen.expand(-1, 4, -1, -1)))
    flat = torch.ones(3, 5, dtype=torch.bool).tril(2)
    expected = attention(query, key, value, Rule(), mask=flat)
    torch.testing.assert_close(
        attention(query, key, value, Rule(softcap=1e4), mask=flat), expected, atol=1e-4, rtol=1e-4
    )
    assert (
        Rule().plain and Rule(window=3).plain and not Rule(softcap=1.0).plain and not Rule(sinks=torch.zeros(1)).plain
    )
    assert Rule().sees_all(99) and Rule(window=3).sees_all(3) and not Rule(window=3).sees_all(4)
