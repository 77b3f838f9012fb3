"""Carries out the core's actions, in the order of its contract (`rlmm/raft/actions.py`).

One event loop owns core, queue of actions, tail and timer; one thread writes (`disk_queue.py`), one
reads. All decisions about the quorum are the core's.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial

from kafka_formats.errors import CorruptData, NotFound, RetryLater
from rlmm.damaged_replica import REPLACE_REPLICA
from rlmm.quorum.address_book import AddressBook
from rlmm.quorum.config import Ambient, QuorumConfig
from rlmm.quorum.damaged_snapshots import DamagedSnapshots
from rlmm.quorum.description import addresses
from rlmm.quorum.disk_queue import Append, DiskQueue, Persist
from rlmm.quorum.disk_reads import DiskReads, is_damage
from rlmm.quorum.framing import place
from rlmm.quorum.initial_state import Replica, stored
from rlmm.quorum.log_tail import Tail
from rlmm.quorum.network_ports import Answer, PeerFailedError, Peers
from rlmm.quorum.observer import DriverCallbacks
from rlmm.quorum.troubles import CoreWarnings, QuorumTroubles
from rlmm.raft import actions as do
from rlmm.raft.events import (
    Event,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    Tick,
)
from rlmm.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    Error,
    FetchRequest,
    FetchResponse,
    FetchSnapshotResponse,
    LogRead,
    PeerResponse,
    Request,
    Response,
    VoteResponse,
    VotersRecord,
)
from rlmm.raft.timers import NEVER_MS
from rlmm.rows.feature_level import FeatureLevels

log = logging.getLogger(__name__)


def _monotonic_ms(ambient: Ambient) -> int:
    return int(ambient.monotonic() * 1000)


class QuorumDriver:
    """The driver. Events are passed to `feed`; it calls back on the same loop: `on_advance` when
    more is committed or the log was replaced, `on_role` after any change of role or voters,
    `on_failure` once.
    """

    def __init__(
        self,
        replica: Replica,
        peers: Peers,
        config: QuorumConfig,
        ambient: Ambient,
        told: DriverCallbacks,
        *,
        recent_bytes_max: int,
    ) -> None:
        core, directory, disk, writer, reader = replica
        monotonic_ms, observer = partial(_monotonic_ms, ambient), told.observer
        self.core = core
        self.tail = Tail(bytes_max=recent_bytes_max)
        self.apply_to = 0
        self.high_watermark = 0
        self.failure: str | None = None
        self.shutdown_done = asyncio.Event()
        self._role_change = asyncio.Event()
        self._directory = directory
        self._peers = peers
        self._addresses = AddressBook({id_: (host, port) for id_, host, port in config.bootstrap})
        self._listener_name = config.listener_name
        self._monotonic_ms = monotonic_ms
        self._now_ms = ambient.now_ms
        self._reader = reader
        self._reads = DiskReads(directory, disk)
        self._on_advance, self._on_role = told.on_advance, told.on_role
        self._on_failure = told.on_failure
        self._observer = observer
        self._warnings = CoreWarnings(monotonic_ms)
        self.troubles = QuorumTroubles(monotonic_ms)
        self.snapshots = DamagedSnapshots(self, directory, writer)
        self._queue: deque[do.Action] = deque()
        self._draining = False
        self._persisting = False
        self._stopped = False
        self._installing = 0
        self._generation = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = NEVER_MS
        self._arming = False
        self._tasks: set[asyncio.Task[None]] = set()
        self.jobs = DiskQueue(
            directory,
            disk,
            writer,
            on_event=self.feed,
            on_written=self.tail.written,
            on_failure=lambda error: self.fail(str(error)),
            observer=observer,
        )
        self._perform: dict[type, Callable[[object], None]] = self._performers()

    def start(self) -> None:
        # Votes may still be requested from a voter whose removal may not be committed.
        for voters in self.core.voter_sets():
            self._addresses.voters(addresses(voters, self._listener_name))
        self._peers.set_addresses(self._addresses.everybody())
        self._take(self.core.start(self._monotonic_ms()))

    def feed(self, event: Event) -> None:
        """Feed one event into the core; its actions are begun before this returns."""
        if self._stopped:
            return
        if isinstance(event, SnapshotInstalled):
            self.tail.reset(self._installing)
        try:
            self._take(self.core.step(event, self._monotonic_ms()))
        except Exception as error:  # noqa: BLE001 - the node stops
            self._broken(error)

    def _broken(self, error: Exception) -> None:
        """Stop the driver after an error amid a step. Raised in a timer or thread instead, the
        error would be hidden, and the node would hang.
        """
        log.error("the quorum's state cannot be trusted any more", exc_info=error)
        self.fail(f"internal error: {error!r}")

    async def answer(self, request: Request) -> Answer:
        """Feed a request and wait for its response. RetryLater: the node stops."""
        if self._stopped:
            raise RetryLater(self.failure or "the node is shutting down")
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        if isinstance(request, BeginQuorumEpochRequest):
            self._leader_is_at(request.leader_id, request.leader_epoch, request.leader_at)
        self._note_acknowledged(request)
        self.feed(RequestReceived(waiting, request))
        if self.failure is not None and not waiting.done():
            raise RetryLater(self.failure)
        return await waiting

    def _note_acknowledged(self, request: Request) -> None:
        if not isinstance(request, FetchRequest) or self.core.role is not do.Role.LEADER:
            return
        if request.epoch == self.core.epoch and request.replica in self.core.voters.keys:
            self._observer.acknowledged(request.replica.node_id, request.fetch_offset)

    async def read_bytes(self, from_offset: int, bytes_max: int) -> bytes:
        """Whole batches from `from_offset` on, below the committed and durable end."""
        end = self.apply_to
        if from_offset >= end:
            return b""
        data = self.tail.bytes_at(from_offset, end, bytes_max)
        if data is not None:
            return data
        read = partial(self._reads.log, LogRead(from_offset, end, bytes_max, self._generation))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reader, read)
        except (OSError, CorruptData) as error:
            raise self.unread(error) from error

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:
        """The feature levels that a different node knows. PeerFailedError: no answer in time."""
        return await self._peers.feature_levels(node_id, deadline_ms=deadline_ms)

    async def role_change(self) -> None:
        """Wait until role, epoch or leader change."""
        await self._role_change.wait()

    def now_monotonic_ms(self) -> int:
        """The core's clock."""
        return self._monotonic_ms()

    @property
    def log_start_offset(self) -> int:
        return self._directory.log_start_offset

    def nodes(self) -> tuple[tuple[int, str, int], ...]:
        """(node id, host, port) of every node whose address is known."""
        return tuple(
            (node_id, host, port) for node_id, (host, port) in self._addresses.everybody().items()
        )

    async def stop(self) -> None:
        """Take no more events; jobs already queued for the disk are done."""
        await self.jobs.settled()
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.jobs.settled()

    # ---- the queue of actions

    def _take(self, actions: tuple[do.Action, ...]) -> None:
        self._queue.extend(actions)
        self._drain()
        if not self._arming and not self._stopped:
            # Once a turn of the loop, however many events it brings.
            self._arming = True
            asyncio.get_running_loop().call_soon(self._arm)

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        try:
            while self._queue and not self._persisting and self.failure is None:
                action = self._queue.popleft()
                self._perform[type(action)](action)
        finally:
            self._draining = False
            self.jobs.begin()

    def _performers(self) -> dict[type, Callable[..., None]]:
        return {
            do.PersistQuorumState: self._persist,
            do.AppendBatches: self._append,
            do.Flush: self.jobs.submit,
            do.TruncateTo: self._truncate,
            do.WriteSnapshotChunk: self.jobs.submit,
            do.InstallSnapshot: self._install,
            do.SendRequest: self._send_request,
            do.SendResponse: self._send_response,
            do.AdvanceHighWatermark: self._advance,
            do.ProposalsCommitted: self._committed,
            do.ProposalFailed: lambda action: action.handle.failed(action),
            do.WaitersDone: self._waiters_done,
            do.WaitersFailed: self._waiters_failed,
            do.CommandDone: self._command_done,
            do.RoleChanged: self._role_changed,
            do.VotersChanged: self._voters_changed,
            do.Warn: self._warn,
            do.ShutdownDone: lambda _: self.shutdown_done.set(),
            do.Fatal: lambda action: self.fail(action.message),
        }

    def _persist(self, action: do.PersistQuorumState) -> None:
        self._persisting = True
        self.jobs.submit(Persist(stored(action.state), self._persisted))

    def _persisted(self) -> None:
        self._persisting = False
        try:
            self._drain()
        except Exception as error:  # noqa: BLE001 - the node stops
            self._broken(error)

    def _append(self, action: do.AppendBatches) -> None:
        now_ms = self._now_ms()
        placed = tuple(place(batch, timestamp_ms=now_ms) for batch in action.batches)
        for batch in placed:
            self.tail.add(batch)
        names_voters = any(
            isinstance(record, VotersRecord) for batch in action.batches for record in batch.control
        )
        self.jobs.submit(Append(placed, names_voters))
        first, last = action.batches[0], action.batches[-1]
        self._observer.appended(
            last.end_offset,
            last.end_offset - first.base_offset,
            leading=self.core.role is do.Role.LEADER,
        )

    def _truncate(self, action: do.TruncateTo) -> None:
        self._generation = action.generation
        self._observer.truncated()
        self.tail.truncate_to(action.end_offset, action.generation)
        self.jobs.submit(action)

    def _install(self, action: do.InstallSnapshot) -> None:
        self._installing = self._generation = action.generation
        self.jobs.submit(action)

    def _advance(self, action: do.AdvanceHighWatermark) -> None:
        self.high_watermark, self.apply_to = action.high_watermark, action.apply_to
        self._directory.committed_end = max(self._directory.committed_end, action.apply_to)
        self._observer.high_watermark_moved(action.high_watermark)
        self._on_advance()

    def _committed(self, action: do.ProposalsCommitted) -> None:
        for handle, offset in action.proposals:
            handle.committed(offset, action.epoch)  # type: ignore[attr-defined]  # of a Propose of ours

    def _waiters_done(self, action: do.WaitersDone) -> None:
        for handle in action.handles:
            if isinstance(handle, asyncio.Future) and not handle.done():
                handle.set_result(action.offset)

    def _waiters_failed(self, action: do.WaitersFailed) -> None:
        for handle in action.handles:
            if isinstance(handle, asyncio.Future) and not handle.done():
                handle.set_exception(
                    RetryLater(f"the quorum's leader changed ({action.error.name}); ask again")
                )

    def _command_done(self, action: do.CommandDone) -> None:
        if isinstance(action.handle, asyncio.Future) and not action.handle.done():
            action.handle.set_result((action.error, action.message))

    def _warn(self, action: do.Warn) -> None:
        self._warnings.warn(action.message)
        if action.trouble:
            self.troubles.repeated(action.trouble, action.message)

    def _role_changed(self, action: do.RoleChanged) -> None:
        log.info(
            "quorum role %s in epoch %d, leader %d",
            action.role.value,
            action.epoch,
            action.leader_id,
        )
        self._observer.role_changed(action.role)
        self._role_change.set()
        self._role_change = asyncio.Event()
        self._on_role()

    def _voters_changed(self, action: do.VotersChanged) -> None:
        self._addresses.voters(addresses(action.voters, self._listener_name))
        self._peers.set_addresses(self._addresses.everybody())
        self._on_role()

    def fail(self, message: str) -> None:
        """Stop the driver; the node has to stop then."""
        if self.failure is None:
            self.failure = message
            self._stopped = True
            log.error("the metadata log stopped: %s", message)
            self._on_advance()
            self._on_failure(message)

    def damaged(self, error: Exception) -> None:
        """Stop this node, whose durable bytes are damaged; another node leads instead."""
        meanwhile = "No other node can lead" if self.is_sole_voter else "Another node leads"
        self.fail(
            f"the disk has lost durable records of the metadata log: {error}. {meanwhile} "
            f"meanwhile. Check the disk. What to do: {REPLACE_REPLICA}"
        )

    @property
    def is_sole_voter(self) -> bool:
        """True if this replica is the only voter it knows of."""
        return self.core.voters.keys == (self.core.replica.key,)

    def unread(self, error: OSError | CorruptData) -> RetryLater:
        """The error for a reader of the log; damage stops this node first."""
        if is_damage(error):
            self.damaged(error)
            return RetryLater(str(self.failure))
        return RetryLater(
            f"the metadata log could not be read: {error}. Check the disk and the limit of open "
            "files; a read is repeated, a node that was starting has to be started again"
        )

    # ---- time

    def _arm(self) -> None:
        self._arming = False
        if self._stopped:
            return
        due = self.core.next_deadline_ms()
        if self._timer is not None:
            if self._timer_due_ms <= due:
                return  # an early tick does no harm, and arms the timer again
            self._timer.cancel()
            self._timer = None
        if due < NEVER_MS:
            delay_s = max(due - self._monotonic_ms(), 0) / 1000
            self._timer_due_ms = due
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.feed(Tick())

    # ---- messages

    def _send_request(self, action: do.SendRequest) -> None:
        self._run(self._ask(action))

    async def _ask(self, action: do.SendRequest) -> None:
        request = action.request
        if isinstance(request, BeginQuorumEpochRequest | EndQuorumEpochRequest):
            request = replace(request, leader_at=self._addresses.of(request.leader_id))
        try:
            response = await self._peers.ask(
                action.destination, request, deadline_ms=action.deadline_ms
            )
        except PeerFailedError as error:
            log.debug("node %d: %s", action.destination, error)
            if not error.sent and self._addresses.not_reached(action.destination):
                self._peers.set_addresses(self._addresses.everybody())
            self.feed(RequestFailed(action.request_id, error.unsupported_version))
        else:
            if response.leader_at is not None:
                self._leader_is_at(response.leader_id, response.leader_epoch, response.leader_at)
            self.feed(ResponseReceived(action.request_id, response))

    def _leader_is_at(self, leader_id: int, epoch: int, at: tuple[str, int] | None) -> None:
        """Take a leader's address from a message, before the core gets the message."""
        if at is None or leader_id == self.core.replica.key.node_id or epoch < self.core.epoch:
            return
        if self._addresses.told(leader_id, at):
            log.info("node %d leads epoch %d, at %s:%d", leader_id, epoch, *at)
            self._peers.set_addresses(self._addresses.everybody())

    def _send_response(self, action: do.SendResponse) -> None:
        waiting, response = action.correlation, action.response
        assert isinstance(waiting, asyncio.Future)
        if waiting.done():
            return
        if isinstance(response, VoteResponse) or (
            isinstance(response, PeerResponse) and response.error is not Error.NONE
        ):
            # A replica that the leader serves knows its address.
            response = replace(response, leader_at=self._addresses.of(response.leader_id))
        read = (
            response.read if isinstance(response, FetchResponse | FetchSnapshotResponse) else None
        )
        if read is None:
            waiting.set_result(Answer(response))
        elif isinstance(read, LogRead):
            data = self.tail.bytes_at(read.from_offset, read.end_offset, read.bytes_max)
            if data is not None:
                waiting.set_result(Answer(response, data))
            else:
                self._read_answer(waiting, response, partial(self._reads.log, read))
        else:
            self._read_answer(waiting, response, partial(self._reads.snapshot, read))

    def _read_answer(
        self, waiting: asyncio.Future[Answer], response: Response, read: Callable[[], bytes]
    ) -> None:
        self._run(self._answer_from_disk(waiting, response, read, self._generation))

    async def _answer_from_disk(
        self,
        waiting: asyncio.Future[Answer],
        response: Response,
        read: Callable[[], bytes],
        generation: int,
    ) -> None:
        try:
            data = await asyncio.get_running_loop().run_in_executor(self._reader, read)
        except (NotFound, OSError, CorruptData) as error:
            data = None
            log.info("nothing to send: %s", error)
            if generation == self._generation and is_damage(error):
                asked = response.snapshot if isinstance(response, FetchSnapshotResponse) else None
                if asked is None or not await self.snapshots.found(asked, error):
                    self.damaged(error)
        if waiting.done():
            return
        if data is None or generation != self._generation:
            # The data to read is gone: the replica fetches again, and the answer to that tells it
            # where to continue.
            assert isinstance(response, FetchResponse | FetchSnapshotResponse)
            error_code = Error.NOT_LEADER_OR_FOLLOWER
            if isinstance(response, FetchSnapshotResponse):
                error_code = Error.SNAPSHOT_NOT_FOUND
            waiting.set_result(Answer(replace(response, error=error_code, read=None)))
        else:
            waiting.set_result(Answer(response, data))

    def _run(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task of the quorum failed", exc_info=error)
            self.fail(f"internal error: {error!r}")
