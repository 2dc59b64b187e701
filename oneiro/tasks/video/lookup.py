"""A baseline that learns nothing: the nearest training segment, and what really came after it.

    lookup = VideoLookup(training_dataset, past=layout.past)
    frames = lookup(clips)  # [N, F, H, W, 3]

A segment is near if its last given frames look alike (mean absolute pixel difference at small size) and its actions
from the last given frame on are alike. Both count in units of how much they vary in training, so neither drowns the
other. Of equally near segments the first counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime import seeds
from oneiro.runtime.errors import OneiroError
from oneiro.tasks.video.dataset import Clips, Images, VideoDataset, Windows, resized

SEGMENTS = 4096
"""Training segments that are looked through at most; more are drawn from at random. 13 MB of pixels at `SIDE`."""
SIDE = 16
"""Height and width at which frames are compared."""
SEEN = 2
"""Last given frames that are compared: one tells where things are, two how they move."""
AT_ONCE = 64
"""Segments that are read together."""

Features = NDArray[np.float32]


class VideoLookup:
    """Answers segments with the futures of others: `past` frames of each are given, the rest is looked up."""

    def __init__(self, dataset: VideoDataset, past: int, most: int = SEGMENTS, seed: int = 0) -> None:
        """`most` bounds the segments that are kept, and with them memory and time; `seed` draws which."""
        if not 1 <= past < dataset.length or most < 1:
            raise OneiroError(
                f"of {dataset.length} frames 1 to {dataset.length - 1} can be given, and most must be at least 1; "
                f"got past={past}, most={most}"
            )
        self.dataset, self.past = dataset, past
        drawn = seeds.generator("video lookup", seed).permutation(len(dataset.windows))[:most]
        self.windows: Windows = dataset.windows[np.sort(drawn)]
        """The segments that are looked through, in the order of their episodes."""
        parts = [
            self._raw(dataset.cut(self.windows[start : start + AT_ONCE]))
            for start in range(0, len(self.windows), AT_ONCE)
        ]
        pixels, actions = (np.concatenate(each) for each in zip(*parts, strict=True))
        self.scales = _scales(pixels, actions)
        self.features = self._scaled(pixels, actions)

    def __call__(self, clips: Clips) -> Images:
        """The frames that came after the nearest segments' given ones, [N, F, H, W, 3]; later frames are not used."""
        found = [
            self.dataset.cut(part).images[:, self.past :]
            for part in np.array_split(self.nearest(clips), max(1, -(-len(clips) // AT_ONCE)))
        ]
        return np.concatenate(found)

    def nearest(self, clips: Clips) -> Windows:
        """The nearest segment of each, [N, 2]: its episode and its first frame."""
        asked = self._scaled(*self._raw(clips))
        chosen = [int(np.argmin(np.abs(self.features - one).sum(axis=1))) for one in asked]
        return self.windows[np.array(chosen, np.int64)]

    def _raw(self, clips: Clips) -> tuple[Features, Features]:
        """Small pixels of the last given frames in [0, 1], and the actions that lead to what comes after them."""
        last = clips.images[:, max(0, self.past - SEEN) : self.past]
        size = min(SIDE, last.shape[2]), min(SIDE, last.shape[3])
        small = resized(last.reshape(-1, *last.shape[2:]), size)
        actions = clips.actions[:, self.past - 1 : -1]
        return (small.reshape(len(last), -1) / 255).astype(np.float32), actions.reshape(len(last), -1)

    def _scaled(self, pixels: Features, actions: Features) -> Features:
        return np.concatenate([pixels * self.scales[0], actions * self.scales[1]], axis=1).astype(np.float32)


def _scales(pixels: Features, actions: Features) -> tuple[Features, Features]:
    """What features are multiplied by: then segments are on average 1 from the mean, in pixels as in actions.

    Each entry of an action counts in its own unit. Pixels share theirs: where little happens, little counts. What never
    varies in training counts nothing.
    """
    spread, each = (np.abs(values - values.mean(axis=0)).mean(axis=0) for values in (pixels, actions))
    shared = np.full_like(spread, spread.sum())
    own = each * max(1, np.count_nonzero(each))
    return _inverse(shared), _inverse(own)


def _inverse(values: Features) -> Features:
    return np.divide(1, values, out=np.zeros_like(values), where=values > 0)
