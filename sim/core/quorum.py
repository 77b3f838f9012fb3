"""A quorum in a world: three or five voters, an observer, sometimes an impostor; then healing."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from random import Random

from rlmm.raft.actions import Action, PersistedState, SendRequest
from rlmm.raft.events import AcceptCut, Event, RequestReceived
from rlmm.raft.messages import PeerResponse, ReplicaKey, Response, Voter, VoterSet
from rlmm.raft.timers import RaftSettings
from sim.core.disk import Disk
from sim.core.faults import Faults, impostor_disk
from sim.core.invariants import Auditor, InvariantError, check
from sim.core.network import Network
from sim.core.replica_host import Correlation, ReplicaHost
from sim.core.workload import Workload
from sim.ground.clock import Schedule

HASTY = RaftSettings(
    election_timeout_ms=100,
    fetch_timeout_ms=200,
    election_backoff_max_ms=100,
    request_timeout_ms=200,
    pre_vote_retry_ms=20,
    fetch_wait_max_ms=50,
    caught_up_within_ms=500,
    transfer_timeout_ms=200,
    shutdown_timeout_ms=200,
)
"""Elections ten times as often, since most bugs show only there."""

HEAL_MS = 90_000
OPERATOR_MS = 20_000
"""Longest healing, and the time when the operator accepts cuts that keep replicas from standing."""


@dataclass(frozen=True, slots=True)
class Result:
    """Figures of a run."""

    seed: int
    events: int
    world_ms: int
    committed: int
    reads: int
    epoch: int
    heal_ms: int
    trace: int


class World:
    """The world of one seed. `trace` collects what happens, as text, if given."""

    def __init__(self, seed: int, *, trace: list[str] | None = None) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.trace = trace
        self.trace_digest = 0
        self.events = 0
        self.schedule = Schedule()
        self.settings = self.random.choice((RaftSettings(caught_up_within_ms=5000), HASTY))
        self.network = Network(self.schedule, self.random)
        self.batches_per_fetch = self.random.choice((2, 10, 1000))
        self.voter_count = self.random.choice((3, 3, 3, 5))
        if Random(f"alone in {seed}").randrange(6) == 0:
            self.voter_count = 1  # it grows, shrinks and moves
        self.install_ms_max = Random(f"installs of {seed}").choice((200, 200, 10_000))
        self.auditor = Auditor(self)
        self.disks: dict[ReplicaKey, Disk] = {}
        self.hosts: list[ReplicaHost] = []
        self._copies = 0
        self._wiped = 0
        self.faults = Faults(self)
        self.workload = Workload(self)
        self._format()

    def _format(self) -> None:
        node_ids = range(1, max(self.voter_count, 3) + 2)
        keys = [ReplicaKey(node_id, f"d{node_id}") for node_id in node_ids]
        voters = VoterSet(tuple(Voter(key) for key in keys[: self.voter_count]))
        # A quorum that never ran waits for all, which under faults may take the whole run.
        state = PersistedState(0) if self.random.randrange(8) else None
        for key in keys:
            self._add_host(f"n{key.node_id}", Disk(key, voters, quorum=state))
        self.peer_ids = tuple(node_ids[:-1])
        if "impostor" in self.faults.kinds:
            self._add_host("impostor", impostor_disk(self.hosts[1].disk, "dx"))

    def _add_host(self, name: str, disk: Disk) -> None:
        self.disks[disk.key] = disk
        self.hosts.append(ReplicaHost(self, name, disk))

    def is_impostor(self, host: ReplicaHost) -> bool:
        return host.name == "impostor"

    def new_disk(self, host: ReplicaHost) -> None:
        """Format a machine that lost its directory; the old disk is remembered."""
        self._wiped += 1
        key = ReplicaKey(host.disk.key.node_id, f"{host.disk.key.directory_id}w{self._wiped}")
        host.disk = Disk(key, host.disk.format_voters)
        self.disks[key] = host.disk

    def same_disk(self, host: ReplicaHost) -> None:
        """Format a disk under its old name: nothing tells it that it acknowledged anything."""
        old = host.disk
        host.disk = Disk(
            old.key, old.format_voters, lost_synced=True, taken=[*old.taken, *old.synced]
        )
        self.disks[host.disk.key] = host.disk
        self.auditor.forgets_its_votes(host)

    def live_disks(self) -> list[Disk]:
        return [host.disk for host in self.hosts]

    def voter_sets_in_force(self) -> list[tuple[ReplicaKey, ...]]:
        """Voter sets on any disk: the last committed one and all behind it."""
        found: set[tuple[ReplicaKey, ...]] = set()
        for host in self.hosts:
            committed = host.disk.format_voters
            for offset, voters in host.disk.voter_sets():
                if offset < self.auditor.committed_end:
                    committed = voters
                else:
                    found.add(voters.keys)
            if host.disk.end_offset > 0:
                found.add(committed.keys)
        return sorted(found) or [self.hosts[0].disk.format_voters.keys]

    # ---- messages

    def send_request(self, source: ReplicaHost, action: SendRequest) -> None:
        target = self._host_for(action.destination)
        incarnation, request_id = source.incarnation, action.request_id

        def lost() -> None:
            source.answer_arrived(incarnation, request_id, None)

        def deliver() -> None:
            self._copies += 1
            correlation = Correlation(
                source.name, incarnation, request_id, self._copies, action.request
            )
            target.feed(RequestReceived(correlation, action.request))

        self.network.send(source.name, target.name, deliver, lost=lost)

    def _host_for(self, node_id: int) -> ReplicaHost:
        """The host behind a node id; with an impostor, sometimes the wrong one."""
        named = [host for host in self.hosts if host.disk.key.node_id == node_id]
        if len(named) > 1 and self.random.randrange(10):
            return named[0]
        return named[-1]

    def send_response(
        self, source: ReplicaHost, correlation: Correlation, response: Response
    ) -> None:
        target = next(host for host in self.hosts if host.name == correlation.source)
        assert isinstance(response, PeerResponse)
        answer = partial(target.answer_arrived, correlation.incarnation, correlation.request_id)
        self.network.send(
            source.name, target.name, partial(answer, response), lost=partial(answer, None)
        )

    # ---- running

    def note(self, host: ReplicaHost, what: Event | Action) -> None:
        """Count and record an event; equal seeds have equal traces."""
        self.events += 1
        if self.trace is not None:
            line = f"{self.schedule.now_ms:>7} {host.name} {what!r}"
            self.trace_digest = zlib.crc32(line.encode(), self.trace_digest)
            self.trace.append(line)

    def run(self, events: int) -> Result:
        """Run `events` with faults, then heal: a leader, a commit and equal logs, in time."""
        for host in self.hosts:
            host.start()
        self.faults.begin()
        self.workload.begin()
        while self.events < events:
            if not self.schedule.run_next():
                break
        heal_ms = self._heal()
        epoch = max(host.visible_epoch for host in self.hosts)
        return Result(
            self.seed,
            self.events,
            self.schedule.now_ms,
            self.workload.committed,
            self.workload.reads,
            epoch,
            heal_ms,
            self.trace_digest,
        )

    def _heal(self) -> int:
        self.faults.stop()
        self.workload.on = False
        began_ms = self.schedule.now_ms
        committed = self.workload.committed
        next_try_ms, accepted = began_ms, False
        while self.schedule.now_ms < began_ms + HEAL_MS:
            if not self.schedule.run_next():
                break
            now_ms = self.schedule.now_ms
            if now_ms < next_try_ms:
                continue
            next_try_ms = now_ms + 200
            if self.workload.committed > committed and self._all_equal():
                return now_ms - began_ms
            leader = next((h for h in self.hosts if h.core and h.core.established), None)
            if leader is not None:
                if self.workload.committed == committed:
                    self.workload.propose(leader)
            elif now_ms > began_ms + OPERATOR_MS and not accepted:
                accepted = True
                self._accept_cuts()
        raise InvariantError("liveness", f"not healed within {HEAL_MS} ms: {self._summary()}")

    def _accept_cuts(self) -> None:
        """Accept cuts that nobody who answers can disprove, as an operator would; never real
        losses.
        """
        for host in self.hosts:
            if host.core is not None and host.core.cut is not None and not host.disk.lost_synced:
                host.feed(AcceptCut(("accept", 0)))

    def _all_equal(self) -> bool:
        """True once all logs are equal; an impostor can't follow a leader of its own node id."""
        end = self.auditor.committed_end
        hosts = [host for host in self.hosts if host.core and not self.is_impostor(host)]
        if not all(host.applied == end == host.disk.synced_end for host in hosts):
            return False
        digests = {host.digest for host in hosts}
        check(len(digests) == 1, "same_offset_same_state", f"{self._summary()}")
        return True

    def _summary(self) -> str:
        return "; ".join(
            f"{host.name} {host.disk.key.directory_id} {host.visible_role.value} epoch "
            f"{host.visible_epoch} log {host.disk.start_offset}..{host.disk.end_offset} synced "
            f"{host.disk.synced_end} hw {host.high_watermark} applied {host.applied} cut "
            f"{host.core.cut if host.core else None}"
            for host in self.hosts
        )


def run(seed: int, events: int, *, trace: list[str] | None = None) -> Result:
    """Run one seed. InvariantError: an invariant is broken."""
    return World(seed, trace=trace).run(events)
