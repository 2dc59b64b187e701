"""What the learner learns from: rows with one number per token for every loss component."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Floats, PrefixGroup, Row, SamplingParams, Tokens, group_by_prefix
from oneiro.runtime.errors import OneiroError

COMPONENTS = ("policy", "ce", "kl")


@dataclass(slots=True)
class Example:
    """One row ready for learning. Every array is [T], aligned with `tokens`; a token's number is for predicting it."""

    tokens: Tokens
    weights: dict[str, Floats]
    logprobs: Floats
    """As the sampler recorded them, before truncation; 0 on given tokens."""
    temperature: Floats
    """What sampled tokens were drawn at; 1 on given ones."""
    acts: NDArray[np.bool_]
    """True on what the agent said: the tokens that algorithms see."""
    prefix: int = 0
    """Leading tokens that carry no loss and may be shared with other rows."""
    sampling: SamplingParams = field(default_factory=SamplingParams)
    """How its sampled tokens were drawn."""
    columns: dict[str, Floats] = field(default_factory=dict)
    """advantages, reference, values, returns; old and correction (`correction.py`): added by the loop."""

    @classmethod
    def of(cls, row: Row) -> Example:
        if not row.temperature:
            raise OneiroError("greedy samples cannot be learned from: set sampling.temperature above 0")
        weights = {name: row.weights(name) for name in COMPONENTS}
        for values in weights.values():
            values[:1] = 0  # nothing predicts the first token
        temperature = np.where(row.sampled, row.temperature, 1).astype(np.float32)
        return cls(row.tokens, weights, row.logprobs, temperature, row.acts, len(row.prefix), sampling_of(row))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def shared(self) -> Tokens:
        """The prefix that a group computes once. Its last token stays with the row: it predicts the first own one."""
        return self.tokens[: max(0, self.prefix - 1)]


def sampling_of(row: Row) -> SamplingParams:
    """How the tokens of a row were drawn; one row has one way."""
    params = {segment.params for segment in row.segments if segment.params is not None}
    if len(params) > 1:
        raise ValueError("one row mixes ways of sampling")
    return params.pop() if params else SamplingParams()


def prefix_groups(examples: Sequence[Example]) -> list[PrefixGroup]:
    """The examples by the prefix they share."""
    return group_by_prefix(example.shared for example in examples)


def gather(examples: Sequence[Example], arrays: Iterable[Floats]) -> Floats:
    """Arrays [T] of the rows of one episode -> their numbers at the agent's own tokens, row after row."""
    return np.concatenate([array[example.acts] for example, array in zip(examples, arrays, strict=True)])


def scatter(examples: Sequence[Example], column: str, values: Floats) -> None:
    """The inverse of `gather`: numbers of the agent's own tokens into a column of their rows, 0 elsewhere."""
    start = 0
    for example in examples:
        end = start + int(example.acts.sum())
        example.columns[column] = np.zeros(len(example), np.float32)
        example.columns[column][example.acts] = values[start:end]
        start = end
