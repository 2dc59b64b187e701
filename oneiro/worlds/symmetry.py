"""Levels up to symmetry: a board that is turned or mirrored is the same problem with its moves renamed.

A level's canonical form is the least of its images under all symmetries, so two levels have the same form exactly if a
symmetry takes one to the other. Worlds split their levels by it, and evaluations count levels by it.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@lru_cache(maxsize=256)
def symmetries(height: int, width: int) -> NDArray[np.int64]:
    """[8 or 4, cells]: for each rotation and mirror of a board onto itself, the cell that comes to each place.

    A square has eight of them and any other rectangle four. Cells count row by row.
    """
    board = np.arange(height * width).reshape(height, width)
    flat = [board, board[::-1], board[:, ::-1], board[::-1, ::-1]]
    images = flat + [image.T for image in flat] if height == width else flat
    return np.stack([image.ravel() for image in images])


def least_image(*layers: NDArray[np.uint8]) -> tuple[bytes, ...]:
    """The canonical form of a board, given as layers [height, width] that turn together.

    The first layer decides, the next one among equals, and so on. So the first part of the form is the canonical form
    of the first layer alone, whatever stands in the others.
    """
    sources = symmetries(*layers[0].shape)
    images = [layer.ravel()[sources].tobytes() for layer in layers]
    cells = layers[0].size
    return min(tuple(image[at : at + cells] for image in images) for at in range(0, sources.size, cells))
