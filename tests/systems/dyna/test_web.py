"""Dreams on the web begin where somebody truly was, and old turns weigh what the present policy makes of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from oneiro.agents import reply as replies
from oneiro.agents.linear import LinearPolicy
from oneiro.agents.linear.train import TurnDecision
from oneiro.recipe import load
from oneiro.rundir.run import Run
from oneiro.systems.dyna import web
from oneiro.systems.dyna.recipe import DynaWebRecipe
from oneiro.systems.dyna.web import Dreams, DynaWebLearner, WebVariant, probability, reweigh
from oneiro.tasks.webpage.model import Remembered
from oneiro.tasks.webpage.parquet import read_parquet
from oneiro_web.env import WebConfig

Finished = Callable[[str, str], Path]
CONFIG = WebConfig(templates=("map/show-way",))
TURN = {
    "message": "",
    "state": "Task: Show Mill Park.\nURL: http://map.org/\n[1] link 'Mill Park'\n[2] link 'Help'",
    "reply": replies.write(["click [1]"], think=False),
}


def test_dreams_are_of_tasks_that_were_truly_played_one_for_each_group() -> None:
    dreams = Dreams(lambda cases: [None for _ in cases], lambda page: False, CONFIG, [7, 8, 9])
    planned = dreams.attempts(range(2, 60), 4, seed=1)
    assert [(one.group, one.member) for one in planned] == [
        (group, member) for group in range(2, 60) for member in range(4)
    ]
    assert {one.seed for one in planned} == {7, 8, 9} and {one.split for one in planned} == {"train"}
    assert all(len({one.seed for one in planned if one.group == group}) == 1 for group in range(2, 60))
    assert planned == dreams.attempts(range(2, 60), 4, seed=1) != dreams.attempts(range(2, 60), 4, seed=2)


def test_an_old_turn_weighs_less_where_the_policy_has_turned_away_from_it_and_never_more() -> None:
    policy = LinearPolicy()
    decision = TurnDecision.of(TURN)
    assert decision.taken is not None
    now = probability(policy, TURN)
    assert now == pytest.approx(1 / len(decision.offered.actions))  # nothing is learned yet
    assert reweigh(policy, ({**TURN, "probability": 2 * now}, -3.0))[1] == pytest.approx(-1.5)
    assert reweigh(policy, ({**TURN, "probability": now / 2}, -3.0))[1] == -3.0
    for _ in range(20):
        policy.nudge(decision.offered, decision.taken, 1.0, 1.0)
    assert -0.1 < reweigh(policy, ({**TURN, "probability": now}, -3.0))[1] <= 0.0


@pytest.fixture(scope="module")
def variants(finished: Finished, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, WebVariant]]:
    folder = shutil.copytree(finished("dyna/web", "smoke"), tmp_path_factory.mktemp("web") / "run")
    recipe = load("dyna/web", ["preset=smoke"])
    assert isinstance(recipe, DynaWebRecipe)
    with Run.open(folder) as run:
        learner = DynaWebLearner(recipe, run, 0)
        yield {"mixed": WebVariant(learner, recipe, "mixed"), "real-only": WebVariant(learner, recipe, "real-only")}


def test_model_and_value_of_mixed_know_each_rounds_true_steps_and_remember_them(
    variants: dict[str, WebVariant],
) -> None:
    mixed = variants["mixed"]
    new = read_parquet(mixed.run.path / "data" / "rl-mixed-0-1.parquet")
    assert mixed.true_steps_seen(0) == mixed.learner.steps and mixed.true_steps_seen(1) == [*mixed.learner.steps, *new]
    assert variants["real-only"].true_steps_seen(1) == mixed.learner.steps  # its model does not go on learning
    dreams = mixed.dreams_after(1)
    assert isinstance(dreams.pages, Remembered)
    moves = [case for case in new if not case.stops]
    assert moves and dreams.pages([case.situation() for case in moves]) == [case.after for case in moves]
    assert {int(case.episode.rsplit("/", 2)[1]) for case in new} <= set(dreams.tasks)
    assert len(dreams.tasks) > len(set(mixed.dreams_after(0).tasks))


def test_a_dream_at_a_played_task_begins_on_its_page(variants: dict[str, WebVariant]) -> None:
    mixed = variants["mixed"]
    dreams, first = mixed.dreams_after(0), mixed.learner.steps[0]
    world = dreams.make()
    world.reset(seed=dreams.tasks[0], options={"split": "train"})
    assert (world.task.intent, world.state) == (first.objective, first.state)
    world.close()


def test_replayed_turns_are_weighed_for_the_policy_that_learns_them(
    variants: dict[str, WebVariant], monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = WebVariant(variants["mixed"].learner, variants["mixed"].recipe, "replay")
    weighed: list[float] = []
    learned: list[list[float]] = []
    monkeypatch.setattr(web, "reweigh", lambda policy, lesson: weighed.append(lesson[1]) or (lesson[0], 0.125))
    monkeypatch.setattr(web, "fit", lambda policy, lessons, *others: learned.append([own for _, own in lessons]))
    replay.reinforce(1)
    assert weighed and sum(map(len, learned)) > len(weighed)  # the phase's own turns are as they were
    assert sum(own.count(0.125) for own in learned) == len(weighed)


def test_all_variants_begin_with_a_policy_that_imitated_the_successful_play(variants: dict[str, WebVariant]) -> None:
    mixed, learner = variants["mixed"], variants["mixed"].learner
    first = mixed.policy(0).weights
    assert np.array_equal(first, variants["real-only"].policy(0).weights)
    assert np.array_equal(first, LinearPolicy.load(learner.first).weights)
    assert np.array_equal(first, learner.improve().weights)
