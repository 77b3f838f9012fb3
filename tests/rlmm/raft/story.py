"""A few cores, messages delivered by hand: for tests of single rules and for golden stories.

Nothing happens by itself: time passes with `tick`, a flush ends with `flush`, a snapshot is written
with `write`, a message arrives with `deliver`. Persisting is instant. Everything a core orders is
kept in `said`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from rlmm.raft.actions import (
    Action,
    AppendBatches,
    Flush,
    InstallSnapshot,
    LogCut,
    PersistedState,
    PersistQuorumState,
    Role,
    SendRequest,
    SendResponse,
    TruncateTo,
    Warn,
    WriteSnapshotChunk,
)
from rlmm.raft.core import RaftCore
from rlmm.raft.events import (
    Event,
    FlushCompleted,
    Propose,
    ProposedBatch,
    RequestReceived,
    ResponseReceived,
    SnapshotChunkWritten,
    SnapshotInstalled,
    Tick,
)
from rlmm.raft.messages import (
    Batch,
    FetchResponse,
    FetchSnapshotResponse,
    PeerResponse,
    ReplicaKey,
    Request,
    Voter,
    VoterSet,
    VotersRecord,
)
from rlmm.raft.replica import InitialState
from rlmm.raft.states import Leader
from rlmm.raft.timers import RaftSettings

SETTINGS = RaftSettings()
STARTED_BEFORE = InitialState(PersistedState(0))
"""A node that knows that its log is empty because there was never a leader."""


def key(node_id: int, directory_id: str | None = None) -> ReplicaKey:
    return ReplicaKey(node_id, f"d{node_id}" if directory_id is None else directory_id)


def voter_set(*node_ids: int) -> VoterSet:
    return VoterSet(tuple(Voter(key(node_id)) for node_id in node_ids))


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request on its way (`response` None) or an answer to it."""

    source: int
    target: int
    request_id: int
    body: Request | PeerResponse
    answer: bool


@dataclass(frozen=True, slots=True)
class From:
    """A correlation: who asked, and with which request."""

    source: int
    request_id: int


class Story:
    """`voters` are formatted as such, `observers` beside them."""

    def __init__(
        self,
        voters: tuple[int, ...] = (1, 2, 3),
        observers: tuple[int, ...] = (),
        *,
        initial: dict[int, InitialState] | None = None,
        settings: RaftSettings = SETTINGS,
        jitter: float = 0.0,
    ) -> None:
        self.now = 0
        self.voters = voters
        self.settings = settings
        self.jitter = jitter
        self.cores: dict[int, RaftCore] = {}
        self.said: dict[int, list[Action]] = {}
        self.transcript: list[tuple[int, Action]] = []
        self.logs: dict[int, list[Batch]] = {}
        self.flushes: dict[int, deque[Flush]] = {}
        self.writes: dict[int, deque[WriteSnapshotChunk | InstallSnapshot]] = {}
        self.mail: list[Envelope] = []
        self._numbers = self._starts = 0
        for node_id in (*voters, *observers):
            state = (initial or {}).get(node_id, STARTED_BEFORE)
            self.start(node_id, replace(state, format_voters=voter_set(*voters)))

    def format(self, node_id: int) -> None:
        """With the voters of the first time, whatever it was before; it starts then."""
        self.start(node_id, InitialState(format_voters=voter_set(*self.voters)))

    def recover(self, node_id: int, end: int) -> None:
        """It starts again, and recovery has cut the tail of its log, from offset `end` on."""
        old = self.logs[node_id]
        states = [a.state for a in self.said[node_id] if isinstance(a, PersistQuorumState)]
        kept = [batch for batch in old if batch.end_offset <= end]
        epochs = {batch.epoch: batch.base_offset for batch in reversed(kept)}
        initial = InitialState(
            states[-1],
            log_end_offset=end,
            epochs=tuple(sorted(epochs.items())),
            voter_sets=voter_sets_of(kept),
            format_voters=voter_set(*self.voters),
            cut=LogCut(old[-1].epoch, old[-1].end_offset),
        )
        self.start(node_id, initial)
        self.logs[node_id] = kept

    def start(self, node_id: int, initial: InitialState) -> list[Action]:
        self._starts += 1
        self.cores[node_id] = RaftCore(
            key(node_id),
            initial,
            settings=self.settings,
            jitter=lambda: self.jitter,
            peers=self.voters,
            incarnation=self._starts,
        )
        self.said[node_id] = []
        sets = dict(initial.voter_sets)
        self.logs[node_id] = [
            Batch(
                offset,
                max(e for e, begin in initial.epochs if begin <= offset),
                1,
                100,
                control=(VotersRecord(sets[offset]),) if offset in sets else (),
            )
            for offset in range(initial.log_start_offset, initial.log_end_offset)
            if initial.epochs
        ]
        self.flushes[node_id], self.writes[node_id] = deque(), deque()
        self.mail = [m for m in self.mail if node_id not in (m.source, m.target)]
        return self._take(node_id, self.cores[node_id].start(self.now))

    def feed(self, node_id: int, event: Event) -> list[Action]:
        """One event; what was ordered because of it."""
        return self._take(node_id, self.cores[node_id].step(event, self.now))

    def request(self, node_id: int, request: Request) -> object:
        """Ask a core from outside, and take its answer, which must come at once."""
        self._numbers += 1
        actions = self.feed(node_id, RequestReceived(("outside", self._numbers), request))
        answers = [
            each.response
            for each in actions
            if isinstance(each, SendResponse) and each.correlation == ("outside", self._numbers)
        ]
        assert len(answers) == 1, actions
        return answers[0]

    def tick(self, node_id: int, milliseconds: int = 0) -> list[Action]:
        """Nothing that a tick does leaves the next one due at once: a driver would spin."""
        self.now += milliseconds
        actions = self.feed(node_id, Tick())
        core = self.cores[node_id]
        assert core.next_deadline_ms() > self.now or core.replica.failed
        return actions

    def propose(self, node_id: int, handle: str, records: int = 1) -> list[Action]:
        return self.feed(node_id, Propose(handle, (ProposedBatch(records, 100, handle),)))

    def flush(self, node_id: int) -> list[Action]:
        """The oldest flush ordered and not reported ends."""
        wanted = self.flushes[node_id].popleft()
        return self.feed(node_id, FlushCompleted(wanted.epoch, wanted.offset, wanted.generation))

    def write(self, node_id: int) -> list[Action]:
        """The oldest piece of a snapshot is on disk, or the whole has taken the log's place."""
        match self.writes[node_id].popleft():
            case WriteSnapshotChunk() as piece:
                end = piece.position + piece.payload_bytes
                return self.feed(node_id, SnapshotChunkWritten(piece.snapshot, end))
            case InstallSnapshot() as whole:
                voters = voter_set(*self.voters)
                return self.feed(
                    node_id, SnapshotInstalled(whole.snapshot, whole.size_bytes, voters)
                )

    def deliver(
        self, source: int | None = None, target: int | None = None, limit: int = 1
    ) -> list[Action]:
        """The oldest messages between these two."""
        done: list[Action] = []
        for _ in range(limit):
            found = self._find(source, target)
            if found is None:
                break
            self.mail.remove(found)
            if found.answer:
                assert isinstance(found.body, PeerResponse)
                event: Event = ResponseReceived(found.request_id, found.body)
            else:
                assert isinstance(found.body, Request)
                event = RequestReceived(From(found.source, found.request_id), found.body)
            done += self.feed(found.target, event)
        return done

    def drop(self, source: int | None = None, target: int | None = None) -> int:
        """Lose all messages between these two; how many."""
        lost = 0
        while (found := self._find(source, target)) is not None:
            self.mail.remove(found)
            lost += 1
        return lost

    def _find(self, source: int | None, target: int | None) -> Envelope | None:
        return next(
            (
                each
                for each in self.mail
                if source in (None, each.source) and target in (None, each.target)
            ),
            None,
        )

    def settle(self, *only: int, rounds: int = 300) -> None:
        """Deliver, flush and write between `only` (default: all) until nothing moves, and nobody is
        soon told of a commit.
        """
        nodes = only or tuple(self.cores)
        for _ in range(rounds):
            busy = False
            for node_id in nodes:
                while self.flushes[node_id]:
                    self.flush(node_id)
                    busy = True
                while self.writes[node_id]:
                    self.write(node_id)
                    busy = True
            found = next((m for m in self.mail if m.source in nodes and m.target in nodes), None)
            if found is not None:
                self.deliver(found.source, found.target)
                busy = True
            if not busy and not self._tell_of_commits(nodes):
                return

    def _tell_of_commits(self, nodes: tuple[int, ...]) -> bool:
        """Let the time pass that fetches wait which only such news could answer."""
        soon = self.now + self.settings.commit_news_wait_max_ms
        due = []
        for node_id in nodes:
            state = self.cores[node_id].replica.state
            if isinstance(state, Leader):
                times = [parked.deadline_ms for parked in state.parked.values()]
                due += [(time_ms, node_id) for time_ms in times if self.now <= time_ms <= soon]
        if due:
            deadline_ms, node_id = min(due)
            self.tick(node_id, deadline_ms - self.now)
        return bool(due)

    def role(self, node_id: int) -> Role:
        return self.cores[node_id].role

    def warnings(self, node_id: int) -> list[str]:
        return [each.message for each in self.said[node_id] if isinstance(each, Warn)]

    def elect(self, node_id: int) -> None:
        """Let `node_id`'s election timer expire, and the votes take their way."""
        self.tick(node_id, 2 * self.settings.election_timeout_ms)
        self.settle()
        assert self.cores[node_id].role.value == "leader"

    # ---- the driver

    def _take(self, node_id: int, actions: tuple[Action, ...]) -> list[Action]:
        self.said[node_id] += actions
        self.transcript += [(node_id, action) for action in actions]
        for action in actions:
            match action:
                case AppendBatches():
                    self.logs[node_id] += action.batches
                case TruncateTo():
                    log = self.logs[node_id]
                    self.logs[node_id] = [b for b in log if b.end_offset <= action.end_offset]
                case WriteSnapshotChunk():
                    self.writes[node_id].append(action)
                case InstallSnapshot():
                    self.logs[node_id] = []
                    self.writes[node_id].append(action)
                case Flush():
                    self.flushes[node_id].append(action)
                case SendRequest():
                    self.mail.append(
                        Envelope(
                            node_id, action.destination, action.request_id, action.request, False
                        )
                    )
                case SendResponse(From() as origin, response):
                    assert isinstance(response, PeerResponse)
                    filled = self._filled(node_id, response)
                    self.mail.append(
                        Envelope(node_id, origin.source, origin.request_id, filled, True)
                    )
                case _:
                    pass
        return list(actions)

    def _filled(self, node_id: int, response: PeerResponse) -> PeerResponse:
        if isinstance(response, FetchSnapshotResponse) and response.read is not None:
            size = min(response.read.bytes_max, response.size_bytes - response.position)
            return replace(response, read=None, payload="bytes", payload_bytes=size)
        if not isinstance(response, FetchResponse) or response.read is None:
            return response
        read = response.read
        batches = tuple(
            batch
            for batch in self.logs[node_id]
            if read.from_offset <= batch.base_offset < read.end_offset
        )
        return replace(response, read=None, batches=batches)


def voter_sets_of(batches: list[Batch]) -> tuple[tuple[int, VoterSet], ...]:
    """(offset, set) of every VotersRecord in them."""
    return tuple(
        (batch.base_offset + index, record.voters)
        for batch in batches
        for index, record in enumerate(batch.control)
        if isinstance(record, VotersRecord)
    )


def persisted(actions: list[Action]) -> list[tuple[int, int, int]]:
    """(epoch, leader, voted id) of every state persisted, in order."""
    return [
        (
            each.state.epoch,
            each.state.leader_id,
            each.state.voted.node_id if each.state.voted else -1,
        )
        for each in actions
        if isinstance(each, PersistQuorumState)
    ]
