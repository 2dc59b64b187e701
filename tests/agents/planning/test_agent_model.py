"""An agent that writes states before actions, asked what an action leads to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oneiro.agents import reply as replies
from oneiro.agents.loading import AgentMetadata
from oneiro.agents.planning.agent_model import ImaginingAgent
from oneiro.agents.prompts import DialogueSettings
from oneiro.models.language import LanguageModel
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.sampling.settings import SamplingSettings
from oneiro.worlds.registry import WorldChoice

STATE, UP, RIGHT = "_ _\nP G", "P _\n_ G", "_ _\n_ √"


@pytest.fixture
def agent(tiny: LanguageModel) -> ImaginingAgent:
    world = WorldChoice(name="frozen-lake", view="spaced", size=2)
    metadata = AgentMetadata(
        world=world,
        dialogue=DialogueSettings(context="single", brief=True, actions_per_turn=1),
        sampling=SamplingSettings(max_tokens=12),
        response_prefix="<think><observation>{state}</observation>",
    )
    return ImaginingAgent(metadata, Engine(tiny, 8), world.maker())


def test_rules_that_differ_between_levels_cannot_be_imagined(agent: ImaginingAgent) -> None:
    metadata = agent.metadata.model_copy(update={"world": WorldChoice(name="physics")})
    with pytest.raises(OneiroError, match="'physics': every level has rules of its own"):
        ImaginingAgent(metadata, agent.engine, metadata.world.maker())


def reply(action: str, prediction: str) -> replies.Reply:
    return replies.read(replies.write([action], STATE, prediction), world_model=True)


def test_a_model_that_writes_no_state_expects_no_change(agent: ImaginingAgent) -> None:
    assert agent.predict([(STATE, "Up")], outcomes=2)[0][0].state == STATE


def test_the_state_that_goes_best_with_the_action_is_the_answer(
    agent: ImaginingAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = [reply("Up", UP), reply("Right", RIGHT), reply("Right", "no grid"), reply("Up", UP)]
    monkeypatch.setattr(agent, "_replies", lambda state, temperature: written)
    texts: list[str] = []

    class Scorer:
        """Likes the state of the move: stands for a trained model, and keeps what it was asked."""

        def logprobs(self, examples: list[Any]) -> tuple[list[Any], None]:
            shown = [agent.engine.language.decode(example.tokens) for example in examples]
            texts.extend(shown)
            liked = {"Up": UP, "Right": RIGHT}
            scores = [
                any(f"<prediction>{to}</prediction>" in text and f">{word}<" in text for word, to in liked.items())
                for text in shown
            ]
            return [np.array([float(score), -2.0]) for score in scores], None

    monkeypatch.setattr(ImaginingAgent, "_scorer", Scorer())
    assert agent.predict([(STATE, "Up"), (STATE, "Right")])[0][0].state == UP
    assert agent.predict([(STATE, "Right")])[0][0].state == RIGHT
    assert agent.predict([(STATE, "Left")])[0][0].state == UP  # all alike: the first it wrote
    assert len(texts) == 4 * 3  # two states that it wrote, and the present one; what is no state is not asked about
    assert (
        f"<think><observation>{STATE}</observation><prediction>{UP}</prediction></think><answer>Up</answer>" in texts[0]
    )


def test_candidates_are_what_it_would_do_by_itself(agent: ImaginingAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    written = [reply("Right", RIGHT)] * 24 + [reply("Up", UP)] * 4 + [reply("Up", STATE)] * 2
    monkeypatch.setattr(agent, "_replies", lambda state, temperature: written)
    first, second = agent.candidates(STATE)
    assert (first.action, first.share, first.prediction) == ("Right", 24 / 32, RIGHT)
    assert (second.action, second.prediction) == ("Up", UP)
