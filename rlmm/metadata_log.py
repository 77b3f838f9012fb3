"""The metadata log port: a replicated log of one partition, whoever replicates it.

The rules above it (`rlmm/apply/apply.py`, `rlmm/manager/manager.py`) know no more than this.
Offsets count records; control records of the log itself (leader changes, voters) use offsets too
and are left out of what is read, so offsets are sparse for the reader and every group says where it
ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Proposal(NamedTuple):
    """A record to be appended: `control_type` None for Kafka's own framed metadata records,
    else the private control record type of ours; `value` is the encoded record. A tuple: a snapshot
    makes one for every row.
    """

    control_type: int | None
    value: bytes


class CommittedRecord(NamedTuple):
    """A record at or below the high watermark and fsynced here.

    `epoch` is the quorum leader's epoch, `timestamp_ms` the batch timestamp the leader gave it.
    A tuple: each node makes one for every record of the log.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    control_type: int | None
    value: bytes


@dataclass(frozen=True, slots=True)
class CommittedGroup:
    """Neighbouring committed records. Everything below `end_offset` is in this group, in an earlier
    one, or a record of the log's own; `end_epoch` is the epoch of the record before `end_offset`.
    """

    records: tuple[CommittedRecord, ...]
    end_offset: int
    end_epoch: int


@dataclass(frozen=True, slots=True)
class SnapshotId:
    """Kafka's snapshot id: `end_offset` exclusive, `epoch` of the last record in it (KIP-630)."""

    end_offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """One voter or observer as the leader sees it; times are milliseconds since the epoch, -1 where
    this node does not know. `address` is a voter's `host:port`, empty if it has none.
    """

    node_id: int
    directory_id: str
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    address: str = ""


@dataclass(frozen=True, slots=True)
class LogDescription:
    """What `describe` answers. `leader_id` is -1 while none is known.

    `state` is this node's, in KRaft's words (`current-state`). `cut_end_offset`: the damaged tail
    of this node was cut, and it does not stand for election until it has fetched past this offset
    again; -1 if nothing is missing. It `remembers_nothing` from its format until a leader told it
    what is committed, and does not stand either, unless all voters answer. `leader_heard_ms` is
    when a leader last answered this node, in milliseconds since the epoch (a `state` of leader
    hears nobody), and `leader_high_watermark` what it said was committed, however far this node has
    it; -1 before the first answer. `log_end_epoch` is that of this node's last record, `voted_id`
    whom it voted for in `leader_epoch`, -1 if nobody. `troubles`: name and text of what keeps this
    replica from a part of its work.
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
    """One snapshot being written. Ends with `finish` or `abandon`."""

    async def add(self, rows: Iterable[Proposal]) -> None:
        """Append rows, in key order, which a thread may read."""

    async def finish(self) -> None:
        """Complete and durable on return; the log may then be cut up to it."""

    async def abandon(self) -> None:
        """Give up; nothing of it stays."""


class MetadataLog(Protocol):
    """Propose records, follow what is committed, keep snapshots."""

    async def propose(self, proposals: tuple[Proposal, ...], *, deadline_s: float) -> int:
        """Append the records as neighbours and return the offset of the first, once committed.

        Survives any crash once returned. RetryLater: nothing was appended (no leader, queue full).
        OutcomeUnknown: the deadline passed or the answer was lost; it may still be committed.
        """

    def follow(self, from_offset: int) -> AsyncIterator[CommittedGroup]:
        """Committed records from `from_offset` on, in order; waits at the high watermark.

        Ends when the log is closed. Raises NotFound when `from_offset` lies below the log start
        (install a snapshot first), RetryLater when the log has failed and the node must stop.
        """

    async def read(self, from_offset: int, *, limit: int) -> tuple[CommittedRecord, ...]:
        """At most `limit` committed records from `from_offset` on; empty at the high watermark."""

    async def barrier(self, *, deadline_s: float) -> int:
        """An offset such that every write completed before the call lies below it."""

    def latest_snapshot(self) -> SnapshotId | None:
        """The newest complete snapshot, for a view that has to start from it; None: none."""

    def read_snapshot(self, snapshot: SnapshotId) -> Iterator[Proposal]:
        """Its rows, in order. Blocks: iterate in a thread. CorruptData: it fails its checks, and
        what was read so far must not be used.
        """

    async def begin_snapshot(
        self, snapshot: SnapshotId, *, last_contained_timestamp_ms: int
    ) -> SnapshotSink:
        """Start writing a snapshot of everything below `snapshot.end_offset`, which is committed.

        InvalidRequest: it lies above the high watermark. Conflict: that snapshot exists.
        RetryLater: it would end inside a record batch. Batches go from node to node whole: whoever
        installed it could take neither that one nor what comes behind.
        """

    async def store_recovery_point(self) -> int:
        """Say durably that the log is whole up to its synced end, and return that. Damage below is
        then an error at the next start, never a tail to cut. A disk that fails stops the node.
        """

    def allow_truncation_to(self, offset: int) -> None:
        """The view has durably flushed everything below `offset`: the log may be cut up to it."""

    def describe(self) -> LogDescription:
        """Leader, epoch, offsets, voters, as this node knows them now."""

    async def close(self) -> None:
        """Stop, with everything appended fsynced. Idempotent."""
