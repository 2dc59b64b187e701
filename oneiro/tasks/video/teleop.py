"""Driving a learned model by hand: keys become actions, frames become files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneiro.report.figures import save_gif
from oneiro.runtime import files
from oneiro.runtime.errors import OneiroError
from oneiro.sampling.engine import Engine
from oneiro.tasks.video.dataset import Images, VideoDataset
from oneiro.tasks.video.model import LearnedFrames, open_model
from oneiro.worlds.robot.episodes import ActionBins, open_episodes

KEYS = (("a", "d"), ("s", "w"), ("f", "r"), ("z", "x"))
"""For the first entries of an action, the keys that make each small and large."""
STILL = "."
NAMED = re.compile(r"([0-9]{1,4})([-+])")
"""Any entry by its number, from 1 on: `12+` makes the twelfth large."""
KEY = re.compile(rf"{NAMED.pattern}|\S")


def key_action(bins: ActionBins, key: str) -> NDArray[np.float32] | None:
    """A key pushes one entry to the end of its range and leaves the others at 0, or as near as their range goes; None:
    it means nothing.
    """
    action = np.clip(0.0, bins.low, bins.high).astype(np.float32)
    pushed = _push(key, len(action))
    if pushed is not None:
        entry, large = pushed
        action[entry] = (bins.high if large else bins.low)[entry]
    return action if pushed is not None or key == STILL else None


def _push(key: str, entries: int) -> tuple[int, bool] | None:
    """The entry a key pushes, and whether to its large end."""
    if named := NAMED.fullmatch(key):
        entry = int(named[1]) - 1
        return (entry, named[2] == "+") if 0 <= entry < entries else None
    return next(((entry, key == pair[1]) for entry, pair in enumerate(KEYS[:entries]) if key in pair), None)


class Teleop:
    """One rollout in a person's hands. Frames go to a folder as they come."""

    def __init__(self, camera: LearnedFrames, start: Images, out: Path, seed: int) -> None:
        self.camera, self.out, self.seed = camera, out, seed
        self.shown: list[Images] = []
        for stale in out.glob("frame-[0-9]*.png"):  # of an earlier rollout, which may have been longer
            stale.unlink()
        self._keep(camera.begin(start[None, None], np.zeros((1, 0, len(camera.task.bins.low)), np.float32))[0])

    @property
    def frame(self) -> Images:
        return self.shown[-1]

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        return KEYS[: self.entries]

    @property
    def entries(self) -> int:
        """Numbers of an action."""
        return len(self.camera.task.bins.low)

    def press(self, key: str) -> bool:
        """Take the action of a key; False where it means nothing."""
        action = key_action(self.camera.task.bins, key)
        if action is None:
            return False
        self._keep(self.camera.step(action[None], self.seed + len(self.shown))[0])  # other noise at every step
        return True

    def finish(self) -> Path:
        """All frames as one moving picture, with the numbers of their files."""
        target = self.out / "rollout.gif"
        save_gif(target, {"model": np.stack(self.shown)}, given={"model": 1})
        return target

    def _keep(self, frame: Images) -> None:
        from PIL import Image

        self.shown.append(frame)
        path = self.out / f"frame-{len(self.shown):04d}.png"
        files.write_with(path, lambda part: Image.fromarray(frame).save(part, "PNG"))


def open_teleop(model: str | Path, data: str | Path | None, episode: int, out: Path, seed: int) -> Teleop:
    """A rollout from the first frame of a test episode; without `data`, of the run's own."""
    language, task, metadata = open_model(model)
    if data is None and not (Path(model) / "data").is_dir():
        raise OneiroError(f"{model} holds no episodes to start from; name the folder of some with --data")
    episodes = open_episodes(data or Path(model) / "data", every=metadata.test_every, verify=False).test
    if not 0 <= episode < len(episodes):
        raise OneiroError(f"there are {len(episodes)} test episodes: --episode takes 0 to {len(episodes) - 1}")
    sizes = task.tokenizer.settings
    start = VideoDataset(episodes, 1, (sizes.height, sizes.width)).episode(episode).image[0]
    return Teleop(LearnedFrames(task, Engine(language), metadata.sampling), start, out, seed)


def keys_of(line: str) -> Iterator[str]:
    return (match[0] for match in KEY.finditer(line))


def blocks(frame: Images, width: int = 48) -> str:
    """A frame for a terminal with colours: two pixels in each character cell."""
    step = max(1, frame.shape[1] // width)
    small = frame[::step, ::step]
    lines = []
    for upper, lower in zip(small[::2], small[1::2], strict=False):
        cells = (
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]}m\x1b[48;2;{b[0]};{b[1]};{b[2]}m▀"
            for a, b in zip(upper, lower, strict=True)
        )
        lines.append("".join(cells) + "\x1b[0m")
    return "\n".join(lines)
