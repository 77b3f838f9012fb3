"""Kafka's control records of a KRaft log and its snapshots, both ways.

Sources: SnapshotHeaderRecord, SnapshotFooterRecord, LeaderChangeMessage, KRaftVersionRecord,
VotersRecord of Kafka's clients module, all in their version 0 (the one that stock tools decode).
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.primitives import Reader, Writer

KRAFT_VERSION = 1
_VERSION = 0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a voter's listener."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Voter:
    """A node id with the directory it was formatted with: a wiped disk is a new voter."""

    node_id: int
    directory_id: Uuid
    endpoints: tuple[Endpoint, ...] = ()


def encode_leader_change(
    leader_id: int, voters: tuple[int, ...], granting: tuple[int, ...]
) -> bytes:
    """The first record of every epoch (KIP-595)."""
    writer = Writer()
    writer.int16(_VERSION)
    writer.int32(leader_id)
    for node_ids in (voters, granting):
        writer.array_length(len(node_ids))
        for node_id in node_ids:
            writer.int32(node_id)
            writer.tagged_fields(())
    writer.tagged_fields(())
    return writer.done()


def decode_leader_change(
    data: bytes, *, source: str
) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Leader, voters and granting voters. CorruptData: malformed."""
    reader = Reader(data, source)
    reader.int16()
    leader_id = reader.int32()
    lists = []
    for _ in range(2):
        node_ids = []
        for _ in range(reader.array_length()):
            node_ids.append(reader.int32())
            reader.tagged_fields()
        lists.append(tuple(node_ids))
    reader.tagged_fields()
    reader.expect_end()
    return leader_id, lists[0], lists[1]


def encode_snapshot_header(last_contained_timestamp_ms: int) -> bytes:
    """The first record of a snapshot; the time is that of the last record in it (KIP-630)."""
    writer = Writer()
    writer.int16(_VERSION)
    writer.int64(last_contained_timestamp_ms)
    writer.tagged_fields(())
    return writer.done()


def decode_snapshot_header(data: bytes, *, source: str) -> int:
    """The timestamp in a snapshot header, milliseconds. CorruptData: malformed."""
    reader = Reader(data, source)
    reader.int16()
    timestamp_ms = reader.int64()
    reader.tagged_fields()
    reader.expect_end()
    return timestamp_ms


def encode_snapshot_footer() -> bytes:
    """The last record of a snapshot; without it, the snapshot is incomplete."""
    writer = Writer()
    writer.int16(_VERSION)
    writer.tagged_fields(())
    return writer.done()


def encode_kraft_version(version: int = KRAFT_VERSION) -> bytes:
    """Version 1: voters are kept in the log (KIP-853)."""
    writer = Writer()
    writer.int16(_VERSION)
    writer.int16(version)
    writer.tagged_fields(())
    return writer.done()


def encode_voters(voters: tuple[Voter, ...]) -> bytes:
    """The voter set (KIP-853)."""
    writer = Writer()
    writer.int16(_VERSION)
    writer.array_length(len(voters))
    for voter in voters:
        writer.int32(voter.node_id)
        writer.uuid(voter.directory_id)
        writer.array_length(len(voter.endpoints))
        for endpoint in voter.endpoints:
            writer.string(endpoint.name)
            writer.string(endpoint.host)
            # The schema's uint16 has the bytes of an int16.
            writer.int16(endpoint.port - 65_536 if endpoint.port > 32_767 else endpoint.port)
            writer.tagged_fields(())
        writer.int16(0)
        writer.int16(KRAFT_VERSION)
        writer.tagged_fields(())
        writer.tagged_fields(())
    writer.tagged_fields(())
    return writer.done()


def decode_voters(data: bytes, *, source: str) -> tuple[Voter, ...]:
    """The voter set of a VotersRecord. CorruptData: malformed."""
    reader = Reader(data, source)
    reader.int16()
    voters = []
    for _ in range(reader.array_length()):
        node_id = reader.int32()
        directory_id = reader.uuid()
        endpoints = []
        for _ in range(reader.array_length()):
            name, host, port = reader.string(), reader.string(), reader.int16()
            reader.tagged_fields()
            endpoints.append(Endpoint(name, host, port & 0xFFFF))
        reader.int16()
        reader.int16()
        reader.tagged_fields()
        reader.tagged_fields()
        voters.append(Voter(node_id, directory_id, tuple(endpoints)))
    reader.tagged_fields()
    reader.expect_end()
    return tuple(voters)
