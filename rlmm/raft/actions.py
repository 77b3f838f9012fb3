"""Actions of a replica: the output of `RaftCore.step`, a tuple in order.

Contract of the driver. Actions form one queue, first in, first out, across steps:

1. `PersistQuorumState` is a barrier: it is *durable* before any action after it starts, be it of
   this step or of a later one. (Events may be stepped meanwhile; the actions they emit queue up
   after it.) So no message, append or answer that depends on an epoch or a vote precedes it.
2. Log actions (`AppendBatches`, `TruncateTo`, `InstallSnapshot`) reach the log in this order. They
   need not be durable before later actions; `Flush` marks where they must be. A truncation is
   durable at the latest with the next completed flush.
3. `Flush` is asynchronous and may be merged with later ones (zero-linger group commit: the next one
   starts when the running one ends). Its completion is reported with the same three numbers, and
   only when *all* of the log below `offset` is durable. If that includes a new VotersRecord, the
   recovery point must be past it as well: a cut must not undo a voter set that counts as durable.
4. Sends, answers and notices are fire and forget. Reads named in a response see every append that
   precedes it in the queue, flushed or not.
5. `Fatal` is the last action there will be: stop the node, change nothing on disk.

A crash may happen between any two actions, or during one.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import Enum

from rlmm.raft.messages import Batch, Error, PeerRequest, ReplicaKey, Response, SnapshotId, VoterSet


class Role(Enum):
    """Kafka's states of a replica; an observer is a non-voter in Unattached or Follower."""

    UNATTACHED = "unattached"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"


@dataclass(frozen=True, slots=True)
class LogCut:
    """The cut tail of a log: a log that reaches (`epoch`, `old_end_offset`), compared in this
    order, has all records that this replica may have acknowledged before recovery cut its tail
    (`damaged_tail.py`).

    `epoch` is an upper bound of the cut records' epoch (the epoch checkpoint's last entry before
    the cut, else the stored leader epoch), `old_end_offset` an upper bound of the old log end. A
    voter that remembers nothing has `damaged_tail.NO_MEMORY`.
    """

    epoch: int
    old_end_offset: int


@dataclass(frozen=True, slots=True)
class PersistedState:
    """The content of the quorum-state file. `voted` None: no vote; `leader_id` -1: no leader."""

    epoch: int
    leader_id: int = -1
    voted: ReplicaKey | None = None
    cut: LogCut | None = None


@dataclass(frozen=True, slots=True)
class PersistQuorumState:
    state: PersistedState


@dataclass(frozen=True, slots=True)
class SendRequest:
    """A request to node `destination`. The driver gives up after `deadline_ms` at the latest."""

    request_id: int
    destination: int
    request: PeerRequest
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class SendResponse:
    correlation: Hashable
    response: Response


@dataclass(frozen=True, slots=True)
class AppendBatches:
    """Append at the end of the log, at the offsets they carry."""

    batches: tuple[Batch, ...]


@dataclass(frozen=True, slots=True)
class Flush:
    """Make everything below `offset` durable, then report `FlushCompleted` with these values."""

    epoch: int
    offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class TruncateTo:
    """Remove everything at and above `end_offset`; `generation` counts truncations from now on."""

    end_offset: int
    generation: int


@dataclass(frozen=True, slots=True)
class AdvanceHighWatermark:
    """Apply only below `apply_to`, which is committed *and* durable here. Neither offset ever goes
    back while the process runs.
    """

    high_watermark: int
    apply_to: int


@dataclass(frozen=True, slots=True)
class WriteSnapshotChunk:
    """Write a piece (at 0: drop older ones first), then report `SnapshotChunkWritten`."""

    snapshot: SnapshotId
    position: int
    payload: object
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class InstallSnapshot:
    """The partial snapshot is complete: check it, sync it, name it, and only then replace the whole
    log by it (log start = log end = its end offset); load the view from it. Report
    `SnapshotInstalled` or `SnapshotDamaged`. A flush under way reports its old generation.

    `known_voters` are those of the log; a snapshot with none of them is another quorum's, and
    refused like a damaged one.
    """

    snapshot: SnapshotId
    size_bytes: int
    generation: int
    known_voters: tuple[ReplicaKey, ...] = ()


@dataclass(frozen=True, slots=True)
class ProposalsCommitted:
    """Proposals committed in `epoch`, in which they were appended: (handle, offset of the first
    record) of each, in log order.
    """

    proposals: tuple[tuple[Hashable, int], ...]
    epoch: int


@dataclass(frozen=True, slots=True)
class ProposalFailed:
    """A failed proposal. `appended`: it may still be committed (outcome unknown); otherwise it
    never will be.
    """

    handle: Hashable
    error: Error
    appended: bool
    leader_id: int = -1


@dataclass(frozen=True, slots=True)
class WaitersDone:
    """The wait of barriers or offset reads is over: all below `offset` may be applied here."""

    handles: tuple[Hashable, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class WaitersFailed:
    handles: tuple[Hashable, ...]
    error: Error
    leader_id: int = -1


@dataclass(frozen=True, slots=True)
class CommandDone:
    """An operator's command ended; NONE: it succeeded."""

    handle: Hashable
    error: Error
    message: str = ""


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The role, epoch or leader changed. `established`: this replica leads, has committed in its
    epoch and may act as leader (KAFKA-17333).
    """

    role: Role
    epoch: int
    leader_id: int
    established: bool = False


@dataclass(frozen=True, slots=True)
class VotersChanged:
    """The latest voter set in this log, committed or not; the driver learns addresses from it."""

    voters: VoterSet
    offset: int


ANOTHER_QUORUM = "another_quorum"
"""The name of a problem: a leader has different voters than this log, and is not followed."""
LEADERS_LOG = "leaders_log"
"""The name of a problem: the leader's responses can't be used, and it will send the same again."""


@dataclass(frozen=True, slots=True)
class Warn:
    """A log line for the operator. With a `trouble` it is shown as a problem as long as it is
    repeated.
    """

    message: str
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class ShutdownDone:
    """The driver may close: the peers were notified, or the time for that has passed."""


@dataclass(frozen=True, slots=True)
class Fatal:
    """A failure after which the node must stop: to go on could lose committed records."""

    message: str


Action = (
    PersistQuorumState
    | SendRequest
    | SendResponse
    | AppendBatches
    | Flush
    | TruncateTo
    | AdvanceHighWatermark
    | WriteSnapshotChunk
    | InstallSnapshot
    | ProposalsCommitted
    | ProposalFailed
    | WaitersDone
    | WaitersFailed
    | CommandDone
    | RoleChanged
    | VotersChanged
    | Warn
    | ShutdownDone
    | Fatal
)
