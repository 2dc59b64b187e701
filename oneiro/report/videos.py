"""Short videos beside each other as one animated GIF, small enough to stand inside a page."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneiro.runtime.files import write_with

GAP = 4  # pixels between the pictures of a sheet
SMALL = 160
"""Frames are enlarged, pixel by pixel, to about this height."""
PAUSE_MS = 350
ACROSS = 2
"""Videos in a row: as many as a phone shows with readable names."""
EDGE = 3
"""Width of the edge around a picture that a model was given or predicted, in pixels."""
RECORDED, PREDICTED = "#8a9099", "#e0803a"


def save_gif(path: Path, videos: Mapping[str, NDArray[np.uint8]], given: Mapping[str, int] | None = None) -> None:
    """Write `gif` to a file, whole or not at all."""
    data = gif(videos, given)

    def write(part: Path) -> None:
        part.write_bytes(data)

    write_with(path, write)


def gif(
    videos: Mapping[str, NDArray[np.uint8]], given: Mapping[str, int] | None = None, pause_ms: int = PAUSE_MS
) -> bytes:
    """Videos [T, H, W, 3] of one size as a looping GIF, two in a row: the frame's number on top, names above each.

    `given` maps a predicted video to how many frames at its start were given to the model. These are named "given",
    the later ones "predicted" with how far ahead they are, with an edge in the colour of predictions; videos that it
    does not name have no mark.
    """
    from PIL import Image, ImageDraw, ImageFont

    count, height, width = next(iter(videos.values())).shape[:3]
    zoom = max(1, round(SMALL / height))
    high, wide = zoom * height, zoom * width
    text = max(12, wide // 12)
    line = text + 6
    across = min(ACROSS, len(videos))
    rows = -(-len(videos) // across)
    font = ImageFont.load_default(size=text)
    shown = []
    for number, frames in enumerate(zip(*videos.values(), strict=True)):
        sheet = Image.new("RGB", (across * (wide + GAP) - GAP, line + rows * (line + high + GAP) - GAP), "white")
        pen = ImageDraw.Draw(sheet)
        pen.text((1, 1), f"frame {number + 1} of {count}", fill="black", font=font)
        for place, (name, frame) in enumerate(zip(videos, frames, strict=True)):
            left, top = place % across * (wide + GAP), line + place // across * (line + high + GAP)
            sheet.paste(Image.fromarray(frame).resize((wide, high), Image.Resampling.NEAREST), (left, top + line))
            pen.text((left + 1, top + 1), name, fill="black", font=font)
            if given is not None and name in given:
                ahead = number - given[name] + 1
                mark, colour = (f"predicted +{ahead}", PREDICTED) if ahead > 0 else ("given", RECORDED)
                pen.text((left + wide - 1, top + 1), mark, fill=colour, font=font, anchor="ra")
                pen.rectangle((left, top + line, left + wide - 1, top + line + high - 1), outline=colour, width=EDGE)
        shown.append(sheet)
    buffer = io.BytesIO()
    shown[0].save(buffer, "GIF", save_all=True, append_images=shown[1:], duration=pause_ms, loop=0)
    return buffer.getvalue()
