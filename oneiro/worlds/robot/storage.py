"""Arrays of an episode file, an npz, read within bounds: all of them, or a few frames without the rest.

Frames lie in a file as pixels (`image`) or as the JPEG or PNG of each, one behind the other (`pictures`, and where each
ends: `picture_ends`). `frame_sums` holds a CRC-32 of every frame as it lies there. A file with sums is not compressed,
so that a few frames can be found, read and known to be whole by themselves.
"""

from __future__ import annotations

import io
import lzma
import struct
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from oneiro.runtime import files

MEMBER_BYTES = 1 << 30
"""Largest array that is read from a file: 4,000 frames of 256x320. More is taken for damage."""
PIXELS = 4096 * 4096
"""Largest picture that is decoded."""
IMAGE, PICTURES, ENDS, SUMS = "image", "pictures", "picture_ends", "frame_sums"
FRAMES = (IMAGE, PICTURES, ENDS, SUMS)
"""Arrays that make up the frames."""
BROKEN = (
    *(ValueError, TypeError, LookupError, EOFError, OSError, MemoryError, RuntimeError, SyntaxError, ArithmeticError),
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)
"""What reading a damaged or hostile archive raises. The last is numpy's, of an array's header with a byte changed."""
Arrays = dict[str, np.ndarray]


def save(path: str | Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays, whole or not at all, each where it can be found without unpacking."""

    def write(temporary: Path) -> None:
        with temporary.open("wb") as handle:
            np.savez(handle, **arrays)  # type: ignore[arg-type]

    files.write_with(path, write)


def pixels(image: np.ndarray) -> Arrays:
    """Frames uint8 `[T, H, W, 3]` as arrays of a file."""
    image = np.ascontiguousarray(image)
    return {IMAGE: image, SUMS: np.array([zlib.crc32(frame.data) for frame in image], np.uint32)}


def pictures(encoded: Sequence[bytes]) -> Arrays:
    """JPEG or PNG frames as arrays of a file."""
    return {
        PICTURES: np.frombuffer(b"".join(encoded), np.uint8),
        ENDS: np.cumsum([len(one) for one in encoded], dtype=np.int64),
        SUMS: np.array([zlib.crc32(one) for one in encoded], np.uint32),
    }


def read(archive: zipfile.ZipFile, wanted: Callable[[str], bool] = lambda name: True) -> Arrays:
    """Arrays by name. Sizes are checked before anything is unpacked."""
    arrays = {}
    for entry in archive.infolist():
        name = entry.filename.removesuffix(".npy")
        if entry.filename.endswith(".npy") and wanted(name):
            with archive.open(entry) as member:
                _header(member, entry)
            with archive.open(entry) as member:
                arrays[name] = np.lib.format.read_array(member, allow_pickle=False)
                if member.read(1):  # also makes zipfile compare the checksum
                    raise ValueError(f"{name} is longer than its header says")
    return arrays


def take_frames(arrays: Arrays) -> np.ndarray:
    """Takes the frames out of a file's arrays, uint8 `[T, H, W, 3]`."""
    image, packed, ends, _ = (arrays.pop(name, None) for name in FRAMES)
    if image is not None:
        return image
    if packed is None or ends is None:
        raise ValueError(f"holds neither {IMAGE} nor {PICTURES}")
    data = packed.tobytes()
    return np.stack([decode(data[start:end]) for start, end in bounds(ends, len(data))])


def bounds(ends: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Where each picture begins and ends in so many bytes."""
    places = [0, *(int(end) for end in ends.reshape(-1))]
    pairs = list(pairwise(places))
    if ends.ndim != 1 or ends.dtype.kind not in "iu" or any(end <= start for start, end in pairs) or places[-1] != size:
        raise ValueError(f"{ENDS} does not divide the {size:,} bytes of {PICTURES}")
    return pairs


def decode(picture: bytes, size: tuple[int, ...] = ()) -> np.ndarray:
    """A JPEG or PNG as uint8 `[H, W, 3]`; its size, where one is given, is checked before it is unpacked."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            opened = Image.open(io.BytesIO(picture), formats=("JPEG", "PNG"))
        except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
            raise ValueError(f"an image claims more than {PIXELS} pixels") from error
    with opened:
        width, height = opened.size
        if width * height > PIXELS or (size and (height, width) != size):
            raise ValueError(f"an image is {height}x{width}, not {size or f'of at most {PIXELS} pixels'}")
        return np.asarray(opened.convert("RGB"))


class StoredShape(NamedTuple):
    """What the headers of a file say."""

    frames: int
    entries: int
    """Numbers of an action."""


def shape_of(archive: zipfile.ZipFile) -> StoredShape:
    """From the headers alone."""
    frames = IMAGE if f"{IMAGE}.npy" in archive.NameToInfo else ENDS
    image, action = (_read_header(archive, name)[0].shape for name in (frames, "action"))
    fits = len(image) == 4 and image[3] == 3 if frames == IMAGE else len(image) == 1
    if not fits or not image[0] or len(action) != 2 or action[0] != image[0]:
        raise ValueError(f"{frames} {list(image)} and action {list(action)} do not make an episode")
    return StoredShape(action[0], action[1])


def few_frames(archive: zipfile.ZipFile, places: Sequence[int]) -> np.ndarray | None:
    """Some frames alone, uint8 `[len(places), H, W, 3]`; None where only all can be read.

    The caller has compared the places with the file's `shape_of`.
    """
    small = read(archive, lambda name: name in (ENDS, SUMS))
    name = PICTURES if ENDS in small else IMAGE
    header, first = _read_header(archive, name)
    if SUMS not in small or archive.getinfo(f"{name}.npy").compress_type != zipfile.ZIP_STORED:
        return None
    if header.dtype != np.uint8 or header.fortran_order:
        raise ValueError(f"{name} is not plain bytes")
    if name == IMAGE:
        size = int(np.prod(header.shape[1:]))
        spans = [(size * at, size * (at + 1)) for at in range(header.shape[0])]
    else:
        spans = bounds(small[ENDS], header.shape[0])
    handle, parts = archive.fp, []
    assert handle is not None, "the archive is open"
    for place in places:
        start, end = spans[place]
        handle.seek(first + start)
        parts.append(handle.read(end - start))
        if zlib.crc32(parts[-1]) != int(small[SUMS][place]):
            raise ValueError(f"the checksum of frame {place} is wrong")
    if name == IMAGE:
        return np.frombuffer(b"".join(parts), np.uint8).reshape(len(parts), *header.shape[1:])
    return np.stack([decode(part) for part in parts])


class _Header(NamedTuple):
    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]


def _header(member: IO[bytes], entry: zipfile.ZipInfo) -> _Header:
    """What an array claims to be, which must fit the bytes that are there."""
    version = np.lib.format.read_magic(member)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(member)
    else:
        raise ValueError(f"array format {version} is unknown")
    if dtype.hasobject:
        raise ValueError("holds Python objects, which are never loaded")
    size = int(np.prod([int(side) for side in shape], dtype=object)) * dtype.itemsize
    if size > MEMBER_BYTES or size > entry.file_size:
        raise ValueError(f"an array of {size:,} bytes does not fit its {entry.file_size:,} bytes in the file")
    return _Header(tuple(shape), fortran, dtype)


def _read_header(archive: zipfile.ZipFile, name: str) -> tuple[_Header, int]:
    """The header of an array, and where in the file its numbers begin if they are not compressed."""
    entry = archive.getinfo(f"{name}.npy")
    with archive.open(entry) as member:
        header, inside = _header(member, entry), member.tell()
    handle = archive.fp
    assert handle is not None, "the archive is open"
    handle.seek(entry.header_offset + 26)
    # An entry has a head of its own, of 30 bytes, its name and what else the writer put there.
    lengths = struct.unpack("<HH", handle.read(4))
    return header, entry.header_offset + 30 + sum(lengths) + inside
