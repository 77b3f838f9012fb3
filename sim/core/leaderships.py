"""Invariants of stable leadership: who may lead on, and who may disturb a leader (KIP-996, 853).

leads_with_majority, removed_leader_resigns, pre_vote_spares_leader. They go by what a host was
sent and by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlmm.raft.actions import Action, Role, SendResponse
from rlmm.raft.events import Event, RequestReceived, Tick
from rlmm.raft.messages import (
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    ReplicaKey,
    VoteRequest,
    VoteResponse,
)
from sim.core.elections import Check

if TYPE_CHECKING:
    from rlmm.raft.core import RaftCore


class Leadership:
    """One life of a replica: what it was sent since it took its present state."""

    def __init__(self, check: Check, key: ReplicaKey) -> None:
        self._check = check
        self._key = key
        self._state: object = None
        self._since_ms = self._voters_since_ms = 0
        self._voters: tuple[ReplicaKey, ...] = ()
        self._heard_ms: dict[ReplicaKey, int] = {}
        self._leader_resigned = False

    def stepped(self, core: RaftCore, event: Event, actions: Iterable[Action], now_ms: int) -> None:
        """Note an event, and check the state of the core behind it."""
        if core.replica.state is not self._state:
            self._state, self._since_ms = core.replica.state, now_ms
            self._heard_ms, self._leader_resigned = {}, False
        if isinstance(event, RequestReceived):
            self._asked(core, event.request, actions, now_ms)
        if core.role is Role.LEADER:
            self._leads(core, now_ms, is_tick=isinstance(event, Tick))

    def _asked(
        self, core: RaftCore, request: object, actions: Iterable[Action], now_ms: int
    ) -> None:
        match request:
            case FetchRequest() | FetchSnapshotRequest() if request.epoch == core.epoch:
                self._heard_ms[request.replica] = now_ms
            case EndQuorumEpochRequest() if request.leader_epoch == core.epoch:
                self._leader_resigned = True
            case VoteRequest(pre_vote=True) if core.role is Role.FOLLOWER:
                granted = any(
                    isinstance(each, SendResponse)
                    and isinstance(each.response, VoteResponse)
                    and each.response.vote_granted
                    for each in actions
                )
                heard = core.leader_heard_ms > self._since_ms and not self._leader_resigned
                self._check(
                    not (granted and heard),
                    "pre_vote_spares_leader",
                    f"{self._key} gives {request.candidate} a pre-vote and hears its leader",
                )
            case _:
                pass

    def _leads(self, core: RaftCore, now_ms: int, *, is_tick: bool) -> None:
        keys = core.voters.keys
        if keys != self._voters:
            # One that was added may have been silent for a while.
            self._voters, self._voters_since_ms = keys, now_ms
        since_ms = max(self._since_ms, self._voters_since_ms)
        self._check(
            self._key in keys or core.uncommitted_voter_change or not core.established,
            "removed_leader_resigns",
            f"{self._key} leads epoch {core.epoch}, and the voters are {keys}",
        )
        heard = sorted(
            now_ms if key == self._key else max(self._heard_ms.get(key, 0), since_ms)
            for key in keys
        )
        silent_ms = now_ms - heard[(len(heard) - 1) // 2]
        self._check(
            not is_tick or silent_ms <= 2 * core.replica.settings.check_quorum_ms,
            "leads_with_majority",
            f"{self._key} leads epoch {core.epoch} and heard no majority for {silent_ms} ms",
        )
