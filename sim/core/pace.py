"""Invariants of a leader that goes on too fast or too long.

added_voter_caught_up: a voter that lags would stall every commit. hung_leader_resigns: a leader
whose disk syncs nothing takes records for ever. They go by what a host was sent and by its own
clock, as those of `leaderships.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlmm.raft.actions import Action, AppendBatches, Role
from rlmm.raft.events import Event, RequestReceived, Tick
from rlmm.raft.messages import Batch, FetchRequest, LeaderChange, ReplicaKey, VotersRecord
from sim.core.elections import Check

if TYPE_CHECKING:
    from rlmm.raft.core import RaftCore


class Pace:
    """One life of a replica, while it leads."""

    def __init__(self, check: Check, key: ReplicaKey) -> None:
        self._check = check
        self._key = key
        self._state: object = None
        self._reset((), 0)

    def _reset(self, voters: tuple[ReplicaKey, ...], flushed: int) -> None:
        self._voters, self._flushed = voters, flushed
        self._caught_up_ms: dict[ReplicaKey, int] = {}
        self._fetches: dict[ReplicaKey, list[tuple[int, int]]] = {}
        self._unsynced_since_ms = -1

    def stepped(self, core: RaftCore, event: Event, actions: Iterable[Action], now_ms: int) -> None:
        """Note an event, and check the state of the core behind it."""
        if core.replica.state is not self._state:
            self._state = core.replica.state
            self._reset(core.voters.keys, core.replica.log.flushed_offset)
        if core.role is not Role.LEADER:
            return
        appended = [
            batch for each in actions if isinstance(each, AppendBatches) for batch in each.batches
        ]
        if isinstance(event, RequestReceived) and isinstance(event.request, FetchRequest):
            end = appended[0].base_offset if appended else core.log_end_offset
            self._fetched(core, event.request, end, now_ms)
        for batch in appended:
            self._adds_voters(core, batch, now_ms)
        self._syncs(core, now_ms, is_tick=isinstance(event, Tick))
        self._voters = core.voters.keys

    def _fetched(self, core: RaftCore, request: FetchRequest, end: int, now_ms: int) -> None:
        """Note that it has all that the log had, now or at an earlier fetch of its own."""
        if request.epoch != core.epoch:
            return
        key = request.replica
        fetches = [*self._fetches.get(key, ()), (now_ms, end)]
        reached = [at_ms for at_ms, was in fetches if request.fetch_offset >= was]
        if reached:
            self._caught_up_ms[key] = max(*reached, self._caught_up_ms.get(key, 0))
        self._fetches[key] = [each for each in fetches if each[1] > request.fetch_offset]

    def _adds_voters(self, core: RaftCore, batch: Batch, now_ms: int) -> None:
        sets = [each.voters.keys for each in batch.control if isinstance(each, VotersRecord)]
        if not sets or any(isinstance(each, LeaderChange) for each in batch.control):
            return
        within_ms = core.replica.settings.caught_up_within_ms
        for key in sets[-1]:
            self._check(
                key in self._voters
                or now_ms - self._caught_up_ms.get(key, -(1 << 40)) <= within_ms,
                "added_voter_caught_up",
                f"{self._key} makes {key} a voter, which was at the end of its log at "
                f"{self._caught_up_ms.get(key)} ms, and it is {now_ms} ms",
            )

    def _syncs(self, core: RaftCore, now_ms: int, *, is_tick: bool) -> None:
        log = core.replica.log
        if log.flushed_offset >= log.end_offset:
            self._unsynced_since_ms = -1
        elif (
            self._unsynced_since_ms < 0
            or log.flushed_offset > self._flushed
            or core.voters.keys != self._voters  # a sole voter has no successor, and goes on
        ):
            self._unsynced_since_ms = now_ms
        self._flushed = log.flushed_offset
        hangs_ms = now_ms - self._unsynced_since_ms if self._unsynced_since_ms >= 0 else 0
        self._check(
            not is_tick
            or core.replica.is_sole_voter
            or hangs_ms <= 2 * core.replica.settings.check_quorum_ms,
            "hung_leader_resigns",
            f"{self._key} leads epoch {core.epoch}, and its disk synced nothing for {hangs_ms} ms",
        )
