"""Segments in other colours and seen from nearer: the published augmentation of training frames.

All frames of a segment change alike. Colours go through 8-bit images, one property after the other in a random order,
as torchvision's ColorJitter does; a crop is a random part of the frame in the frame's size, as RandomResizedCrop's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field, model_validator

from oneiro.recipe import Settings
from oneiro.runtime.seeds import generator
from oneiro.tasks.video.dataset import Images

if TYPE_CHECKING:
    from PIL.Image import Image

TRIES = 10
"""Crops that are drawn until one fits into the frame; then the middle is taken."""


class AugmentSettings(Settings):
    """How training frames are changed. Nothing is, unless something is set."""

    brightness: float = Field(0.0, ge=0, lt=1)
    """Frames are multiplied by up to so much more or less than 1. Published: 0.1."""
    contrast: float = Field(0.0, ge=0, lt=1)
    """The same for the distance from the mean grey. Published: 0.1."""
    saturation: float = Field(0.0, ge=0, lt=1)
    """The same for the distance from grey. Published: 0.1."""
    hue: float = Field(0.0, ge=0, le=0.5)
    """Hues turn by up to so much of the circle. Published: 0.05."""
    crop_scale: tuple[float, float] = (1.0, 1.0)
    """Of the tokenizer's frames: the part of the area that is seen. Published: 0.8 to 1."""
    crop_aspect: tuple[float, float] | None = None
    """Width over height of that part; null: as the frame. Published: 1 to 1.4, for frames of 1.25."""

    @model_validator(mode="after")
    def _ranges(self) -> AugmentSettings:
        if not 0 < self.crop_scale[0] <= self.crop_scale[1] <= 1:
            raise ValueError("crop_scale is two numbers above 0 and up to 1, the lower one first")
        if self.crop_aspect is not None and not 0 < self.crop_aspect[0] <= self.crop_aspect[1]:
            raise ValueError("crop_aspect is two numbers above 0, the lower one first")
        return self

    @property
    def jitters(self) -> bool:
        return any((self.brightness, self.contrast, self.saturation, self.hue))

    @property
    def crops(self) -> bool:
        return self.crop_scale[0] < 1 or self.crop_aspect is not None


def jitter(frames: Images, settings: AugmentSettings, *seed: int | str) -> Images:
    """Frames [T, H, W, 3] in other colours, all in the same ones."""
    from PIL import Image as images
    from PIL import ImageEnhance

    rng, shown = generator(*seed, "jitter"), [images.fromarray(frame) for frame in frames]
    enhancers = {
        "brightness": ImageEnhance.Brightness,
        "contrast": ImageEnhance.Contrast,
        "saturation": ImageEnhance.Color,
    }
    strengths = {name: 1 + getattr(settings, name) * rng.uniform(-1, 1) for name in enhancers}
    turn = int(255 * settings.hue * rng.uniform(-1, 1))
    for place in rng.permutation(4):
        name = [*enhancers, "hue"][place]
        if not getattr(settings, name):
            continue
        if name == "hue":
            shown = [_turn_hue(one, turn) for one in shown]
        else:
            shown = [enhancers[name](one).enhance(strengths[name]) for one in shown]
    return np.stack([np.asarray(one) for one in shown])


def crop(frames: Images, settings: AugmentSettings, *seed: int | str) -> Images:
    """A part of frames [T, H, W, 3], the same of all, in their size."""
    from PIL import Image as images

    height, width = frames.shape[1:3]
    left, top, right, bottom = crop_box(height, width, settings, *seed)
    parts = (images.fromarray(frame).crop((left, top, right, bottom)) for frame in frames)
    return np.stack([np.asarray(part.resize((width, height), images.Resampling.BILINEAR)) for part in parts])


def crop_box(height: int, width: int, settings: AugmentSettings, *seed: int | str) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of a random part: its area uniform, its aspect uniform in the logarithm."""
    rng = generator(*seed, "crop")
    low, high = settings.crop_aspect or (width / height, width / height)
    for _ in range(TRIES):
        area = height * width * rng.uniform(*settings.crop_scale)
        aspect = math.exp(rng.uniform(math.log(low), math.log(high)))
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            left, top = int(rng.integers(width - wide + 1)), int(rng.integers(height - tall + 1))
            return left, top, left + wide, top + tall
    wide = min(width, round(height * high)) if width / height > high else width
    tall = min(height, round(width / low)) if width / height < low else height
    left, top = (width - wide) // 2, (height - tall) // 2
    return left, top, left + wide, top + tall


def _turn_hue(image: Image, turn: int) -> Image:
    """An image with its hues turned by so many of 255 parts of the circle."""
    from PIL import Image as images

    hue, saturation, value = image.convert("HSV").split()
    other = images.fromarray((np.asarray(hue).astype(np.int16) + turn).astype(np.uint8))
    return images.merge("HSV", (other, saturation, value)).convert("RGB")
