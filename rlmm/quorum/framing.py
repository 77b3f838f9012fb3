"""Converts batches between the core, which has no bytes, and the log, which has only bytes. Pure.

A batch is encoded before it has a place: base offset and leader epoch lie outside its CRC and are
written once the core has assigned them (as Kafka's ProducerStateManager does on append).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_formats.bare_records import bare_values
from kafka_formats.control_record import ControlType, control_key, parse_control_key
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    Record,
    check_crc,
    encode_batch,
    iter_records,
    parse_header,
)
from rlmm.log import quorum_records
from rlmm.log.committed import committed_records, encode_proposals
from rlmm.log.log_directory import EncodedBatch, StoredBatch
from rlmm.log.snapshot_files import PRIVATE_CONTROL_TYPES_FROM
from rlmm.metadata_log import CommittedRecord, Proposal
from rlmm.raft.events import ProposedBatch
from rlmm.raft.messages import (
    Batch,
    ControlRecord,
    KRaftVersion,
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterSet,
    VotersRecord,
)

NO_OP = PRIVATE_CONTROL_TYPES_FROM - 1
"""Control record type of the core's NoOp: the log's own, so readers never see it."""

_PRODUCED = "produce"
_PLACE = struct.Struct(">q")
_EPOCH = struct.Struct(">i")
_EPOCH_AT = 12
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CHECKED_FROM = 21
_ATTRIBUTES = struct.Struct(">h")
_ATTRIBUTES_AT = 21
_LOG_APPEND_TIME = 0x08
_MAX_TIMESTAMP = struct.Struct(">q")
_MAX_TIMESTAMP_AT = 35


@dataclass(frozen=True, slots=True)
class Framed:
    """A batch of proposals without a place; `data` is patched once, when it gets one."""

    data: bytearray
    timestamp_ms: int
    proposals: tuple[Proposal, ...] | None


def frame(proposals: Sequence[Proposal], *, timestamp_ms: int) -> tuple[ProposedBatch, ...]:
    """Batches for a Propose event, in order."""
    framed = []
    start = 0
    for batch in encode_proposals(proposals, base_offset=0, epoch=0, timestamp_ms=timestamp_ms):
        count = batch.last_offset - batch.base_offset + 1
        part = tuple(proposals[start : start + count])
        payload = Framed(bytearray(batch.data), timestamp_ms, part)
        framed.append(ProposedBatch(count, len(batch.data), payload))
        start += count
    return tuple(framed)


def frame_produced(records: bytes, *, timestamp_ms: int) -> tuple[ProposedBatch, ...]:
    """The batches of a different node's proposals, stamped with this leader's time (LogAppendTime).

    InvalidRequest: as in `proposals_produced`. Every node applies the committed records, so all
    records are decoded here before they are appended to the log.
    """
    framed = []
    for header, batch, found in _produced_batches(records):
        data = bytearray(batch)
        _stamp(data, header.attributes, timestamp_ms)
        framed.append(ProposedBatch(len(found), len(data), Framed(data, timestamp_ms, found)))
    return tuple(framed)


def proposals_produced(records: bytes) -> tuple[Proposal, ...]:
    """The records of a client's batches, for a common batch. InvalidRequest: no batch, damage,
    records that only a leader may write, or fields that metadata records lack.
    """
    return tuple(each for _, _, found in _produced_batches(records) for each in found)


def _produced_batches(records: bytes) -> Iterator[tuple[BatchHeader, bytes, tuple[Proposal, ...]]]:
    at = 0
    try:
        while at < len(records):
            header = parse_header(records, at, source=_PRODUCED, position=at)
            check_crc(records, at, header, source=_PRODUCED, position=at)
            count = header.last_offset_delta + 1
            if count != header.record_count or header.is_transactional or header.codec:
                raise InvalidRequest(
                    "send plain batches only: not compressed, not transactional, without gaps",
                    field="records",
                )
            batch = records[at : at + header.size_bytes]
            yield header, batch, _proposals_in(header, batch)
            at += header.size_bytes
    except CorruptData as error:
        raise InvalidRequest(f"damaged batch: {error}", field="records") from error
    if not at:
        raise InvalidRequest("no batch", field="records")


def _proposals_in(header: BatchHeader, batch: bytes) -> tuple[Proposal, ...]:
    values = bare_values(batch, header)
    if values is not None:
        return tuple(Proposal(None, value) for value in values)
    found: list[Proposal] = []
    for record in iter_records(batch, source=_PRODUCED, position=0):
        kind = _proposed_type(record) if header.is_control else None
        key = None if kind is None else control_key(kind)
        if record.key != key or record.value is None or record.headers:
            raise InvalidRequest(
                "metadata records have a value, no key and no headers", field="records"
            )
        if record.offset != header.base_offset + len(found):
            raise InvalidRequest("send records without offset gaps", field="records")
        found.append(Proposal(kind, record.value))
    return tuple(found)


def _proposed_type(record: Record) -> int:
    """The type of a control record that may be proposed."""
    kind = parse_control_key(record.key, source=_PRODUCED, position=0)
    if kind < NO_OP:
        raise InvalidRequest(
            f"control record type {kind} is the log's own: do not propose it", field="records"
        )
    return kind


def _stamp(data: bytearray, attributes: int, timestamp_ms: int) -> None:
    _ATTRIBUTES.pack_into(data, _ATTRIBUTES_AT, attributes | _LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, timestamp_ms)
    _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_CHECKED_FROM:]))


@dataclass(frozen=True, slots=True)
class PlacedBatch:
    """A batch with its place in the log; `proposals` if they need not be decoded again."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes
    timestamp_ms: int = 0
    proposals: tuple[Proposal, ...] | None = None

    def encoded(self) -> EncodedBatch:
        return EncodedBatch(self.base_offset, self.end_offset - 1, self.epoch, self.data)

    def records(self) -> Iterable[CommittedRecord]:
        """The records without the log's own."""
        if self.proposals is None:
            header = parse_header(self.data, source="metadata log", position=0)
            return committed_records(StoredBatch(header, self.data, "metadata log", 0))
        return [
            CommittedRecord(
                self.base_offset + index,
                self.epoch,
                self.timestamp_ms,
                proposal.control_type,
                proposal.value,
            )
            for index, proposal in enumerate(self.proposals)
            if proposal.control_type is None or proposal.control_type >= PRIVATE_CONTROL_TYPES_FROM
        ]


def place(batch: Batch, *, timestamp_ms: int) -> PlacedBatch:
    """A batch with its final bytes; `timestamp_ms` is for the core's own control batches."""
    payload = batch.payload
    if isinstance(payload, Framed):
        _PLACE.pack_into(payload.data, 0, batch.base_offset)
        _EPOCH.pack_into(payload.data, _EPOCH_AT, batch.epoch)
        data, stamp, proposals = bytes(payload.data), payload.timestamp_ms, payload.proposals
        return PlacedBatch(batch.base_offset, batch.end_offset, batch.epoch, data, stamp, proposals)
    if isinstance(payload, bytes):
        return PlacedBatch(batch.base_offset, batch.end_offset, batch.epoch, payload)
    records = [
        Record(batch.base_offset + index, timestamp_ms, control_key(kind), value, ())
        for index, (kind, value) in enumerate(map(_encode_control, batch.control))
    ]
    data = encode_batch(
        records, base_offset=batch.base_offset, partition_leader_epoch=batch.epoch, control=True
    )
    return PlacedBatch(batch.base_offset, batch.end_offset, batch.epoch, data)


def _encode_control(record: ControlRecord) -> tuple[int, bytes]:
    if isinstance(record, LeaderChange):
        value = quorum_records.encode_leader_change(
            record.leader_id, record.voters, record.granting
        )
        return ControlType.LEADER_CHANGE, value
    if isinstance(record, KRaftVersion):
        return ControlType.KRAFT_VERSION, quorum_records.encode_kraft_version(record.version)
    if isinstance(record, VotersRecord):
        return ControlType.KRAFT_VOTERS, quorum_records.encode_voters(stored_voters(record.voters))
    return NO_OP, b""


def fetched_batches(data: bytes, *, source: str) -> Iterator[Batch]:
    """Whole batches of a Fetch answer, CRC checked, up to the first bad one (KIP-595). Only records
    about voters are decoded, for the core.
    """
    at = 0
    while len(data) - at >= HEADER_BYTES:
        try:
            header = parse_header(data, at, source=source, position=at)
            if len(data) - at < header.size_bytes:
                return
            check_crc(data, at, header, source=source, position=at)
            whole = data[at : at + header.size_bytes]
            control = tuple(_control_records(whole, source)) if header.is_control else ()
        except CorruptData:
            return
        yield Batch(
            header.base_offset,
            header.partition_leader_epoch,
            header.last_offset_delta + 1,
            header.size_bytes,
            whole,
            control,
        )
        at += header.size_bytes


def _control_records(data: bytes, source: str) -> Iterator[ControlRecord]:
    """One element per record, since the core counts them; other records become a KRaftVersion."""
    for record in iter_records(data, source=source, position=0):
        kind, value = parse_control_key(record.key, source=source, position=0), record.value or b""
        if kind == ControlType.KRAFT_VOTERS:
            yield VotersRecord(voter_set(quorum_records.decode_voters(value, source=source)))
        elif kind == ControlType.LEADER_CHANGE:
            yield LeaderChange(*quorum_records.decode_leader_change(value, source=source))
        else:
            yield KRaftVersion()


def voter_set(voters: Sequence[quorum_records.Voter]) -> VoterSet:
    """The core's form."""
    known = (
        Voter(ReplicaKey(voter.node_id, str(voter.directory_id)), voter.endpoints)
        for voter in voters
    )
    return VoterSet(tuple(sorted(known, key=lambda voter: voter.key)))


def stored_voters(voters: VoterSet) -> tuple[quorum_records.Voter, ...]:
    """The log's form."""
    return tuple(
        quorum_records.Voter(
            voter.key.node_id,
            Uuid.parse(voter.key.directory_id),
            tuple(each for each in voter.endpoints if isinstance(each, quorum_records.Endpoint)),
        )
        for voter in voters.voters
    )
