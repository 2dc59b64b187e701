"""Worlds in other processes, of this machine and of Ray: the same episodes, and what a lost worker costs."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oneiro import worlds
from oneiro.agents.game import Game
from oneiro.agents.policies import ModelPolicy, ScriptedPolicy
from oneiro.agents.prompts import DialogueSettings
from oneiro.agents.rollout import attempts, play
from oneiro.episode import Episode, FinishReason, Sample, describe_errors
from oneiro.models.chat import ChatFormat
from oneiro.models.language import LanguageModel
from oneiro.report.episodes import record
from oneiro.runtime.collector import NEW_OBJECTS
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.processes import each_done
from oneiro.sampling.engine import Engine, SamplingSettings
from oneiro.worlds import workers
from oneiro.worlds.base import World, WorldLost
from oneiro.worlds.baselines import mixture
from oneiro.worlds.registry import WorldChoice
from tests.worlds.lakes import BREAKS, HANGS, Lake, Unmakeable, Visited, complain, die, square

RAY = "ray?actors=2"
PLAIN = DialogueSettings(context="actions", think=False, world_model=False, max_turns=12, actions_per_turn=2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Ray on this machine, with two processors and no dashboard; afterwards nothing of it runs."""
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'oneiro[ray]')")
    before = ray_processes()
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 << 20)
    yield RAY
    workers.close_pools()
    ray.shutdown()
    deadline = time.monotonic() + 60
    while (left := ray_processes() - before) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left


@pytest.fixture(scope="module", params=["processes", "ray"])
def place(request: pytest.FixtureRequest) -> Iterator[int | str]:
    """A setting `workers`, for two of them."""
    yield request.getfixturevalue("cluster") if request.param == "ray" else 2
    workers.close_pools()


def ray_processes() -> set[int]:
    """Processes of Ray on this machine."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if b"raylet" in command or b"gcs_server" in command or command.startswith(b"ray::"):
            found.add(int(folder.name))
    return found


def records(episodes: Sequence[Episode]) -> list[dict[str, Any]]:
    return [record(episode) for episode in episodes]


def chosen(name: str, place: int | str, **settings: Any) -> WorldChoice:
    return WorldChoice(name=name, workers=place, worker_timeout_s=120.0, **settings)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("frozen-lake", {"success_rate": 0.5}),
        ("web", {"sites": ("map",), "max_actions": 6}),
        ("robot", {"max_actions": 4, "size": 16}),
    ],
)
def test_an_episode_is_the_same_in_a_worker(place: int | str, name: str, settings: dict[str, Any]) -> None:
    """Oracle's and random actions, more episodes than workers, several actions a turn."""
    if name == "robot":
        if find_spec("metaworld") is None:  # an import would choose MuJoCo's renderer before we do
            pytest.skip("needs Meta-World (pip install oneiro[robot])")
        if place != RAY:
            pytest.skip("once is enough: a simulator takes seconds to start")
    choice = chosen(name, place, **settings)
    planned, policy = attempts(3, 2, "train", 5), ScriptedPolicy(mixture(0.5), (1, 2), False, False)
    here = play(choice.maker(), planned, policy, PLAIN, seed=3)
    there = play(choice.episode_maker(), planned, policy, PLAIN, seed=3)
    assert records(there) == records(here)
    assert describe_errors(here) is None and len({str(one["turns"]) for one in records(here)}) > 1


def test_a_worker_world_answers_as_the_world_it_holds() -> None:
    choice = chosen("frozen-lake", 1, success_rate=0.5)
    here, there = choice.maker()(), choice.episode_maker()()
    try:
        assert there.name == here.name and there.config == here.config and there.has_oracle
        for world in (here, there):
            with pytest.raises(OneiroError, match="reset"):
                world.step("Up")
        there.close()
        there = choice.episode_maker()()  # one that raised is not used again
        for seed in (None, 7):
            options = {"split": "eval", "member": 2}
            assert there.reset(seed=seed, options=options) == here.reset(seed=seed, options=options)
            rngs = np.random.default_rng(1), np.random.default_rng(1)
            for _ in range(3):
                assert there.random_action(rngs[0]) == here.random_action(rngs[1])
            assert there.step("Up") == here.step("Up")
            names = ("seed", "member", "split", "taken", "over", "remaining", "actions", "instruction", "level_rules")
            for name in (*names, "state"):
                assert getattr(there, name) == getattr(here, name), name
            assert (there.render(), there.oracle(), there.ceiling()) == (here.render(), here.oracle(), here.ceiling())
            assert there.parse(here.render()) == here.parse(here.render())
        with pytest.raises(AttributeError):
            there.no_such_thing  # noqa: B018
    finally:
        there.close()


def test_a_model_plays_the_same_in_workers_while_it_answers_one_half(tiny: LanguageModel, place: int | str) -> None:
    choice, chat = chosen("frozen-lake", place), ChatFormat(tiny.tokenizer)
    policy = ModelPolicy(Engine(tiny, 8), SamplingSettings(max_tokens=6))
    settings = DialogueSettings(context="single", brief=True, max_turns=3)
    here, there = (
        play(make, attempts(5, 1, "train", 0), policy, settings, chat, 1, "<think>")
        for make in (choice.maker(), choice.episode_maker())
    )
    assert records(there) == records(here)
    for mine, theirs in zip(there, here, strict=True):
        assert all((a.tokens == b.tokens).all() for a, b in zip(mine.rows, theirs.rows, strict=True))


def test_many_worlds_in_a_worker_are_the_same_and_are_lost_together() -> None:
    make = workers.WorldMaker(Lake, Lake.Config(), 2, 60.0, worlds_per_worker=3)
    pool, planned = workers.pool_of(2), [*attempts(1, 1, "train", BREAKS), *attempts(9, 1, "train", 0)]
    before = pool.restarts
    assert make.at_once == 6
    whole = play(lambda: Lake(Lake.Config()), planned, Killer(-1, kill), PLAIN)
    assert records(play(make, planned, Killer(-1, kill), PLAIN)) == records(whole)
    assert whole[0].info["error"] == "RuntimeError: broken" and describe_errors(whole[1:]) is None
    broken = play(make, planned, Killer(1, kill, at=1), PLAIN)
    lost = [one.seed for one in broken if "a worker died" in one.info.get("error", "")]
    assert 1 in lost and 1 < len(lost) <= 3 and pool.restarts == before + 1
    assert [r for r in records(broken) if r["seed"] not in lost] == [r for r in records(whole) if r["seed"] not in lost]
    workers.close_pools()


class Killer(ScriptedPolicy):
    """Ends the worker of one level at a turn, once."""

    def __init__(self, level: int, end: Callable[[Any], None], at: int = 2) -> None:
        super().__init__(mixture(0.5), (1, 1), False, False)
        self.level, self.end, self.at, self.done = level, end, at, False

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        said = super().answer(turns, seed)
        for turn in turns:
            if turn.playing.seed == self.level and turn.turn == self.at and not self.done:
                self.done = True
                self.end(turn.playing)
        return said


def kill(world: Any) -> None:
    """As the machine does when memory is short."""
    if hasattr(world.host.worker, "process"):
        world.host.worker.process.kill()
    else:
        os.kill(world.process_id, signal.SIGKILL)


def test_a_killed_worker_costs_one_episode_and_is_replaced(place: int | str) -> None:
    make = workers.WorldMaker(Lake, Lake.Config(), place, 60.0)
    pool, planned = workers.pool_of(place), attempts(5, 1, "train", 0)
    before = pool.restarts
    whole = play(lambda: Lake(Lake.Config()), planned, Killer(-1, kill), PLAIN)
    broken = play(make, planned, Killer(1, kill), PLAIN)
    assert [episode.seed for episode in broken if episode.finish_reason is FinishReason.ERROR] == [1]
    assert [one for one in records(broken) if one["seed"] != 1] == [one for one in records(whole) if one["seed"] != 1]
    assert pool.restarts == before + 1 and "a worker died" in broken[1].info["error"]
    assert describe_errors(broken) is not None and records(play(make, planned, Killer(-1, kill), PLAIN)) == records(
        whole
    )


class Impatient(ScriptedPolicy):
    """Gives the level that hangs half a second, and the others all the time that a busy machine may need."""

    def answer(self, turns: Sequence[Game], seed: int) -> list[Sample]:
        for turn in turns:
            if turn.playing.seed == HANGS:
                turn.playing.timeout_s = 0.5  # type: ignore[attr-defined]
        return super().answer(turns, seed)


def test_a_worker_that_does_not_answer_in_time_is_replaced(place: int | str) -> None:
    make = workers.WorldMaker(Lake, Lake.Config(), place, 120.0)
    policy = Impatient(mixture(0.5), (1, 1), False, False)
    planned = [*attempts(1, 1, "train", HANGS), *attempts(2, 1, "train", 0)]
    episodes = play(make, planned, policy, PLAIN)
    assert [episode.finish_reason is FinishReason.ERROR for episode in episodes] == [True, False, False]
    assert "did not answer within 0.5 s" in episodes[0].info["error"]
    whole = play(lambda: Lake(Lake.Config()), planned[1:], policy, PLAIN)
    assert records(episodes[1:]) == records(whole)


def test_a_world_that_raised_is_not_used_again() -> None:
    make, policy = workers.WorldMaker(Lake, Lake.Config(), 1, 60.0), ScriptedPolicy(mixture(0.5), (1, 1), False, False)
    episodes = play(make, [*attempts(1, 1, "train", BREAKS), *attempts(2, 1, "train", 0)], policy, PLAIN)
    assert [episode.info.get("error") for episode in episodes] == ["RuntimeError: broken", None, None]


def test_the_garbage_collector_looks_rarely_in_a_worker() -> None:
    there = workers.WorldMaker(Lake, Lake.Config(), 1, 60.0)()
    try:
        assert there.new_objects == NEW_OBJECTS  # type: ignore[attr-defined]
    finally:
        there.close()


def test_a_shared_world_is_known_as_such_in_a_worker_and_looked_at_without_a_reset() -> None:
    there = workers.WorldMaker(Visited, Visited.Config(), 1, 60.0)()
    try:
        assert there.shared and there.peek(5, "eval") == Visited(Visited.Config()).peek(5, "eval")
    finally:
        there.close()


def test_a_world_that_cannot_be_made_in_a_worker_is_one_line() -> None:
    make = workers.WorldMaker(Unmakeable, Unmakeable.Config(), 1, 60.0)
    with pytest.raises(OneiroError, match=r"raised in all of its episodes.*RuntimeError: not here"):
        play(make, attempts(2, 1, "train", 0), ScriptedPolicy(mixture(0.0), (1, 1), False, False), PLAIN)


def test_an_answer_that_is_still_owed_is_never_taken_for_another() -> None:
    """A play that is broken off leaves requests unanswered."""
    choice = chosen("frozen-lake", 1)
    world = choice.episode_maker()()
    assert isinstance(world, workers.WorkerWorld)
    world.reset(seed=0)
    world.host.send([(world.place, "step", "Up")])
    world.close()
    with pytest.raises(WorldLost):
        world.step("Up")
    other: World = choice.episode_maker()()
    assert other.reset(seed=1) == worlds.make("frozen-lake").reset(seed=1)
    other.close()


def test_batches_of_work_are_done_by_actors_too(cluster: str) -> None:
    assert sorted(each_done(square, [(n,) for n in range(5)], cluster)) == [0, 1, 4, 9, 16]
    assert list(each_done(die, [(3,)], cluster, lambda number: -number)) == [-3]
    with pytest.raises(OneiroError, match="1 is wrong"):
        list(each_done(complain, [(1,)], cluster))


@pytest.mark.parametrize("place", ["rays", "ray:4", "ray?actors=0", "ray://", -1])
def test_workers_that_mean_nothing_are_one_line(place: int | str) -> None:
    with pytest.raises((OneiroError, ValueError), match="workers"):
        WorldChoice(name="frozen-lake", workers=place)


def test_what_a_level_says_of_itself_is_asked_for_anew_after_a_reset() -> None:
    there, here = chosen("bandit", 1).episode_maker()(), chosen("bandit", 0).episode_maker()()
    arms = set()
    for seed in range(4):
        there.reset(seed=seed)
        here.reset(seed=seed)
        assert there.actions == here.actions
        arms.add(there.actions)
    there.close()
    assert len(arms) > 1
