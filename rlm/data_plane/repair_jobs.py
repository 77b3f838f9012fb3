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
"""Gets the sizes of the pieces that a job reads, as proof that it does not hang."""


READ_TOLD_BYTES = 256 * 1024
"""Bytes after which a walk from batch to batch tells of them: batches may be small."""


def tell_nobody(_: int) -> None:
    """An `on_read` for callers that do not watch a job."""


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object as recorded in the metadata."""

    suffix: ObjectSuffix
    key: str
    size_bytes: int
    crc32c: int

    def wrong(self, size: int, crc: int) -> str:
        """The fault of an object of `size` bytes, or more, with this CRC32C; empty without one."""
        if size != self.size_bytes:
            more = "more than " if size > self.size_bytes else ""
            return f"{more}{min(size, self.size_bytes)} bytes, not {self.size_bytes}"
        return "" if crc == self.crc32c else f"CRC32C {crc:08x}, not {self.crc32c:08x}"


@dataclass(frozen=True, slots=True)
class CheckJob:
    """Read every byte of these objects of a store."""

    store: str
    objects: tuple[ExpectedObject, ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The objects that are not as expected, each with a sentence."""

    wrong: tuple[tuple[ObjectSuffix, str], ...]

    @property
    def text(self) -> str:
        """All faults in one line; empty if there are none."""
        return ", ".join(text for _, text in self.wrong)


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A segment file of the broker or a held one. `next_base_offset` None: it is active."""

    path: Path
    base_offset: int
    next_base_offset: int | None


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Segments of one log, ascending, which together may hold the bytes."""

    name: str
    logs: tuple[LocalLog, ...]


@dataclass(frozen=True, slots=True)
class GatherJob:
    """Put a segment's files together again, in a directory that it can be copied from.

    `objects` are those of the damaged segment. Sources: the whole ones of them, then this node's
    disks (`local`), then earlier versions in `store`; with `replica`, what another replica
    answered, only that for `.log`. A `.log` must have the length and CRC32C of the metadata.
    `checkpoint` is the lineage's. `directory` None: only look for a source. `free_bytes_min` of its
    disk stay free.
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
    """`source` is where `.log` was found whole, empty if nowhere; `lacks` what else is missing.
    `tried` tells which sources will not do and why, `unanswered` which could not be asked: while
    there are any, nothing counts as lost. `open_at_base`: by the damaged segment's manifest; None:
    unknown.
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
    """The objects of a segment of ours, by its row."""
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
