"""TFRecords: checksums and protocol buffers as other implementations write them, and no bytes that break the reader."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import crc32c as other_crc32c
from tensorboard.summary.writer.record_writer import RecordWriter

from oneiro.worlds.robot.tfrecord import (
    Corrupt,
    Damage,
    crc32c,
    example,
    mask_checksum,
    read_bytes,
    read_floats,
    read_integers,
    records,
)


def example_class() -> Any:
    """`tf.train.Example`, built from its definition with Google's own library."""
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="t", syntax="proto3")

    def message(name: str, *fields: tuple[str, int, int, str]) -> None:
        made = file.message_type.add(name=name)
        for field, label, kind, of in fields:
            made.field.add(name=field, number=len(made.field) + 1, label=label, type=kind, type_name=of or None)

    one, many = 1, 3
    message("BytesList", ("value", many, 12, ""))
    message("FloatList", ("value", many, 2, ""))
    message("Int64List", ("value", many, 3, ""))
    message(
        "Feature",
        ("bytes_list", one, 11, ".t.BytesList"),
        ("float_list", one, 11, ".t.FloatList"),
        ("int64_list", one, 11, ".t.Int64List"),
    )
    message("Entry", ("key", one, 9, ""), ("value", one, 11, ".t.Feature"))  # a map is a list of these on the wire
    message("Features", ("feature", many, 11, ".t.Entry"))
    message("Example", ("features", one, 11, ".t.Features"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("t.Example"))


EXAMPLE = example_class()


def serialise(features: dict[str, list[bytes] | list[float] | list[int]]) -> bytes:
    made = EXAMPLE()
    for name, values in features.items():
        entry = made.features.feature.add(key=name)
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
        getattr(entry.value, kind).value.extend(values)
    return made.SerializeToString()


def write_records(path: Path, data: list[bytes]) -> None:
    with path.open("wb") as handle:
        writer = RecordWriter(handle)
        for record in data:
            writer.write(record)
        writer.flush()


@settings(deadline=None)
@given(st.binary(max_size=2000))
def test_checksums_equal_another_implementation(data: bytes) -> None:
    assert crc32c(data) == other_crc32c(data)


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 4096, 100_003])
def test_checksums_equal_at_every_kind_of_length(length: int) -> None:
    data = np.random.default_rng(length).bytes(length)
    assert crc32c(data) == other_crc32c(data)
    assert crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C


def test_records_written_by_another_library_are_read(tmp_path: Path) -> None:
    data = [b"", b"abc", bytes(1000)]
    write_records(tmp_path / "a.tfrecord", data)
    assert [record for _, record in records(tmp_path / "a.tfrecord")] == data


def test_features_encoded_by_googles_library_are_read() -> None:
    features = {"a": [b"x", b"", b"yz"], "b": [0.5, -1.25], "c": [-1, 0, 1 << 40], "ü": [7]}
    found = example(serialise(features))
    assert list(found) == ["a", "b", "c", "ü"]
    assert read_bytes(found["a"]) == [b"x", b"", b"yz"]
    assert read_floats(found["b"]).tolist() == [0.5, -1.25] and read_integers(found["c"]).tolist() == [-1, 0, 1 << 40]
    assert len(read_floats(found["a"])) == 0 and read_bytes(found["b"]) == []


def test_lists_that_are_not_packed_are_read_too() -> None:
    floats = b"\x12" + bytes([10]) + b"".join(b"\x0d" + struct.pack("<f", value) for value in (1.5, 2.5))
    assert read_floats(memoryview(floats)).tolist() == [1.5, 2.5]
    integers = b"\x1a\x04" + b"\x08\x05" + b"\x08\x06"
    assert read_integers(memoryview(integers)).tolist() == [5, 6]


def test_a_wrong_data_checksum_costs_one_record_and_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"first", b"second", b"third"])
    data = bytearray(path.read_bytes())
    data[12 + 5 + 4 + 12] ^= 1  # the first byte of "second"
    path.write_bytes(bytes(data))
    found = [record for _, record in records(path)]
    assert found[0] == b"first" and found[2] == b"third"
    assert isinstance(found[1], Damage) and str(found[1]) == "a.tfrecord, record 1: the checksum of its data is wrong"


def test_a_wrong_length_ends_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"first", b"second"])
    whole = path.read_bytes()
    path.write_bytes(whole[:21] + b"\xff" + whole[22:])
    last = [record for _, record in records(path)][-1]
    assert isinstance(last, Damage) and last.record == 1 and "length" in last.reason


@pytest.mark.parametrize("cut", [1, 11, 12, 14, 20])
def test_a_file_that_ends_early_says_where(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"first"])
    path.write_bytes(path.read_bytes()[:cut])
    (number, record), *rest = records(path)
    assert number == 0 and isinstance(record, Damage) and not rest


def test_a_record_that_claims_more_than_there_is_is_never_read(tmp_path: Path) -> None:
    head = struct.pack("<Q", 1 << 60)
    (tmp_path / "a.tfrecord").write_bytes(head + struct.pack("<I", mask_checksum(crc32c(head))))
    ((_, record),) = records(tmp_path / "a.tfrecord")
    assert isinstance(record, Damage) and "claims" in record.reason


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_features_or_corrupt(data: bytes) -> None:
    try:
        for feature in example(data).values():
            read_bytes(feature), read_floats(feature), read_integers(feature)
    except Corrupt as error:
        assert "\n" not in str(error)


@settings(deadline=None)
@given(st.data())
def test_a_cut_or_changed_example_never_breaks_the_reader(data: st.DataObject) -> None:
    whole = bytearray(serialise({"a": [b"abc"], "b": [1.0, 2.0], "c": [300, -4]}))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    try:
        for feature in example(cut).values():
            read_bytes(feature), read_floats(feature), read_integers(feature)
    except Corrupt:
        pass
