"""Collections: the same episodes whoever makes them, nothing made twice, nothing mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from pydantic import ValidationError

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot.collect import CollectSettings, collect, play
from oneiro.worlds.robot.drawer import draw_start
from oneiro.worlds.robot.episodes import open_episodes
from oneiro.worlds.robot.simulator import DrawerSimulator, TaskName

SHORT = CollectSettings(frames=6, size=32)


def test_a_second_call_only_adds(simulator: DrawerSimulator, tmp_path: Path) -> None:
    counted: list[int] = []
    assert collect(SHORT, 1, tmp_path, 1).written == 1
    first = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.npz")}
    again = collect(SHORT, 2, tmp_path, 1, counted.append)
    assert (again.written, again.kept) == (1, 1) and sum(counted) == 2
    assert all((tmp_path / name).stat().st_mtime_ns == time for name, time in first.items())


@pytest.mark.thorough
def test_workers_do_not_matter(simulator: DrawerSimulator, tmp_path: Path) -> None:
    collect(SHORT, 4, tmp_path / "one", 1)
    collect(SHORT, 4, tmp_path / "two", 2)
    for one, two in zip(open_episodes(tmp_path / "one"), open_episodes(tmp_path / "two"), strict=True):
        assert np.array_equal(one.image, two.image) and np.array_equal(one.action, two.action)
        assert one.info == two.info and np.array_equal(one.signals["opening"], two.signals["opening"])


def test_a_file_that_cannot_be_read_is_made_again(simulator: DrawerSimulator, tmp_path: Path) -> None:
    collect(SHORT, 2, tmp_path)
    victim = tmp_path / "drawer-open_000001.npz"
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-50])
    again = collect(SHORT, 2, tmp_path)
    assert (again.written, again.kept) == (1, 1) and len(open_episodes(tmp_path)) == 2


def test_an_episode_replays_to_its_own_frames(simulator: DrawerSimulator) -> None:
    episode = play(CollectSettings(frames=8, policies=("noisy",)), 1)
    simulator.reset(episode.info["side"])
    for frame, action in zip(episode.image, episode.action, strict=True):
        assert np.array_equal(simulator.frame(), frame)
        simulator.act(action)
    assert np.array_equal(episode.action[-1], np.zeros(4))
    assert episode.signals["expert"].shape == (8, 4)


def test_a_finished_episode_stops_a_few_frames_later(simulator: DrawerSimulator) -> None:
    full, short = (play(CollectSettings(policies=("expert",), after=after), 0) for after in (3, 0))
    assert len(full) == len(short) + 3 < 41 and full.info["reached"]
    assert short.signals["opening"][-1] > 0.15 > short.signals["opening"][-4]


@pytest.mark.thorough
def test_every_grade_takes_part_and_starts_are_those_of_the_split(simulator: DrawerSimulator) -> None:
    episodes = [play(CollectSettings(frames=2, size=16), index) for index in range(24)]
    assert {episode.info["policy"] for episode in episodes} == set(CollectSettings().policies)
    held_out = {draw_start("drawer-open", seed, "eval")[1] for seed in range(200)}
    assert held_out.isdisjoint(episode.info["key"] for episode in episodes)


def test_episodes_made_otherwise_do_not_mix(simulator: DrawerSimulator, tmp_path: Path) -> None:
    collect(SHORT, 1, tmp_path)
    with pytest.raises(OneiroError, match="size=32, not 16"):
        collect(SHORT.model_copy(update={"size": 16}), 2, tmp_path)
    with pytest.raises(OneiroError, match="no policy"):
        collect(CollectSettings(policies=("exprt",)), 2, tmp_path / "new")


@pytest.mark.parametrize("wrong", [{"policies": ()}, {"split": "test"}])
def test_settings_that_no_episode_could_be_made_with_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        CollectSettings(**wrong)


def test_starts_of_the_two_splits_stay_apart_for_both_tasks() -> None:
    sides = {
        split: np.array([draw_start(task, seed, split)[0] for task in get_args(TaskName) for seed in range(400)])
        for split in ("train", "eval")
    }
    nearest = np.abs(sides["train"][:, None] - sides["eval"]).min()
    assert nearest >= 0.002 - 1e-9 and len(np.unique(sides["eval"])) > 300
    assert np.ptp(sides["eval"]) > 0.1 and np.ptp(sides["train"]) > 0.19  # all over the drawer's way
