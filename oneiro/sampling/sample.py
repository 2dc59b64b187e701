"""What an engine, a server or a script answers to one prompt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import FinishReason, Floats, SamplingParams, Segment, Tokens


@dataclass(slots=True)
class Sample:
    """What came out for one prompt: tokens [T], log-probabilities [T], and which tokens were forced rather than
    sampled. Scripts, and servers that return text only, have no tokens.
    """

    tokens: Tokens
    logprobs: Floats
    forced: NDArray[np.bool_]
    finish_reason: FinishReason
    params: SamplingParams
    versions: Tokens | None = None
    """[T] of the weights that drew each token, where servers did."""
    text: str = ""
    """The reply in words, where an agent said it."""
    prompt: Tokens | None = None
    """The tokens before it, where a server made them from the messages."""

    @classmethod
    def of_text(cls, text: str, finish_reason: FinishReason = FinishReason.TOKEN) -> Sample:
        """Words without tokens."""
        nothing = np.zeros(0)
        return cls(
            nothing.astype(np.int32),
            nothing.astype(np.float32),
            nothing.astype(bool),
            finish_reason,
            SamplingParams(),
            text=text,
        )

    def segments(self, role: str = "assistant", turn: int = 0, tag: str = "") -> list[Segment]:
        """Runs of one author: forced tokens are given, the others sampled."""
        if not len(self.tokens):
            return []
        edges = [0, *(np.flatnonzero(np.diff(self.forced)) + 1), len(self.tokens)]
        segments = []
        for start, end in pairwise(edges):
            if self.forced[start]:
                segments.append(Segment(self.tokens[start:end], role="forced", turn=turn, tag=tag))
            else:
                segments.append(
                    Segment(
                        self.tokens[start:end],
                        True,
                        role,
                        tag,
                        turn,
                        self.logprobs[start:end],
                        self.params,
                        self.finish_reason,
                        versions=None if self.versions is None else self.versions[start:end],
                    )
                )
        return segments
