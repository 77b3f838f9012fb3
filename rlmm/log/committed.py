"""Proposals as record batches, and batches as committed records. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from kafka_formats.bare_records import bare_values, encode_bare_values
from kafka_formats.control_record import control_key, parse_control_key
from kafka_formats.record_batch import Record, encode_batch, iter_records
from rlmm.log.log_directory import EncodedBatch, StoredBatch
from rlmm.log.snapshot_files import PRIVATE_CONTROL_TYPES_FROM
from rlmm.metadata_log import CommittedGroup, CommittedRecord, Proposal


def encode_proposals(
    proposals: Sequence[Proposal], *, base_offset: int, epoch: int, timestamp_ms: int
) -> tuple[EncodedBatch, ...]:
    """Batches of the proposals. Consecutive data records share a batch; a control record has one of
    its own, as in Kafka.
    """
    batches: list[EncodedBatch] = []
    offset = base_offset
    runs: list[list[Proposal]] = []
    for is_control, run in groupby(
        proposals, key=lambda proposal: proposal.control_type is not None
    ):
        members = list(run)
        runs.extend([member] for member in members) if is_control else runs.append(members)
    for members in runs:
        control_type = members[0].control_type
        if control_type is None:
            data = encode_bare_values(
                [member.value for member in members],
                base_offset=offset,
                leader_epoch=epoch,
                timestamp_ms=timestamp_ms,
            )
        else:
            record = Record(offset, timestamp_ms, control_key(control_type), members[0].value, ())
            data = encode_batch(
                [record], base_offset=offset, partition_leader_epoch=epoch, control=True
            )
        batches.append(EncodedBatch(offset, offset + len(members) - 1, epoch, data))
        offset += len(members)
    return tuple(batches)


def committed_group(batches: Sequence[StoredBatch], from_offset: int) -> CommittedGroup:
    """The records of whole batches, at least one, from `from_offset` on."""
    records = [
        record
        for batch in batches
        for record in committed_records(batch)
        if record.offset >= from_offset
    ]
    last = batches[-1].header
    return CommittedGroup(tuple(records), last.last_offset + 1, last.partition_leader_epoch)


def committed_records(batch: StoredBatch) -> Iterable[CommittedRecord]:
    """The records of a batch, without those of the log itself. CorruptData on damage."""
    header = batch.header
    values = bare_values(batch.data, header)
    if values is None:
        return _all_records(batch)
    timestamp_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp
    epoch = header.partition_leader_epoch
    return [
        CommittedRecord(offset, epoch, timestamp_ms, None, value)
        for offset, value in enumerate(values, header.base_offset)
    ]


def _all_records(batch: StoredBatch) -> Iterator[CommittedRecord]:
    header = batch.header
    for record in iter_records(batch.data, source=batch.source, position=batch.position):
        control_type = None
        if header.is_control:
            control_type = parse_control_key(
                record.key, source=batch.source, position=batch.position
            )
            if control_type < PRIVATE_CONTROL_TYPES_FROM:
                continue
        yield CommittedRecord(
            offset=record.offset,
            epoch=header.partition_leader_epoch,
            timestamp_ms=record.timestamp_ms,
            control_type=control_type,
            value=record.value or b"",
        )
