"""The linear agent: its candidates, its gradient, every algorithm, and its way to disk and back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import oneiro
from oneiro.agents.linear import LinearCritic, LinearPolicy, choice, fit, is_linear, turn_numbers
from oneiro.agents.linear.features import names_in
from oneiro.agents.linear.train import TurnDecision, slope_of
from oneiro.episode import Episode, with_outcome
from oneiro.learning.algorithms import Algorithm, Grpo, StateGrpo
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.systems.webrl.curriculum.operators import draw_task
from oneiro.systems.webrl.phases import state_values
from oneiro.systems.webrl.recipe import WebrlRecipe, variant_named
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
TURN = {"message": PAGE, "state": PAGE, "reply": "<answer>stop [(555) 250-4552]</answer>", "next_state": PAGE}


def episode(replies: list[str], success: bool, group: int = 0, member: int = 0) -> Episode:
    """Each turn after the first has read of one click more."""
    turns = [
        {**TURN, "message": "click [9]\n" * number + PAGE, "reply": f"<answer>{reply}</answer>"}
        for number, reply in enumerate(replies)
    ]
    made = Episode([], [0.0] * len(turns), success=success, info={"turns": turns}, group=group, member=member)
    return with_outcome(made, float(success))


def confidences(policy: LinearPolicy, *turns: dict[str, str]) -> list[float]:
    return [TurnDecision.of(turn).probability(policy.weights) for turn in turns]


def taught(algorithm: Algorithm, *episodes: Episode) -> LinearPolicy:
    """One epoch of an algorithm, with a critic that knows nothing: every state has the value 0.5."""
    values = None
    if algorithm.outcome_critic:
        lessons = [(own, range(len(own.rewards))) for own in episodes]
        values = state_values(LinearCritic(), lessons, WebrlRecipe(system="webrl"))
    policy = LinearPolicy()
    numbers = turn_numbers(algorithm, episodes, values)
    lessons = [
        (turn, float(number))
        for own, row in zip(episodes, numbers, strict=True)
        for turn, number in zip(own.info["turns"], row, strict=True)
    ]
    fit(policy, lessons, 1, 0.1, 0, slope_of(algorithm))
    return policy


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
    assert names_in('Add "Big Mug" to the cart of 000000123') == ["Big Mug", "000000123"]
    assert names_in("Star the project tidewright/ledgerline.") == ["tidewright/ledgerline"]


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
    policy, losses = LinearPolicy(), []
    assert confidences(policy, TURN) == [pytest.approx(0.2)]
    result = fit(policy, [(TURN, 1.0)], 3, 0.3, 0, log=lambda epoch, values: losses.append(values["loss"]))
    assert confidences(policy, TURN)[0] > 0.9 and result["updates"] == 3
    assert losses[0] == pytest.approx(np.log(5)) and losses[0] > losses[1] > losses[2]
    assert result["log_ratio"] == pytest.approx(np.log(confidences(policy, TURN)[0] / 0.2))
    critic = LinearCritic(epochs=20, rate=0.1)
    assert critic.values([TURN]).tolist() == [0.5]
    critic.fit([TURN], [1.0], 0, lambda epoch, values: None)
    assert critic.values([TURN])[0] > 0.6


def test_under_the_paper_good_turns_rise_and_bad_ones_fall() -> None:
    good, bad = episode(["stop [(555) 250-4552]"], True), episode(["click [3]"], False, 1)
    policy = taught(variant_named("paper").algorithm, good, bad)  # type: ignore[arg-type]
    up, down = confidences(policy, good.info["turns"][0], bad.info["turns"][0])
    assert up > 0.2 > down


@pytest.mark.parametrize("name", ["official", "reinforce", "filtered-bc", "awr", "digirl", "grpo", "state-grpo"])
def test_every_algorithm_teaches_the_linear_agent(name: str) -> None:
    good = episode(["click [3]", "stop [(555) 250-4552]"], True, 0, 0)
    bad = episode(["click [3]", "stop []"], False, 0, 1)
    algorithm = variant_named(name).algorithm
    assert algorithm is not None
    done, failed = confidences(taught(algorithm, good, bad), good.info["turns"][1], bad.info["turns"][1])
    assert done > failed


def test_a_reply_counts_as_one_token() -> None:
    episodes = [episode(["click [3]", "stop []"], bool(i), 0, i) for i in (0, 1)]
    grpo = turn_numbers(Grpo(), episodes)
    np.testing.assert_allclose([a[0] for a in grpo], [-1 / np.sqrt(2), 1 / np.sqrt(2)], atol=1e-4)
    assert grpo[1][0] == grpo[1][1] > 0 > grpo[0][0]
    by_state = turn_numbers(StateGrpo(), episodes)
    assert by_state[1][1] > 0 > by_state[0][1]  # both stopped in the same state


def test_numbers_need_the_values_of_a_turn_and_of_the_next() -> None:
    class Clicks:
        """The value of a state is a tenth for each click before it, and another."""

        def values(self, turns: list[dict[str, str]]) -> np.ndarray:
            asked.extend(turns)
            return np.array([0.1 * (1 + turn["message"].count("click")) for turn in turns], np.float32)

    asked: list[dict[str, str]] = []
    own = episode(["click [3]", "click [3]", "stop []"], True)
    ((values, after),) = state_values(Clicks(), [(own, [1])], WebrlRecipe(system="webrl"))
    np.testing.assert_allclose(values, [0.0, 0.2, 0.3])
    assert after == 0.0 and len(asked) == 2
    (numbers,) = turn_numbers(variant_named("paper").algorithm, [own], [(values, after)])  # type: ignore[arg-type]
    assert numbers[1] == pytest.approx(0.5 * (0.3 - 0.2) + 0.5 * (1 - 0.2))
    # After the last turn the value is that of the page it left.
    ((_, after),) = state_values(Clicks(), [(own, [2])], WebrlRecipe(system="webrl"))
    assert after == pytest.approx(0.3)


def test_a_saved_policy_comes_back_and_a_damaged_one_is_one_line(tmp_path: Path) -> None:
    policy = LinearPolicy()
    fit(policy, [(TURN, 1.0)], 1, 0.3, 0)
    policy.save(tmp_path / "a", {"kind": "agent"})
    assert is_linear(tmp_path / "a") and json.loads((tmp_path / "a" / "oneiro.json").read_text()) == {"kind": "agent"}
    np.testing.assert_array_equal(LinearPolicy.load(tmp_path / "a").weights, policy.weights)
    (tmp_path / "a" / "linear.npy").write_bytes(b"nothing")
    with pytest.raises(OneiroError, match="cannot be read"):
        LinearPolicy.load(tmp_path / "a")


def test_a_reply_that_is_no_candidate_is_left_out() -> None:
    fly = {**TURN, "reply": "<answer>fly</answer>"}
    assert TurnDecision.of(fly).taken is None and confidences(LinearPolicy(), fly) == [0.0]
    policy = LinearPolicy()
    assert fit(policy, [(fly, 1.0)], 2, 0.3, 0) == {"updates": 0, "log_ratio": 0.0} and not policy.weights.any()


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
