"""An agent that predicts the states it acts towards (SPA), as its own world model.

Its reply is `<prediction>s'</prediction></think><answer>a</answer>`: an action and the state it expects. `AgentModel`
is for planners, `ImaginingAgent` for actions that somebody else chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np

from oneiro.agents import prompts as words
from oneiro.agents import reply as replies
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.planning.base import Proposed, Root
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import start_reply
from oneiro.episode import Row, Tokens, given
from oneiro.learning.batch import Example
from oneiro.learning.learner import Learner
from oneiro.learning.settings import LearnerSettings
from oneiro.models.chat import ChatFormat
from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.tasks.base import Dynamics, Flaw, Imagined, Malformed
from oneiro.worlds.base import World


def prompt_in(state: str, world: World, chat: ChatFormat, settings: DialogueSettings, response_prefix: str) -> Tokens:
    """What the agent is asked in a state that may be imagined, and so has no past to show."""
    message = words.history_message(world, [], 1, state, world.config.max_actions, settings)
    head = chat.opening(message, "" if settings.brief else words.SYSTEM)
    start = start_reply(response_prefix, state)
    return head if not start else np.concatenate([head, chat.encode(start)])


@dataclass
class AgentModel(Dynamics[str]):
    """Proposes (`propose`) and predicts for a planner; `samples` replies to each state, in one call.

    Replies are proposals and predictions at once: an action's outcomes are the states that the replies with this action
    predict. An action that no reply named in a state is unknown to the model there.
    """

    engine: Engine
    chat: ChatFormat
    sampling: SamplingSettings
    dialogue: DialogueSettings
    world: World
    """Reads predicted states, and puts states into the words that the agent was taught with."""
    response_prefix: str = ""
    samples: int = 8
    predicted: dict[tuple[str, str], list[str | Malformed]] = field(default_factory=dict)

    def propose(self, roots: Sequence[Root[str]], most: int, seed: int) -> list[Proposed]:
        prompts = [prompt_in(root.state, self.world, self.chat, self.dialogue, self.response_prefix) for root in roots]
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


SAMPLES = 32  # of each temperature
TEMPERATURES = (1.0, 1.7)  # the second finds states that the trained agent seldom wants


@dataclass(frozen=True)
class AgentCandidate:
    """An action the agent would take, how often, and what it expects then."""

    action: str
    share: float
    prediction: str | None


class ImaginingAgent(Dynamics[str]):
    """Answers for any action; states are texts in the view that the agent was taught in.

    The state comes first in a reply and the action after it, so the model gives the joint p(s', a | s). For an action
    that somebody else chose, the answer is the argmax of that joint over the states that the agent itself writes down
    in a number of samples, and the present one ("nothing happens").
    """

    def __init__(self, metadata: AgentMetadata, engine: Engine, make_world: Callable[[], World]) -> None:
        self.metadata, self.engine, self.world = metadata, engine, make_world()
        self.world.reset(seed=0)  # its instruction may be part of the prompt
        if self.world.level_rules:
            raise OneiroError(
                f"an agent cannot stand for the dynamics of world '{self.world.name}': every level has rules of its own"
            )
        self.chat = ChatFormat(engine.language.tokenizer)
        self._replies = lru_cache(maxsize=256)(self._sample_replies)  # the same for all actions of a state

    def predict(self, pairs: Sequence[tuple[str, str]], outcomes: int = 1, seed: int = 0) -> list[list[Imagined[str]]]:
        """The likeliest state; also where more outcomes are asked for, since it has one best."""
        return [[self._imagine(state, action)] * outcomes for state, action in pairs]

    def candidates(self, state: str) -> list[AgentCandidate]:
        """What the agent would do here by itself, most frequent first."""
        actions: dict[str, list[str | None]] = {}
        for reply in self._replies(state, TEMPERATURES[0]):
            if reply.actions:
                actions.setdefault(reply.actions[0], []).append(reply.body(reply.prediction))
        made = [
            AgentCandidate(action, len(seen) / SAMPLES, max(seen, key=seen.count)) for action, seen in actions.items()
        ]
        return sorted(made, key=lambda candidate: -candidate.share)

    def _imagine(self, state: str, action: str) -> Imagined[str]:
        proposed = [reply.body(reply.prediction) for heat in TEMPERATURES for reply in self._replies(state, heat)]
        possible = [text for text in dict.fromkeys([*proposed, state]) if text and self.world.parse(text) is not None]
        if not possible:
            return Imagined(Malformed(Flaw.SHAPE))
        prompt, start = self._prompt(state), start_reply(self.metadata.response_prefix, state)
        examples = []
        for text in possible:
            written = replies.write([action], state, text)
            reply = self.chat.encode(written.removeprefix(start))
            examples.append(Example.of(Row([given(prompt), given(reply, ce=1.0)])))
        scores = [float(values.sum(dtype=np.float64)) for values in self._scorer.logprobs(examples)[0]]
        return Imagined(possible[int(np.argmax(scores))])

    @cached_property
    def _scorer(self) -> Learner:
        return Learner(self.engine.language.backbone, LearnerSettings(), 1)

    def _prompt(self, state: str) -> Tokens:
        metadata = self.metadata
        return prompt_in(state, self.world, self.chat, metadata.dialogue, metadata.response_prefix)

    def _sample_replies(self, state: str, temperature: float) -> list[replies.Reply]:
        sampling = self.metadata.sampling.model_copy(update={"temperature": temperature})
        seed = seeds.derive(0, "imagine", state, str(temperature))
        samples = self.engine.generate([self._prompt(state)], SAMPLES, sampling, seed=seed)[0]
        start, dialogue = start_reply(self.metadata.response_prefix, state), self.metadata.dialogue
        texts = [start + self.engine.language.text(sample.tokens) for sample in samples]
        return [replies.read(text, dialogue.think, True, dialogue.actions_per_turn, dialogue.parser) for text in texts]
