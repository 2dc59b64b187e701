"""Meta-World's drawer on MuJoCo, as one small object: set a start, hold an action, look.

The view is made for learning from pixels: a free camera close to the drawer (the stock cameras show it in six pixels),
the goal marker hidden (it would give the answer away), shadows and multisampling off (ten times as many frames a
second). The packages come with the extra `robot` and are imported when a simulator is first made.
"""

from __future__ import annotations

import ctypes.util
import importlib
import os
import warnings
import weakref
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from oneiro.runtime.errors import OneiroError

TaskName = Literal["drawer-open", "drawer-close"]


@dataclass(frozen=True)
class RobotTask:
    """One of Meta-World's tasks: where its simulation and its scripted expert are, and what counts as done."""

    environment: str
    expert: str
    instruction: str
    done_at: float
    """Opening of the drawer in metres, as seen in a frame, from which the task is done (SIMPLER's criterion)."""
    opens: bool
    """Whether more is better."""

    def done(self, opening: Any) -> Any:
        """Whether drawers that are `opening` metres open are in the wanted state; elementwise for arrays."""
        return opening >= self.done_at if self.opens else opening <= self.done_at


TASKS: dict[str, RobotTask] = {
    "drawer-open": RobotTask(
        environment="metaworld.envs.sawyer_drawer_open_v3:SawyerDrawerOpenEnvV3",
        expert="metaworld.policies.sawyer_drawer_open_v3_policy:SawyerDrawerOpenV3Policy",
        instruction="open the drawer",
        done_at=0.15,
        opens=True,
    ),
    "drawer-close": RobotTask(
        environment="metaworld.envs.sawyer_drawer_close_v3:SawyerDrawerCloseEnvV3",
        expert="metaworld.policies.sawyer_drawer_close_v3_policy:SawyerDrawerCloseV3Policy",
        instruction="close the drawer",
        done_at=0.05,
        opens=False,
    ),
}
ACTION = 4
"""Numbers of an action, each in [-1, 1]: hand towards x, y, z (1 is a centimetre a simulator step), gripper effort."""
SIDE = 0.1
"""The drawer stands up to so many metres left or right of the middle."""
ACTION_REPEAT = 4
"""Simulator steps (0.0125 s each) that an action lasts unless someone says otherwise: 20 actions a second."""
DEPTH = 0.9
DRAWER_JOINT = "goal_slidey"
LOOK_AT, DISTANCE, AZIMUTH, ELEVATION = (0.0, 0.68, 0.12), 1.1, 0.0, -30.0
ENDLESS = 1 << 31  # steps, in place of Meta-World's own limit
HIDDEN = 5
"""The last of MuJoCo's groups of geoms, which is not drawn unless someone asks for it."""
OF_THE_START = ("_last_rand_vec", "_target_pos", "obj_init_pos", "init_tcp")
"""What Meta-World's environment remembers of a start, besides the physics."""


class DrawerSimulator:
    """One arm, one drawer. `size` is the side of a frame in pixels, `action_repeat` how long an action lasts."""

    def __init__(self, task: TaskName, size: int = 64, action_repeat: int = ACTION_REPEAT) -> None:
        require()
        choose_renderer()
        self.task, self.size, self.action_repeat = TASKS[task], size, action_repeat
        self._env: Any = _load(self.task.environment)()
        self._env.max_path_length = ENDLESS  # whoever uses the simulator counts
        # Starts are set directly: the task sampler of Meta-World would draw them from numpy's global state.
        self._env._freeze_rand_vec, self._env._set_task_called = True, True
        self._expert: Any = _load(self.task.expert)()
        self._drawer: int = int(self._env.model.joint(DRAWER_JOINT).qposadr[0])
        self._view: _View | None = None
        self.observation = np.zeros(39)
        """Meta-World's own state vector: hand, gripper, drawer handle, each now and one step ago."""
        self.success = False
        """Meta-World's own criterion, at the end of the last action."""

    def reset(self, side: float) -> None:
        """Start over, with the drawer `side` metres beside the middle. Nothing is left of what was before."""
        self._env._last_rand_vec = np.array([side, DEPTH, 0.0])
        self.observation, _ = self._env.reset()
        self.success = False

    def act(self, action: np.ndarray) -> None:
        """Apply one action, clipped to [-1, 1], for `action_repeat` simulator steps."""
        action = np.clip(np.asarray(action, np.float32), -1.0, 1.0)
        for _ in range(self.action_repeat):
            self.observation, _, _, _, info = self._env.step(action)
        self.success = bool(info["success"])

    def expert(self) -> np.ndarray:
        """What Meta-World's scripted expert does now, clipped, float32 `[4]`. It sees the state, not the frame."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that its actions will be clipped; they are
            action = self._expert.get_action(self.observation)
        return np.clip(action, -1.0, 1.0).astype(np.float32)

    @property
    def opening(self) -> float:
        """How far the drawer is open, in metres: 0 is shut. The stop at 0.16 is soft: pulled on, it ends near 0.2."""
        return float(-self._env.data.qpos[self._drawer])

    def frame(self) -> np.ndarray:
        """What the camera sees, uint8 `[size, size, 3]`."""
        if self._view is None:
            self._view = _View(self._env.model, self.size)
        return self._view.render(self._env.data)

    def save(self) -> Any:
        """Everything that decides what happens next; `restore` goes back to it, whatever was done in between."""
        import mujoco

        env = self._env
        state = np.empty(mujoco.mj_stateSize(env.model, mujoco.mjtState.mjSTATE_INTEGRATION))
        mujoco.mj_getState(env.model, env.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        start = {name: np.array(getattr(env, name)) for name in OF_THE_START}
        placed = env.model.body("drawer").pos.copy()
        return state, start, placed, env._prev_obs.copy(), self.observation.copy(), self.success

    def restore(self, saved: Any) -> None:
        import mujoco

        env = self._env
        state, start, placed, previous, observation, success = saved
        for name, value in start.items():
            setattr(env, name, value.copy())
        env.model.body("drawer").pos = placed
        mujoco.mj_setState(env.model, env.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        mujoco.mj_forward(
            env.model, env.data
        )  # where bodies are, for the camera; it also moves the solver's warm start
        mujoco.mj_setState(env.model, env.data, state, mujoco.mjtState.mjSTATE_INTEGRATION)
        env._prev_obs, self.observation, self.success = previous.copy(), observation.copy(), success

    def close(self) -> None:
        """Free the graphics context."""
        if self._view is not None:
            self._view.close()
            self._view = None


class _View:
    """The camera and the renderer behind it."""

    def __init__(self, model: Any, size: int) -> None:
        import mujoco

        model.vis.quality.shadowsize, model.vis.quality.offsamples = 0, 0
        try:
            self._renderer = mujoco.Renderer(model, size, size)
        except Exception as error:  # every graphics library fails in its own way
            raise OneiroError(
                f"frames cannot be drawn with MUJOCO_GL={os.environ.get('MUJOCO_GL')} ({error}); install OSMesa "
                "(apt-get install libosmesa6 libgl1) or EGL (libegl1), or set MUJOCO_GL to what works here, before "
                "anything imports mujoco"
            ) from error
        # At the latest before Python takes the graphics library apart, which MuJoCo itself would be too late for.
        self.close = weakref.finalize(self, _free, self._renderer)
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FREE
        self._camera.lookat[:] = LOOK_AT
        self._camera.distance, self._camera.azimuth, self._camera.elevation = DISTANCE, AZIMUTH, ELEVATION
        self._shown = mujoco.MjvOption()
        self._shown.sitegroup[:] = 0
        self._off = (mujoco.mjtRndFlag.mjRND_SHADOW, mujoco.mjtRndFlag.mjRND_REFLECTION)
        self._model, self._groups = model, model.geom_group.copy()
        self._eye, self._edges = view_of(self._camera, model.vis.global_.fovy)

    def render(self, data: Any) -> np.ndarray:
        self._model.geom_group[:] = np.where(self._outside(data), HIDDEN, self._groups)
        self._renderer.update_scene(data, self._camera, self._shown)
        for flag in self._off:
            self._renderer.scene.flags[flag] = 0
        return np.asarray(self._renderer.render()).copy()

    def _outside(self, data: Any) -> np.ndarray:
        """What lies wholly beside the picture, bool `[G]`: half of the arm's triangles, which MuJoCo would draw."""
        radius = self._model.geom_rbound
        beside = (data.geom_xpos - self._eye) @ self._edges.T < -radius[:, None]
        return np.asarray(beside.any(axis=1) & (radius > 0))  # what has no end, as the floor, has no radius


def view_of(camera: Any, angle: float) -> tuple[np.ndarray, np.ndarray]:
    """Where a camera stands, `[3]`, and which way is inwards at the four edges of its square picture, `[4, 3]`."""
    turned, raised, half = np.radians([camera.azimuth, camera.elevation, angle / 2])
    ahead = np.array([np.cos(raised) * np.cos(turned), np.cos(raised) * np.sin(turned), np.sin(raised)])
    right = np.array([np.sin(turned), -np.cos(turned), 0.0])
    up = np.cross(right, ahead)
    edges = [np.sin(half) * ahead + np.cos(half) * side for side in (right, -right, up, -up)]
    return camera.lookat - camera.distance * ahead, np.stack(edges)


def _free(renderer: Any) -> None:
    """Give back a renderer's textures and meshes in its own context: in another one's, that one's would be lost."""
    if renderer._gl_context is not None and renderer._mjr_context is not None:
        renderer._gl_context.make_current()
        renderer._mjr_context.free()
        renderer._mjr_context = None
    renderer.close()


def require() -> None:
    """Say what to install where the simulator's packages are missing."""
    missing = [name for name in ("mujoco", "metaworld") if find_spec(name) is None]
    if missing:
        raise OneiroError(f"robot worlds need the package {missing[0]}; run: pip install 'oneiro[robot]'")


def choose_renderer() -> None:
    """Set MUJOCO_GL, which MuJoCo reads once when it is imported, to a library that draws without a screen.

    OSMesa where it is installed (software, needs no device, the same picture everywhere), else EGL. A choice made by
    the person stays.
    """
    os.environ.setdefault("MUJOCO_GL", "osmesa" if ctypes.util.find_library("OSMesa") else "egl")


def _load(target: str) -> Any:
    module, _, name = target.partition(":")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of libraries about libraries
            return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, OSError) as error:
        raise OneiroError(
            f"{target} cannot be loaded ({error}); run: pip install --force-reinstall mujoco==3.3.0 metaworld==3.1.1"
        ) from error
