"""The drawer: starts decide everything, the expert succeeds, the picture shows what matters and not the goal."""

from __future__ import annotations

import numpy as np
import pytest

from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot import collect as policies
from oneiro.worlds.robot import simulator as module
from oneiro.worlds.robot.simulator import HIDDEN, TASKS, DrawerSimulator, TaskName


def play(simulator: DrawerSimulator, side: float, actions: int, name: str = "expert", seed: int = 0) -> list[float]:
    """Openings after each action of a player."""
    simulator.reset(side)
    perturb, openings = policies.perturbation(name)(generator("test", seed)), []
    for _ in range(actions):
        simulator.act(perturb(simulator.expert()))
        openings.append(simulator.opening)
    return openings


def test_a_start_and_actions_decide_every_pixel(simulator: DrawerSimulator) -> None:
    play(simulator, 0.07, 5, "noisy")
    first, seen = simulator.frame(), simulator.observation.copy()
    play(simulator, -0.09, 7, "random")  # whatever came before
    play(simulator, 0.07, 5, "noisy")
    assert np.array_equal(simulator.frame(), first) and np.array_equal(simulator.observation, seen)


@pytest.mark.parametrize("side", [-0.09, 0.0, 0.09])
def test_the_expert_opens_the_drawer_in_thirty_held_actions(simulator: DrawerSimulator, side: float) -> None:
    openings = play(simulator, side, 30)
    assert openings[0] < 0.01 and simulator.success and TASKS["drawer-open"].done(openings[-1])


def test_the_expert_closes_the_drawer_too() -> None:
    simulator = DrawerSimulator("drawer-close")
    openings = play(simulator, 0.03, 30)
    assert openings[0] > 0.14 and simulator.success and TASKS["drawer-close"].done(openings[-1])


def test_worse_players_do_worse(simulator: DrawerSimulator) -> None:
    ends = {name: [play(simulator, 0.0, 30, name, seed)[-1] for seed in range(2)] for name in ("noisy", "random")}
    assert max(ends["random"]) < 0.05 < np.mean(ends["noisy"])


def test_a_saved_state_goes_on_exactly_as_it_did(simulator: DrawerSimulator) -> None:
    play(simulator, 0.02, 17)
    here = simulator.save()

    def go_on() -> tuple[float, np.ndarray]:
        for _ in range(3):
            simulator.act(simulator.expert())
        return simulator.opening, simulator.frame()

    first = go_on()
    play(simulator, -0.08, 2, "random")  # another start in between
    simulator.restore(here)
    again = go_on()
    assert first[0] == again[0] > 0 and np.array_equal(first[1], again[1])


def test_the_frame_shows_the_opening_and_hides_the_goal(simulator: DrawerSimulator) -> None:
    simulator.reset(0.0)
    shut = simulator.frame()
    assert shut.shape == (64, 64, 3) and shut.dtype == np.uint8
    # The goal marker is a saturated red or yellow ball; nothing in front of the drawer is.
    goal = simulator._env.model.site("goal")
    goal.rgba[:] = (1, 0, 1, 1)
    assert np.array_equal(simulator.frame(), shut)
    play(simulator, 0.0, 26)
    changed = np.abs(simulator.frame().astype(int) - shut).max(axis=2) > 40
    assert changed.sum() > 100  # the drawer's front has come out by several pixels


@pytest.mark.parametrize("task", ["drawer-open", pytest.param("drawer-close", marks=pytest.mark.thorough)])
def test_what_lies_beside_the_picture_is_left_out_and_nothing_else(task: TaskName) -> None:
    simulator, random = DrawerSimulator(task), generator("beside")
    simulator.reset(0.05)
    for _ in range(4):
        simulator.act(random.uniform(-1, 1, 4))
        shown, view = simulator.frame(), simulator._view
        assert view is not None
        left_out = view._model.geom_group == HIDDEN
        view._model.geom_group[:] = view._groups
        view._renderer.update_scene(simulator._env.data, view._camera, view._shown)
        for flag in view._off:
            view._renderer.scene.flags[flag] = 0
        assert left_out.any() and np.array_equal(view._renderer.render(), shown)
    simulator.close()


@pytest.mark.thorough
def test_closing_one_simulator_leaves_the_pictures_of_another(simulator: DrawerSimulator) -> None:
    first = DrawerSimulator("drawer-close")
    first.reset(0.05)
    first.frame()
    second = DrawerSimulator("drawer-close")
    second.reset(0.05)
    before = second.frame()
    first.close()
    assert np.array_equal(second.frame(), before)
    del first  # and whatever is freed with it
    simulator.reset(0.0)
    simulator.frame()
    assert np.array_equal(second.frame(), before)


def test_a_longer_hold_is_the_same_action_repeated(simulator: DrawerSimulator) -> None:
    single = DrawerSimulator("drawer-open", action_repeat=1)
    action = np.array([0.3, -0.2, 0.5, 1.0])
    simulator.reset(0.04)
    simulator.act(action)
    single.reset(0.04)
    for _ in range(4):
        single.act(action)
    assert np.array_equal(simulator.observation[:18], single.observation[:18])


def test_missing_packages_are_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(OneiroError, match=r"pip install 'oneiro\[robot\]'"):
        DrawerSimulator("drawer-open")


def test_a_renderer_that_the_person_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    module.choose_renderer()
    assert module.os.environ["MUJOCO_GL"] == "glfw"
    monkeypatch.delenv("MUJOCO_GL")
    module.choose_renderer()
    assert module.os.environ["MUJOCO_GL"] in ("osmesa", "egl")


@pytest.mark.parametrize("name", list(policies.PERTURBATIONS))
def test_every_grade_stays_within_the_action_box_and_repeats_itself(name: str) -> None:
    action = np.array([0.9, -0.9, 0.0, -1.0], np.float32)

    def taken() -> np.ndarray:
        perturb = policies.perturbation(name)(generator("perturbation", 3))
        return np.stack([perturb(action) for _ in range(50)])

    first = taken()
    assert first.dtype == np.float32 and np.abs(first).max() <= 1 and np.array_equal(first, taken())
    differs = np.abs(first - action).max(axis=1) > 0
    assert differs.mean() == {"expert": 0, "half-random": pytest.approx(0.5, abs=0.2)}.get(name, 1)


def test_an_unknown_grade_names_the_nearest() -> None:
    with pytest.raises(OneiroError, match="did you mean 'noisy'"):
        policies.perturbation("noisi")
