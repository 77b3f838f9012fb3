"""One machine: a replica core, its driver, its clock and its disk.

The driver here is the contract of `rlmm/raft/actions.py` in its plainest form: one queue, a persist
holds everything behind it back, one flush at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rlmm.raft import actions as act
from rlmm.raft import events as ev
from rlmm.raft.core import RaftCore
from rlmm.raft.messages import (
    Error,
    FetchResponse,
    FetchSnapshotResponse,
    PeerResponse,
    Request,
    Response,
    SnapshotId,
)
from sim.core.disk import Disk, SnapshotContent
from sim.core.invariants import check
from sim.core.leaderships import Leadership
from sim.core.pace import Pace
from sim.ground.clock import HostClock

if TYPE_CHECKING:
    from sim.core.quorum import World

PIECE_BYTES = 3


@dataclass(frozen=True, slots=True)
class Correlation:
    """Address of an answer: the asking host's life, and its request."""

    source: str
    incarnation: int
    request_id: int
    copy: int
    request: Request


class ReplicaHost:
    """`core` is None while the machine is down. `visible_*` is what left the action queue."""

    def __init__(self, world: World, name: str, disk: Disk) -> None:
        self.world = world
        self.name = name
        self.disk = disk
        self.clock = HostClock()
        self.core: RaftCore | None = None
        self.incarnation = 0
        self.paused = False
        self.flush_ms = self.persist_ms = 2
        self._reset()

    def _reset(self) -> None:
        self.queue: deque[act.Action] = deque()
        self.backlog: list[ev.Event] = []
        self.persisting: act.PersistedState | None = None
        self.flush_running = False
        self.flush_wanted: act.Flush | None = None
        self.completions: deque[ev.FlushCompleted] = deque(maxlen=30)
        self.generation = 0
        self.pieces: dict[int, SnapshotContent] = {}
        self.installing: SnapshotContent | None = None
        self.wake_at_ms = -1
        self.visible_role = act.Role.UNATTACHED
        self.visible_epoch = 0
        self.high_watermark = 0
        self.applied = 0
        self.digest = 0
        self.truncated = False
        self.leadership = Leadership(check, self.disk.key)
        self.pace = Pace(check, self.disk.key)

    # ---- life

    def start(self) -> None:
        assert self.core is None
        self.incarnation += 1
        self._reset()
        initial = self.disk.initial_state()
        newest = max(self.disk.snapshots, default=None)
        if newest is not None:
            self.applied = newest.end_offset
            self.digest = self.disk.snapshots[newest].digest
        self.core = RaftCore(
            self.disk.key,
            initial,
            settings=self.world.settings,
            jitter=self.world.random.random,
            peers=self.world.peer_ids,
            incarnation=self.incarnation,
        )
        self.visible_epoch = initial.quorum.epoch if initial.quorum else 0
        self.world.auditor.started(self)
        actions = self.core.start(self.clock.at(self.world.schedule.now_ms))
        self._remembers(self.core.cut)
        self._take(actions)

    def crash(self, *, torn: bool = False, damage: bool = False) -> None:
        """The power goes: a state being written is there or not, unsynced records are lost."""
        if self.core is None:
            return
        random = self.world.random
        self.core = None
        self.paused = False
        if self.persisting is not None and random.randrange(2):
            self._store(self.persisting)
        if self.installing is not None and random.randrange(2):
            self.disk.replace_by(self.installing)
        self.disk.crash(random, torn=torn)
        if damage:
            self.disk.damage(random)
        self._reset()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        """Handle everything that happened during the pause."""
        self.paused = False
        backlog, self.backlog = self.backlog, []
        for event in backlog:
            self.feed(event)
        self.feed(ev.Tick())

    # ---- events in

    def feed(self, event: ev.Event) -> None:
        core = self.core
        if core is None:
            return
        if self.paused:
            if not isinstance(event, ev.Tick):
                self.backlog.append(event)
            return
        self.world.note(self, event)
        now_ms = self.clock.at(self.world.schedule.now_ms)
        actions = core.step(event, now_ms)
        self.leadership.stepped(core, event, actions, now_ms)
        self.pace.stepped(core, event, actions, now_ms)
        self._take(actions)

    def _take(self, actions: tuple[act.Action, ...]) -> None:
        for action in actions:
            self.world.note(self, action)
        self.queue.extend(actions)
        self._drain()
        self._set_alarm()

    def _set_alarm(self) -> None:
        core = self.core
        if core is None:
            return
        now_ms = self.world.schedule.now_ms
        delay_ms = max(1, self.clock.world_delay(core.next_deadline_ms(), now_ms))
        due_ms = now_ms + min(delay_ms, 10_000)
        if now_ms < self.wake_at_ms <= due_ms:
            return
        self.wake_at_ms = due_ms
        self.world.schedule.after(due_ms - now_ms, partial(self._alarm, self.incarnation, due_ms))

    def _alarm(self, incarnation: int, due_ms: int) -> None:
        if incarnation == self.incarnation and due_ms == self.wake_at_ms:
            self.wake_at_ms = -1
            self.feed(ev.Tick())
            self._set_alarm()

    # ---- actions out

    def _drain(self) -> None:
        while self.queue and self.persisting is None and self.core is not None:
            if self.world.faults.crash_here():
                self.world.faults.crash(self)
                return
            self._carry_out(self.queue.popleft())
        if self.truncated and not self.queue and self.core is not None:
            self.truncated = False
            self.world.auditor.voters_of_log(self)

    def _carry_out(self, action: act.Action) -> None:
        auditor = self.world.auditor
        match action:
            case act.AppendBatches():
                auditor.appending(self, action.batches)
                self.disk.append(action.batches)
            case act.Flush():
                self.flush_wanted = action
                self._flush()
                self._repeat_old_completion()
            case act.SendRequest():
                auditor.requesting(self, action.request)
                self.world.send_request(self, action)
            case act.SendResponse():
                self._respond(action)
            case act.PersistQuorumState():
                self.persisting = action.state
                delay_ms = self.world.random.randrange(self.persist_ms + 1)
                call = partial(self._persisted, self.incarnation)
                self.world.schedule.after(delay_ms, call)
            case act.AdvanceHighWatermark():
                auditor.advancing(self, action)
                self._apply(action.apply_to)
            case act.TruncateTo():
                auditor.truncating(self, action.end_offset)
                auditor.next_generation(self, action.generation)
                self.generation = action.generation
                self.disk.truncate(action.end_offset)
                self.truncated = True
            case act.WriteSnapshotChunk():
                self._write_piece(action)
            case act.InstallSnapshot():
                self._install(action)
            case act.RoleChanged():
                auditor.role_changed(self, action)
                self.visible_role, self.visible_epoch = action.role, action.epoch
            case act.Fatal():
                auditor.fatal(self, action.message)
            case act.ShutdownDone():
                self.crash()
            case _:
                self.world.workload.outcome(self, action)

    def _persisted(self, incarnation: int) -> None:
        if incarnation != self.incarnation or self.core is None or self.persisting is None:
            return
        state, self.persisting = self.persisting, None
        self._store(state)
        self._drain()

    def _store(self, state: act.PersistedState) -> None:
        self.world.auditor.persisting(self, state)
        self._remembers(state.cut)
        self.disk.quorum = state

    def _remembers(self, cut: act.LogCut | None) -> None:
        if cut is None and self.disk.taken:
            self.world.auditor.forgets_cut(self)

    def _flush(self) -> None:
        wanted = self.flush_wanted
        if self.flush_running or wanted is None:
            return
        self.flush_running, self.flush_wanted = True, None
        delay_ms = self.world.random.randrange(self.flush_ms + 1)
        operations = len(self.disk.unsynced)
        call = partial(self._flushed, self.incarnation, self.disk, operations, wanted)
        self.world.schedule.after(delay_ms, call)

    def _repeat_old_completion(self) -> None:
        """Repeat an old completion, which must not be taken for a new one."""
        random = self.world.random
        if self.completions and random.randrange(1000) < self.world.faults.stale_flush_permille:
            self._later(max(self.completions, key=lambda each: each.offset), 1)

    def _flushed(self, incarnation: int, disk: Disk, operations: int, flush: act.Flush) -> None:
        if incarnation != self.incarnation or self.core is None:
            return
        self.flush_running = False
        # A snapshot that replaced the log meanwhile has replaced these operations as well.
        disk.sync(min(operations, len(disk.unsynced)) if flush.generation == self.generation else 0)
        completed = ev.FlushCompleted(flush.epoch, flush.offset, flush.generation)
        self.completions.append(completed)
        self.feed(completed)
        if self.core is not None:
            self._flush()

    def _respond(self, action: act.SendResponse) -> None:
        correlation = action.correlation
        if not isinstance(correlation, Correlation):
            self.world.workload.outcome(self, action)
            return
        response = self._filled(action.response)
        self.world.auditor.responding(self, correlation.request, response)
        self.world.send_response(self, correlation, response)

    def _filled(self, response: Response) -> Response:
        """The response with the data that the core told the driver to read."""
        if isinstance(response, FetchResponse) and response.read is not None:
            read = response.read
            if read.generation != self.generation:
                return FetchResponse(Error.NOT_LEADER_OR_FOLLOWER, -1, response.leader_epoch)
            batches = [
                batch
                for batch in self.disk.batches
                if read.from_offset <= batch.base_offset < read.end_offset
            ][: self.world.batches_per_fetch]
            return FetchResponse(
                response.error,
                response.leader_id,
                response.leader_epoch,
                response.high_watermark,
                response.log_start_offset,
                batches=tuple(batches),
            )
        if isinstance(response, FetchSnapshotResponse) and response.read is not None:
            content = self.disk.snapshots[response.read.snapshot]
            return FetchSnapshotResponse(
                response.error,
                response.leader_id,
                response.leader_epoch,
                response.snapshot,
                response.size_bytes,
                response.position,
                payload=content,
                payload_bytes=min(PIECE_BYTES, content.size_bytes - response.position),
            )
        return response

    def answer_arrived(
        self, incarnation: int, request_id: int, response: PeerResponse | None
    ) -> None:
        if incarnation != self.incarnation:
            return
        if response is None:
            self.feed(ev.RequestFailed(request_id))
        else:
            self.feed(ev.ResponseReceived(request_id, response))

    # ---- the view and its snapshots

    def _apply(self, apply_to: int) -> None:
        self.digest = self.world.auditor.applied(self, self.applied, apply_to, self.digest)
        self.applied = max(self.applied, apply_to)

    def take_snapshot(self, *, keep: int, cut_log: bool) -> None:
        """Take a snapshot of everything applied; then perhaps drop older ones and the
        log's head.
        """
        core, end = self.core, self.applied
        if core is None or self.paused or self.installing is not None or end <= 0:
            return
        if self.queue or end <= self.disk.start_offset or end > self.disk.end_offset:
            return
        snapshot = SnapshotId(end, core.epoch_of(end - 1))
        if core.snapshot_refusal(snapshot) is not None:
            return
        size_bytes = 1 + end % (4 * PIECE_BYTES)
        content = SnapshotContent(snapshot, self.digest, core.voters_at(end), size_bytes)
        self.world.auditor.snapshot_taken(self, content)
        self.disk.snapshots[snapshot] = content
        self.disk.view_flushed = end
        self.feed(ev.SnapshotTaken(snapshot, size_bytes))
        if cut_log and self.core is not None:
            self._cut_head(keep)

    def _cut_head(self, keep: int) -> None:
        newest = max(self.disk.snapshots)
        starts = [
            batch.base_offset
            for batch in self.disk.batches
            if self.disk.start_offset < batch.base_offset <= newest.end_offset
        ]
        starts = [start for start in starts if start <= self.disk.synced_end]
        if starts:
            start = starts[self.world.random.randrange(len(starts))]
            self.disk.cut_head(start)
            self.feed(ev.LogStartAdvanced(start))
        doomed = tuple(sorted(self.disk.snapshots)[:-keep])
        for snapshot in doomed:
            del self.disk.snapshots[snapshot]
        if doomed and self.core is not None:
            self.feed(ev.SnapshotsDeleted(doomed))

    def _write_piece(self, action: act.WriteSnapshotChunk) -> None:
        if action.position == 0:
            self.pieces = {}
        content = action.payload
        assert isinstance(content, SnapshotContent)
        self.pieces[action.position] = content
        event = ev.SnapshotChunkWritten(action.snapshot, action.position + action.payload_bytes)
        self._later(event, self.flush_ms + 1)

    def _install(self, action: act.InstallSnapshot) -> None:
        self.world.auditor.next_generation(self, action.generation)
        self.generation = action.generation
        contents = list(self.pieces.values())
        # Mixed pieces make rubbish; that it never comes to this is the core's business.
        digest = contents[0].digest if len(set(contents)) == 1 else -1
        content = SnapshotContent(
            action.snapshot, digest, contents[0].voters, contents[0].size_bytes
        )
        self.installing = content
        self.world.auditor.installing(self, content)
        delay_ms = self.world.random.randrange(self.world.install_ms_max)
        self.world.schedule.after(delay_ms, partial(self._installed, self.incarnation, content))

    def _installed(self, incarnation: int, content: SnapshotContent) -> None:
        if incarnation != self.incarnation or self.core is None:
            return
        self.installing = None
        self.disk.replace_by(content)
        self.applied, self.digest = content.snapshot.end_offset, content.digest
        self.feed(ev.SnapshotInstalled(content.snapshot, content.size_bytes, content.voters))
        if self.core is not None and not self.paused:  # else it hears of it behind the pause
            self.world.auditor.voters_of_log(self)

    def _later(self, event: ev.Event, within_ms: int) -> None:
        call = partial(self._feed_in_this_life, self.incarnation, event)
        self.world.schedule.after(self.world.random.randrange(within_ms), call)

    def _feed_in_this_life(self, incarnation: int, event: ev.Event) -> None:
        if incarnation == self.incarnation:
            self.feed(event)
