"""Events of a replica: the input of `RaftCore.step(event, now_ms)`.

Contract of the driver:

- One event at a time; `step` never blocks and never calls back. `now_ms` is any monotonic clock in
  whole milliseconds (a backward step is taken as standing still).
- `Tick` is due at `core.next_deadline_ms()`; an early or late one does no harm.
- Every `SendRequest` ends in at most one `ResponseReceived` or `RequestFailed` with its
  `request_id`, or in none: the core has its own deadline for each. Late ids are ignored.
- Every `RequestReceived` gets exactly one `SendResponse` with its `correlation`, now or later, in
  this incarnation. A correlation is any hashable handle.
- Completions (`FlushCompleted`, `SnapshotInstalled`, ...) come after the work is done, in any order
  relative to other events; outdated ones are recognized by the generation.
- An `OSError` of the disk is not an event: the node stops. A sync is never repeated.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from rlmm.raft.messages import PeerResponse, ReplicaKey, Request, SnapshotId, VoterSet


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed."""


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A decoded request of a peer, a tool or an operator, already authorised by the driver."""

    correlation: Hashable
    request: Request


@dataclass(frozen=True, slots=True)
class ResponseReceived:
    request_id: int
    response: PeerResponse


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request without a usable answer: connection lost, time-out, garbage.

    `unsupported_version`: the peer does not know this version of the RPC (a pre-vote then counts as
    granted, so that a rolling upgrade elects leaders).
    """

    request_id: int
    unsupported_version: bool = False


@dataclass(frozen=True, slots=True)
class ProposedBatch:
    """A batch framed by the driver, without its offset and epoch."""

    record_count: int
    size_bytes: int
    payload: object = None


@dataclass(frozen=True, slots=True)
class Propose:
    """Append these batches one after the other, if this replica leads (`epoch` None: in any epoch).
    Answered by exactly one of `ProposalsCommitted` and `ProposalFailed`.
    """

    handle: Hashable
    batches: tuple[ProposedBatch, ...]
    epoch: int | None = None


@dataclass(frozen=True, slots=True)
class CommitLearned:
    """The leader of `epoch` committed a proposal of this node: all below `end_offset`."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FlushCompleted:
    """A flush is done, with the values of its `Flush` action (of the last one, if merged)."""

    epoch: int
    offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class SnapshotTaken:
    """A snapshot of this replica is complete and durable. Check `core.snapshot_refusal` before."""

    snapshot: SnapshotId
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SnapshotsDeleted:
    """Snapshots are no longer served. One that covers the log start must stay."""

    snapshots: tuple[SnapshotId, ...]


@dataclass(frozen=True, slots=True)
class LogStartAdvanced:
    """The head of the log was cut, below a complete snapshot's end, the view's flushed offset and
    the high watermark; `log_start_offset` is the first readable offset.
    """

    log_start_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotChunkWritten:
    """A `WriteSnapshotChunk` is done: the next piece may be fetched. It need not be durable."""

    snapshot: SnapshotId
    end_position: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """`InstallSnapshot` is done and durable. `voters`: the set in its head, None without."""

    snapshot: SnapshotId
    size_bytes: int
    voters: VoterSet | None


@dataclass(frozen=True, slots=True)
class SnapshotDamaged:
    """The download failed its checks and was removed. The core starts again from Fetch."""

    snapshot: SnapshotId


@dataclass(frozen=True, slots=True)
class BarrierRequested:
    """A linearizable read has arrived: see `WaitersDone` and `barriers.py`."""

    handle: Hashable


@dataclass(frozen=True, slots=True)
class AtLeastRequested:
    """A read waits until everything below `offset` may be applied here; in any role."""

    handle: Hashable
    offset: int


@dataclass(frozen=True, slots=True)
class WaiterCancelled:
    """The caller no longer waits for this proposal, barrier or offset (deadline, disconnect)."""

    handle: Hashable


@dataclass(frozen=True, slots=True)
class TransferLeadership:
    """Hand leadership to `target`, or to the most caught-up voter. Ends in `CommandDone`."""

    handle: Hashable
    target: ReplicaKey | None = None


@dataclass(frozen=True, slots=True)
class AcceptCut:
    """The operator accepts that this replica's cut tail is gone (`quorum accept-cut`)."""

    handle: Hashable


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Resign if leading, then take no part; `ShutdownDone` follows within a bound."""


Event = (
    Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | Propose
    | CommitLearned
    | FlushCompleted
    | SnapshotTaken
    | SnapshotsDeleted
    | LogStartAdvanced
    | SnapshotChunkWritten
    | SnapshotInstalled
    | SnapshotDamaged
    | BarrierRequested
    | AtLeastRequested
    | WaiterCancelled
    | TransferLeadership
    | AcceptCut
    | Shutdown
)
