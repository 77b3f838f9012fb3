"""One replica's memory, which all rules of the core read and change. No rules here.

`out` collects the actions of the step in progress, in order. `high_watermark` never falls in one
process; a *leader* sends `Leader.high_watermark` to the others, which is unknown until it has
committed in its own epoch. `leader_heard_ms` and `leader_high_watermark` are the time and content
of the last answer of a followed leader: no rule depends on them, they show how far this replica may
be behind.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from rlmm.raft.actions import Action, Fatal, LogCut, PersistedState, SendResponse, Warn
from rlmm.raft.epoch_cache import EpochCache
from rlmm.raft.messages import NO_VOTERS, ReplicaKey, Response, SnapshotId, VoterSet
from rlmm.raft.states import State, Unattached
from rlmm.raft.timers import RaftSettings
from rlmm.raft.voters import VoterHistory


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    snapshot: SnapshotId
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InitialState:
    """The state of a replica at its start, read from a *recovered, synced* disk. An unreadable
    quorum-state file, a log whose start no snapshot covers and damage below the durable end are the
    driver's hard errors: no core is made from them.

    `epochs`: (epoch, start offset) of every epoch with a record in the log, ascending.

    `log_start_epoch`: epoch of the record before `log_start_offset`; if that is not known, the
    first epoch in the log. It does not matter when the log starts at 0 or where a snapshot ends.

    `voter_sets`: (offset, set) of every VotersRecord in the log, and that of the newest snapshot at
    its end offset - 1. `format_voters` is what the node was formatted with, used while there is no
    other. `committed_offset`: below it all is known to be committed, by the view or by what was
    stored beside the recovery point (0 if neither).

    `cut` is set if recovery cut the tail *this* time. The driver writes it into quorum-state before
    it removes the damaged tail: a crash in between must find the damage or the memory of it. (Of
    two cuts, the greater one, compared as in `damaged_tail.py`.)
    """

    quorum: PersistedState | None = None
    log_start_offset: int = 0
    log_start_epoch: int = 0
    log_end_offset: int = 0
    epochs: tuple[tuple[int, int], ...] = ()
    snapshots: tuple[StoredSnapshot, ...] = ()
    voter_sets: tuple[tuple[int, VoterSet], ...] = ()
    format_voters: VoterSet = NO_VOTERS
    committed_offset: int = 0
    cut: LogCut | None = None


@dataclass(slots=True)
class LogView:
    """The log as the core knows it: [start, end); below `flushed_offset` it is durable."""

    start_offset: int
    end_offset: int
    flushed_offset: int
    epochs: EpochCache
    snapshots: dict[SnapshotId, int]
    generation: int = 0
    flush_requested: int = 0

    @property
    def last_epoch(self) -> int:
        return self.epochs.last_epoch

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return max(self.snapshots, default=None)


@dataclass(slots=True)
class Download:
    """A snapshot being downloaded; `position` is the next byte to fetch."""

    snapshot: SnapshotId
    position: int = 0
    size_bytes: int = -1
    writing: bool = False
    installing: bool = False


@dataclass(slots=True)
class FetchLoop:
    """The one fetch in flight; none before `due_ms`. `probe` counts peers asked for the leader."""

    in_flight: int | None = None
    due_ms: int = 0
    probe: int = 0


@dataclass(slots=True)
class UpdateLoop:
    """The request that reports this voter's endpoints to the leader (`own_endpoints.py`)."""

    in_flight: int | None = None
    due_ms: int = 0


@dataclass(slots=True)
class PendingRequest:
    """An unanswered request, sent in `epoch`."""

    peer: ReplicaKey
    epoch: int
    deadline_ms: int
    fetch_offset: int = -1


@dataclass(slots=True)
class AtLeastWaiters:
    """Reads that wait for an offset; `live` names those not cancelled."""

    heap: list[tuple[int, int, Hashable]] = field(default_factory=list)
    live: dict[Hashable, int] = field(default_factory=dict)
    arrived: int = 0


class Replica:
    """See the module's text."""

    __slots__ = (
        "apply_to", "at_least", "cut", "download", "endpoints", "failed", "fetch",
        "high_watermark", "incarnation", "incarnations", "jitter", "key", "leader_heard_ms",
        "leader_high_watermark", "log", "next_request_id", "now", "out", "peers", "requests",
        "settings", "shutdown_deadline_ms", "shutting_down", "state", "stored", "update",
        "vote_given", "voters",
    )  # fmt: skip

    def __init__(
        self,
        key: ReplicaKey,
        initial: InitialState,
        *,
        settings: RaftSettings,
        jitter: Callable[[], float],
        peers: tuple[int, ...],
        incarnation: int = -1,
        endpoints: tuple[object, ...] = (),
    ) -> None:
        self.key = key
        self.incarnation = incarnation
        self.endpoints = endpoints
        self.settings = settings
        self.jitter = jitter
        self.peers = peers
        self.now = 0
        self.out: list[Action] = []
        self.failed = False
        epochs = EpochCache(initial.log_start_offset, _base_epoch(initial), initial.epochs)
        self.log = LogView(
            start_offset=initial.log_start_offset,
            end_offset=initial.log_end_offset,
            flushed_offset=initial.log_end_offset,
            epochs=epochs,
            snapshots={stored.snapshot: stored.size_bytes for stored in initial.snapshots},
            flush_requested=initial.log_end_offset,
        )
        newest = self.log.latest_snapshot
        self.voters = VoterHistory(
            initial.format_voters,
            initial.voter_sets,
            known_from=newest.end_offset if newest and initial.log_start_offset > 0 else 0,
        )
        self.high_watermark = min(
            max(initial.committed_offset, newest.end_offset if newest else 0),
            initial.log_end_offset,
        )
        self.apply_to = self.high_watermark
        self.leader_heard_ms = -1
        self.leader_high_watermark = -1
        self.stored: PersistedState | None = initial.quorum
        self.incarnations: dict[ReplicaKey, int] = {}
        self.vote_given: tuple[int, int] | None = None
        self.cut: LogCut | None = None
        self.state: State = Unattached(0, -1, None, 0)
        self.requests: dict[int, PendingRequest] = {}
        self.next_request_id = 0
        self.fetch = FetchLoop()
        self.update = UpdateLoop()
        self.download: Download | None = None
        self.at_least = AtLeastWaiters()
        self.shutting_down = False
        self.shutdown_deadline_ms = 0

    @property
    def is_voter(self) -> bool:
        return self.key in self.voters.keys

    @property
    def is_electable(self) -> bool:
        """True for a voter, and for one whose removal is in its log but not known to be committed:
        it may be the only one with the longest log, without which no leader could be elected
        (Ongaro's thesis, 4.2.2). It needs a majority of the new set and does not count itself.
        """
        return self.key in self.voters.in_force(self.high_watermark)

    @property
    def is_sole_voter(self) -> bool:
        return self.voters.keys == (self.key,)

    @property
    def epoch(self) -> int:
        return self.state.epoch

    def emit(self, action: Action) -> None:
        """Add an action; actions after a Fatal are dropped."""
        if not self.failed:
            self.out.append(action)

    def respond(self, correlation: Hashable, response: Response) -> None:
        self.emit(SendResponse(correlation, response))

    def warn(self, message: str, *, trouble: str = "") -> None:
        self.emit(Warn(message, trouble))

    def fail(self, message: str) -> None:
        """Emit Fatal, the last action."""
        self.emit(Fatal(message))
        self.failed = True


def _base_epoch(initial: InitialState) -> int:
    """The epoch of the record before the log start: that of a snapshot ending there, if any."""
    start = initial.log_start_offset
    if start == 0:
        return 0
    ending = [each.snapshot.epoch for each in initial.snapshots if each.snapshot[0] == start]
    return ending[0] if ending else initial.log_start_epoch
