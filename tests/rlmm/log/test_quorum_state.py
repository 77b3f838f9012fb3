"""quorum-state is Kafka's file, and is never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_state import QuorumState, encode, load, parse, store
from tests.rlmm.log.crash_disk import CrashDisk

VOTED = QuorumState(7, leader_id=1, voted_id=3, voted_directory_id=Uuid(bytes(7) + b"\x01" * 9))
DIRECTORY = Path("/data")


def test_it_is_written_as_kafkas_converter_writes_it() -> None:
    # The text that QuorumStateDataJsonConverter of Kafka 4.3.0 gives, plus the version field.
    assert encode(QuorumState(7, leader_id=1)) == (
        b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,'
        b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )


def test_it_is_read_back() -> None:
    assert parse(encode(VOTED), source="quorum-state") == VOTED


def test_version_0_has_no_directory_id() -> None:
    text = (
        b'{"clusterId":"c","leaderId":-1,"leaderEpoch":3,"votedId":2,"appliedOffset":0,'
        b'"currentVoters":[{"voterId":2}],"data_version":0}'
    )
    assert parse(text, source="quorum-state") == QuorumState(3, voted_id=2)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        encode(VOTED)[:-20],
        encode(VOTED).replace(b'"data_version":1', b'"data_version":2'),
        encode(VOTED).replace(b'"leaderEpoch":7', b'"leaderEpoch":"7"'),
        encode(VOTED).replace(b'"leaderEpoch":7', b'"leaderEpoch":true'),
        encode(VOTED).replace(b'"leaderEpoch":7', b'"leaderEpoch":-1'),
        encode(VOTED).replace(b'"leaderEpoch":7', b'"leaderEpoch":2147483648'),
        encode(VOTED).replace(b'"votedId":3', b'"votedId":' + b"[" * 5_000),
        encode(VOTED).replace(b'"votedDirectoryId":"', b'"votedDirectoryId":"?'),
        encode(VOTED).replace(b'"votedId":3,', b""),
    ],
)
def test_an_unreadable_file_is_a_hard_error(text: bytes) -> None:
    with pytest.raises(CorruptData, match="will not guess its epoch and vote"):
        parse(text, source="quorum-state")


def test_nothing_stored_is_none_and_what_is_stored_comes_back() -> None:
    disk = CrashDisk()
    disk.make_directory(DIRECTORY)
    assert load(disk, DIRECTORY) is None
    store(disk, DIRECTORY, VOTED)
    assert load(disk, DIRECTORY) == VOTED
