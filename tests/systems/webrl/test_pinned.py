"""The tests that pin WebRL's specification, numbered as there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oneiro.episode import Episode, FinishReason, Row, SamplingParams, Segment, given
from oneiro.learning.algorithms.base import Trajectory
from oneiro.learning.algorithms.webrl import Official, mc_returns, mixed_advantages
from oneiro.learning.losses import official_row_loss
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime.seeds import generator
from oneiro.systems.webrl import episodes as records
from oneiro.systems.webrl.agent import Critic, LanguageAgent
from oneiro.systems.webrl.curriculum.operators import NULL_AGENTS, draw_task, within
from oneiro.systems.webrl.episodes import RowFormat, confidence, select_replay
from oneiro.systems.webrl.outcome import JudgePrompt
from oneiro.systems.webrl.recipe import DialogueSettings, TrainSettings, WebrlRecipe
from oneiro_web import validate
from oneiro_web.actions import Action, Malformed
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.webrl_actions import parse_webrl

SANDBOX = ("map/phone", "map/hours", "map/show-place", "map/distance", "map/travel-time", "map/show-way")


def trajectory(outcome: float, *values: float, after: float = 0.0) -> Trajectory:
    rewards = np.append(np.zeros(len(values) - 1, np.float32), np.float32(outcome))
    return Trajectory(rewards, np.ones(len(values), bool), 0, outcome, np.array(values, np.float32), last_value=after)


@pytest.mark.parametrize(
    ("beta", "rho", "weight"),
    [
        (1, -1.0, 1.0),
        (1, 0.0, 1.0),
        (1, 0.5, 0.5),
        (1, 1.0, 0.0),
        (1, 1.5, 0.0),
        (5, 0.05, 0.75),
        (5, 0.1, 0.5),
        (5, 0.2, 0.0),
        (5, 0.3, 0.0),
    ],
)
def test_01_gradient_weight_of_official(beta: float, rho: float, weight: float) -> None:
    confidence = 0.85 if beta == 5 else 0.5
    _, slope = official_row_loss(torch.tensor([rho]), torch.tensor([1.0]), torch.tensor([confidence]))
    assert -float(slope) == pytest.approx(weight, abs=1e-6)


def test_02_success_step_is_always_positive_and_failed_step_iff_value_rises() -> None:
    objective = Official()
    for first, second in ((0.99, 0.0), (0.0, 0.99), (0.5, 0.5)):
        assert objective.numbers(trajectory(1.0, first, second)).tolist() == [1.0, 1.0]
    rising = objective.numbers(trajectory(0.0, 0.25, 0.3125, 0.34375, after=0.0))
    np.testing.assert_allclose(rising, [1.0, -0.6, -0.6])


def test_03_advantage_mix() -> None:
    good = mixed_advantages(trajectory(1.0, 0.4, 0.6), 0.5)
    bad = mixed_advantages(trajectory(0.0, 0.4, 0.6), 0.5)
    assert good[0] == pytest.approx(0.40)
    assert bad[0] == pytest.approx(-0.10)


def test_04_mc_return() -> None:
    returns = mc_returns(trajectory(1.0, *[0.0] * 5).rewards, 0.9)
    np.testing.assert_allclose(returns, [0.6561, 0.729, 0.81, 0.9, 1.0], atol=1e-6)


def test_05_perplexity_filter_ends() -> None:
    kept = [p for p in (0.5, 0.51, 0.95, 0.951) if records.in_band(p, (0.5, 0.95))]
    assert kept == [0.51, 0.95]
    assert confidence(np.log(np.array([0.5, 0.98], np.float32))) == pytest.approx(0.7)


def test_06_replay_is_at_most_twice_the_new_turns() -> None:
    stored = [(0, number, 0) for number in range(50)]
    chosen = select_replay(stored, [0.7] * 50, new_turns=9, band=(0.5, 0.95), cap=2.0, seed=3)
    assert len(chosen) == len({place for place, _ in chosen}) == 18
    assert chosen == select_replay(stored, [0.7] * 50, 9, (0.5, 0.95), 2.0, 3)


def test_07_critic_band_has_inclusive_ends() -> None:
    assert [value for value in (0.049, 0.05, 0.4, 0.75, 0.751) if within(value, (0.05, 0.75))] == [0.05, 0.4, 0.75]


def test_08_value_and_logprob_do_not_depend_on_padding(tiny: LanguageModel) -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(20, 200, size).astype(np.int32) for size in (5, 40, 17)]
    form = Ids(ChatFormat(tiny.tokenizer), DialogueSettings(brief=True), "")
    critic = Critic(tiny.backbone, form, TrainSettings(), seed=1)
    states = [{"ids": prompt} for prompt in prompts]
    together = critic.values(states)
    alone = [float(critic.values([state])[0]) for state in states]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert len({round(value, 4) for value in alone}) == 3
    # Read at the last real token: another last token, another value; the first tokens alone are not enough.
    changed = prompts[1].copy()
    changed[-1] += 1
    assert abs(float(critic.values([{"ids": changed}])[0]) - alone[1]) > 1e-5
    agent = LanguageAgent(WebrlRecipe(system="webrl", response_prefix=""), tiny)
    replies = [
        (Episode([Row([given([5, 6]), Segment(p, True, "assistant", turn=1, logprobs=np.zeros(len(p)))])]), 0)
        for p in prompts
    ]
    singles = [agent.confidences([reply])[0] for reply in replies]
    np.testing.assert_allclose(agent.confidences(replies), singles, rtol=1e-4)


class Ids(RowFormat):
    """States that are ids already."""

    def state(self, turn: Mapping[str, Any]) -> np.ndarray:
        return np.asarray(turn["ids"])


def test_09_truncation_never_removes_the_assistant_header(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    prompt = JudgePrompt(chat, max_tokens=200)
    header = chat.encode(chat.to_reply)
    lengths = []
    for size in (1, 50, 5000):
        turn = {"state": "x y " * size, "reply": "<answer>click [3]</answer>"}
        tokens = prompt.tokens(Episode([], info={"task": {"intent": "find it"}, "turns": [turn]}))
        assert tokens[-len(header) :].tolist() == header.tolist()
        assert "find it" in tiny.decode(tokens) and "click [3]" in tiny.decode(tokens)
        lengths.append(len(tokens))
    assert lengths[0] < lengths[1] and lengths[2] <= 200


CALLS = [
    'do(action="Click", element="4")',
    'do(action="Type", argument="bank", element="4")',
    'do(action="Search", argument="bank", element="4")',
    'do(action="Hover", element="4")',
    'do(action="Select Dropdown Option", argument="Bank", element="4")',
    'do(action="Scroll Down")',
    'do(action="Scroll Up")',
    'do(action="Press Enter")',
    'do(action="Go Backward")',
    'do(action="Go Forward")',
    'do(action="Wait")',
    'do(action="Right Click", element="4")',
    'do(action="Switch Tab", argument="0")',
    "go_backward()",
    "go_forward()",
    '# Element: the search box\n# Note: none\nexit(message="N/A")',
]


def test_10_every_action_parses_and_executes_and_bad_ones_never_crash() -> None:
    task = draw_task(TEMPLATES["map/phone"], generator("pinned", 10))
    world = WebWorld(WebConfig(view="html", max_actions=60))
    world.reset(seed=0, options={"task": task})
    for text in CALLS:
        parsed = parse_webrl(text)
        assert isinstance(parsed, Action) or "Switch Tab" in text, text
        if not world.over:
            world.step(text)
    world.reset(seed=0, options={"task": task})
    for text in ("", "exit()", "do(", 'do(action="Fly")', "do(action=__import__('os'))", "x" * 100_000, "do(1, 2)"):
        if text != "exit()":
            assert isinstance(parse_webrl(text), Malformed), text
            _, reward, *_, info = world.step(text)
            assert (reward, info["valid"]) == (0.0, False)
    world.close()


def test_11_parallel_sessions_do_not_see_each_others_writes() -> None:
    task = validate.drawn_task(TEMPLATES["gitlab/star"], 0, 0)
    one, two = WebWorld(WebConfig()), WebWorld(WebConfig())
    for world in (one, two):
        world.reset(seed=0, options={"task": task})
    while not one.over:
        one.step(one.oracle() or "stop []")
    two.step("stop []")
    assert (one.score, two.score) == (1.0, 0.0)
    one.close()
    two.close()


@pytest.mark.parametrize("name", SANDBOX)
def test_12_oracle_scores_1_and_null_agents_0(name: str) -> None:
    """On the sandbox's own templates; `web/tests` does so on all of them."""
    world = WebWorld(WebConfig(max_actions=12))
    task = draw_task(TEMPLATES[name], generator("pinned", 12, name))
    assert task is not None
    assert validate.play(world, "oracle", task).score == 1.0
    assert [validate.play(world, agent, task).score for agent in NULL_AGENTS] == [0.0] * len(NULL_AGENTS)
    world.close()


def test_sampled_tokens_survive_the_way_to_disk(tmp_path: Path) -> None:
    params, logprobs = SamplingParams(0.7, top_k=5), np.array([-0.1, -0.2, -0.3], np.float32)
    sampled = Segment(
        np.array([30, 31, 32]), True, "assistant", "", 1, logprobs, params, FinishReason.TOKEN, {"policy": 0.5}
    )
    stored = Episode([Row([given([4, 5], turn=1, ce=0.3), sampled], 1)], [1.0], {"world": [1.0]}, True)
    stored.finish_reason, stored.group, stored.info = FinishReason.GOAL, 2, {"task": {"id": "ä"}, "turns": [{"a": 1}]}
    records.write(tmp_path / "a.jsonl", [stored])
    (read,) = records.read(tmp_path / "a.jsonl")
    (first, second), (mine, reply) = stored.rows[0].segments, read.rows[0].segments
    assert mine.tokens.tolist() == first.tokens.tolist() and mine.weights == first.weights and not mine.sampled
    assert reply.tokens.tolist() == [30, 31, 32] and reply.sampled and reply.turn == 1
    np.testing.assert_array_equal(reply.logprobs, second.logprobs)
    assert (reply.params, reply.finish_reason, reply.weights, reply.role) == (
        params,
        "token",
        {"policy": 0.5},
        "assistant",
    )
    assert read.rows[0].shared_segments == 1
    assert replace(read, rows=[]) == replace(stored, rows=[])
