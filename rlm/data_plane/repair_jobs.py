"""Jobs of a worker for a repair: to check objects, to gather a segment. Plain values, which cross
processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafka_formats.kafka_uuid import Uuid
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import ObjectSuffix, segment_keys
from rlmm.segment import RemoteLogSegmentId


@dataclass(frozen=True, slots=True)
class ExpectedObject:
    """An object as the metadata has it."""

    suffix: ObjectSuffix
    key: str
    size_bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class CheckJob:
    """Read every byte of these objects of a store."""

    store: str
    objects: tuple[ExpectedObject, ...]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """`wrong` are the objects that are not as expected, each with a sentence."""

    wrong: tuple[tuple[ObjectSuffix, str], ...]

    @property
    def text(self) -> str:
        """All of it in one line; empty when all is whole."""
        return ", ".join(text for _, text in self.wrong)


@dataclass(frozen=True, slots=True)
class LocalLog:
    """A segment file on this node's disks, the broker's or a held one. `next_base_offset` None: the
    active one.
    """

    path: Path
    base_offset: int
    next_base_offset: int | None


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Segments of one log, ascending, which together may hold what is looked for."""

    name: str
    logs: tuple[LocalLog, ...]


@dataclass(frozen=True, slots=True)
class GatherJob:
    """Put a segment's files together anew, as a directory that it can be copied from.

    `objects` are those of the damaged segment: what of them is whole is taken, then what is on this
    node's disks (`local`), then what `store` kept of earlier versions. What is gathered has the
    length and the CRC32C that the metadata has of `.log`; nothing else will do. `checkpoint` is the
    lineage's. `replica`: what another replica answered, and then its `.log` is looked for nowhere
    else. `directory` None: only look where it could be had from. So much of its disk as
    `free_bytes_min` stays free.
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
        """Of the partition."""
        return self.segment_id.partition.topic_id

    def object(self, suffix: ObjectSuffix) -> ExpectedObject:
        """One of the three."""
        return next(each for each in self.objects if each.suffix is suffix)


@dataclass(frozen=True, slots=True)
class GatherResult:
    """`source` says where `.log` was found whole, empty: nowhere; `lacks` what belongs to it and
    was found nowhere. `tried` says of sources why they will not do, `unanswered` why others could
    not be asked: while there are any, nothing is known to be lost.
    """

    source: str
    tried: tuple[str, ...] = ()
    unanswered: tuple[str, ...] = ()
    lacks: str = ""

    @property
    def is_whole(self) -> bool:
        """It can be copied from."""
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
