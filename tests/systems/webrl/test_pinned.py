"""The tests that pin WebRL's specification, numbered as there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from oneiro.episode import SamplingParams, Segment
from oneiro.learning.algorithms.webrl import Official, StepTrajectory, mc_returns, mixed_advantages
from oneiro.learning.learner import LearnerSettings
from oneiro.learning.losses import official_row_loss
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.runtime.seeds import generator
from oneiro.sampling.settings import SamplingSettings
from oneiro.systems.webrl import replay
from oneiro.systems.webrl.actor import LanguageActor
from oneiro.systems.webrl.critic import Critic
from oneiro.systems.webrl.curriculum import NULL_AGENTS, draw_task, in_band
from oneiro.systems.webrl.outcome import JudgePrompt
from oneiro.systems.webrl.recipe import DialogueSettings
from oneiro.systems.webrl.replay import Stored
from oneiro.systems.webrl.trajectories import RowFormat, Step, Trajectory
from oneiro_web import validate
from oneiro_web.actions import Action, Malformed
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld
from oneiro_web.templates.registry import TEMPLATES
from oneiro_web.webrl_actions import parse_webrl

SANDBOX = ("map/phone", "map/hours", "map/show-place", "map/distance", "map/travel-time", "map/show-way")


def trajectory(outcome: float, *values: float, after: float = 0.0) -> StepTrajectory:
    return StepTrajectory(outcome, np.array(values, np.float32), after)


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
        assert objective.numbers([trajectory(1.0, first, second)])[0].tolist() == [1.0, 1.0]
    rising = objective.numbers([trajectory(0.0, 0.25, 0.3125, 0.34375, after=0.0)])[0]
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
    kept = [p for p in (0.5, 0.51, 0.95, 0.951) if replay.in_band(p, (0.5, 0.95))]
    assert kept == [0.51, 0.95]
    assert replay.confidence(np.log(np.array([0.5, 0.98], np.float32))) == pytest.approx(0.7)


def test_06_replay_is_at_most_twice_the_new_steps() -> None:
    stored = [Stored(0, number, 0) for number in range(50)]
    chosen = replay.select(stored, [0.7] * 50, new_steps=9, band=(0.5, 0.95), cap=2.0, seed=3)
    assert len(chosen) == len({place for place, _ in chosen}) == 18
    assert chosen == replay.select(stored, [0.7] * 50, 9, (0.5, 0.95), 2.0, 3)


def test_07_critic_band_has_inclusive_ends() -> None:
    assert [value for value in (0.049, 0.05, 0.4, 0.75, 0.751) if in_band(value, (0.05, 0.75))] == [0.05, 0.4, 0.75]


def test_08_value_and_logprob_do_not_depend_on_padding(tiny: LanguageModel) -> None:
    rng = np.random.default_rng(0)
    prompts = [rng.integers(20, 200, size).astype(np.int32) for size in (5, 40, 17)]
    critic = Critic(tiny.backbone, seed=1)
    together = critic.values(prompts)
    alone = [float(critic.values([prompt])[0]) for prompt in prompts]
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert len({round(value, 4) for value in alone}) == 3
    # Read at the last real token: another last token, another value; the first tokens alone are not enough.
    changed = prompts[1].copy()
    changed[-1] += 1
    assert abs(float(critic.values([changed])[0]) - alone[1]) > 1e-5
    form = RowFormat(ChatFormat(tiny.tokenizer), DialogueSettings(brief=True), "")
    steps = [
        Step(message, message, "", list(map(int, p)))
        for message, p in zip(("hello", "Up", "a b"), prompts, strict=True)
    ]
    actor = LanguageActor(tiny, form, LearnerSettings(), SamplingSettings())
    for batch, single in zip(actor.reply_logprobs(steps), (actor.reply_logprobs([s])[0] for s in steps), strict=True):
        np.testing.assert_allclose(batch, single, atol=1e-4)


def test_09_truncation_never_removes_the_assistant_header(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    prompt = JudgePrompt(chat, max_tokens=200)
    header = chat.encode(chat.to_reply)
    lengths = []
    for size in (1, 50, 5000):
        step = Step("", "x y " * size, "<answer>click [3]</answer>")
        tokens = prompt.tokens(Trajectory("t", "find it", "map", "map/phone", [step], True, "goal", ""))
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


def test_sampled_tokens_survive_the_way_to_disk(tiny: LanguageModel, tmp_path: Path) -> None:
    from oneiro.systems.webrl import trajectories as records

    step = Step("hello", "hello", "world", [30, 31, 32], [-0.1, -0.2, -0.3])
    stored = Trajectory("t", "i", "map", "map/phone", [step], True, "goal", "end", 2, 1)
    records.write(tmp_path / "a.jsonl", [stored])
    (read,) = records.read(tmp_path / "a.jsonl")
    assert read == stored
    form = RowFormat(ChatFormat(tiny.tokenizer), DialogueSettings(brief=True), "")
    episode = form.episode(read, 1.0, SamplingParams())
    (sampled,) = [s for s in episode.rows[0].segments if isinstance(s, Segment) and s.sampled]
    assert sampled.tokens.tolist() == [30, 31, 32] and episode.rewards == [1.0]
