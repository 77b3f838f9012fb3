"""A worker's jobs for a repair, as plain values that cross processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.producer_snapshot import OpenTransaction
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import ObjectSuffix, segment_keys
from rlmm.segment import RemoteLogSegmentId

OnRead = Callable[[int], None]
"""A callback with the size of each piece that a job reads, as proof that it does not hang."""


READ_TOLD_BYTES = 256 * 1024
"""Number of bytes after which a walk over batches, which may be small, calls `on_read`."""


def tell_nobody(_: int) -> None:
    """An `on_read` for callers that do not watch the job."""


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object with the length and CRC32C that the metadata recorded."""

    suffix: ObjectSuffix
    key: str
    size_bytes: int
    crc32c: int

    def wrong(self, size: int, crc: int) -> str:
        """The fault of an object with this size and CRC32C; empty if it is right. A `size` above
        the recorded one may be less than the whole size.
        """
        if size != self.size_bytes:
            more = "more than " if size > self.size_bytes else ""
            return f"{more}{min(size, self.size_bytes)} bytes, not {self.size_bytes}"
        return "" if crc == self.crc32c else f"CRC32C {crc:08x}, not {self.crc32c:08x}"


@dataclass(frozen=True, slots=True)
class CheckJob:
    """A job to read every byte of these objects and compare them with the metadata."""

    store: str
    objects: tuple[ExpectedObject, ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The objects that are not as expected, each with its fault."""

    wrong: tuple[tuple[ObjectSuffix, str], ...]

    @property
    def text(self) -> str:
        """All faults in one line; empty if there are none."""
        return ", ".join(text for _, text in self.wrong)


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A segment file of the broker or of the hold; `next_base_offset` is None if it is active."""

    path: Path
    base_offset: int
    next_base_offset: int | None


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Segments of one log, ascending, which together may contain the wanted bytes."""

    name: str
    logs: tuple[LocalLog, ...]


@dataclass(frozen=True, slots=True)
class GatherJob:
    """A job to reassemble a segment's files in a directory from which it can be copied.

    `objects` are those of the damaged segment. The sources are its undamaged objects, then this
    node's disks (`local`), then earlier versions in `store`; if `replica` is set, its batches of a
    different replica are the only source of `.log`. A `.log` must have the length and CRC32C of the
    metadata. `checkpoint` is that of the lineage. `directory` None: only look for a source.
    `free_bytes_min` stay free on the directory's disk.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    max_timestamp_ms: int
    txn_index_empty: bool
    checkpoint: bytes
    store: str
    objects: tuple[ExpectedObject, ...]
    damaged: frozenset[ObjectSuffix]
    local: tuple[LocalSource, ...]
    directory: Path | None
    free_bytes_min: int = 0
    replica: LocalSource | None = None

    @property
    def topic_id(self) -> Uuid:
        return self.segment_id.partition.topic_id

    def object(self, suffix: ObjectSuffix) -> ExpectedObject:
        return next(each for each in self.objects if each.suffix is suffix)


@dataclass(frozen=True, slots=True)
class GatherResult:
    """The result of a GatherJob. `source` names the source with a whole `.log`, empty if there is
    none; `lacks` says what else is missing. `tried` has the sources that were no use, with the
    reason; `unanswered` those that could not be read now: while there are any, the segment does not
    count as lost. `open_at_base` is from the damaged segment's manifest; None: unknown.
    """

    source: str
    tried: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    lacks: str = ""
    open_at_base: tuple[OpenTransaction, ...] | None = None

    @property
    def is_whole(self) -> bool:
        return bool(self.source) and not self.lacks


def expected_objects(
    prefix: str, segment_id: RemoteLogSegmentId, start_offset: int, custom: CustomMetadata
) -> tuple[ExpectedObject, ...]:
    """The objects of a segment that Strandline copied, from its row."""
    keys = segment_keys(prefix, segment_id, start_offset)
    return (
        ExpectedObject(ObjectSuffix.LOG, keys.log, custom.log_bytes, custom.log_crc32c),
        ExpectedObject(
            ObjectSuffix.INDEXES, keys.indexes, custom.indexes_bytes, custom.indexes_crc32c
        ),
        ExpectedObject(
            ObjectSuffix.MANIFEST, keys.manifest, custom.manifest_bytes, custom.manifest_crc32c
        ),
    )
