"""Clients that propose and read, and operators that change voters and move leadership."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from rlmm.raft import actions as act
from rlmm.raft import events as ev
from rlmm.raft.messages import (
    AddVoterRequest,
    DescribeQuorumRequest,
    Error,
    RemoveVoterRequest,
    ReplicaKey,
    Voter,
    VoterChangeResponse,
)
from sim.core.invariants import check

if TYPE_CHECKING:
    from sim.core.quorum import World
    from sim.core.replica_host import ReplicaHost


class _Change(NamedTuple):
    """A change of voters that was asked for, and the process that was asked."""

    request: AddVoterRequest | RemoveVoterRequest
    host: ReplicaHost
    incarnation: int


class Workload:
    """Every proposal has a number of its own; every answer is checked."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._numbers = 0
        self._reads: dict[Hashable, int] = {}
        self._unanswered: set[Hashable] = set()
        self._records: dict[Hashable, int] = {}
        self._changes: dict[Hashable, _Change] = {}
        self.committed = 0
        self.reads = 0
        self.on = True
        random = world.random
        self._change_permille = random.choice((0, 5, 30, 100))
        if world.voter_count == 1:
            self._change_permille += 100
        self._snapshot_permille = random.choice((0, 10, 60, 200))
        self._period_ms = random.choice((2, 10, 40))

    def begin(self) -> None:
        self._next()

    def _next(self) -> None:
        if self.on:
            self._act()
            delay_ms = 1 + self._world.random.randrange(2 * self._period_ms)
            self._world.schedule.after(delay_ms, self._next)

    def _act(self) -> None:
        random = self._world.random
        draw = random.randrange(1000)
        host = random.choice(self._world.hosts)
        if draw < self._change_permille:
            self._operate(self._some_leader() or host)
        elif draw < self._change_permille + self._snapshot_permille:
            host.take_snapshot(keep=random.randrange(1, 3), cut_log=random.randrange(2) == 0)
        elif draw < 750:
            self.propose(self._some_leader() or host)
        else:
            self._read(self._some_leader() or host)

    def _some_leader(self) -> ReplicaHost | None:
        """A host that leads, or only thinks so."""
        leaders = [h for h in self._world.hosts if h.visible_role is act.Role.LEADER and h.core]
        return self._world.random.choice(leaders) if leaders else None

    def _handle(self, kind: str) -> tuple[str, int]:
        self._numbers += 1
        return kind, self._numbers

    def propose(self, host: ReplicaHost) -> None:
        handle = self._handle("write")
        counts = [1] * self._world.random.choice((1, 1, 1, 2))
        batches = tuple(
            ev.ProposedBatch(count, 100, handle if index == 0 else (*handle, index))
            for index, count in enumerate(counts)
        )
        self._unanswered.add(handle)
        self._records[handle] = sum(counts)
        host.feed(ev.Propose(handle, batches))

    def _read(self, host: ReplicaHost) -> None:
        handle = self._handle("read")
        self._unanswered.add(handle)
        acknowledged = self._world.auditor.acknowledged_end
        if self._world.random.randrange(4):
            self._reads[handle] = acknowledged
            host.feed(ev.BarrierRequested(handle))
        else:
            # What somebody wrote and was told of, read here.
            self._reads[handle] = acknowledged
            host.feed(ev.AtLeastRequested(handle, acknowledged))

    # ---- operators

    def _operate(self, host: ReplicaHost) -> None:
        core = host.core
        if core is None:
            return
        random = self._world.random
        handle = self._handle("operator")
        if random.randrange(3) == 0:
            keys = [key for key in core.voters.keys if key != host.disk.key]
            target = random.choice([None, *keys])
            host.feed(ev.TransferLeadership(handle, target))
            return
        if random.randrange(10) == 0:
            host.feed(ev.RequestReceived(handle, DescribeQuorumRequest()))
            return
        request = self._voter_change(core.voters.keys)
        if request is not None:
            self._changes[handle] = _Change(request, host, host.incarnation)
            host.feed(ev.RequestReceived(handle, request))

    def leaving(self) -> list[ReplicaKey]:
        """Voters whose removal was asked for and may still begin: a machine that hangs reads the
        request when it goes on.
        """
        return [
            each.request.voter
            for each in self._changes.values()
            if isinstance(each.request, RemoveVoterRequest)
            and each.host.incarnation == each.incarnation
        ]

    def _voter_change(
        self, keys: tuple[ReplicaKey, ...]
    ) -> AddVoterRequest | RemoveVoterRequest | None:
        """A sane operator's change: dead voters go first, never below the number formatted."""
        world = self._world
        random = world.random
        live = {host.disk.key: host for host in world.hosts if not world.is_impostor(host)}
        dead = [key for key in keys if key not in live]
        wait_ms = random.choice((500, 5000))
        if dead:
            return RemoveVoterRequest(dead[0], wait_ms)
        spare = [key for key in sorted(live) if key not in keys]
        if spare and (len(keys) < world.voter_count or random.randrange(2)):
            return AddVoterRequest(Voter(random.choice(spare)), wait_ms)
        if len(keys) > world.voter_count or (spare and len(keys) >= 3):
            candidates = [key for key in keys if not live[key].disk.lost_synced]
            if candidates and all(not live[key].disk.lost_synced for key in keys):
                return RemoveVoterRequest(random.choice(candidates), wait_ms)
        return None

    # ---- answers

    def outcome(self, host: ReplicaHost, action: act.Action) -> None:
        auditor = self._world.auditor
        match action:
            case act.ProposalsCommitted():
                for handle, offset in action.proposals:
                    self._answered(handle)
                    self.committed += 1
                    records = self._records.pop(handle, 1)
                    auditor.proposal_committed(host, handle, offset, records)
                    if self._world.random.randrange(2):
                        self._tell(host, ev.CommitLearned(action.epoch, offset + records))
            case act.SendResponse():
                change = self._changes.pop(action.correlation, None)
                if change is not None and isinstance(action.response, VoterChangeResponse):
                    self._changed(host, change.request, action.response)
            case act.ProposalFailed():
                self._answered(action.handle)
                if not action.appended:
                    auditor.refused.add(action.handle)
            case act.WaitersDone():
                for handle in action.handles:
                    self._answered(handle)
                    self.reads += 1
                    auditor.read_allowed(host, action.offset, self._reads.pop(handle))
            case act.WaitersFailed():
                for handle in action.handles:
                    self._answered(handle)
                    del self._reads[handle]
            case _:
                pass

    def _changed(
        self,
        host: ReplicaHost,
        change: AddVoterRequest | RemoveVoterRequest,
        response: VoterChangeResponse,
    ) -> None:
        if response.error is not Error.NONE:
            return
        if isinstance(change, RemoveVoterRequest):
            self._world.auditor.voter_changed(host, change.voter, added=False)
        elif change.ack_when_committed:
            self._world.auditor.voter_changed(host, change.voter.key, added=True)

    def _tell(self, leader: ReplicaHost, learned: ev.CommitLearned) -> None:
        """Tell some host of a commit, as whoever forwarded a proposal hears of it."""
        target = self._world.random.choice(self._world.hosts)
        deliver = partial(target.feed, learned)
        self._world.network.send(leader.name, target.name, deliver, lost=_nobody_waits)

    def _answered(self, handle: Hashable) -> None:
        check(
            handle in self._unanswered,
            "answered_once",
            f"{handle} was answered twice or never asked",
        )
        self._unanswered.discard(handle)


def _nobody_waits() -> None:
    """Drop a lost answer, which the next fetch replaces."""
