"""The linear agent: its candidates, its gradient, every objective, and its way to disk and back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import oneiro
from oneiro.agents.cues import named
from oneiro.agents.linear import LinearPolicy, choice, is_linear
from oneiro.learning.algorithms.webrl import GroupGigpo, GroupGrpo, StepObjective
from oneiro.learning.settings import LearnerSettings, OptimiserSettings
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.systems.webrl.curriculum import draw_task
from oneiro.systems.webrl.linear import Decision, LinearAgent, LinearCritic, group_advantages
from oneiro.systems.webrl.recipe import TrainSettings, variant_named
from oneiro.systems.webrl.samples import Sample, numbers_of
from oneiro.systems.webrl.trajectories import Step, Trajectory
from oneiro_web.env import WebConfig
from oneiro_web.plugin import WebWorld
from oneiro_web.templates.registry import TEMPLATES

PAGE = """Task: What is the phone number of Salty Swan Hotel?
URL: http://openstreetmap.org/
Tab 0 (current): Waymark

[1] RootWebArea 'Waymark'
\t[2] searchbox 'Search'
\t[3] button 'Go'
\t[4] term 'Phone'
\t[5] StaticText '(555) 250-4552'"""
STEP = Step(PAGE, PAGE, "<answer>stop [(555) 250-4552]</answer>")
SETTINGS = TrainSettings(learner=LearnerSettings(optimiser=OptimiserSettings(lr=0.1)), epochs=1)


def trajectory(replies: list[str], success: bool, group: int = 0, member: int = 0) -> Trajectory:
    steps = [Step(f"click [{i}]\n{PAGE}" if i else PAGE, PAGE, f"<answer>{r}</answer>") for i, r in enumerate(replies)]
    return Trajectory(f"t{group}", "i", "map", "map/phone", steps, success, "goal", PAGE, PAGE, group, member)


def test_candidates_are_clicks_names_in_fields_and_texts_as_answers() -> None:
    offered = choice(PAGE, ())
    assert offered.actions == [
        "stop []",
        "type [2] [Salty Swan Hotel] [0]",
        "type [2] [Salty Swan Hotel] [1]",
        "click [3]",
        "stop [(555) 250-4552]",
    ]
    assert len(offered.features) == 5 and offered.chances(np.zeros(1 << 15)).tolist() == [0.2] * 5
    assert named('Add "Big Mug" to the cart of 000000123') == ["Big Mug", "000000123"]
    assert named("Star the project tidewright/ledgerline.") == ["tidewright/ledgerline"]


@pytest.mark.parametrize("name", ["map/phone", "map/distance", "gitlab/star", "gitlab/open-request", "shopping/unwish"])
def test_every_action_of_the_oracle_is_a_candidate(name: str) -> None:
    world = WebWorld(WebConfig())
    state, _ = world.reset(seed=0, options={"task": draw_task(TEMPLATES[name], generator("linear", name))})
    past: list[str] = []
    while not world.over:
        action = world.oracle()
        assert action is not None and action in choice(state, tuple(past)).actions, (action, state)
        past.append(action)
        state, *_ = world.step(action)
    world.close()


def test_a_nudge_goes_down_the_gradient() -> None:
    offered, rng = choice(PAGE, ()), np.random.default_rng(0)
    weights = rng.normal(size=1 << 15)
    policy = LinearPolicy(1.0, weights.copy())
    policy.nudge(offered, 4, -1.0, 1.0)
    moved = policy.weights - weights
    for index in (*offered.features[4][:3], *offered.features[1][:3]):
        shifted = weights.copy()
        shifted[index] += 1e-6
        slope = np.log(offered.chances(shifted)[4]) - np.log(offered.chances(weights)[4])
        assert moved[index] == pytest.approx(slope / 1e-6, abs=1e-4)


def test_imitation_makes_the_shown_action_likely_and_the_critic_learns_the_outcome() -> None:
    agent = LinearAgent()
    (before,) = agent.confidences([STEP])
    agent.imitate([STEP], 3, 0.3, 0, lambda step, values: None)
    assert before == pytest.approx(0.2) and agent.confidences([STEP])[0] > 0.9
    critic = LinearCritic()
    assert critic.values([STEP]).tolist() == [0.5]
    critic.train([STEP], [1.0], SETTINGS.model_copy(update={"epochs": 20}), 0, lambda step, values: None)
    assert critic.values([STEP])[0] > 0.6


def test_under_the_paper_good_steps_rise_and_bad_ones_fall() -> None:
    good, bad = trajectory(["stop [(555) 250-4552]"], True), trajectory(["click [3]"], False, 1)
    agent = LinearAgent()
    samples = [Sample(good, [0], 1.0), Sample(bad, [0], 0.0)]
    agent.regress(variant_named("paper").algorithm, samples, LinearCritic(), SETTINGS, 0, lambda s, v: None)  # type: ignore[arg-type]
    up, down = agent.confidences([good.steps[0], bad.steps[0]])
    assert up > 0.2 > down


@pytest.mark.parametrize("name", ["official", "reinforce", "filtered-bc", "awr", "digirl", "grpo", "gigpo"])
def test_every_objective_learns_from_the_same_samples(name: str) -> None:
    good = [trajectory(["click [3]", "stop [(555) 250-4552]"], True, 0, 0)]
    bad = [trajectory(["click [3]", "stop []"], False, 0, 1)]
    samples = [Sample(t, range(2), float(t.success)) for t in (*good, *bad)]
    objective = variant_named(name).algorithm
    assert isinstance(objective, StepObjective)
    agent = LinearAgent()
    result, numbers = agent.regress(objective, samples, LinearCritic(), SETTINGS, 0, lambda s, v: None)
    done, failed = agent.confidences([good[0].steps[1], bad[0].steps[1]])
    assert done > failed and result["steps"] == 4 and [len(own) for own in numbers] == [2, 2]


def test_group_advantages_are_those_of_the_shared_algorithms() -> None:
    samples = [Sample(trajectory(["click [3]", "stop []"], bool(i), 0, i), range(2), float(i)) for i in (0, 1)]
    grpo = group_advantages(GroupGrpo(), samples)
    np.testing.assert_allclose([a[0] for a in grpo], [-1 / np.sqrt(2), 1 / np.sqrt(2)], atol=0.3)
    assert grpo[1][0] == grpo[1][1] > 0 > grpo[0][0]
    gigpo = group_advantages(GroupGigpo(), samples)
    assert gigpo[1][1] > 0 > gigpo[0][1]  # both stopped in the same state


def test_numbers_need_the_values_of_a_step_and_of_the_next() -> None:
    class Told:
        def values(self, steps: list[Step]) -> np.ndarray:
            return np.array([0.1 * (1 + step.message.count("click")) for step in steps], np.float32)

    t = trajectory(["click [3]", "click [3]", "stop []"], True)
    (numbers,) = numbers_of(variant_named("paper").algorithm, [Sample(t, [1], 1.0)], Told())  # type: ignore[arg-type]
    # Both states were clicked to once: V = V' = 0.2, and 0.5 * 0 + 0.5 * 0.8.
    assert numbers[1] == pytest.approx(0.4)


def test_a_saved_agent_comes_back_and_a_damaged_one_is_one_line(tmp_path: Path) -> None:
    agent = LinearAgent()
    agent.imitate([STEP], 1, 0.3, 0, lambda step, values: None)
    agent.save(tmp_path / "a", {"kind": "agent"})
    assert is_linear(tmp_path / "a") and json.loads((tmp_path / "a" / "oneiro.json").read_text()) == {"kind": "agent"}
    np.testing.assert_array_equal(LinearAgent.load(tmp_path / "a").weights, agent.weights)
    (tmp_path / "a" / "linear.npy").write_bytes(b"nothing")
    with pytest.raises(OneiroError, match="cannot be read"):
        LinearAgent.load(tmp_path / "a")


def test_a_reply_that_is_no_candidate_is_left_out() -> None:
    assert Decision.of(Step(PAGE, PAGE, "<answer>fly</answer>")).taken is None
    assert LinearAgent().confidences([Step(PAGE, PAGE, "fly")]) == [0.0]


@pytest.mark.thorough
def test_14_linear_agent_ends_above_sft_and_no_curriculum(tmp_path: Path) -> None:
    """On a fixed seed: three phases on one site, from one demonstration of each template."""
    run = oneiro.run("webrl/sandbox", out=tmp_path / "run", overrides=GITLAB)
    sft, webrl, repeated = (
        float(np.mean(run.info["stages"][name]["result"]["test-seen"]["success"]))
        for name in ("evaluate-sft", "phase-3-evaluate", "no-curriculum-phase-3-evaluate")
    )
    assert webrl >= sft + 0.1
    assert webrl >= repeated + 0.1


GITLAB = [
    "tasks.sites=[gitlab]",
    "tasks.trained=[gitlab/star,gitlab/star-count,gitlab/milestone-due,gitlab/top-contributor,gitlab/open-request,"
    "gitlab/show-own]",
    "tasks.unseen=[gitlab/fork]",
    "tasks.demonstrations=6",
    "phases=3",
    "curriculum.tasks=60",
    "evaluation.tasks=45",
    "outcome.compare=[]",
    "variants=[no-curriculum]",
]
