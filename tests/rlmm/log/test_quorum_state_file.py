"""quorum-state is Kafka's file, and is never guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.quorum_state_file import QuorumState, encode, load, parse, store
from tests.rlmm.log.crash_disk import CrashDisk

VOTED = QuorumState(7, leader_id=1, voted_id=3, voted_directory_id=Uuid(bytes(7) + b"\x01" * 9))
DIRECTORY = Path("/data")
KAFKAS = (
    b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,'
    b'"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
)
"""The text that QuorumStateDataJsonConverter of Kafka 4.3.0 gives, plus the version field."""


PLAIN = encode(VOTED)[: encode(VOTED).index(b',"crc32c"')] + b"}"
"""Without its checksum, so that the other checks are reached."""


def test_it_is_written_as_kafkas_converter_writes_it() -> None:
    written = encode(QuorumState(7, leader_id=1))
    assert written == KAFKAS[:-1] + b',"crc32c":"%08x"}' % crc32c(KAFKAS)


def test_kafkas_own_file_without_a_checksum_is_read() -> None:
    assert parse(KAFKAS, source="quorum-state") == QuorumState(7, leader_id=1)
    cut = KAFKAS[:-1] + b',"cutEpoch":6,"cutEndOffset":90}'
    assert parse(cut, source="quorum-state").cut_end_offset == 90


@pytest.mark.parametrize("state", [VOTED, QuorumState(7, 1, cut_epoch=6, cut_end_offset=90)])
def test_no_flipped_bit_is_taken_for_another_state(state: QuorumState) -> None:
    whole = encode(state)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptData, match="where other voters live, replace this one"):
            parse(bytes(flipped), source="quorum-state")


def test_a_file_that_was_changed_fails_its_checksum() -> None:
    changed = encode(VOTED).replace(b'"votedId":3', b'"votedId":2')
    with pytest.raises(CorruptData, match="fails its checksum"):
        parse(changed, source="quorum-state")


@pytest.mark.parametrize("state", [VOTED, QuorumState(7, cut_epoch=0, cut_end_offset=0)])
def test_it_is_read_back(state: QuorumState) -> None:
    assert parse(encode(state), source="quorum-state") == state


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
        PLAIN[:-20],
        PLAIN.replace(b'"data_version":1', b'"data_version":2'),
        PLAIN.replace(b'"leaderEpoch":7', b'"leaderEpoch":"7"'),
        PLAIN.replace(b'"leaderEpoch":7', b'"leaderEpoch":true'),
        PLAIN.replace(b'"leaderEpoch":7', b'"leaderEpoch":-1'),
        PLAIN.replace(b'"leaderEpoch":7', b'"leaderEpoch":2147483648'),
        PLAIN.replace(b'"votedId":3', b'"votedId":' + b"[" * 5_000),
        PLAIN.replace(b'"votedDirectoryId":"', b'"votedDirectoryId":"?'),
        PLAIN.replace(b'"votedId":3,', b""),
        PLAIN.replace(b'"data_version"', b'"cutEpocl":6,"data_version"'),
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
