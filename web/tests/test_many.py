"""Many episodes in Chromium at once, while the policy answers: the pages are those of the text browser."""

from __future__ import annotations

import base64
from collections.abc import Sequence

import pytest

from oneiro.agents.evaluate import record
from oneiro.agents.policies import Turn, Utterance
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.bench.rollouts import Recorder
from oneiro.episode import lost
from oneiro.worlds.choice import WorldChoice

pytestmark = pytest.mark.usefixtures("chromium")
PLAIN = DialogueSettings(context="actions", think=False, world_model=False, max_turns=4, actions_per_turn=1)


class Recorded:
    """Says what was said before."""

    reads_worlds = False

    def __init__(self, said: dict[int, str]) -> None:
        self.said, self.sizes = said, list[int]()

    def answer(self, turns: Sequence[Turn], seed: int) -> list[Utterance]:
        return [Utterance(self.said[turn.seed]) for turn in turns]

    def answer_each(self, turns: Sequence[Turn], seeds: Sequence[int]) -> list[Utterance]:
        self.sizes.append(len(turns))
        return self.answer(turns, 0)


def test_episodes_in_chromium_are_those_of_the_text_browser() -> None:
    text, real = (WorldChoice(name="web", sites=("map",), max_actions=3, browser=b) for b in ("text", "chromium"))
    planned, recorder = attempts(3, 1, "train", 0), Recorder(0.9)
    expected = play(text.maker(), planned, recorder, PLAIN)
    policy = Recorded(recorder.said)
    found = play(real.maker(), planned, policy, PLAIN, concurrency=3)
    assert lost(found) is None
    assert [record(episode) for episode in found] == [record(episode) for episode in expected]
    assert policy.sizes[:2] == [2, 1]


def test_the_page_after_each_turn_is_kept_as_a_small_picture_where_it_is_asked_for() -> None:
    world = WorldChoice(name="web", sites=("map",), max_actions=2, browser="chromium", screenshots=True)
    (episode,) = play(world.maker(), attempts(1, 1, "train", 0), Recorder(0.9), PLAIN)
    pictures = [base64.b64decode(turn["picture"]) for turn in record(episode)["turns"]]
    assert pictures and all(picture.startswith(b"\xff\xd8\xff") and len(picture) < 60_000 for picture in pictures)
    with_text = WorldChoice(name="web", sites=("map",), max_actions=2, screenshots=True)
    (plain,) = play(with_text.maker(), attempts(1, 1, "train", 0), Recorder(0.9), PLAIN)
    assert all("picture" not in turn for turn in record(plain)["turns"])
