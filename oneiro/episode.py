"""The one currency: token segments that know who wrote them, gathered into rows and episodes.

A text-game state, a chat turn, a video frame and a robot action are all segments, *given* to the model or *sampled*
from it. Masks come from that provenance and from nothing else: no text is ever tokenised again, and nothing is
searched for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Floats = NDArray[np.float32]


class FinishReason(StrEnum):
    """Why an episode, or the sampling of a segment, ended."""

    GOAL = "goal"
    """The world ended the episode and it succeeded."""
    FAILED = "failed"
    """The world ended the episode without success."""
    BUDGET = "budget"
    """The world's action budget ran out."""
    TURNS = "turns"
    """The agent's turns ran out."""
    LENGTH = "length"
    """The context or the token limit was reached."""
    TOKEN = "token"
    """A stop token or stop string was sampled."""
    ERROR = "error"
    """World or server failed; counted, never trained on."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How sampled tokens were drawn; stored with them, so that log-probabilities can be recomputed exactly."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0

    @property
    def whole(self) -> bool:
        """Whether any token could have been drawn."""
        return self.top_p >= 1 and not self.top_k


@dataclass(slots=True)
class Segment:
    """A run of tokens with one author.

    `weights` maps a loss component ("policy", "ce", "kl") to the weight of each of its tokens. Absent components take
    their default from provenance: sampled tokens have policy weight 1, given ones 0; cross-entropy weights default to
    0.
    """

    tokens: Tokens
    sampled: bool = False
    role: str = "user"
    tag: str = ""
    turn: int = 0
    logprobs: Floats | None = None
    params: SamplingParams | None = None
    finish_reason: FinishReason | None = None
    weights: dict[str, float | Floats] = field(default_factory=dict)
    versions: Tokens | None = None
    """Of the weights that sampled each token, where a rollout server did."""

    def __post_init__(self) -> None:
        self.tokens = np.asarray(self.tokens, dtype=np.int32)
        if self.sampled:
            if self.logprobs is None or len(self.logprobs) != len(self.tokens):
                # Without them neither a ratio nor a mismatch could be computed; better to fail here than in a loss.
                raise ValueError("a sampled segment carries one log-probability per token")
            self.logprobs = np.asarray(self.logprobs, dtype=np.float32)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def acts(self) -> bool:
        """Whether the agent said it: sampled, or a demonstration's reply that carries a policy weight."""
        return self.sampled or "policy" in self.weights


@dataclass(slots=True)
class Row:
    """One token sequence the model saw from its first token on: a whole dialogue, or one turn of it."""

    segments: list[Segment]
    shared_segments: int | None = None
    """Leading given segments that rows of one group share; None: all before the first token that carries loss."""
    entropies: Floats | None = None
    """Of the learner's distribution at each sampled token, in nats, for steps whose episodes are kept; 0 elsewhere."""
    advantages: Floats | None = None
    """One a token as the algorithm estimated them, 0 on given tokens; None before, and for rows that were left out."""

    def __len__(self) -> int:
        return sum(len(segment.tokens) for segment in self.segments)

    @property
    def tokens(self) -> Tokens:
        return np.concatenate([segment.tokens for segment in self.segments])

    @property
    def sampled(self) -> NDArray[np.bool_]:
        """True exactly on the tokens the model sampled."""
        return self._lay_out(bool, [s.sampled for s in self.segments])

    @property
    def acts(self) -> NDArray[np.bool_]:
        """True on the agent's own tokens (`Segment.acts`)."""
        return self._lay_out(bool, [s.acts for s in self.segments])

    @property
    def logprobs(self) -> Floats:
        """Log-probabilities under the sampler, 0 on given tokens."""
        return self._lay_out(np.float32, [0.0 if s.logprobs is None else s.logprobs for s in self.segments])

    @property
    def turns(self) -> NDArray[np.int32]:
        return self._lay_out(np.int32, [s.turn for s in self.segments])

    def weights(self, component: str) -> Floats:
        """Per-token weight of a loss component."""
        # Cross-entropy on what the model sampled itself is asked for, never assumed.
        default = 1.0 if component in ("policy", "kl") else 0.0
        return self._lay_out(
            np.float32, [s.weights.get(component, default if s.sampled else 0.0) for s in self.segments]
        )

    def _lay_out(self, dtype: Any, values: Sequence[Any]) -> NDArray[Any]:
        """One number or array a segment -> one number a token. Rows are many: one array is made, and filled."""
        flat, at = np.empty(len(self), dtype), 0
        for segment, value in zip(self.segments, values, strict=True):
            end = at + len(segment.tokens)
            flat[at:end] = value
            at = end
        return flat

    @property
    def temperature(self) -> float:
        """The temperature its tokens were drawn at; one row has one."""
        temperatures = {s.params.temperature for s in self.segments if s.params is not None}
        if len(temperatures) > 1:
            raise ValueError(f"one row mixes temperatures {sorted(temperatures)}")
        return temperatures.pop() if temperatures else 1.0

    @property
    def prefix(self) -> Tokens:
        """Given tokens before the first token that carries any loss: what a group may share."""
        parts: list[Tokens] = []
        for segment in self.segments[: self.shared_segments]:
            # A token that carries loss needs its own hidden state in every row, so it cannot be shared.
            if segment.sampled or segment.weights:
                break
            parts.append(segment.tokens)
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)


@dataclass(slots=True)
class Episode:
    """One attempt at one task: what was seen, what was sampled, what it earned."""

    rows: list[Row]
    rewards: list[float] = field(default_factory=list)
    """One reward per turn."""
    terms: dict[str, list[float]] = field(default_factory=dict)
    """Each term of the reward by itself, per turn; they sum to `rewards`."""
    success: bool = False
    finish_reason: FinishReason = FinishReason.TURNS
    seed: int = 0
    member: int = 0
    group: int = 0
    task: str = ""
    """Stable key of the task or level."""
    world: str = ""
    info: dict[str, Any] = field(default_factory=dict)

    @property
    def score(self) -> float:
        """The raw return, before any normalisation."""
        return float(sum(self.rewards))

    @property
    def sampled_tokens(self) -> int:
        return sum(len(s) for row in self.rows for s in row.segments if s.sampled)


def groups_of(episodes: Iterable[Episode]) -> list[list[Episode]]:
    """Episodes of the same task, which are compared with each other: by their `group` number, in order of first
    appearance.
    """
    members_of: dict[int, list[Episode]] = {}
    for episode in episodes:
        members_of.setdefault(episode.group, []).append(episode)
    return list(members_of.values())


def with_outcome(episode: Episode, outcome: float) -> Episode:
    """The episode with the outcome as its only reward, on the last turn."""
    return replace(episode, rewards=[0.0] * (len(episode.rewards) - 1) + [outcome])


def describe_errors(episodes: Sequence[Episode]) -> str | None:
    """A line about episodes that ended in errors; None where none did."""
    broken = [episode for episode in episodes if episode.finish_reason is FinishReason.ERROR]
    if not broken:
        return None
    reasons = [str(episode.info["error"]) for episode in broken if "error" in episode.info]
    return f"{len(broken):,} of {len(episodes):,} episodes lost to errors" + (f": {reasons[0]}" if reasons else "")


def to_plain(episode: Episode) -> dict[str, Any]:
    """An episode as JSON takes it, tokens and all; `from_plain` is the inverse."""
    plain = {f.name: getattr(episode, f.name) for f in fields(Episode)}
    plain["rows"] = [
        {"shared": row.shared_segments, "segments": [_plain_segment(segment) for segment in row.segments]}
        for row in episode.rows
    ]
    return plain


def _plain_segment(segment: Segment) -> dict[str, Any]:
    """Only what differs from the default: most of a stored episode is segments."""
    plain: dict[str, Any] = {}
    for f in fields(Segment):
        value = getattr(segment, f.name)
        if isinstance(value, np.ndarray):
            plain[f.name] = value.tolist()
        elif value and value != f.default:
            plain[f.name] = value
    if segment.params is not None:
        plain["params"] = asdict(segment.params)
    if segment.weights:
        plain["weights"] = {
            name: weight.tolist() if isinstance(weight, np.ndarray) else weight
            for name, weight in segment.weights.items()
        }
    return plain


def from_plain(plain: Mapping[str, Any]) -> Episode:
    """The episode that `to_plain` wrote; what it did not write raises KeyError, TypeError or ValueError."""
    rows = [Row([_segment(part) for part in row["segments"]], row["shared"]) for row in plain["rows"]]
    return Episode(**{**plain, "rows": rows, "finish_reason": FinishReason(plain["finish_reason"])})


def _segment(plain: Mapping[str, Any]) -> Segment:
    made: dict[str, Any] = dict(plain)
    if "params" in made:
        made["params"] = SamplingParams(**made["params"])
    if "finish_reason" in made:
        made["finish_reason"] = FinishReason(made["finish_reason"])
    if "versions" in made:
        made["versions"] = np.asarray(made["versions"], np.int32)
    if "weights" in made:
        made["weights"] = {
            name: np.asarray(weight, np.float32) if isinstance(weight, list) else weight
            for name, weight in made["weights"].items()
        }
    return Segment(**made)


def given(
    tokens: Sequence[int] | Tokens, role: str = "user", tag: str = "", turn: int = 0, **weights: float
) -> Segment:
    """A segment somebody else wrote; keyword weights switch loss components on."""
    return Segment(np.asarray(tokens, np.int32), role=role, tag=tag, turn=turn, weights=dict(weights))


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


# Rows that begin with the same tokens: sampler and learner compute what such a group shares once ----------------------


@dataclass(frozen=True, slots=True)
class PrefixGroup:
    """`length` tokens that some rows share, and the numbers of these rows."""

    length: int
    rows: list[int]


def group_by_prefix(prefixes: Iterable[NDArray[np.integer]]) -> list[PrefixGroup]:
    """Group rows by equal prefixes, in order of first appearance; `prefixes` has one for each row."""
    groups: dict[bytes, PrefixGroup] = {}
    for row, prefix in enumerate(prefixes):
        groups.setdefault(prefix.tobytes(), PrefixGroup(len(prefix), [])).rows.append(row)
    return list(groups.values())
