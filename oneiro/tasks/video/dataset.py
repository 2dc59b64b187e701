"""Segments of robot video as arrays, cut from episode files, for training and for tests."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, cached_property
from threading import Lock
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.worlds.robot.episodes import Episodes, RobotEpisode

KEPT_BYTES = 2 << 30
"""Frames of episodes that stay in memory once they were read; a dataset that has more is read segment by segment."""
READERS = min(16, os.cpu_count() or 1)
"""Threads that read segments: decoding a picture leaves Python free."""
BATCHES_AHEAD = 2
"""Batches that are read before they are asked for."""
Item = TypeVar("Item")
Result = TypeVar("Result")

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
    """Episodes. Where all of them fit into memory they are read once, else each segment when it is asked for."""

    def __init__(self, episodes: Episodes, length: int, size: tuple[int, int] | None = None) -> None:
        """Segments have `length` frames of `size` (height, width); None: as they are in the files."""
        self.episodes, self.length, self.size = episodes, length, size
        self.windows: Windows = episodes.windows(length)
        """Every segment there is."""
        if not len(self.windows):
            longest = max(episodes.lengths, default=0)
            raise OneiroError(f"no episode has {length} frames, the longest has {longest}; record longer ones")
        self._kept: OrderedDict[int, RobotEpisode] = OrderedDict()
        self._actions: dict[int, NDArray[np.float32]] = {}
        self._bytes, self._lock = 0, Lock()

    @cached_property
    def in_memory(self) -> bool:
        """Whether all frames may stay in memory."""
        height, width = self.size or self.episode(0).image.shape[1:3]
        return sum(self.episodes.lengths) * height * width * 3 <= KEPT_BYTES

    def draw(self, count: int, *seed: int | str) -> Windows:
        """Random segments, the same for the same seed."""
        chosen = seeds.generator(*seed).integers(len(self.windows), size=count)
        return self.windows[chosen]

    def cut(self, windows: Windows, contexts: Windows | None = None) -> Clips:
        """The segments themselves. Their context is their first frame, or the frames `contexts` names."""
        wanted = [(int(e), range(int(start), int(start) + self.length)) for e, start in windows]
        images, actions = np.stack(self.read(wanted)), self.actions(windows)
        if contexts is None:
            return Clips(images, actions, images[:, 0])
        return Clips(images, actions, np.concatenate(self.read((int(e), [int(at)]) for e, at in contexts)))

    def earlier(self, windows: Windows, context_offset: int, *seed: int | str) -> Windows:
        """A frame up to `context_offset` before the start of each segment, its own first frame among them."""
        back = seeds.generator(*seed).random(len(windows))
        starts = windows[:, 1]
        oldest = np.maximum(starts - context_offset, 0)
        return np.stack([windows[:, 0], oldest + (back * (starts - oldest + 1)).astype(np.int64)], axis=1)

    def scatter_frames(self, count: int, frames: int, horizon: int, *seed: int | str) -> Images:
        """[count, frames, H, W, 3]: a first frame, and others drawn among the `horizon` consecutive ones it begins.

        With `horizon` equal to `frames` they are consecutive. An episode shorter than the horizon is used as it is.
        """
        random, wanted = seeds.generator(*seed), []
        for _ in range(count):
            index = int(random.choice(self.windows[:, 0]))
            length = self.episodes.lengths[index]
            start = int(random.integers(max(1, length - horizon + 1)))
            span = min(horizon, length - start)
            if horizon == frames == span:
                places = np.arange(frames)
            else:
                places = np.concatenate([[0], np.sort(random.integers(span, size=frames - 1))])
            wanted.append((index, (start + places).tolist()))
        return np.stack(self.read(wanted))

    def actions(self, windows: Windows) -> NDArray[np.float32]:
        """The actions of segments, [N, T, A]."""
        return np.stack([self._actions_of(int(e))[start : start + self.length] for e, start in windows])

    def read(self, wanted: Iterable[tuple[int, Sequence[int]]]) -> list[Images]:
        """Frames of episodes, each [len(places), H, W, 3] for (episode, places)."""
        return self.each(lambda one: self.frames(*one), wanted)

    def each(self, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """What `work` gives for each item; several threads do it where frames are read from files."""
        return list(map(work, items)) if self.in_memory else list(_readers().map(work, items))

    def frames(self, index: int, places: Sequence[int]) -> Images:
        """Some frames of an episode, in the size that was asked for."""
        images = None if self.in_memory else self.episodes.frames(index, places)
        if images is None:
            return self.episode(index).image[list(places)]
        return images if self.size is None or images.shape[1:3] == self.size else resize(images, self.size)

    def episode(self, index: int) -> RobotEpisode:
        """One episode, in the size that was asked for."""
        with self._lock:
            if index in self._kept:
                self._kept.move_to_end(index)
                return self._kept[index]
        loaded = self.episodes[index]
        if self.size is not None and loaded.image.shape[1:3] != self.size:
            loaded = replace(loaded, image=resize(loaded.image, self.size))
        with self._lock:
            if index not in self._kept:
                self._kept[index] = loaded
                self._bytes += loaded.image.nbytes
            while self._bytes > KEPT_BYTES and len(self._kept) > 1:
                self._bytes -= self._kept.popitem(last=False)[1].image.nbytes
        return loaded

    def _actions_of(self, index: int) -> NDArray[np.float32]:
        """An episode's actions; all that were read stay, a thousandth of the frames."""
        if index not in self._actions:
            self._actions[index] = self.episode(index).action if self.in_memory else self.episodes.action(index)
        return self._actions[index]


class ReadAhead(Generic[Item, Result]):
    """`read(item)`, where `read` is a pure function; while a result is used, threads read those that come `after` it.

    An item that was not foreseen is read when it is asked for.
    """

    def __init__(self, read: Callable[[Item], Result], after: Callable[[Item], Item | None]) -> None:
        self.read, self.after = read, after
        self._pool, self._coming = ThreadPoolExecutor(BATCHES_AHEAD), dict[Item, Future[Result]]()

    def __call__(self, item: Item) -> Result:
        before, self._coming = self._coming, {}
        present = before[item] if item in before else self._pool.submit(self.read, item)
        following = self.after(item)
        while following is not None and len(self._coming) < BATCHES_AHEAD:
            known = following in before
            self._coming[following] = before[following] if known else self._pool.submit(self.read, following)
            following = self.after(following)
        return present.result()

    def __enter__(self) -> ReadAhead[Item, Result]:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.shutdown(cancel_futures=True)


@cache
def _readers() -> ThreadPoolExecutor:
    """For all datasets of the process; made when the first needs it."""
    return ThreadPoolExecutor(READERS, "segments")


def resize(images: Images, size: tuple[int, int]) -> Images:
    """Images [T, H, W, 3] in another size, every pixel a mean of those it covers."""
    from PIL import Image

    height, width = size
    return np.stack([np.asarray(Image.fromarray(one).resize((width, height), Image.Resampling.BOX)) for one in images])
