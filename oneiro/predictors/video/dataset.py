"""Segments of robot video as arrays, cut from episode files, for training and for tests."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro import seeds
from oneiro.errors import OneiroError
from oneiro.worlds.robot.episodes import Episodes, RobotEpisode

KEPT_BYTES = 2 << 30
"""Frames of episodes that stay in memory once they were read."""

Images = NDArray[np.uint8]
Windows = NDArray[np.int64]
"""[N, 2]: which episode, and its first frame."""


@dataclass(frozen=True)
class Clips:
    """N segments of T frames: images [N, T, H, W, 3], the action taken at each [N, T, A], a context [N, H, W, 3]."""

    images: Images
    actions: NDArray[np.float32]
    context: Images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, part: Any) -> Clips:
        return Clips(self.images[part], self.actions[part], self.context[part])


class VideoDataset:
    """Episodes, read once and kept while there is room."""

    def __init__(self, episodes: Episodes, length: int, size: tuple[int, int] | None = None) -> None:
        """Segments have `length` frames of `size` (height, width); None: as they are in the files."""
        self.episodes, self.length, self.size = episodes, length, size
        self.windows: Windows = episodes.windows(length)
        """Every segment there is."""
        if not len(self.windows):
            longest = max(episodes.lengths, default=0)
            raise OneiroError(f"no episode has {length} frames, the longest has {longest}; record longer ones")
        self._kept: OrderedDict[int, RobotEpisode] = OrderedDict()
        self._bytes = 0

    def draw(self, count: int, *seed: int | str) -> Windows:
        """Random segments, the same for the same seed."""
        chosen = seeds.generator(*seed).integers(len(self.windows), size=count)
        return self.windows[chosen]

    def cut(self, windows: Windows, contexts: Windows | None = None) -> Clips:
        """The segments themselves. Their context is their first frame, or the frames `contexts` names."""
        parts = [self.episode(int(e)).part(int(start), self.length) for e, start in windows]
        images = np.stack([part.image for part in parts])
        actions = np.stack([part.action for part in parts]).astype(np.float32)
        if contexts is None:
            return Clips(images, actions, images[:, 0])
        return Clips(images, actions, np.stack([self.episode(int(e)).image[at] for e, at in contexts]))

    def earlier(self, windows: Windows, context_offset: int, *seed: int | str) -> Windows:
        """A frame up to `context_offset` before the start of each segment, its own first frame among them."""
        back = seeds.generator(*seed).random(len(windows))
        starts = windows[:, 1]
        oldest = np.maximum(starts - context_offset, 0)
        return np.stack([windows[:, 0], oldest + (back * (starts - oldest + 1)).astype(np.int64)], axis=1)

    def scattered(self, count: int, frames: int, horizon: int, *seed: int | str) -> Images:
        """[count, frames, H, W, 3]: a first frame, and others drawn among the `horizon` consecutive ones it begins.

        With `horizon` equal to `frames` they are consecutive. An episode shorter than the horizon is used as it is.
        """
        random, found = seeds.generator(*seed), []
        for _ in range(count):
            image = self.episode(int(random.choice(self.windows[:, 0]))).image
            start = int(random.integers(max(1, len(image) - horizon + 1)))
            span = image[start : start + horizon]
            if horizon == frames == len(span):
                found.append(span)
            else:
                found.append(span[np.concatenate([[0], np.sort(random.integers(len(span), size=frames - 1))])])
        return np.stack(found)

    def actions(self, windows: Windows) -> NDArray[np.float32]:
        """The actions of segments, [N, T, A]."""
        return np.stack([self.episode(int(e)).action[start : start + self.length] for e, start in windows])

    def episode(self, index: int) -> RobotEpisode:
        """One episode, in the size that was asked for."""
        if index in self._kept:
            self._kept.move_to_end(index)
            return self._kept[index]
        found = self.episodes[index]
        if self.size is not None and found.image.shape[1:3] != self.size:
            found = replace(found, image=resized(found.image, self.size))
        self._kept[index] = found
        self._bytes += found.image.nbytes
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].image.nbytes
        return found


def resized(images: Images, size: tuple[int, int]) -> Images:
    """Images [T, H, W, 3] in another size, every pixel a mean of those it covers."""
    from PIL import Image

    height, width = size
    return np.stack([np.asarray(Image.fromarray(one).resize((width, height), Image.Resampling.BOX)) for one in images])
