"""The plug-in's side of the bodies: it writes requests and reads answers."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import wire
from rlm.delegated.phase_bodies import PhaseAsked
from rlm.delegated.wire import BodyReader, BodyWriter
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)


def announce(each: wire.Announcement) -> bytes:
    writer = BodyWriter()
    writer.string(each.kafka_cluster_id)
    writer.int32(each.broker_id)
    writer.string(each.plugin_version)
    writer.string(each.kafka_version)
    writer.string(each.bootstrap)
    writer.uuid(each.session)
    writer.int64(each.seq)
    writer.int64(each.base_seq)
    for tips in (each.leaders, each.followers, each.stopped):
        writer.tips(tips)
    return writer.done()


def ready(tip: TopicIdPartition) -> bytes:
    writer = BodyWriter()
    writer.tip(tip)
    return writer.done()


def look_up(each: wire.LookUp) -> bytes:
    writer = BodyWriter()
    writer.tip(each.partition)
    writer.int32(each.leader_epoch)
    writer.int64(each.offset)
    writer.boolean(each.with_txn_index)
    return writer.done()


def highest(each: wire.Highest) -> bytes:
    writer = BodyWriter()
    writer.tip(each.partition)
    writer.int32(each.leader_epoch)
    return writer.done()


def list_segments(each: wire.ListSegments) -> bytes:
    writer = BodyWriter()
    writer.tip(each.partition)
    writer.int32(each.leader_epoch)
    writer.nullable_bytes(each.tag)
    writer.nullable_bytes(each.cursor)
    return writer.done()


def row(each: RemoteLogSegmentMetadata) -> bytes:
    writer = BodyWriter()
    writer.tip(each.segment_id.partition)
    writer.row(each)
    return writer.done()


def update(each: RemoteLogSegmentMetadataUpdate) -> bytes:
    writer = BodyWriter()
    writer.tip(each.segment_id.partition)
    writer.uuid(each.segment_id.id)
    writer.int32(each.broker_id)
    writer.int64(each.event_timestamp_ms)
    writer.int8(each.state)
    writer.nullable_bytes(each.custom_metadata)
    return writer.done()


def delete_partition(each: RemotePartitionDeleteMetadata) -> bytes:
    writer = BodyWriter()
    writer.tip(each.partition)
    writer.int32(each.broker_id)
    writer.int64(each.event_timestamp_ms)
    writer.int8(each.state)
    return writer.done()


def copy(each: wire.CopyFiles) -> bytes:
    writer = BodyWriter()
    writer.tip(each.row.segment_id.partition)
    writer.row(each.row)
    for path in (
        each.log,
        each.offset_index,
        each.time_index,
        each.txn_index,
        each.producer_snapshot,
    ):
        writer.string(path)
    writer.nullable_bytes(each.leader_epochs)
    return writer.done()


def sent_files(each: wire.SentFiles) -> bytes:
    """The head of `copy-files`, with its length."""
    writer = BodyWriter()
    for size in each.sizes:
        writer.int64(-1 if size is None else size)
    head = copy(each.copy) + writer.done()
    return len(head).to_bytes(4, "big") + head


def fetch(each: wire.Fetch) -> bytes:
    writer = BodyWriter()
    writer.tip(each.row.segment_id.partition)
    writer.row(each.row)
    writer.int64(each.start)
    writer.int64(each.end)
    return writer.done()


def fetch_index(each: wire.FetchIndex) -> bytes:
    writer = BodyWriter()
    writer.tip(each.row.segment_id.partition)
    writer.row(each.row)
    writer.int8(each.index)
    return writer.done()


def read_applied(body: bytes) -> int:
    reader = BodyReader(body, "applied")
    applied = reader.int64()
    reader.expect_end()
    return applied


def read_ready(body: bytes) -> tuple[int, bool, str]:
    reader = BodyReader(body, "ready")
    answer = reader.int64(), reader.boolean(), reader.string()
    reader.expect_end()
    return answer


def phase(each: PhaseAsked) -> bytes:
    writer = BodyWriter()
    writer.string(each.kafka_cluster_id)
    writer.int32(each.broker_id)
    writer.int8(each.seen)
    writer.int32(each.outstanding)
    return writer.done()


def read_phase(body: bytes) -> tuple[int, int, int]:
    """Applied offset, the phase's number, the metadata offset of its record."""
    reader = BodyReader(body, "phase")
    answer = reader.int64(), reader.int8(), reader.int64()
    reader.expect_end()
    return answer


def read_found(body: bytes, tip: TopicIdPartition) -> tuple[int, RemoteLogSegmentMetadata | None]:
    reader = BodyReader(body, "lookup")
    answer = reader.int64(), reader.row(tip) if reader.boolean() else None
    reader.expect_end()
    return answer


def read_highest(body: bytes) -> tuple[int, int | None]:
    reader = BodyReader(body, "highest")
    answer = reader.int64(), reader.int64() if reader.boolean() else None
    reader.expect_end()
    return answer


def read_page(
    body: bytes, tip: TopicIdPartition
) -> tuple[int, bytes | None, tuple[RemoteLogSegmentMetadata, ...] | None, bytes | None]:
    """Applied offset, tag, rows (None: the same as before), next cursor."""
    reader = BodyReader(body, "list")
    applied, tag, same = reader.int64(), reader.nullable_bytes(), reader.boolean()
    rows, cursor = None, None
    if not same:
        rows = tuple(reader.row(tip) for _ in range(reader.count(50)))
        cursor = reader.nullable_bytes()
    reader.expect_end()
    return applied, tag, rows, cursor


@dataclass(frozen=True, slots=True)
class ListAnswer:
    """`form` is LIST_PAGE, LIST_SAME or LIST_CHANGES."""

    form: int
    tag: bytes | None
    rows: tuple[RemoteLogSegmentMetadata, ...] = ()
    cursor: bytes | None = None
    gone: tuple[Uuid, ...] = ()


def read_list(body: bytes, tip: TopicIdPartition) -> ListAnswer:
    reader = BodyReader(body, "list")
    _, tag, form = reader.int64(), reader.nullable_bytes(), reader.int8()
    found = ListAnswer(form, tag)
    if form == wire.LIST_CHANGES:
        found = replace(found, gone=tuple(reader.uuid() for _ in range(reader.count(16))))
    if form != wire.LIST_SAME:
        found = replace(found, rows=tuple(reader.row(tip) for _ in range(reader.count(50))))
    if form == wire.LIST_PAGE:
        found = replace(found, cursor=reader.nullable_bytes())
    reader.expect_end()
    return found


def read_copied(body: bytes) -> tuple[int, bytes | None, tuple[str, str, str] | None]:
    """Heartbeats, custom metadata, and the failure's kind, reason and detail."""
    beats = len(body) - len(body.lstrip(wire.HEARTBEAT))
    reader = BodyReader(body[beats:], "copy")
    custom, failure = None, None
    if reader.int8() == 1:
        custom = reader.nullable_bytes()
    else:
        failure = (reader.string(), reader.string(), reader.string())
    reader.expect_end()
    return beats, custom, failure
