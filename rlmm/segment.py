"""Ids, states and metadata of remote log segments, with the transition tables.

Sources: KIP-405; Kafka's RemoteLogSegmentId, RemoteLogSegmentMetadata, RemoteLogSegmentState,
RemotePartitionDeleteState.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition

OFFSET_MAX = 2**62
"""The highest offset accepted: far above any log, and sums with it still fit into 64 bits."""


class SegmentState(IntEnum):
    """Kafka's RemoteLogSegmentState; the numbers are in records."""

    COPY_SEGMENT_STARTED = 0
    COPY_SEGMENT_FINISHED = 1
    DELETE_SEGMENT_STARTED = 2
    DELETE_SEGMENT_FINISHED = 3


class PartitionDeleteState(IntEnum):
    """Kafka's RemotePartitionDeleteState; the numbers are in records."""

    DELETE_PARTITION_MARKED = 0
    DELETE_PARTITION_STARTED = 1
    DELETE_PARTITION_FINISHED = 2


_COPYING, _COPIED, _DELETING, _DELETED = SegmentState
SEGMENT_TRANSITIONS: Mapping[SegmentState | None, frozenset[SegmentState]] = {
    None: frozenset({_COPYING}),
    _COPYING: frozenset({_COPYING, _COPIED, _DELETING}),
    _COPIED: frozenset({_COPIED, _DELETING}),
    _DELETING: frozenset({_DELETING, _DELETED}),
    _DELETED: frozenset({_DELETED}),
}
"""The states that may follow each state. A state may follow itself: retries are normal."""

_MARKED, _STARTED, _FINISHED = PartitionDeleteState
PARTITION_DELETE_TRANSITIONS: Mapping[
    PartitionDeleteState | None, frozenset[PartitionDeleteState]
] = {
    None: frozenset({_MARKED}),
    _MARKED: frozenset({_MARKED, _STARTED}),
    _STARTED: frozenset({_STARTED, _FINISHED}),
    _FINISHED: frozenset({_FINISHED}),
}


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentId:
    """The id of one segment upload attempt; every attempt has its own."""

    partition: TopicIdPartition
    id: Uuid

    def __str__(self) -> str:
        return f"{self.partition}/{self.id}"


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """One process of a node: its id, its data directory's id, and how often that was started."""

    node_id: int
    directory_id: Uuid
    boot_counter: int


NestedTags = tuple[tuple[int, tuple[tuple[int, bytes], ...]], ...]
"""Unknown tagged fields inside nested structs: (number of the struct, its tagged fields)."""


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadata:
    """A segment in the metadata log.

    `end_offset` is inclusive. `leader_epochs` are (epoch, its first offset inside the segment),
    ascending and never empty; the first starts at `start_offset`, or above it where the checkpoint
    had lost its head. `size_bytes` is that of the `.log` file. `custom_metadata` is opaque here
    (`rlm/format/custom_metadata.py` writes it). The other fields are Strandline's own, None or -1
    in rows of Kafka's manager: `token` (metadata offset of the claim under which the copy started),
    `writer` (the incarnation that started it), `upload_deadline_ms` (Unix time after which no byte
    of the upload may be sent), `finished_at` (metadata offset of COPY_SEGMENT_FINISHED).
    """

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    broker_id: int
    max_timestamp_ms: int
    event_timestamp_ms: int
    leader_epochs: tuple[tuple[int, int], ...]
    size_bytes: int
    custom_metadata: bytes | None
    state: SegmentState
    txn_index_empty: bool = False
    token: int = -1
    writer: Incarnation | None = None
    upload_deadline_ms: int = -1
    finished_at: int = -1
    unknown_tags: tuple[tuple[int, bytes], ...] = ()
    nested_unknown_tags: NestedTags = ()


@dataclass(frozen=True, slots=True)
class RemoteLogSegmentMetadataUpdate:
    """A state change of a known segment. `custom_metadata` None keeps the stored one.

    `expected_state` (compare and set) is needed for DELETE_SEGMENT_STARTED. `policy_offset`: the
    `offset` of the topic's policy that decided the deletion, None if no policy did.
    `max_timestamp_ms` of COPY_SEGMENT_FINISHED: the maximum of all batches that the copy read; -1
    keeps the stored one.
    """

    segment_id: RemoteLogSegmentId
    broker_id: int
    event_timestamp_ms: int
    custom_metadata: bytes | None
    state: SegmentState
    token: int = -1
    writer: Incarnation | None = None
    expected_state: SegmentState | None = None
    unknown_tags: tuple[tuple[int, bytes], ...] = ()
    policy_offset: int | None = None
    max_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class RemotePartitionDeleteMetadata:
    """A step in the deletion of a whole partition.

    `replaces_offset` is the metadata offset of the record that the step follows (compare and set):
    for MARKED the last undo, -1 if there was none; for STARTED the mark. FINISHED needs none, since
    STARTED can't be undone. `grace_ms` of MARKED: the time before STARTED is accepted; -1 is
    `partition_state.DELETE_GRACE_DEFAULT_MS`. `seen_ms` of STARTED: the time that its proposer
    measured by its monotonic clock since it applied the mark; -1: not given.
    """

    partition: TopicIdPartition
    broker_id: int
    event_timestamp_ms: int
    state: PartitionDeleteState
    replaces_offset: int = -1
    grace_ms: int = -1
    seen_ms: int = -1
    unknown_tags: tuple[tuple[int, bytes], ...] = ()
