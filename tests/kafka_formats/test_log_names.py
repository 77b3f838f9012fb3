"""Names of segment files, partition directories and topics, hostile ones included."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import (
    SUFFIXES,
    DirectoryKind,
    PartitionDirectory,
    check_topic_name,
    parse_partition_directory,
    parse_segment_file_name,
    segment_file_name,
)

HEX = "0123456789abcdef0123456789abcdef"
topics = st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True).filter(
    lambda name: name not in (".", "..")
)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_segment_file_names_come_back(suffix: str) -> None:
    for offset in (0, 396, 2**63 - 1):
        assert parse_segment_file_name(segment_file_name(offset, suffix)) == (offset, suffix)
    assert segment_file_name(396, ".log") == "00000000000000000396.log"


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".log",
        "396.log",
        "00000000000000000396",
        "00000000000000000396.log.deleted",
        "00000000000000000396.log.swap",
        "00000000000000000396.checkpoint",
        "00000000000000000396.log\n",
        "0000000000000000039x.log",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٣٩٦.log",
        "99999999999999999999.log",
        "000000000000000000396.log",
        "-0000000000000000396.log",
        "leader-epoch-checkpoint",
    ],
)
def test_other_names_are_no_segment_files(name: str) -> None:
    assert parse_segment_file_name(name) is None


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_what_is_no_offset_names_no_file(offset: int) -> None:
    with pytest.raises(InvalidRequest):
        segment_file_name(offset, ".log")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders-3", PartitionDirectory("orders", 3, DirectoryKind.LIVE)),
        ("a-b.c_d-10", PartitionDirectory("a-b.c_d", 10, DirectoryKind.LIVE)),
        ("a--0", PartitionDirectory("a-", 0, DirectoryKind.LIVE)),
        (f"orders-3.{HEX}-delete", PartitionDirectory("orders", 3, DirectoryKind.DELETE)),
        (f"orders-3.{HEX}-future", PartitionDirectory("orders", 3, DirectoryKind.FUTURE)),
        (f"orders-3.{HEX}-stray", PartitionDirectory("orders", 3, DirectoryKind.STRAY)),
        (f"o.{HEX}-delete-7", PartitionDirectory(f"o.{HEX}-delete", 7, DirectoryKind.LIVE)),
        ("t-2147483647", PartitionDirectory("t", 2**31 - 1, DirectoryKind.LIVE)),
    ],
)
def test_partition_directories_are_taken_apart(name: str, expected: PartitionDirectory) -> None:
    assert parse_partition_directory(name) == expected


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-0",
        "orders",
        "orders-",
        "orders-x",
        "orders--1x",
        "orders-01",
        "orders-2147483648",
        "orders-99999999999",
        "orders-3-delete",
        f"orders-3.{HEX[1:]}-delete",
        f"orders-3.{HEX.upper()}-delete",
        f"orders-3.{HEX}-gone",
        "../etc-0",
        "a/b-0",
        "a b-0",
        "orders-0\n",
        "orders-٣",
        "..-0",
        "x" * 250 + "-0",
        "remote-log-index-cache",
    ],
)
def test_other_names_are_no_partition_directories(name: str) -> None:
    assert parse_partition_directory(name) is None


@settings(max_examples=100, deadline=None)
@given(topics, st.integers(0, 2**31 - 1))
def test_any_legal_topic_comes_back_from_its_directory(topic: str, partition: int) -> None:
    check_topic_name(topic)
    found = parse_partition_directory(f"{topic}-{partition}")
    assert found == PartitionDirectory(topic, partition, DirectoryKind.LIVE)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_any_text_is_a_partition_directory_or_not(name: str) -> None:
    found = parse_partition_directory(name)
    if found is not None:
        check_topic_name(found.topic)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "a\n", "ä", "a\0", "x" * 250, "../../etc", "a%2e"]
)
def test_illegal_topic_names_are_invalid_requests(name: str) -> None:
    with pytest.raises(InvalidRequest, match="topic"):
        check_topic_name(name)
