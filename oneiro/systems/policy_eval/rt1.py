"""RT-1 as a pixel policy: thirteen numbers from a TensorFlow checkpoint, which nothing else here needs.

A checkpoint (`rt_1_tf_trained_for_...`) is a SavedModel with the functions `action(time_step, state)` and
`get_initial_state(batch_size)`. What else a time step of it holds is read from its own signature and left at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot.rlds import RT1_ACTION

WIDTHS = (2, 1, 1, 3, 3, 3)
"""Numbers of each part of the action, in the order of `RT1_ACTION`."""
FRAME = (256, 320)
DEAD_ZONE = 0.01
"""A gripper that would move less than this does not move."""
MISSING = "RT-1 checkpoints need TensorFlow; run: pip install 'oneiro[rt1]'"

Step = Callable[[np.ndarray, str, Any], tuple[Mapping[str, Any], Any]]
"""A frame uint8 `[256, 320, 3]`, the instruction and the state (None at first) -> named outputs and the next state."""


class Rt1:
    """RT-1 in B rollouts, each with a state of its own. `step` runs the network for one frame; see `load_rt1`."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self._states: list[Any] = []
        self._instruction = ""

    def begin(self, count: int, seed: int, instruction: str) -> None:
        self._states, self._instruction = [None] * count, instruction

    def act(self, frames: np.ndarray) -> np.ndarray:
        actions = []
        for row, frame in enumerate(frames):
            outputs, self._states[row] = self.step(fitted(frame), self._instruction, self._states[row])
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


def fitted(frame: np.ndarray) -> np.ndarray:
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
