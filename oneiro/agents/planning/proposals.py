"""Who names actions: a fixed set, a rule, or a policy that is sampled several times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from oneiro.agents.planning.base import Proposed, Root

if TYPE_CHECKING:
    from oneiro.episode import Tokens
    from oneiro.sampling.engine import Engine, SamplingSettings

StateT = TypeVar("StateT")


@dataclass(frozen=True)
class EveryAction(Generic[StateT]):
    """All actions that `actions` names in a state, up to the planner's limit, with equal weights."""

    actions: Callable[[StateT], Sequence[str]]

    def __call__(self, roots: Sequence[Root[StateT]], most: int, seed: int) -> list[Proposed]:
        named = [tuple(self.actions(root.state))[:most] for root in roots]
        return [Proposed(actions, (1.0,) * len(actions)) for actions in named]


@dataclass(frozen=True)
class PolicyProposals(Generic[StateT]):
    """Actions that a policy samples: `samples` replies to each state in one call of the engine, most frequent first.

    `prompt` puts a state into the policy's words, `read` finds the action in a reply (None: there is none).
    """

    engine: Engine
    sampling: SamplingSettings
    samples: int
    prompt: Callable[[Root[StateT]], Tokens]
    read: Callable[[str], str | None]

    def __call__(self, roots: Sequence[Root[StateT]], most: int, seed: int) -> list[Proposed]:
        language = self.engine.language
        prompts = [self.prompt(root) for root in roots]
        proposed = []
        for replies in self.engine.generate(prompts, self.samples, self.sampling, seed=seed):
            votes = Counter[str]()
            for reply in replies:
                action = self.read(language.text(reply.tokens))
                if action is not None:
                    votes[action] += 1
            proposed.append(Proposed.from_votes(votes, [reply.tokens for reply in replies], most))
        return proposed
