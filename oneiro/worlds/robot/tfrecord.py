"""TFRecord files and the `tf.train.Example` inside them, read without TensorFlow.

A record is a length, the length's checksum, the bytes and their checksum (CRC-32C, masked). An Example is a map from
names to lists of bytes, floats or integers in protocol-buffer wire format. Both readers are total: whatever the bytes,
the result is the data or a `Corrupt` that says where and why.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

RECORD_BYTES = 1 << 30
"""Largest record that is read; more is taken for damage."""
POLYNOMIAL = 0x82F63B78
"""CRC-32C (Castagnoli), bits reversed."""
LANE = 64
"""Bytes of a lane: lanes are summed side by side by numpy, then joined two by two."""
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""The wire types of protocol buffers that still exist."""


class Corrupt(Exception):
    """Bytes that are not what they should be; the message is one line."""


@dataclass(frozen=True)
class Damage:
    """A record that could not be read."""

    path: Path
    record: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path.name}, record {self.record}: {self.reason}"


def records(path: str | Path) -> Iterator[tuple[int, bytes | Damage]]:
    """Every record of a file with its number; a damaged one as `Damage`.

    Where a record's bytes are wrong, its length is still known and reading goes on with the next. Where the length
    itself is wrong nothing after it can be found, and that is the last thing yielded.
    """
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as handle:
        number = 0
        while head := handle.read(12):
            if len(head) < 12:
                yield number, Damage(path, number, "the file ends inside a record's head")
                return
            length, checksum = struct.unpack("<QI", head)
            if mask_checksum(crc32c(head[:8])) != checksum:
                yield number, Damage(path, number, "the checksum of its length is wrong; the rest cannot be found")
                return
            if length > min(RECORD_BYTES, size - handle.tell() - 4):
                yield number, Damage(path, number, f"it claims {length:,} bytes, which the file does not hold")
                return
            data = handle.read(length)
            (checksum,) = struct.unpack("<I", handle.read(4))
            whole = mask_checksum(crc32c(data)) == checksum
            yield number, data if whole else Damage(path, number, "the checksum of its data is wrong")
            number += 1


def mask_checksum(checksum: int) -> int:
    """A checksum as it is stored: turned and shifted, so that data which holds checksums does not look like its own."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """CRC-32C. The sum is linear, so lanes of the data are summed at once and shifted into one another.

    Front padding with zeros changes nothing once the starting value is folded into the first four bytes.
    """
    table = _table()
    if len(data) < 2 * LANE:
        state = 0xFFFFFFFF
        for byte in data:
            state = int(table[(state ^ byte) & 0xFF]) ^ state >> 8
        return state ^ 0xFFFFFFFF
    lanes = 1 << (-(-len(data) // LANE) - 1).bit_length()  # a power of two, so that sums can be joined pair by pair
    padded = np.zeros(lanes * LANE, np.uint8)
    padded[-len(data) :] = np.frombuffer(data, np.uint8)
    # The usual starting value, all ones, is the same as turning the first four bytes over.
    padded[-len(data) :][:4] ^= 0xFF
    columns = padded.reshape(lanes, LANE).T.astype(np.uint32)
    states = np.zeros(lanes, np.uint32)
    for column in columns:
        states = table[(states ^ column) & 0xFF] ^ states >> 8
    level = 0
    while len(states) > 1:
        states = _apply(_shift(level), states[0::2]) ^ states[1::2]
        level += 1
    return int(states[0]) ^ 0xFFFFFFFF


@cache
def _table() -> np.ndarray:
    """What each byte does to the sum."""
    states = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        states = np.where(states & 1, states >> 1 ^ np.uint32(POLYNOMIAL), states >> 1)
    return states.astype(np.uint32)


@cache
def _shift(level: int) -> np.ndarray:
    """What `LANE * 2**level` zero bytes do to each bit of a sum, `[32]`."""
    if level:
        return _apply(_shift(level - 1), _shift(level - 1))
    images = np.uint32(1) << np.arange(32, dtype=np.uint32)
    for _ in range(LANE):
        images = _table()[images & 0xFF] ^ images >> 8
    return images


def _apply(images: np.ndarray, states: np.ndarray) -> np.ndarray:
    """A linear map of 32 bits, given by the images of the bits, applied to each state."""
    result = np.zeros_like(states)
    for bit, image in enumerate(images):
        result ^= (states >> np.uint32(bit) & np.uint32(1)) * image
    return result


Feature = memoryview
"""The undecoded list behind one name of an Example; `read_bytes`, `read_floats` and `read_integers` decode it."""


def example(record: bytes) -> dict[str, Feature]:
    """The features of a serialised `tf.train.Example` by name, not decoded yet."""
    by_name: dict[str, Feature] = {}
    for features in _all(memoryview(record), 1):
        for entry in _all(features, 1):
            name, feature = b"", memoryview(b"")
            for number, value in _fields(entry):
                if number == 1 and isinstance(value, memoryview):
                    name = bytes(value)
                elif number == 2 and isinstance(value, memoryview):
                    feature = value
            by_name[name.decode("utf-8", "replace")] = feature
    return by_name


def read_bytes(feature: Feature) -> list[bytes]:
    """A list of byte strings."""
    return [bytes(value) for part in _all(feature, 1) for value in _all(part, 1)]


def read_floats(feature: Feature) -> np.ndarray:
    """A list of floats, float32 `[N]`, packed or not."""
    parts = []
    for part in _all(feature, 2):
        for number, value in _fields(part):
            if number == 1 and isinstance(value, memoryview):
                if len(value) % 4:
                    raise Corrupt("a packed list of floats ends inside a float")
                parts.append(np.frombuffer(value, "<f4"))
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def read_integers(feature: Feature) -> np.ndarray:
    """A list of integers, int64 `[N]`, packed or not."""
    numbers: list[int] = []
    for part in _all(feature, 3):
        for number, value in _fields(part):
            if number == 1 and isinstance(value, int):
                numbers.append(value)
            elif number == 1 and isinstance(value, memoryview):
                place = 0
                while place < len(value):
                    entry, place = _varint(value, place)
                    numbers.append(entry)
    return np.array(numbers, np.uint64).astype(np.int64)  # negative numbers are stored as their two's complement


def _all(message: memoryview, wanted: int) -> Iterator[memoryview]:
    """Every field `wanted` of a message that is a string or a message of its own."""
    for number, value in _fields(message):
        if number == wanted and isinstance(value, memoryview):
            yield value


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Field numbers and values of a message: varints as integers, everything else as its bytes."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            value, place = _varint(message, place)
            yield number, value
            continue
        if kind == BYTES:
            length, place = _varint(message, place)
        elif kind in (FIXED32, FIXED64):
            length = 4 if kind == FIXED32 else 8
        else:
            raise Corrupt(f"wire type {kind} is not one of protocol buffers")
        if length > len(message) - place:
            raise Corrupt(f"a field claims {length:,} bytes where {len(message) - place:,} are left")
        yield number, message[place : place + length]
        place += length


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    """The integer at `place`, and where it ends."""
    value = 0
    for count, byte in enumerate(data[place : place + 10]):  # 64 bits in sevens: nothing longer is a number
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, place + count + 1
    raise Corrupt("an integer does not end")
