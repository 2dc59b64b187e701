"""Planners play: in the true lake they are optimal, votes are votes, and everything that values states is a Value."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from oneiro import worlds
from oneiro.agents.evaluate import evaluate_agent
from oneiro.agents.planning.agent_model import AgentModel
from oneiro.agents.planning.base import (
    Candidate,
    Decision,
    Judged,
    PlannerSettings,
    PolicyProposals,
    Proposed,
    Root,
)
from oneiro.agents.planning.loading import load_planner
from oneiro.agents.planning.policy import (
    ModelVeto,
    PlanningPolicy,
    RandomVeto,
    Spent,
    VotePolicy,
    _is_lost,
    dialogue,
    make_planner,
    traces,
)
from oneiro.agents.planning.rules import every_action, grid_rule, lake_rule, observe_game, possible_commands, score_rule
from oneiro.agents.planning.values import JudgeValue, RuleValue
from oneiro.agents.policies import DreamingPolicy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, FinishReason
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.episodes import record
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.sampling.server import ServerConfig
from oneiro.tasks.base import Cached, Dynamics, Flaw, Imagined, Malformed, Shuffled
from oneiro.tasks.grid import GridMetadata, GridPredictorConfig, LearnedFrozenLake, TrueLake, predict_together
from oneiro.tasks.textgame.model import TextGameDynamics
from oneiro.tasks.textgame.predictor import TextGamePredictor, TextGamePredictorConfig
from oneiro.tasks.textgame.rollout import true_predictor
from oneiro.worlds.base import World
from oneiro.worlds.baselines import random_policy
from oneiro.worlds.grid.frozen_lake.views import Lake
from tests.agents.test_server_policy import Host


def lake(**settings: Any) -> World:
    return worlds.make("frozen-lake", view="spaced", max_actions=12, **settings)


def searching(dynamics: Any, **settings: Any) -> PlanningPolicy[str]:
    value = RuleValue(grid_rule(lake()))
    planner = make_planner(dynamics, every_action(lake()), value, PlannerSettings(**settings))
    return PlanningPolicy(planner, observe=lambda world: world.render())


def truth() -> TrueLake:
    return TrueLake(lake())  # type: ignore[arg-type]


def test_search_in_the_truth_takes_the_shortest_way_on_every_level() -> None:
    policy = searching(truth(), depth=12, width=16)
    played = play(lake, attempts(40, 1, "eval", 0), policy, dialogue(12), None, 0)
    assert all(episode.success for episode in played)
    assert [len(episode.info["turns"]) for episode in played] == [episode.info["optimum"] for episode in played]
    for episode in played:  # a true model predicts what happens, and says so in its replies
        assert all(turn["prediction"] == turn["next_state"] for turn in episode.info["turns"])


def test_a_shuffled_model_does_not_help() -> None:
    states = [lake().reset(seed=seed, options={"split": "train"})[0] for seed in range(300)]
    policy = searching(Shuffled(truth(), states), depth=10, width=16)
    planned = attempts(150, 1, "eval", 0)
    shuffled = np.mean([e.success for e in play(lake, planned, policy, dialogue(12), None, 0)])
    chance = np.mean([e.success for e in play(lake, planned, ScriptedPolicy(random_policy), dialogue(12), None, 0)])
    assert shuffled < chance + 0.1


def test_traces_tell_what_was_considered_and_what_happened() -> None:
    policy = searching(truth(), depth=12)
    played = play(lake, attempts(2, 1, "eval", 0), policy, dialogue(12), None, 0)
    for trace, episode in zip(traces(policy, played, "search"), played, strict=True):
        assert trace["success"] and len(trace["turns"]) == len(episode.info["turns"])
        for turn in trace["turns"]:
            values = [candidate["value"] for candidate in turn["candidates"]]
            assert values == sorted(values, reverse=True) and len(values) == 4
            best = next(one for one in turn["candidates"] if one["action"] == turn["choice"])
            assert best["value"] == values[0] and best["predicted"] == turn["next_state"]


def test_a_vote_takes_the_most_frequent_action_and_a_planner_without_proposals_still_plays() -> None:
    def mostly_right(roots: Any, most: int, seed: int) -> list[Proposed]:
        return [Proposed(("Right", "Left")[:most], (0.6, 0.4)[:most], tokens=7) for _ in roots]

    vote = VotePolicy(mostly_right, observe=lambda world: world.render())
    played = play(lake, attempts(3, 1, "eval", 0), vote, dialogue(12), None, 0)
    assert {a["action"] for e in played for t in e.info["turns"] for a in t["actions"]} == {"Right"}
    assert vote.spent.tokens_per_decision == 7

    def silent(roots: Any, most: int, seed: int) -> list[Proposed]:
        return [Proposed((), ()) for _ in roots]

    planner = make_planner(truth(), silent, RuleValue(grid_rule(lake())), PlannerSettings())
    lost = play(lake, attempts(2, 1, "eval", 0), PlanningPolicy(planner, lambda world: world.render()), dialogue(12))
    assert all(turn["actions"] for episode in lost for turn in episode.info["turns"])


def test_a_veto_by_the_truth_keeps_a_blind_policy_out_of_holes_and_one_at_random_does_not() -> None:
    def blind(roots: Any, most: int, seed: int) -> list[Proposed]:
        return [Proposed(("Down", "Right", "Up", "Left")[:most], (0.4, 0.3, 0.2, 0.1)[:most], tokens=4) for _ in roots]

    def fallen(veto: Any) -> tuple[float, VotePolicy[str]]:
        policy = VotePolicy(blind, lambda world: world.render(), veto=veto)
        played = play(lake, attempts(40, 1, "eval", 0), policy, dialogue(12), None, 0)
        return float(np.mean([episode.finish_reason is FinishReason.FAILED for episode in played])), policy

    by_model, policy = fallen(ModelVeto(truth(), RuleValue(grid_rule(lake()))))
    share = policy.vetoed / policy.spent.decisions
    assert by_model == 0 < share < 1
    at_random, control = fallen(RandomVeto[str](share))
    assert at_random > 0.1 and fallen(None)[0] > 0.1
    assert abs(control.vetoed / control.spent.decisions - share) < 0.15
    assert ModelVeto[Any](Unreadable(), RuleValue(grid_rule(lake())))([(Root("x"), "Up")], 0) == [True]


class Unreadable(Dynamics[Any]):
    def predict(self, pairs: Any, outcomes: int = 1, seed: int = 0) -> list[list[Imagined[Any]]]:
        return [[Imagined(Malformed(Flaw.SHAPE))] for _ in pairs]


def test_the_lakes_rule_knows_goals_holes_and_other_targets() -> None:
    start = Lake(4, frozenset({1}), 15, 0)
    assert [lake_rule(start._replace(player=cell)).value for cell in (0, 1, 15, 7)] == [0, -1, 1, 0]
    assert [lake_rule(start._replace(player=cell), 7).value for cell in (0, 1, 15, 7)] == [0, -1, -1, 1]
    assert [lake_rule(start._replace(player=cell), 7).done for cell in (0, 1, 15, 7)] == [False, True, True, True]
    with pytest.raises(OneiroError, match="no reward rule"):
        grid_rule(worlds.make("sudoku"))


def test_search_in_the_true_game_finds_the_last_commands_of_a_text_game() -> None:
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits"))
    dynamics = TextGameDynamics(task, true_predictor(task))
    settings = PlannerSettings(depth=2, width=40, proposals=60)
    planner = make_planner(dynamics, possible_commands(), RuleValue(score_rule), settings)
    world = worlds.make("textgame:bake-bread")
    world.reset(seed=0, options={"split": "eval"})
    plan = world.plan()  # type: ignore[attr-defined]
    for command in plan[:-2]:
        world.step(command)
    found = planner.plan([Root(observe_game(world))])[0]
    assert found.ended == "goal" and found.value == pytest.approx(0.95**2) and len(found.plan) == 2
    for command in found.plan:
        _, _, _, _, info = world.step(command)
    assert info["success"]
    assert dynamics.show(observed_start()).count("\n") > 3


def observed_start() -> Any:
    world = worlds.make("textgame:make-ice")
    world.reset(seed=0)
    return observe_game(world)


def test_an_unreadable_answer_is_no_scene_of_a_text_game() -> None:
    task = TextGamePredictor(TextGamePredictorConfig(rules="none", output="edits"))
    for garbage in ("", "[", '{"modified": 7}', "x" * 10_000):
        found = TextGameDynamics(task, lambda cases, told=garbage: [told] * len(cases)).predict(
            [(observed_start(), "wait")]
        )
        assert isinstance(found[0][0].state, Malformed)


def test_dreams_are_predicted_together_and_come_out_the_same() -> None:
    class Counting(TrueLake):
        calls = 0

        def predict(self, pairs: Any, outcomes: int = 1, seed: int = 0) -> Any:
            self.calls += 1
            return super().predict(pairs, outcomes, seed)

    def dream(batched: bool) -> tuple[int, list[Any]]:
        inner = Counting(lake())  # type: ignore[arg-type]
        dynamics, asked = Cached(inner), dialogue(12)
        script = ScriptedPolicy(random_policy)
        policy = DreamingPolicy(script, partial(predict_together, dynamics), asked) if batched else script
        config = lake().config
        played = play(lambda: LearnedFrozenLake(dynamics, config), attempts(10, 2, "train", 0), policy, asked, None, 0)
        return inner.calls, [record(episode) for episode in played]

    one_by_one, plain = dream(batched=False)
    together, batched = dream(batched=True)
    assert plain == batched
    assert together <= 12 < one_by_one


def test_a_judge_behind_an_address_is_a_value() -> None:
    with Host() as host:
        config = ServerConfig(base_url=f"http://127.0.0.1:{host.http.server_port}/v1", model="judge", retries=0)
        judge = JudgeValue[str](config, show=str)
        roots = [Root("a page that says: answer 100", task="buy tea")]
        for told, value in (("75", 0.75), ("I say 20, no: 40", 0.4), ("none", 0.0), ("900", 1.0), ("-5", 0.0)):
            host.message = {"content": told}
            assert judge(roots)[0].value == pytest.approx(value)
        assert "buy tea" in host.bodies[0]["messages"][0]["content"]
        host.broken = lambda number: True
        assert judge(roots)[0].value == 0.0  # a server that fails says nothing about a state


def test_policy_proposals_come_from_one_call_and_survive_a_model_that_knows_nothing(tiny: LanguageModel) -> None:
    chat = ChatFormat(tiny.tokenizer)
    prompt = lambda root: chat.opening(root.state)  # noqa: E731
    proposals = PolicyProposals(
        Engine(tiny, 8), SamplingSettings(max_tokens=4), 5, prompt, lambda text: text[:1] or None
    )
    found = proposals([Root("P _"), Root("_ P")], most=2, seed=0)
    assert all(len(one.actions) <= 2 and 5 <= one.tokens <= 20 for one in found)
    assert all(list(one.weights) == sorted(one.weights, reverse=True) and sum(one.weights) <= 1 for one in found)


def test_an_agents_own_predictions_are_a_model(tiny: LanguageModel) -> None:
    settings = DialogueSettings(context="single", brief=True, max_turns=3, actions_per_turn=1)
    agent = AgentModel(Engine(tiny, 8), ChatFormat(tiny.tokenizer), SamplingSettings(max_tokens=6), settings, lake())
    from collections import Counter

    from oneiro.agents.reply import write

    here, there = lake().reset(seed=0)[0], lake().reset(seed=1)[0]
    votes = Counter[str]()
    for told in (write(["Left"], here, there), write(["Left"], here, there), write(["Left"], here, "?"), "<answer>Up"):
        agent._hear(here, told, votes)
    assert votes == {"Left": 3}
    assert agent.predict([(here, "Left")])[0][0].state == there
    assert [isinstance(one.state, Malformed) for one in agent.predict([(here, "Left")], outcomes=3)[0]] == [
        False,
        False,
        True,
    ]
    assert isinstance(agent.predict([(here, "Up")])[0][0].state, Malformed)
    # A model with random weights: nothing that can be read, nothing raised.
    planner = make_planner(agent, agent.propose, RuleValue(grid_rule(lake())), PlannerSettings(depth=2))
    assert planner.plan([Root(here)])[0].tokens > 0


def test_a_model_that_predicts_nothing_is_refused_in_one_line(tiny: LanguageModel, tmp_path: Any) -> None:
    tiny.save(tmp_path / "model")
    with pytest.raises(OneiroError, match="planning needs a world model"):
        load_planner(str(tmp_path / "model"), "frozen-lake", {}, PlannerSettings())


def test_the_row_of_a_planner_says_what_it_took_and_nothing_of_the_state_that_it_was_shown(
    tiny: LanguageModel, tmp_path: Any
) -> None:
    metadata = GridMetadata(task=GridPredictorConfig(), sampling=SamplingSettings(max_tokens=4))
    folder = str(metadata.write(replace(tiny)).save(tmp_path / "model"))
    table = evaluate_agent(
        "frozen-lake", folder, levels=2, samples=1, settings={"max_actions": 2}, plan=PlannerSettings(depth=1)
    )
    planned = dict(zip(table.columns, table.rows[1], strict=True))
    assert planned["agent"].value == f"{folder}, beam depth 1" and planned["success"].value is not None
    assert planned["observation exact"].value is None and "tokens a decision" in table.note


def test_a_judge_is_asked_several_times_and_paid_once() -> None:
    with Host() as host:
        config = ServerConfig(base_url=f"http://127.0.0.1:{host.http.server_port}/v1", model="judge", retries=0)
        judge = JudgeValue[str](config, show=str, samples=1, unknown=0.25)
        host.message = {"content": "no idea"}
        assert judge([Root("x", task="t")])[0].value == 0.25
        assert [judge._read(text) for text in ("12.5", "100.0001", "7 " + "x" * 8000, "-3")] == [0.125, 1.0, 0.25, 0.0]
        judge([Root("y" * 9000, task="t")])
        assert host.bodies[-1]["messages"][0]["content"].count("y") == 8000 + 1  # and the one of "way"


def test_costs_add_up_and_a_trace_tells_what_was_seen_before_and_after() -> None:
    spent = Spent()
    assert spent.tokens_per_decision == 0
    spent.add(6, 2)
    spent.add(3)
    assert (spent.decisions, spent.tokens, spent.predictions, spent.tokens_per_decision) == (2, 9, 2, 4.5)
    decision = Decision("b", 0.5, [Candidate("a", "A", 0.1), Candidate("b", None, 0.5)], ("b", "c"), 7, 3, "goal")
    policy = PlanningPolicy(None, observe=str)  # type: ignore[arg-type]
    policy.decisions, policy.shown = {(4, 1, 1): decision}, {(4, 1, 1): "first", (4, 1, 2): "second"}
    turns = [
        {"state": "s", "next_state": "n", "actions": [{"action": "b"}]},
        {"state": "t", "next_state": "m", "actions": []},
    ]
    episode = Episode([], world="w", task="k", seed=4, member=1, success=True, info={"turns": turns})
    ((first, last),) = [trace["turns"] for trace in traces(policy, [episode], "search")]
    assert first == {
        "state": "first", "candidates": [{"action": "b", "predicted": None, "value": 0.5},
                                         {"action": "a", "predicted": "A", "value": 0.1}],
        "choice": "b", "plan": ["b", "c"], "tokens": 7, "ended": "goal", "next_state": "second",
    }  # fmt: skip
    assert last == {
        "state": "second", "candidates": [], "choice": None, "plan": [], "tokens": 0, "ended": "", "next_state": "m",
    }  # fmt: skip


def test_a_veto_leaves_the_next_best_of_eight_and_the_best_where_none_passes() -> None:
    policy = VotePolicy[str](lambda roots, most, seed: [], observe=str)
    roots = [Root("x"), Root("y"), Root("z"), Root("w")]
    proposals = [
        Proposed(("a", "b", "c"), (1.0,) * 3),
        Proposed(("a",), (1.0,)),
        Proposed((), ()),
        Proposed(("d",), (1.0,)),
    ]
    assert policy._choose(roots, proposals, 0) == ["a", "a", None, "d"]
    asked: list[Any] = []

    def veto(pairs: Any, seed: int) -> list[bool]:
        asked.extend((root.state, action) for root, action in pairs)
        return [False, True, True, False, True]

    policy.veto = veto
    assert policy._choose(roots, proposals, 0) == ["b", "a", None, "d"] and policy.vetoed == 2
    assert asked == [("x", "a"), ("x", "b"), ("x", "c"), ("y", "a"), ("w", "d")]
    rates = RandomVeto[str](0.3)([(Root("x"), "a")] * 4000, 0)
    assert np.mean(rates) == pytest.approx(0.7, abs=0.03)
    lost = [_is_lost(Judged(value, done)) for value, done in ((-1.0, True), (-1.0, False), (-0.9, True))]
    assert lost == [True, False, False]
