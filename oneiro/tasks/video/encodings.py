"""Segments as tokens, made when they are first asked for and kept.

What is encoded together, and so kept together, is a context and all frames a segment may show behind it. Each such
piece goes through the tokenizer by itself on a CPU, so its tokens depend on nothing else; a GPU takes many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oneiro.episode import Row
from oneiro.runtime import seeds
from oneiro.tasks.video.augment import AugmentSettings, jitter
from oneiro.tasks.video.dataset import Clips, Images, ReadAhead, VideoDataset, Windows
from oneiro.tasks.video.predictor import Encoded, VideoPredictor

AT_ONCE = 64
"""Pieces that a GPU encodes together."""
CACHED_PIECES = 400_000
"""Pieces that are kept, the newest; a context of 64 tokens and 8 frames of 16 are 3 kB."""

Key = tuple[int, int]
"""Episode, and the frame that is the context."""


class Encodings:
    """Encoded segments of some dataset.

    `context_offset` is how far before a segment its context may lie. A share `first` of contexts are the first frame
    of their episode, however far back: what a rollout sees that goes on for long.
    """

    def __init__(
        self,
        dataset: VideoDataset,
        predictor: VideoPredictor,
        context_offset: int = 0,
        first: float = 0.0,
        augment: AugmentSettings | None = None,
    ) -> None:
        self.dataset, self.predictor, self.context_offset, self.first = dataset, predictor, context_offset, first
        self.augment = augment
        """How colours change: for each context in its own way, which stays, so that tokens can be kept."""
        self._kept: dict[Key, tuple[NDArray[np.int32], NDArray[np.int32]]] = {}

    def contexts(self, windows: Windows, *seed: int | str) -> Windows:
        """A context for each segment: its own first frame, one not long before, or its episode's first."""
        starts = self.dataset.earlier(windows, self.context_offset, *seed) if self.context_offset else windows.copy()
        # Rollouts keep the context of their start, so some rows are learned with one that lies far back.
        starts[seeds.generator(*seed, "first").random(len(windows)) < self.first, 1] = 0
        return starts

    def encode(self, windows: Windows, contexts: Windows | None = None) -> Encoded:
        """Segments as tokens; without `contexts` each has its first frame."""
        places = windows if contexts is None else contexts
        self._make([(int(e), int(at)) for e, at in places])
        context, frames = [], []
        for (episode, start), (_, at) in zip(windows.tolist(), places.tolist(), strict=True):
            kept = self._kept[episode, at]
            context.append(kept[0])
            frames.append(kept[1][start - at : start - at + self.dataset.length])
        actions = self.predictor.bins.encode(self.dataset.actions(windows)).astype(np.int32)
        return Encoded(np.stack(context), np.stack(frames), actions)

    def clips(self, windows: Windows, contexts: Windows) -> Clips:
        """The same segments as frames, in the colours that were encoded."""
        clips = self.dataset.cut(windows)
        if self.augment is None:
            return clips
        keys = [(int(e), int(at)) for e, at in contexts]
        images = np.stack([self._jitter(frames, key) for frames, key in zip(clips.images, keys, strict=True)])
        return Clips(images, clips.actions, images[:, 0])

    def _jitter(self, images: Images, key: Key) -> Images:
        return images if self.augment is None else jitter(images, self.augment, "colours", *key)

    def prepare(self, contexts: Windows, tell: Callable[[int], None] = lambda done: None) -> None:
        """Encode what will be asked for first, as much as is kept, many at once; worth it on a GPU."""
        wanted = list(dict.fromkeys((int(e), int(at)) for e, at in contexts))[:CACHED_PIECES]
        # Neighbours lie in one file.
        keys = sorted(set(wanted) - self._kept.keys())
        self._make_room(len(keys), wanted)
        batches = [keys[start : start + AT_ONCE] for start in range(0, len(keys), AT_ONCE)]
        with ReadAhead(lambda n: self._pieces(batches[n]), lambda n: n + 1 if n + 1 < len(batches) else None) as read:
            for number, batch in enumerate(batches):
                self._encode(batch, read(number))
                tell(len(batch))

    def _make(self, keys: Sequence[Key]) -> None:
        missing = [key for key in dict.fromkeys(keys) if key not in self._kept]
        if missing:
            self._make_room(len(missing), keys)
            self._encode(missing, self._pieces(missing))

    def _make_room(self, count: int, needed: Iterable[Key]) -> None:
        """Drop the oldest that are not `needed`, as many as is necessary to keep `count` more."""
        excess = len(self._kept) + count - CACHED_PIECES
        if excess > 0:
            still = set(needed)
            # A dict is in the order of insertion: the oldest come first.
            for key in list(islice((key for key in self._kept if key not in still), excess)):
                del self._kept[key]

    def _encode(self, keys: Sequence[Key], pieces: Mapping[Key, Images]) -> None:
        together = AT_ONCE if self.predictor.tokenizer.device.type == "cuda" else 1
        for part in alike(sorted(keys, key=self._length), self._length, together):
            images = np.stack([pieces[key] for key in part])
            # Tokens of frames do not depend on actions, so any will do here.
            nothing = np.zeros((*images.shape[:2], len(self.predictor.bins.low)), np.float32)
            made = self.predictor.encode(Clips(images, nothing, images[:, 0]))
            for place, key in enumerate(part):
                self._kept[key] = made.context[place], made.frames[place]

    def _pieces(self, keys: Sequence[Key]) -> dict[Key, Images]:
        return dict(zip(keys, self.dataset.each(self._piece, keys), strict=True))

    def _piece(self, key: Key) -> Images:
        """The frames from a context on; behind the end of an episode its last frame stands still."""
        episode, start = key
        length, last = self._length(key), self.dataset.episodes.lengths[episode] - 1
        images = self.dataset.frames(episode, range(start, min(start + length - 1, last) + 1))
        return self._jitter(images[np.minimum(np.arange(length), len(images) - 1)], key)

    def _length(self, key: Key) -> int:
        """Frames behind a context that a segment may show."""
        return (
            max(self.dataset.episodes.lengths)
            if self.first and not key[1]
            else self.context_offset + self.dataset.length
        )


def alike(keys: Sequence[Key], length: Callable[[Key], int], most: int) -> Iterator[list[Key]]:
    for _, group in groupby(keys, key=length):
        while part := list(islice(group, most)):
            yield part


class SegmentRows(Sequence[Row]):
    """Rows to learn from, one for each drawn segment, made when they are asked for.

    `together` [S, B] are rows that will be asked for one after another: they are read and encoded at once.
    """

    def __init__(
        self,
        encodings: Encodings,
        windows: Windows,
        contexts: Windows,
        history: float = 0.0,
        together: NDArray[np.int64] | None = None,
    ) -> None:
        self.encodings, self.windows, self.contexts, self.history = encodings, windows, contexts, history
        self.together = together
        if together is not None:
            self._batch = np.zeros(len(windows), np.int64)
            self._batch[together.reshape(-1)] = np.repeat(np.arange(len(together)), together.shape[1])
            self._present = -1

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        if self.together is not None and self._batch[index] != self._present:
            self._present = int(self._batch[index])
            batch = self.together[self._present]
            self.encodings.encode(self.windows[batch], self.contexts[batch])
        part = slice(index, index + 1)
        case = self.encodings.encode(self.windows[part], self.contexts[part])[0]
        return self.encodings.predictor.row(case, self.history)
