"""What the driver knows of a segment and hands to tasks, and the port that finds segments."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import Epochs
from rlm.custom_metadata import CustomMetadata
from rlm.object_keys import SegmentKeys, segment_keys
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentId, TopicIdPartition
from rsm_backends.store_config import StoreConfig


@dataclass(frozen=True, slots=True)
class TieredSegment:
    """One finished segment. Picklable, and small: the driver holds 100,000 of them.

    Offsets are inclusive. `first_offset` to `last_offset` are those that a reader takes from this
    segment, within its own `start_offset` to `end_offset`: where leaders copied the same offsets
    twice, or the log start lies inside a segment, the rest of it counts for nothing.
    `max_timestamp_ms` -1: unknown. `objects` None: nothing is known of lengths and checksums before
    the manifest is read (segments of Aiven's plug-in).
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
        """Whose segment it is."""
        return self.segment_id.partition

    def keys(self, prefix: str) -> SegmentKeys:
        """Its objects in a store with this key prefix."""
        return segment_keys(prefix, self.segment_id, self.start_offset)


@dataclass(frozen=True, slots=True)
class DamagedSegment:
    """One whose manifest, at `key`, cannot be read or is not of the objects that are there:
    `missing` are the keys of those that are not. `end_offset` None: the manifest does not tell.
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int | None
    key: str
    missing: tuple[str, ...]
    error: CorruptData


@dataclass(frozen=True, slots=True)
class PartitionBounds:
    """`earliest` is the first readable offset, `latest` the one behind the last (exclusive)."""

    earliest: int
    latest: int


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
    """Where segments are found. Implementations: from a node, from manifests in the bucket.

    NotFound: no such topic or partition is tiered. RetryLater, Refused: node or store.
    """

    @property
    def stores(self) -> Mapping[str, StoreConfig]:
        """The stores that segments name, for tasks to open. Picklable."""
        ...

    def topics(self) -> Sequence[str]:
        """Names of all topics with tiered segments, ascending."""
        ...

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        """The topic's partitions, ascending. Of topics of one name the one created last."""
        ...

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        """What can be read of a partition."""
        ...

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        """The readable segments that hold offsets of this range: ascending, `first_offset` to
        `last_offset` disjoint. A hole between two is an offset that is lost or was never tiered.
        """
        ...

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """These are asked about next: what takes a while is done for all of them at once. Asking
        without it gives the same answers.
        """
        ...

    def refresh(self) -> None:
        """What is asked from here on is looked up anew: call it before each look at new data."""
        ...

    def close(self) -> None:
        """Give back what is open; nothing is asked any more."""
        ...
