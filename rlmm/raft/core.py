"""The quorum core: one replica of KRaft's protocol (KIP-595, 630, 853, 996, 1166).

    core = RaftCore(key, initial, settings=..., jitter=...)
    for action in core.start(now_ms): ...
    for action in core.step(event, now_ms): ...

No I/O, clock, randomness, threads or encodings; equal inputs give equal outputs. What to feed it
is in `events.py`, what to do with its answers, and in which order, in `actions.py`.

| Rule | File |
|---|---|
| states and transitions, what is persisted | `states.py`, `quorum_state.py`, `start.py` |
| granting votes; standing for election | `votes.py`, `election.py` |
| voters whose tail was cut, or that remember nothing | `damaged_tail.py` |
| leading: begin, check-quorum, resign, transfer | `leader.py`, `epoch_requests.py`, `leaving.py` |
| Fetch | `leader_fetch.py`, `fetch_validation.py`, `parked_fetches.py`, `follower_fetch.py` |
| high watermark | `high_watermark.py` |
| proposals, linearizable reads | `proposals.py`, `barriers.py` |
| snapshots | `snapshots.py`, `snapshot_download.py` |
| voter sets and their changes | `voters.py`, `voter_changes.py`, `own_endpoints.py` |
| two processes with one identity | `identity.py` |
| the log as the core knows it | `replica_log.py`, `epoch_cache.py` |
| time-outs and bounds | `timers.py` |
"""

from __future__ import annotations

from collections.abc import Callable

from rlmm.raft import dispatch, follower_fetch, leader, own_endpoints, progress, snapshots, start
from rlmm.raft.actions import Action, LogCut, Role
from rlmm.raft.events import Event
from rlmm.raft.messages import DescribeQuorumResponse, ReplicaKey, SnapshotId, VoterSet
from rlmm.raft.replica import InitialState, Replica
from rlmm.raft.states import Candidate as CandidateState
from rlmm.raft.states import Follower, Leader, Prospective, Resigned
from rlmm.raft.timers import NEVER_MS, RaftSettings


class RaftCore:
    """See the module's text. `jitter` returns a fraction in [0, 1); `peers` are node ids to ask for
    the leader while no voter is known. `incarnation` grows with each start of the directory, -1 if
    not counted (`identity.py`). `endpoints`: the addresses of this replica, told to the leader if
    the voter set has others.
    """

    def __init__(
        self,
        key: ReplicaKey,
        initial: InitialState,
        *,
        settings: RaftSettings,
        jitter: Callable[[], float],
        peers: tuple[int, ...] = (),
        incarnation: int = -1,
        endpoints: tuple[object, ...] = (),
    ) -> None:
        self._initial: InitialState | None = initial
        self.replica = Replica(
            key,
            initial,
            settings=settings,
            jitter=jitter,
            peers=peers,
            incarnation=incarnation,
            endpoints=endpoints,
        )

    @property
    def role(self) -> Role:
        return self.replica.state.role

    @property
    def epoch(self) -> int:
        return self.replica.state.epoch

    @property
    def leader_id(self) -> int:
        """-1 while none is known."""
        return self.replica.state.leader_id

    @property
    def is_voter(self) -> bool:
        return self.replica.is_voter

    @property
    def established(self) -> bool:
        """True if it leads, has committed in its epoch and applied up to there."""
        state = self.replica.state
        return isinstance(state, Leader) and state.established

    @property
    def leader_heard_ms(self) -> int:
        """The time of a leader's last answer here, or of the own leadership; -1: never."""
        return self.replica.leader_heard_ms

    @property
    def leader_high_watermark(self) -> int:
        """The last high watermark from a leader, even above this log's end; -1: none yet."""
        r = self.replica
        own = r.state.high_watermark if isinstance(r.state, Leader) else -1
        return max(r.leader_high_watermark, own)

    @property
    def high_watermark(self) -> int:
        return self.replica.high_watermark

    @property
    def apply_to(self) -> int:
        """The end (exclusive) of the records that are committed and durable here."""
        return self.replica.apply_to

    @property
    def log_end_offset(self) -> int:
        return self.replica.log.end_offset

    @property
    def voters(self) -> VoterSet:
        """The latest set in this log, committed or not."""
        return self.replica.voters.latest

    @property
    def cut(self) -> LogCut | None:
        """Set until this replica has caught up with its cut tail, or while it remembers nothing."""
        return self.replica.cut

    @property
    def uncommitted_voter_change(self) -> bool:
        return self.replica.voters.has_uncommitted(self.replica.high_watermark)

    def voter_sets(self) -> tuple[VoterSet, ...]:
        """All sets in this log and the one of its format, the latest last."""
        return self.replica.voters.oldest_first()

    def voters_at(self, end_offset: int) -> VoterSet:
        """The voter set that belongs into a snapshot with this end offset."""
        return self.replica.voters.committed(end_offset)

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`, which is in the log or the one before its start."""
        return self.replica.log.epochs.epoch_of(offset)

    def snapshot_refusal(self, snapshot: SnapshotId) -> str | None:
        """The reason why no snapshot with this id may be taken; None if it may."""
        return snapshots.refusal(self.replica, snapshot)

    def snapshots_wanted(self) -> tuple[SnapshotId, ...]:
        """The snapshots that a replica needs, with the log after them, oldest first."""
        return snapshots.wanted(self.replica)

    def describe(self) -> DescribeQuorumResponse:
        """The answer to DescribeQuorum; only the leader knows the other replicas."""
        return progress.describe(self.replica)

    def next_deadline_ms(self) -> int:
        """The time of the next `Tick`; may lie in the past."""
        r = self.replica
        state = r.state
        due = [pending.deadline_ms for pending in r.requests.values()]
        if isinstance(state, Leader):
            due.append(state.check_quorum_deadline_ms)
            due.append(state.sync_deadline_ms)
            due.append(state.sweep_due_ms)
            due.extend(parked.deadline_ms for parked in state.parked.values())
            due.extend(
                known.begin_due_ms
                for key, known in state.progress.items()
                if known.begin_in_flight is None and key in r.voters.keys
            )
            if state.change is not None and not state.change.answered:
                due.append(state.change.deadline_ms)
            if state.transfer is not None:
                due.append(state.transfer.deadline_ms)
        else:
            due.append(state.deadline_ms)
            if (update_ms := own_endpoints.next_due_ms(r)) is not None:
                due.append(update_ms)
            if isinstance(state, Prospective | CandidateState):
                due.extend(
                    ballot.due_ms
                    for ballot in state.ballots.values()
                    if ballot.in_flight is None and not ballot.granted
                    if ballot.answer is None or isinstance(state, Prospective)
                )
            elif isinstance(state, Resigned):
                due.extend(
                    notice.due_ms
                    for notice in state.notices.values()
                    if notice.in_flight is None and not notice.acknowledged
                )
            elif r.shutting_down:
                pass  # it fetches no more
            elif r.fetch.in_flight is None and r.log.flushed_offset == r.log.end_offset:
                download = r.download
                if download is None or not (download.writing or download.installing):
                    due.append(r.fetch.due_ms)
        if r.shutting_down and r.shutdown_deadline_ms >= 0:
            due.append(r.shutdown_deadline_ms)
        return min(due, default=NEVER_MS)

    def start(self, now_ms: int) -> tuple[Action, ...]:
        """Call once, before the first step."""
        r, initial = self.replica, self._initial
        assert initial is not None, "started twice"
        self._initial = None
        r.now = now_ms
        start.start(r, initial)
        if not r.failed:
            dispatch.timers(r)
            follower_fetch.poll(r)
        return self._actions()

    def step(self, event: Event, now_ms: int) -> tuple[Action, ...]:
        """Take one event; returns the actions, to be carried out in this order."""
        r = self.replica
        if r.failed:
            return ()
        if now_ms > r.now:
            r.now = now_ms
        dispatch.handle(r, event)
        if not isinstance(r.state, Leader) and not r.failed:
            if isinstance(r.state, Follower) and r.state.deadline_ms <= r.now:
                dispatch.timers(r)
            follower_fetch.poll(r)
            own_endpoints.poll(r)
        if r.shutting_down:
            leader.finish_shutdown(r)
        return self._actions()

    def _actions(self) -> tuple[Action, ...]:
        r = self.replica
        actions = tuple(r.out)
        r.out.clear()
        return actions
