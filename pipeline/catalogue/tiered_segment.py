"""A tiered segment as the driver hands it to tasks, and the port that finds segments."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_formats.errors import CorruptData, NotFound
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import SegmentKeys, segment_keys
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig


class NoSegment(NotFound):
    """A partition's folder in the bucket has no segment, as while its first one is copied, or after
    an upload that never ended.
    """


@dataclass(frozen=True, slots=True)
class TieredSegment:
    """One finished segment. Picklable, and small: the driver holds 100,000 of them.

    Offsets are inclusive. A reader takes `first_offset` to `last_offset` from this segment, within
    its own `start_offset` to `end_offset`: if leaders copied the same offsets twice, or the log
    start lies inside the segment, the rest of it is ignored.
    `max_timestamp_ms` -1: unknown. `objects` None: lengths and checksums are unknown until the
    manifest is read (segments of Aiven's plug-in).
    """

    segment_id: RemoteLogSegmentId
    store: str
    start_offset: int
    end_offset: int
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_bytes: int
    txn_index_empty: bool
    leader_epochs: Epochs
    objects: CustomMetadata | None = None

    @property
    def partition(self) -> TopicIdPartition:
        return self.segment_id.partition

    def keys(self, prefix: str) -> SegmentKeys:
        """The keys of its objects in a store with this key prefix."""
        return segment_keys(prefix, self.segment_id, self.start_offset)


@dataclass(frozen=True, slots=True)
class DamagedSegment:
    """A segment whose manifest, at `key`, cannot be read or does not match the stored objects;
    `missing` are the keys of absent objects. `end_offset` None: the manifest does not have it.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int | None
    key: str
    missing: tuple[str, ...]
    error: CorruptData


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """The readable offsets of a partition, from `earliest` to `latest` (exclusive). `in_doubt_to`
    is the end of the offsets after `latest` that only segments in doubt have, 0 without any: no
    reader may skip these offsets, since a later segment may still have them.
    """

    earliest: int
    latest: int
    in_doubt_to: int = 0


def within(
    segments: Sequence[TieredSegment], first_offset: int, last_offset: int
) -> list[TieredSegment]:
    """The part of a chain that holds offsets of a range, cut to it."""
    at = bisect_left(segments, first_offset, key=lambda each: each.last_offset)
    found = []
    for each in segments[at:]:
        if each.first_offset > last_offset:
            break
        first, last = max(each.first_offset, first_offset), min(each.last_offset, last_offset)
        cut = (first, last) != (each.first_offset, each.last_offset)
        found.append(replace(each, first_offset=first, last_offset=last) if cut else each)
    return found


class Catalogue(Protocol):
    """The port that finds segments. Implementations: from a node, from manifests in the bucket.

    NotFound: the topic or partition has no tiered segment. RetryLater, Refused: node or store.
    """

    @property
    def stores(self) -> Mapping[str, StoreConfig]:
        """The stores that segments name, for tasks to open. Picklable."""

    @property
    def tells_deletions(self) -> bool:
        """True if a topic that it does not have was deleted; False: or all of it expired."""

    def topics(self) -> Sequence[str]:
        """Names of all topics with tiered segments, ascending."""

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        """The topic's partitions, ascending; of topics with the same name, the newest."""

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        """The readable offsets of a partition."""

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        """The readable segments that hold offsets of this range, ascending and disjoint by
        `first_offset` and `last_offset`. Offsets between two are lost or were never tiered.
        """

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Prepares for calls about these partitions: slow work is done for all at once. The answers
        are the same without this call.
        """

    def refresh(self) -> None:
        """Makes later questions look everything up anew: call it before each look at new data."""

    def close(self) -> None:
        """Close connections; no questions may follow."""
