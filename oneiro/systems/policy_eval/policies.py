"""Policies that see frames: clones of the expert at every perturbation, and recorded actions.

What a policy inside a model does must follow from what the model shows, or nothing of the model is tested. The scripted
policies of a simulator cannot do that: they read its state. So each policy here is the *cloned* expert, a network that
sees the frame, spoiled in the same way as the scripted one; and the clone at earlier stages of its training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from oneiro.models.video.pixel import PixelReader
from oneiro.runtime.errors import OneiroError
from oneiro.runtime.seeds import generator
from oneiro.worlds.robot.collect import PERTURBATIONS, Perturbation
from oneiro.worlds.robot.rlds import RT1_ACTION


class PixelPolicy(Protocol):
    """Acts on what it sees, in B rollouts at a time."""

    def begin(self, count: int, seed: int, instruction: str) -> None:
        """Start `count` rollouts; nothing of earlier ones remains."""
        ...

    def act(self, frames: np.ndarray) -> np.ndarray:
        """Frames uint8 `[B, H, W, 3]` -> actions float32 `[B, A]`."""
        ...


class Cloned:
    """A network's action with a perturbation, whose noise differs in each rollout."""

    def __init__(self, reader: PixelReader, perturbation: str = "expert") -> None:
        self.reader, self.perturbation = reader, PERTURBATIONS[perturbation]
        self._perturbations: list[Perturbation] = []

    def begin(self, count: int, seed: int, instruction: str) -> None:
        self._perturbations = [self.perturbation(generator("cloned", seed, row)) for row in range(count)]

    def act(self, frames: np.ndarray) -> np.ndarray:
        read = self.reader.read(frames)
        return np.stack([perturb(action) for perturb, action in zip(self._perturbations, read, strict=True)])


class Recorded:
    """Actions `[B, T, A]` that were recorded elsewhere, one after the other, whatever is shown: an open loop.

    It measures how well a model follows given actions, not a policy. After its end it repeats the last action.
    """

    def __init__(self, actions: np.ndarray) -> None:
        self.actions = np.asarray(actions, np.float32)
        self._at = 0

    def begin(self, count: int, seed: int, instruction: str) -> None:
        if count != len(self.actions):
            raise ValueError(f"{len(self.actions)} recordings cannot play {count} rollouts")
        self._at = 0

    def act(self, frames: np.ndarray) -> np.ndarray:
        action = self.actions[:, min(self._at, self.actions.shape[1] - 1)]
        self._at += 1
        return action


def clones(readers: Sequence[tuple[str, PixelReader]]) -> dict[str, Cloned]:
    """Every policy that comes of a clone's stages: the last one with each perturbation, earlier ones by name."""
    *earlier, (_, last) = readers
    return {name: Cloned(last, name) for name in PERTURBATIONS} | {name: Cloned(reader) for name, reader in earlier}


WIDTHS = (2, 1, 1, 3, 3, 3)
"""Numbers of each part of the action, in the order of `RT1_ACTION`."""
FRAME = (256, 320)
DEAD_ZONE = 0.01
"""A gripper that would move less than this does not move."""
MISSING = "RT-1 checkpoints need TensorFlow; run: pip install 'oneiro[rt1]'"

Step = Callable[[np.ndarray, str, Any], tuple[Mapping[str, Any], Any]]
"""A frame uint8 `[256, 320, 3]`, the instruction and the state (None at first) -> named outputs and the next state."""


class Rt1:
    """RT-1 in B rollouts, each with a state of its own. `step` runs the network for one frame; see `load_rt1`.

    A checkpoint (`rt_1_tf_trained_for_...`) is a SavedModel with the functions `action(time_step, state)` and
    `get_initial_state(batch_size)`. What else a time step of it holds is read from its own signature and left at zero.
    """

    def __init__(self, step: Step) -> None:
        self.step = step
        self._states: list[Any] = []
        self._instruction = ""

    def begin(self, count: int, seed: int, instruction: str) -> None:
        self._states, self._instruction = [None] * count, instruction

    def act(self, frames: np.ndarray) -> np.ndarray:
        actions = []
        for row, frame in enumerate(frames):
            outputs, self._states[row] = self.step(fit_frame(frame), self._instruction, self._states[row])
            actions.append(rt1_action(outputs))
        return np.stack(actions)


def rt1_action(outputs: Mapping[str, Any]) -> np.ndarray:
    """RT-1's outputs as its thirteen numbers; what it does not say (the base) is 0, a barely moved gripper too."""
    parts = []
    for name, width in zip(RT1_ACTION, WIDTHS, strict=True):
        part = np.asarray(outputs.get(name, np.zeros(width)), np.float32).reshape(-1)
        if part.shape != (width,):
            raise ValueError(f"{name} has {part.size} numbers, RT-1's has {width}")
        if name == "gripper_closedness_action":
            part = np.where(np.abs(part) < DEAD_ZONE, np.float32(0), part)
        parts.append(part)
    return np.concatenate(parts)


def rt1_stops(actions: np.ndarray) -> np.ndarray:
    """Whether actions `[B, 13]` end the episode: terminate_episode is (1, 0, 0)."""
    return np.asarray((np.rint(actions[:, 7:10]) == (1, 0, 0)).all(axis=1))


def fit_frame(frame: np.ndarray) -> np.ndarray:
    """A frame inside 256x320 with its proportions kept, black around it."""
    from PIL import Image

    height, width = FRAME
    scale = min(height / frame.shape[0], width / frame.shape[1])
    inner = max(1, round(frame.shape[1] * scale)), max(1, round(frame.shape[0] * scale))
    whole = np.zeros((height, width, 3), np.uint8)
    top, left = (height - inner[1]) // 2, (width - inner[0]) // 2
    resized = np.asarray(Image.fromarray(frame).resize(inner, Image.Resampling.BILINEAR))
    whole[top : top + inner[1], left : left + inner[0]] = resized
    return whole


def load_rt1(checkpoint: str | Path, embedder: str | Path) -> Rt1:
    """RT-1 from a SavedModel folder, and a sentence encoder of 512 numbers (Universal Sentence Encoder Large 5)."""
    try:
        import tensorflow as tf
    except ImportError as error:
        raise OneiroError(MISSING) from error
    for folder in (checkpoint, embedder):
        if not (Path(folder) / "saved_model.pb").is_file():
            raise OneiroError(f"{folder} is not a TensorFlow SavedModel (no saved_model.pb); unpack it there")
    policy, encode = tf.saved_model.load(str(checkpoint)), tf.saved_model.load(str(embedder))
    (now_spec, state_spec), _ = policy.action.concrete_functions[0].structured_input_signature
    embedded: dict[str, Any] = {}

    def zeros(spec: Any) -> Any:
        return tf.zeros([1, *spec.shape[1:]], spec.dtype)

    def step(frame: np.ndarray, instruction: str, state: Any) -> tuple[Mapping[str, Any], Any]:
        if instruction not in embedded:
            embedded[instruction] = tf.cast(encode([instruction])[:1], tf.float32)
        now = tf.nest.map_structure(zeros, now_spec)
        seen = {"image": tf.constant(frame[None]), "natural_language_embedding": embedded[instruction]}
        # The first of an episode is of kind 0, the others 1: tf-agents' restart and transition.
        now = now._replace(
            step_type=tf.constant([int(state is not None)], tf.int32),
            discount=tf.ones([1], tf.float32),
            observation={**now.observation, **seen},
        )
        chosen = policy.action(now, tf.nest.map_structure(zeros, state_spec) if state is None else state)
        return {name: value.numpy()[0] for name, value in chosen.action.items()}, chosen.state

    return Rt1(step)
