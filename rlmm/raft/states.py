"""The six states of a replica, as data. Transitions between them are in `quorum_state.py`.

`voted` is the replica that got this one's vote in the epoch (its own key as a candidate), and stays
through every transition within the epoch (KAFKA-18389). Deadlines are absolute, milliseconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import ClassVar

from rlmm.raft.actions import Role
from rlmm.raft.messages import NO_OFFSET, FetchRequest, ReplicaKey, SnapshotId, Voter, VoteResponse
from rlmm.raft.timers import NEVER_MS


@dataclass(slots=True)
class Unattached:
    """No leader to follow. `leader_id` may still name one: then no vote is given in this epoch."""

    role: ClassVar[Role] = Role.UNATTACHED
    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    deadline_ms: int


@dataclass(slots=True)
class Ballot:
    """One voter's request and answer in a round. `said_cut`: it reported that its tail was cut."""

    in_flight: int | None = None
    due_ms: int = 0
    answer: VoteResponse | None = None
    granted: bool = False
    told_all_answered: bool = False
    said_cut: bool = False


@dataclass(slots=True)
class Prospective:
    """A replica that requests pre-votes: it raises no epoch and persists nothing (KIP-996)."""

    role: ClassVar[Role] = Role.PROSPECTIVE
    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    deadline_ms: int
    ballots: dict[ReplicaKey, Ballot]


@dataclass(slots=True)
class Candidate:
    role: ClassVar[Role] = Role.CANDIDATE
    epoch: int
    voted: ReplicaKey | None
    deadline_ms: int
    ballots: dict[ReplicaKey, Ballot]
    leader_id: int = -1


@dataclass(slots=True)
class Progress:
    """A replica as its leader sees it. `end_offset` is acknowledged in this epoch, last at
    `acknowledged_ms`; other fetches, as of a snapshot, show only that it is alive. While it does
    not `count`, `first_seen_end` is the end of the leader's log at the first such fetch of this
    `incarnation`. `snapshot`: the one of which it last fetched a piece, until it has caught up.
    """

    end_offset: int = NO_OFFSET
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_at_last_fetch: int = -1
    acknowledged_ms: int = -1
    begin_in_flight: int | None = None
    begin_due_ms: int = 0
    counts: bool = True
    incarnation: int = -1
    first_seen_end: int = NO_OFFSET
    snapshot: SnapshotId | None = None


@dataclass(slots=True)
class ParkedFetch:
    correlation: Hashable
    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class PendingProposal:
    handle: Hashable
    base_offset: int
    end_offset: int


@dataclass(slots=True)
class PendingChange:
    """An add or remove under way; `offset` is its VotersRecord's, once appended."""

    correlation: Hashable
    voter: Voter
    removal: bool
    deadline_ms: int
    ack_when_committed: bool
    answered: bool = False
    offset: int | None = None


@dataclass(slots=True)
class Transfer:
    handle: Hashable
    target: ReplicaKey
    deadline_ms: int


@dataclass(slots=True)
class Barriers:
    """`groups`: (end offset of the proof, handles), ascending; `uncovered` wait for a record."""

    groups: deque[tuple[int, tuple[Hashable, ...]]] = field(default_factory=deque)
    uncovered: list[Hashable] = field(default_factory=list)
    count: int = 0


@dataclass(slots=True)
class Leader:
    role: ClassVar[Role] = Role.LEADER
    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    start_offset: int
    started_ms: int
    check_quorum_deadline_ms: int
    sync_deadline_ms: int = NEVER_MS
    high_watermark: int = NO_OFFSET
    established: bool = False
    progress: dict[ReplicaKey, Progress] = field(default_factory=dict)
    parked: dict[ReplicaKey, ParkedFetch] = field(default_factory=dict)
    proposals: deque[PendingProposal] = field(default_factory=deque)
    barriers: Barriers = field(default_factory=Barriers)
    change: PendingChange | None = None
    transfer: Transfer | None = None
    sweep_due_ms: int = 0


@dataclass(slots=True)
class Follower:
    """A follower. `has_fetched`: successfully, since it became follower. `leader_resigned`: the
    leader announced it. `first_high_watermark`: the first one that the leader sent: under load a
    follower may never reach later ones, and all records acknowledged before this node followed lie
    below the first.
    """

    role: ClassVar[Role] = Role.FOLLOWER
    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    deadline_ms: int
    has_fetched: bool = False
    leader_resigned: bool = False
    first_high_watermark: int = NO_OFFSET


@dataclass(slots=True)
class EndNotice:
    """The notice of resignation to one voter."""

    in_flight: int | None = None
    due_ms: int = 0
    acknowledged: bool = False


@dataclass(slots=True)
class Resigned:
    """A replica that led this epoch, in this process or an earlier one, and resigned: it no longer
    leads or votes in it.
    """

    role: ClassVar[Role] = Role.RESIGNED
    epoch: int
    leader_id: int
    voted: ReplicaKey | None
    deadline_ms: int
    preferred: tuple[ReplicaKey, ...] = ()
    notices: dict[ReplicaKey, EndNotice] = field(default_factory=dict)


State = Unattached | Prospective | Candidate | Leader | Follower | Resigned
