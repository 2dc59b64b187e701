"""An agent that predicts the states it acts towards (SPA), as its own world model.

Its replies name an action and the state it expects. Sampled several times in a state, they are proposals and
predictions at once: an action's outcomes are the states that the replies with this action predict. An action that no
reply named in a state is unknown to the model there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from oneiro.agents import prompts as words
from oneiro.agents import reply as replies
from oneiro.agents.planning.base import Proposed, Root
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import start_reply
from oneiro.episode import Tokens
from oneiro.models.chat import ChatFormat
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.worlds.base import World


@dataclass
class AgentModel(Dynamics[str]):
    """Proposes (`propose`) and predicts for a planner; `samples` replies to each state, in one call."""

    engine: Engine
    chat: ChatFormat
    sampling: SamplingSettings
    dialogue: DialogueSettings
    world: World
    """Reads predicted states, and puts states into the words that the agent was taught with."""
    response_prefix: str = ""
    samples: int = 8
    predicted: dict[tuple[str, str], list[str | Malformed]] = field(default_factory=dict)

    def prompt(self, state: str) -> Tokens:
        system = "" if self.dialogue.brief else words.SYSTEM
        # An imagined state has no past dialogue to show.
        settings = self.dialogue.model_copy(update={"context": "single"})
        message = words.history_message(self.world, [], 1, state, self.world.config.max_actions, settings)
        head = self.chat.opening(message, system)
        start = start_reply(self.response_prefix, state)
        return head if not start else np.concatenate([head, self.chat.encode(start)])

    def propose(self, roots: Sequence[Root[str]], most: int, seed: int) -> list[Proposed]:
        prompts = [self.prompt(root.state) for root in roots]
        language, proposed = self.engine.language, []
        for root, samples in zip(
            roots, self.engine.generate(prompts, self.samples, self.sampling, seed=seed), strict=True
        ):
            votes = Counter[str]()
            for sample in samples:
                text = language.text(sample.tokens)
                self._hear(root.state, start_reply(self.response_prefix, root.state) + text, votes)
            proposed.append(Proposed.from_votes(votes, [sample.tokens for sample in samples], most))
        return proposed

    def _hear(self, state: str, text: str, votes: Counter[str]) -> None:
        """Note the first action of a reply, and the state it expects where it is about that action alone."""
        reply = replies.read(text, self.dialogue.think, self.dialogue.world_model, parser=self.dialogue.parser)
        if not reply.actions:
            return
        action, prediction = reply.actions[0], reply.body(reply.prediction)
        votes[action] += 1
        # A prediction after several actions is of the last one's outcome; nothing is said of the first.
        readable = prediction is not None and len(reply.actions) == 1 and self.world.parse(prediction) is not None
        predictions = self.predicted.setdefault((state, action), [])
        predictions.append(prediction if readable and prediction is not None else Malformed(Flaw.SHAPE))

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        """One outcome is the most frequent one. Predictions cost nothing more: the proposals paid for them."""
        predictions = []
        for pair in pairs:
            states = self.predicted.get(pair) or [Malformed(Flaw.EMPTY)]
            if outcomes == 1:
                predictions.append([Imagined(Counter(states).most_common(1)[0][0])])
            else:
                # With fewer replies than outcomes asked for, the replies repeat in turn: their shares stay about the
                # same.
                predictions.append([Imagined(states[place % len(states)]) for place in range(outcomes)])
        return predictions
