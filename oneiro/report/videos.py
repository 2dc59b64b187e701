"""Short videos side by side as one animated GIF, small enough to stand inside a page."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneiro.files import write_with

GAP = 4
SMALL = 160
"""Frames are enlarged, pixel by pixel, to about this height."""
PAUSE_MS = 350


def save_gif(path: Path, videos: Mapping[str, NDArray[np.uint8]]) -> None:
    """Write `gif` to a file, whole or not at all."""
    data = gif(videos)

    def write(part: Path) -> None:
        part.write_bytes(data)

    write_with(path, write)


def gif(videos: Mapping[str, NDArray[np.uint8]], pause_ms: int = PAUSE_MS) -> bytes:
    """Videos [T, H, W, 3] of one size, from left to right, their names above them, as a looping GIF."""
    from PIL import Image, ImageDraw

    height, width = next(iter(videos.values())).shape[1:3]
    zoom = max(1, round(SMALL / height))
    names, top = list(videos), 14
    shown = []
    for frames in zip(*videos.values(), strict=True):
        sheet = Image.new("RGB", (len(names) * (zoom * width + GAP) - GAP, zoom * height + top), "white")
        pen = ImageDraw.Draw(sheet)
        for place, (name, frame) in enumerate(zip(names, frames, strict=True)):
            left = place * (zoom * width + GAP)
            pen.text((left + 1, 1), name, fill="black")
            sheet.paste(
                Image.fromarray(frame).resize((zoom * width, zoom * height), Image.Resampling.NEAREST), (left, top)
            )
        shown.append(sheet)
    buffer = io.BytesIO()
    shown[0].save(buffer, "GIF", save_all=True, append_images=shown[1:], duration=pause_ms, loop=0)
    return buffer.getvalue()
