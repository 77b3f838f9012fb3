"""The metadata log port: a replicated log of one partition.

Offsets count records. Control records of the log itself (leader changes, voters) have offsets too
but are not returned to readers, so offsets are sparse for a reader, and each group has its end
offset.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kafka_formats.errors import CorruptData


class Proposal(NamedTuple):
    """A record to append. `control_type` None: one of Kafka's own framed metadata records, else the
    private control record type; `value` is the encoded record. A tuple, since a snapshot creates
    one for every row.
    """

    control_type: int | None
    value: bytes


class CommittedRecord(NamedTuple):
    """A record below the high watermark, fsynced on this node.

    `epoch` is the quorum leader's, `timestamp_ms` the batch timestamp that the leader set. A tuple,
    since each node creates one for every record of the log.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    control_type: int | None
    value: bytes


@dataclass(frozen=True, slots=True)
class CommittedGroup:
    """Neighbouring committed records. Each record below `end_offset` is in this group, in an
    earlier one, or the log's own; `end_epoch` is the epoch of the record before `end_offset`.
    `advanced_s`: monotonic seconds when this node learned that these records are committed; None:
    it learned that with an earlier group.
    """

    records: tuple[CommittedRecord, ...]
    end_offset: int
    end_epoch: int
    advanced_s: float | None = field(default=None, compare=False)


class SnapshotId(NamedTuple):
    """Kafka's snapshot id: `end_offset` exclusive, `epoch` of the last record in it (KIP-630)."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica as the leader sees it. Times: Unix ms, or -1; `address`: `host:port` or ""."""

    node_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class LogDescription:
    """The metadata log as one node sees it. `leader_id` is -1 while no leader is known.

    `state` is this node's, in KRaft's terms (`current-state`). `cut_end_offset`: this node's
    damaged tail was cut, and it does not become a candidate until it has fetched past this offset
    again; -1 if nothing is missing. `remembers_nothing`: true from its format until a leader
    reported to it what is committed; it does not become a candidate either, unless all voters
    answer. `leader_heard_ms`: when a leader last answered this node, Unix time in ms,
    not updated while this node leads. `leader_high_watermark`: the high watermark of that answer,
    even if this node has less; -1 before the first answer. `log_end_epoch` is that of this node's
    last record, `voted_id` the
    node it voted for in `leader_epoch`, -1 for no vote. `troubles`: name and text of each trouble
    that keeps this replica from a part of its work.
    """

    cluster_id: str
    node_id: int
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    log_end_offset: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]
    state: str = "leader"
    uncommitted_voter_change: bool = False
    cut_end_offset: int = -1
    remembers_nothing: bool = False
    leader_heard_ms: int = -1
    leader_high_watermark: int = -1
    log_end_epoch: int = 0
    voted_id: int = -1
    troubles: tuple[tuple[str, str], ...] = ()


class SnapshotSink(Protocol):
    """A snapshot being written; ended by `finish` or `abandon`."""

    async def add(self, rows: Iterable[Proposal]) -> None:
        """Append rows in key order; a thread may read them."""

    async def finish(self) -> None:
        """Complete it. Durable on return; the log may then be cut up to it."""

    async def abandon(self) -> None:
        """Give up the snapshot, and remove what was written of it."""


class MetadataLog(Protocol):
    """Proposes records, follows committed ones, keeps snapshots."""

    async def propose(self, proposals: tuple[Proposal, ...], *, deadline_s: float) -> int:
        """Append the records as neighbours; returns the offset of the first, once all are
        committed: then they survive any crash.

        RetryLater: nothing was appended (no leader, queue full). OutcomeUnknown: the deadline
        passed or the answer was lost; the records may still be committed.
        """

    def follow(self, from_offset: int) -> AsyncIterator[CommittedGroup]:
        """Committed records from `from_offset` on, in order; waits at the high watermark.

        Ends when the log is closed. NotFound: `from_offset` is below the log start (install a
        snapshot first). RetryLater: the log has failed and the node must stop.
        """

    async def read(self, from_offset: int, *, limit: int) -> tuple[CommittedRecord, ...]:
        """At most `limit` committed records from `from_offset` on; empty at the high watermark."""

    async def barrier(self, *, deadline_s: float) -> int:
        """An offset above that of every write that was completed before the call."""

    def latest_snapshot(self) -> SnapshotId | None:
        """The newest complete snapshot, None if there is none."""

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[Proposal]:
        """The snapshot's rows, in order. Blocks. CorruptData: damaged; rows read so far must not be
        used.
        """

    async def set_aside(self, snapshot: SnapshotId, error: CorruptData) -> bool:
        """Rename a damaged snapshot, so that an older one, or none, is the latest. False: the log
        starts above 0 and no other whole snapshot covers its start. RetryLater: the disk failed.
        """

    async def snapshot_lost(self) -> None:
        """Wait until a running node finds a damaged snapshot, so that a new one is due. One caller
        may wait.
        """

    async def begin_snapshot(
        self, snapshot: SnapshotId, *, last_contained_timestamp_ms: int
    ) -> SnapshotSink:
        """Start writing a snapshot of all records below `snapshot.end_offset`, which is committed.

        InvalidRequest: it is above the high watermark. Conflict: that snapshot exists. RetryLater:
        it would end inside a record batch. Batches are sent whole, so a node that installed it
        could fetch neither the rest of that batch nor any later one.
        """

    async def store_recovery_point(self) -> int:
        """Record durably the offset up to which the log is whole, and return it. Damage below it is
        an error at the next start, never a tail to cut. A failing disk stops the node.
        """

    def allow_truncation_to(self, offset: int) -> None:
        """Let the log be cut up to `offset`: the view has flushed all records below it."""

    def describe(self) -> LogDescription:
        """Leader, epoch, offsets and voters as this node knows them now."""

    async def close(self) -> None:
        """Stop, after all appended records are fsynced. Idempotent."""
