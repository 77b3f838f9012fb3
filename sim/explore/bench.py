"""The world around one host for one step: time stands still, and every choice is the explorer's.

The host is that of the seeded world (`sim/core/replica_host.py`), its history is kept by the same
auditor. A quorum state is persisted at once; the explorer may cut the power between two actions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from rlmm.raft import actions as act
from rlmm.raft import events as ev
from rlmm.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    ReplicaKey,
    Request,
    Response,
    Voter,
    VoteRequest,
)
from rlmm.raft.states import Leader
from rlmm.raft.timers import RaftSettings
from sim.core.disk import Disk
from sim.core.invariants import Auditor
from sim.core.quorum import World
from sim.core.replica_host import Correlation, ReplicaHost
from sim.core.workload import Workload

FIRST_NODE_ID = 1_000_001
BEGIN_MS = 2000
LATE_MS_MAX = 10_000
ALL = 99
"""Unsynced operations that a crash keeps: all of them."""
PURE = frozenset({"started", "truncating", "requesting", "voters_of_log"})
LASTING = act.PersistQuorumState | act.AppendBatches | act.TruncateTo | act.InstallSnapshot

Token = tuple[str, int]
"""A request that its source waits for: its kind and destination; there is one at a time of each."""


class Message(NamedTuple):
    """`token` None: its source waits no more. An answer goes from `source` to who had asked."""

    source: int
    target: int
    token: Token | None
    payload: Any
    is_answer: bool

    @property
    def asker(self) -> int:
        return self.target if self.is_answer else self.source


class Step(NamedTuple):
    """An event of one host. `cut`: the power goes before this action (0: it does not), and `kept`
    unsynced operations stay.
    """

    kind: str
    what: Any = None
    cut: int = 0
    kept: int = 0


class Bench:
    """Carries out one step of one host."""

    voter_count = 3
    batches_per_fetch = 1000
    install_ms_max = 1

    def __init__(self, settings: RaftSettings, keys: Sequence[ReplicaKey], *, stale: bool) -> None:
        self.settings = settings
        self.keys = tuple(keys)
        self.peer_ids = tuple(key.node_id for key in keys)
        self.stale_flush_permille = 1000 if stale else 0
        self.schedule = self.network = self.faults = self
        self.random = _Chosen(self)
        self.disks: Any = {}
        self.hosts: list[ReplicaHost] = []
        self.now_ms = BEGIN_MS
        self.low = 0
        self.set_history(Auditor(cast(World, self)), Workload(cast(World, self)))
        self._begin(Step("start"), [])

    def set_history(self, auditor: Auditor, clients: Workload) -> None:
        """Let the next step continue this history."""
        self.history, self.clients = auditor, clients
        auditor._world = clients._world = cast(World, self)
        self.auditor, self.workload = _Listening(auditor, self), self

    def _begin(self, step: Step, pending: list[partial[None]]) -> None:
        self.pending = pending
        self.step = step
        self.heard = self.crashed = False
        self.asked = 0
        self.actions: list[act.Action] = []
        self.sent: list[Message] = []
        self._requested: list[tuple[int, Message]] = []
        self.names: dict[int, Token] = {}

    # ---- one step

    def run(self, host: ReplicaHost, pending: list[partial[None]], step: Step) -> set[Token]:
        """Carry out a step; returns the requests whose answers the host waits for no more."""
        self._begin(step, pending)
        host.world = cast(World, self)
        waited = set() if host.core is None else set(cast(Any, host.core.replica.requests))
        self.now_ms = BEGIN_MS if host.core is None else host.core.replica.now
        self._carry_out(host, step)
        assert host.core is not None
        requests = cast(dict[Any, Any], host.core.replica.requests)
        numbers = {}
        for number, token in self.names.items():
            if number in requests:
                numbers[token] = number
                # Of two questions of a kind, as when a cut voter is heard, the answer to the older
                # one is lost.
                requests[token] = requests.pop(number)
                _rename(host.core.replica, number, token)
        for number, message in self._requested:
            waits = number in self.names and numbers.get(self.names[number]) == number
            self.sent.append(message if waits else message._replace(token=None))
        best = max(host.completions, key=lambda each: each.offset, default=None)
        host.completions.clear()
        if best is not None and self.stale_flush_permille:
            host.completions.append(best)
        self.pending = [call for call in self.pending if call.args[0] == host.incarnation]
        gone = waited if self.crashed else {each for each in waited if each not in requests}
        return gone | (waited & numbers.keys())

    def _carry_out(self, host: ReplicaHost, step: Step) -> None:
        me, core = self.keys.index(host.disk.key), host.core
        self.low = 0
        match step.kind:
            case "start":
                host.start()
            case "deliver":
                self._deliver(host, step.what)
            case "fail":
                host.feed(ev.RequestFailed(step.what))
            case "done":
                self.pending.pop(step.what)()
            case "tick" | "late":
                assert core is not None
                due_ms = core.next_deadline_ms() if step.kind == "tick" else _late(core.replica)
                self.now_ms = max(self.now_ms, due_ms)
                host.feed(ev.Tick())
            case "crash" | "damage":
                self.crash(host)
            case "forget":
                self._format_again(host)
            case "write":
                self.heard = True
                self.clients.propose(host)
            case "read":
                self.heard = True
                self.low = 1  # a barrier, not a wait for an offset
                self.clients._read(host)
            case "snapshot":
                self.heard = True
                self.low = ALL
                host.take_snapshot(keep=1, cut_log=True)
            case "add" | "remove":
                key = self.keys[step.what]
                request: Request = RemoveVoterRequest(key, 5000)
                if step.kind == "add":
                    request = AddVoterRequest(Voter(key), 5000)
                host.feed(ev.RequestReceived(("operator", me), request))
            case "transfer":
                host.feed(ev.TransferLeadership(("operator", me), self.keys[step.what]))
            case "orphan":
                _forget_link(host, *step.what)

    def _deliver(self, host: ReplicaHost, message: Message) -> None:
        if message.is_answer:
            host.feed(ev.ResponseReceived(cast(int, message.token), message.payload))
            return
        correlation = Correlation(
            str(message.source), 0, cast(int, message.token), 0, message.payload
        )
        host.feed(ev.RequestReceived(correlation, message.payload))

    def cuts(self) -> tuple[int, ...]:
        """The actions of this step before which a crash leaves something else than after it."""
        return tuple(
            index + 1
            for index, action in enumerate(self.actions[:-1])
            if isinstance(action, LASTING)
        )

    # ---- the world as the host sees it

    def note(self, _: ReplicaHost, what: object) -> None:
        if isinstance(what, act.Action):
            self.actions.append(what)

    def send_request(self, host: ReplicaHost, action: act.SendRequest) -> None:
        token = (type(action.request).__name__, action.destination)
        self.names[action.request_id] = token
        source, target = self.keys.index(host.disk.key), self.peer_ids.index(action.destination)
        self._requested.append(
            (action.request_id, Message(source, target, token, action.request, False))
        )

    def send_response(self, host: ReplicaHost, asked: Correlation, response: Response) -> None:
        if asked.request_id is not None:
            token = cast(Token, asked.request_id)
            source = self.keys.index(host.disk.key)
            self.sent.append(Message(source, int(asked.source), token, response, True))

    def outcome(self, host: ReplicaHost, action: act.Action) -> None:
        """An answer to a caller."""
        self.heard = self.heard or isinstance(
            action,
            act.ProposalsCommitted | act.ProposalFailed | act.WaitersDone | act.WaitersFailed,
        )
        self.clients.outcome(host, action)

    def after(self, _: int, call: Callable[[], None]) -> None:
        assert isinstance(call, partial)
        if call.func.__name__ == "_persisted":
            call()
        elif call.func.__name__ != "_alarm":
            self.pending.append(call)

    def crash_here(self) -> bool:
        self.asked += 1
        return not self.crashed and self.asked == self.step.cut + 1 and self.step.cut > 0

    def crash(self, host: ReplicaHost) -> None:
        """The power goes and comes back. Answers that were under way to the host are lost."""
        self.crashed = True
        self.names.clear()
        self.low = 1 if self.step.kept else 0
        host.crash(damage=self.step.kind == "damage")
        self.low = 0
        host.start()

    def _format_again(self, host: ReplicaHost) -> None:
        """The host loses its disk and is formatted by the line of its first time."""
        self.crashed = True
        self.names.clear()
        host.crash()
        old = host.disk
        host.disk = Disk(
            old.key, old.format_voters, lost_synced=True, taken=[*old.taken, *old.synced]
        )
        self.auditor.forgets_its_votes(host)
        host.start()


class _Chosen:
    """Stands for chance: every draw is the step's."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def random(self) -> float:
        return 0.5

    def randrange(self, *bounds: int) -> int:
        return min(self._bench.low, bounds[-1] - 1)

    def randint(self, low: int, high: int) -> int:
        return max(low, min(self._bench.step.kept, high))

    def choice(self, values: Sequence[Any]) -> Any:
        return values[0]


class _Listening:
    """The auditor; notes whether a step asks it about more than the host itself."""

    def __init__(self, auditor: Auditor, bench: Bench) -> None:
        self._auditor = auditor
        self._bench = bench

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._auditor, name)
        if name in PURE:
            return found
        if not callable(found):
            self._bench.heard = True
            return found

        def call(host: ReplicaHost, *arguments: Any) -> Any:
            self._bench.heard = self._bench.heard or _of_history(name, *arguments)
            return found(host, *arguments)

        return call


def _of_history(name: str, *arguments: Any) -> bool:
    """True if the auditor remembers this, or compares it with what it remembers."""
    if name == "role_changed":
        return arguments[0].role is act.Role.LEADER
    if name == "persisting":
        return arguments[0].voted is not None
    if name == "responding":
        return isinstance(arguments[0], VoteRequest) and arguments[1].vote_granted
    return True


def _late(replica: Any) -> int:
    """The time when the state's own timer has expired, whatever was due before."""
    due_ms: int = getattr(replica.state, "deadline_ms", LATE_MS_MAX + replica.now)
    if isinstance(replica.state, Leader) or due_ms >= replica.now + LATE_MS_MAX:
        return int(replica.now + 2 * replica.settings.check_quorum_ms + 1)
    return due_ms


def _rename(replica: Any, number: int, token: Token) -> None:
    """Let a request be known by its token."""
    state = replica.state
    owners: list[Any] = [replica.fetch, replica.update]
    for name in ("ballots", "notices"):
        owners += getattr(state, name, {}).values()
    for owner in owners:
        if owner.in_flight == number:
            owner.in_flight = token
    for known in getattr(state, "progress", {}).values():
        if known.begin_in_flight == number:
            known.begin_in_flight = token


def links(host: ReplicaHost) -> frozenset[tuple[int, Hashable]]:
    """The requests (asker, token) that this host has yet to answer and somebody waits for."""
    found = getattr(host.core.replica.state, "parked", {}).values() if host.core else ()
    return frozenset(
        (int(each.correlation.source), each.correlation.request_id)
        for each in found
        if each.correlation.request_id is not None
    )


def _forget_link(host: ReplicaHost, asker: int, token: Token) -> None:
    assert host.core is not None
    assert isinstance(host.core.replica.state, Leader)
    for each in host.core.replica.state.parked.values():
        old = cast(Correlation, each.correlation)
        if int(old.source) == asker and old.request_id == cast(Any, token):
            each.correlation = Correlation(old.source, 0, cast(Any, None), 0, old.request)


def new_host(bench: Bench, disk: Disk) -> ReplicaHost:
    return ReplicaHost(cast(World, bench), f"n{disk.key.node_id}", disk)
