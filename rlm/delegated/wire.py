"""The bodies between the broker's plug-in and the node (docs/BROKER_PROTOCOL.md). Pure.

Integers are big-endian and of fixed size, as Java's ByteBuffer writes them; bytes after the last
field are an error. A malformed body is an InvalidRequest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kafka_formats.crc32c import Buffer
from kafka_formats.errors import CorruptData, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.primitives import Reader, Writer
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import (
    PartitionDeleteState,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

MEDIA_TYPE = "application/vnd.strandline.broker"
PROTOCOL = 1
WHOLE_SET = -1
"""`base_seq` of an announcement that carries every partition."""
ALL_EPOCHS = -1
TEXT_CHARACTERS_MAX = 1_000
"""The most characters of a reason or a detail: a line of a log."""
HEARTBEAT, COPY_DONE, COPY_FAILED, SEND_FILES = b"\0", b"\1", b"\2", b"\3"
"""First bytes of the parts of a copy's answer."""
SENT_FILES = 7
"""Files of a segment in `copy-files`."""
LIST_PAGE, LIST_SAME, LIST_CHANGES = range(3)
"""Forms of the answer to a list."""

Body = TypeVar("Body")
Tips = tuple[TopicIdPartition, ...]
_TIP_BYTES_MIN = 22
_EPOCH_BYTES = 12


@dataclass(frozen=True, slots=True)
class Announcement:
    """The partitions of a broker. `base_seq` is the announcement whose sets this one changes, or
    WHOLE_SET; `stopped` are partitions that the broker no longer has.
    """

    kafka_cluster_id: str
    broker_id: int
    plugin_version: str
    kafka_version: str
    bootstrap: str
    session: Uuid
    seq: int
    base_seq: int
    leaders: Tips
    followers: Tips
    stopped: Tips


@dataclass(frozen=True, slots=True)
class LookUp:
    """The segment that serves an offset of an epoch, or the next with a transaction index."""

    partition: TopicIdPartition
    leader_epoch: int
    offset: int
    with_txn_index: bool


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest copied offset of a leader epoch."""

    partition: TopicIdPartition
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ListSegments:
    """A page of the segments of an epoch, or of ALL_EPOCHS. `tag`: the state of the rows that the
    caller has; `cursor`: where its last page ended.
    """

    partition: TopicIdPartition
    leader_epoch: int
    tag: bytes | None
    cursor: bytes | None

    @property
    def epoch(self) -> int | None:
        """The epoch that is asked for; None: all epochs."""
        return None if self.leader_epoch == ALL_EPOCHS else self.leader_epoch


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """A segment to copy, and the paths of its files; an empty path: no transaction index."""

    row: RemoteLogSegmentMetadata
    log: str
    offset_index: str
    time_index: str
    txn_index: str
    producer_snapshot: str
    leader_epochs: bytes

    @property
    def paths(self) -> tuple[str, str, str, str, str]:
        """The files' paths, in the order of the body."""
        return (
            self.log, self.offset_index, self.time_index, self.txn_index, self.producer_snapshot,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class SentFiles:
    """A segment whose files follow. `sizes`: those of the files of `copy`, of partition.metadata
    and of leader-epoch-checkpoint; None: the file does not exist.
    """

    copy: CopyFiles
    sizes: tuple[int | None, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(size for size in self.sizes if size is not None)


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bytes [start, end) of a segment's `.log`."""

    row: RemoteLogSegmentMetadata
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class FetchIndex:
    """One index of a segment, by Kafka's number of its kind."""

    row: RemoteLogSegmentMetadata
    index: int


class BodyWriter(Writer):
    """Writes a body: lengths and counts have fixed sizes here."""

    def string(self, value: str) -> None:
        """An int16 length, and UTF-8."""
        raw = value.encode("utf-8", "replace")
        self.int16(len(raw))
        self._data += raw

    def nullable_bytes(self, value: Buffer | None) -> None:
        """An int32 length, -1 for null, and the bytes."""
        self.int32(-1 if value is None else len(value))
        self._data += b"" if value is None else value

    def array_length(self, count: int) -> None:
        """An int32 count."""
        self.int32(count)

    def tip(self, tip: TopicIdPartition) -> None:
        """A partition: its topic's id and name, and its number."""
        self.uuid(tip.topic_id)
        self.string(tip.topic)
        self.int32(tip.partition)

    def tips(self, tips: Sequence[TopicIdPartition]) -> None:
        """Partitions."""
        self.array_length(len(tips))
        for tip in tips:
            self.tip(tip)

    def rows(self, rows: Sequence[RemoteLogSegmentMetadata]) -> None:
        """Rows of one partition."""
        self.array_length(len(rows))
        for row in rows:
            self.row(row)

    def row(self, row: RemoteLogSegmentMetadata) -> None:
        """Kafka's part of a segment's row, without its partition."""
        self.uuid(row.segment_id.id)
        self.int64(row.start_offset)
        self.int64(row.end_offset)
        self.int32(row.broker_id)
        self.int64(row.max_timestamp_ms)
        self.int64(row.event_timestamp_ms)
        self.int32(row.size_bytes)
        self.int8(row.state)
        self.boolean(row.txn_index_empty)
        self.array_length(len(row.leader_epochs))
        for epoch, offset in row.leader_epochs:
            self.int32(epoch)
            self.int64(offset)
        self.nullable_bytes(row.custom_metadata)


class BodyReader(Reader):
    """Reads a body."""

    def string(self) -> str:
        """An int16 length, and UTF-8."""
        return self._text(self._take(self._size(self.int16())))

    def nullable_bytes(self) -> bytes | None:
        """An int32 length, -1 for null, and the bytes."""
        length = self.int32()
        return None if length == -1 else self._take(self._size(length))

    def count(self, element_bytes_min: int) -> int:
        """Read a number of elements; CorruptData if it is more than the rest of the body can
        contain.
        """
        count = self._size(self.int32())
        if count * element_bytes_min > self.remaining:
            raise self.corrupt(f"{count} elements do not fit into {self.remaining} bytes")
        return count

    def _size(self, length: int) -> int:
        if length < 0:
            raise self.corrupt(f"a length of {length}")
        return length

    def tip(self) -> TopicIdPartition:
        """A partition."""
        topic_id, topic = self.uuid(), self.string()
        return TopicIdPartition(topic, topic_id, self.int32())

    def tips(self) -> Tips:
        """Partitions."""
        return tuple(self.tip() for _ in range(self.count(_TIP_BYTES_MIN)))

    def segment_state(self) -> SegmentState:
        """A segment's state by Kafka's number."""
        number = self.int8()
        try:
            return SegmentState(number)
        except ValueError:
            raise self.corrupt(f"{number} is no state of a segment") from None

    def delete_state(self) -> PartitionDeleteState:
        """A partition's delete state by Kafka's number."""
        number = self.int8()
        try:
            return PartitionDeleteState(number)
        except ValueError:
            raise self.corrupt(f"{number} is no delete state of a partition") from None

    def row(self, tip: TopicIdPartition) -> RemoteLogSegmentMetadata:
        """Kafka's part of a segment's row."""
        id_ = RemoteLogSegmentId(tip, self.uuid())
        start, end, broker_id = self.int64(), self.int64(), self.int32()
        max_timestamp_ms, event_timestamp_ms = self.int64(), self.int64()
        size_bytes, state, txn_index_empty = self.int32(), self.segment_state(), self.boolean()
        epochs = tuple((self.int32(), self.int64()) for _ in range(self.count(_EPOCH_BYTES)))
        return RemoteLogSegmentMetadata(
            segment_id=id_,
            start_offset=start,
            end_offset=end,
            broker_id=broker_id,
            max_timestamp_ms=max_timestamp_ms,
            event_timestamp_ms=event_timestamp_ms,
            leader_epochs=epochs,
            size_bytes=size_bytes,
            custom_metadata=self.nullable_bytes(),
            state=state,
            txn_index_empty=txn_index_empty,
        )


def whole(read: Callable[[BodyReader], Body], data: bytes) -> Body:
    """Read a whole body; InvalidRequest if it is cut off, malformed or too long."""
    reader = BodyReader(data, "the body")
    try:
        body = read(reader)
        reader.expect_end()
    except CorruptData as error:
        raise InvalidRequest(str(error), field="body") from None
    return body


def _announcement(reader: BodyReader) -> Announcement:
    return Announcement(
        kafka_cluster_id=reader.string(),
        broker_id=reader.int32(),
        plugin_version=reader.string(),
        kafka_version=reader.string(),
        bootstrap=reader.string(),
        session=reader.uuid(),
        seq=reader.int64(),
        base_seq=reader.int64(),
        leaders=reader.tips(),
        followers=reader.tips(),
        stopped=reader.tips(),
    )


def _look_up(reader: BodyReader) -> LookUp:
    return LookUp(reader.tip(), reader.int32(), reader.int64(), reader.boolean())


def _highest(reader: BodyReader) -> Highest:
    return Highest(reader.tip(), reader.int32())


def _list_segments(reader: BodyReader) -> ListSegments:
    return ListSegments(
        reader.tip(), reader.int32(), reader.nullable_bytes(), reader.nullable_bytes()
    )


def _row(reader: BodyReader) -> RemoteLogSegmentMetadata:
    return reader.row(reader.tip())


def _update(reader: BodyReader) -> RemoteLogSegmentMetadataUpdate:
    id_ = RemoteLogSegmentId(reader.tip(), reader.uuid())
    broker_id, event_timestamp_ms, state = reader.int32(), reader.int64(), reader.segment_state()
    return RemoteLogSegmentMetadataUpdate(
        id_, broker_id, event_timestamp_ms, reader.nullable_bytes(), state
    )


def _delete_partition(reader: BodyReader) -> RemotePartitionDeleteMetadata:
    return RemotePartitionDeleteMetadata(
        reader.tip(), reader.int32(), reader.int64(), reader.delete_state()
    )


def _copy_files(reader: BodyReader) -> CopyFiles:
    row = _row(reader)
    log, offset_index, time_index, txn_index, producer_snapshot = (
        reader.string() for _ in range(5)
    )
    epochs = reader.nullable_bytes()
    if epochs is None:
        raise reader.corrupt("a copy needs its leader epochs")
    return CopyFiles(row, log, offset_index, time_index, txn_index, producer_snapshot, epochs)


def _sent_files(reader: BodyReader) -> SentFiles:
    copy = _copy_files(reader)
    sizes = tuple(reader.int64() for _ in range(SENT_FILES))
    if any(size < -1 for size in sizes):
        raise reader.corrupt("a file has no negative size")
    return SentFiles(copy, tuple(None if size < 0 else size for size in sizes))


def _fetch(reader: BodyReader) -> Fetch:
    return Fetch(_row(reader), reader.int64(), reader.int64())


def _fetch_index(reader: BodyReader) -> FetchIndex:
    return FetchIndex(_row(reader), reader.int8())


decode_announcement = partial(whole, _announcement)
decode_ready = partial(whole, BodyReader.tip)
decode_look_up = partial(whole, _look_up)
decode_highest = partial(whole, _highest)
decode_list = partial(whole, _list_segments)
decode_row = partial(whole, _row)
"""The body of `add` and of `delete`."""
decode_update = partial(whole, _update)
decode_delete_partition = partial(whole, _delete_partition)
decode_copy = partial(whole, _copy_files)
decode_sent = partial(whole, _sent_files)
"""The head of `copy-files`."""
decode_fetch = partial(whole, _fetch)
decode_index = partial(whole, _fetch_index)


def encode_applied(applied: int) -> bytes:
    """The answer to a write: a metadata offset at which it is applied."""
    writer = BodyWriter()
    writer.int64(applied)
    return writer.done()


def encode_announced(applied: int, node_id: int, boot_counter: int) -> bytes:
    """The answer to an announcement."""
    writer = BodyWriter()
    writer.int64(applied)
    writer.int32(node_id)
    writer.int64(boot_counter)
    return writer.done()


def encode_ready(applied: int, ready: bool, why: str) -> bytes:
    """Readiness, and the reason why not."""
    writer = BodyWriter()
    writer.int64(applied)
    writer.boolean(ready)
    writer.string(why[:TEXT_CHARACTERS_MAX])
    return writer.done()


def encode_found(applied: int, row: RemoteLogSegmentMetadata | None) -> bytes:
    """The answer to a look-up; None: no segment serves the offset."""
    writer = BodyWriter()
    writer.int64(applied)
    writer.boolean(row is not None)
    if row is not None:
        writer.row(row)
    return writer.done()


def encode_highest(applied: int, offset: int | None) -> bytes:
    """The highest copied offset; None: no offset was copied."""
    writer = BodyWriter()
    writer.int64(applied)
    writer.boolean(offset is not None)
    if offset is not None:
        writer.int64(offset)
    return writer.done()


def encode_page(
    applied: int, tag: bytes, rows: Sequence[RemoteLogSegmentMetadata], cursor: bytes | None
) -> bytes:
    """A page of a list; `cursor` None ends the list."""
    writer = _list_answer(applied, tag, LIST_PAGE)
    writer.rows(rows)
    writer.nullable_bytes(cursor)
    return writer.done()


def encode_same(applied: int, tag: bytes) -> bytes:
    """The answer to a caller that already has the rows of this tag."""
    return _list_answer(applied, tag, LIST_SAME).done()


def encode_changes(
    applied: int, tag: bytes, gone: Sequence[Uuid], rows: Sequence[RemoteLogSegmentMetadata]
) -> bytes:
    """The segments that are no longer in the caller's list, and the new and changed rows."""
    writer = _list_answer(applied, tag, LIST_CHANGES)
    writer.array_length(len(gone))
    for id_ in gone:
        writer.uuid(id_)
    writer.rows(rows)
    return writer.done()


def _list_answer(applied: int, tag: bytes, form: int) -> BodyWriter:
    writer = BodyWriter()
    writer.int64(applied)
    writer.nullable_bytes(tag)
    writer.int8(form)
    return writer


def encode_copied(custom_metadata: bytes) -> bytes:
    """The end of a copy that is done."""
    writer = BodyWriter()
    writer.nullable_bytes(custom_metadata)
    return COPY_DONE + writer.done()


def encode_copy_failed(kind: str, reason: str, detail: str) -> bytes:
    """The end of a copy that failed."""
    writer = BodyWriter()
    for text in (kind, reason, detail):
        writer.string(text[:TEXT_CHARACTERS_MAX])
    return COPY_FAILED + writer.done()
