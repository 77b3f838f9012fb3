"""A broker's plug-in, as the Java one is: sessions, announcements, calls with deadlines, and the
exceptions that it throws to the broker (docs/BROKER_PROTOCOL.md).

A call runs in the node's own life by the shipped routes' code; the way there and back may be slow,
lose the request or its answer, or bring it twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from api.routes.broker import (
    CHUNK_DEADLINE_S,
    DEADLINES_S,
    INDEXES,
    OF_A_FOLLOWER,
    Call,
    answered,
)
from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    CorruptData,
    Fenced,
    InternalError,
    InvalidRequest,
    NotFound,
    StrandlineError,
)
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import wire
from rlm.delegated.calls import BrokerCalls
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from sim.nodes.loop import complete, fail
from sim.tier import plugin_bodies
from sim.tier.kept_lists import KeptLists
from sim.tier.machine import KAFKA_CLUSTER

if TYPE_CHECKING:
    from sim.tier.machine import Machine, Process
    from sim.tier.world import World

T = TypeVar("T")

READ_DEADLINE_S = 1.0
GRACE_S = 0.5
SILENCE_S = 10.0
"""The longest silence between heartbeats of a copy."""
ANNOUNCE_S = 5.0
ANNOUNCED_WITHIN_S = 1.0
PAUSE_S = 1.0
WRITES = frozenset({"add", "update"})
STORAGE = frozenset({"copy", "fetch", "index", "delete"})


class UnavailableError(Exception):
    """ReplicaNotAvailableException or RetriableRemoteStorageException."""

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(text)
        self.reason = reason


class FailedError(Exception):
    """RemoteStorageException or FencedLeaderEpochException."""


class ResourceNotFoundError(Exception):
    """RemoteResourceNotFoundException."""


def thrown(error: StrandlineError, call: str) -> Exception:
    """The exception that the broker sees."""
    text = f"{call}: {type(error).__name__} {error}"
    if isinstance(error, NotFound):
        if error.reason == "GONE":
            return FailedError(text) if call == "index" else ResourceNotFoundError(text)
        if error.reason == "NO_SUCH_INDEX" and call == "index":
            return ResourceNotFoundError(text)
        return UnavailableError(text, error.reason)
    final = isinstance(error, Conflict | InvalidRequest | AlreadyExists | CorruptData | Fenced)
    if final and call in WRITES | STORAGE:
        return FailedError(text)
    return UnavailableError(text, error.reason)


class Plugin:
    """The plug-in in one life of a broker. `leaders` and `followers` are its partitions."""

    def __init__(self, world: World, machine: Machine, session: Uuid, version: str) -> None:
        self._world = world
        self._machine = machine
        self.session = session
        self._version = version
        self.seq = 0
        self._applied = -1
        self.leaders: set[TopicIdPartition] = set()
        self.followers: set[TopicIdPartition] = set()
        self._heard: int | None = None
        self._changed: dict[TopicIdPartition, int] = {}
        self._news, self._told = asyncio.Event(), asyncio.Event()
        self._lists = KeptLists(partial(self._call, Call.LIST))

    # ---- announcements

    def lead(self, tip: TopicIdPartition, *, leads: bool) -> None:
        """Take a leadership change."""
        self.stop(tip)
        (self.leaders if leads else self.followers).add(tip)

    def stop(self, tip: TopicIdPartition) -> None:
        """Take a stopped partition."""
        self.leaders.discard(tip)
        self.followers.discard(tip)
        self.seq += 1
        self._changed[tip] = self.seq
        self._news.set()

    async def announce_on(self) -> None:
        """Announce each change, and something every few seconds."""
        while True:
            self._news.clear()
            try:
                if self.seq:
                    await self._announce()
            except UnavailableError:
                await asyncio.sleep(PAUSE_S)
                continue
            try:
                async with asyncio.timeout(ANNOUNCE_S):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _announce(self) -> None:
        seq, base = self.seq, wire.WHOLE_SET if self._heard is None else self._heard
        new = {tip for tip, changed in self._changed.items() if changed > base}
        leads, follows = new & self.leaders, new & self.followers
        gone = set() if base == wire.WHOLE_SET else new - leads - follows
        said = wire.Announcement(
            KAFKA_CLUSTER, self._machine.node_id, "0.1.0", self._version, "", self.session, seq,
            base, tuple(sorted(leads)), tuple(sorted(follows)), tuple(sorted(gone)),
        )  # fmt: skip
        try:
            await self._once(Call.ANNOUNCE, plugin_bodies.announce(said), self._stamp())
        except UnavailableError as error:
            if error.reason != "ANNOUNCE" or base == wire.WHOLE_SET:
                raise
            self._forgotten(base)
        else:
            self._heard = seq
            self._told.set()
            self._told = asyncio.Event()

    def _forgotten(self, told: int) -> None:
        """Announce all, with a number above those of all calls that were made before."""
        if self._heard == told:
            self._heard = None
            self.seq += 1
        self._news.set()

    async def _until_heard(self, seq: int) -> int:
        """The announcement that the node has heard, once that is `seq` at least."""
        try:
            async with asyncio.timeout(ANNOUNCED_WITHIN_S):
                while self._heard is None or self._heard < seq:
                    await self._told.wait()
                return self._heard
        except TimeoutError:
            raise UnavailableError("the node was not told yet", "ANNOUNCE") from None

    # ---- calls

    async def ready(self, tip: TopicIdPartition) -> bool:
        """isReady."""
        answer = await self._call(Call.READY, plugin_bodies.ready(tip))
        return plugin_bodies.read_ready(answer)[1]

    async def look_up(
        self, tip: TopicIdPartition, epoch: int, offset: int, *, with_txn_index: bool = False
    ) -> RemoteLogSegmentMetadata | None:
        """remoteLogSegmentMetadata, nextSegmentWithTxnIndex."""
        asked = wire.LookUp(tip, epoch, offset, with_txn_index)
        told, process = self._world.delegated.audit.told, self._machine.up
        at = told.asks()
        answer = await self._call(Call.LOOK_UP, plugin_bodies.look_up(asked))
        found = plugin_bodies.read_found(answer, tip)[1]
        if found is not None:
            told.served(process, found.segment_id.id, at, f"a look-up of {offset}")
        return found

    async def highest(self, tip: TopicIdPartition, epoch: int) -> int | None:
        """highestOffsetForEpoch."""
        body = plugin_bodies.highest(wire.Highest(tip, epoch))
        return plugin_bodies.read_highest(await self._call(Call.HIGHEST, body))[1]

    async def rows(
        self, tip: TopicIdPartition, epoch: int = wire.ALL_EPOCHS
    ) -> list[RemoteLogSegmentMetadata]:
        """listRemoteLogSegments."""
        told = self._world.delegated.audit.told
        before = told.asked(self._machine.node_id, tip)
        keeps = self._world.delegated.rough.is_on
        rows = await (self._lists.rows(tip, epoch) if keeps else self._of_one_tag(tip, epoch))
        told.listed(self._machine.node_id, tip, epoch, rows, before)
        return rows

    async def _of_one_tag(
        self, tip: TopicIdPartition, epoch: int
    ) -> list[RemoteLogSegmentMetadata]:
        """A list of pages of one tag, none of which was kept."""
        while True:
            found: list[RemoteLogSegmentMetadata] = []
            tags: set[bytes | None] = set()
            cursor: bytes | None = None
            while True:
                asked = wire.ListSegments(tip, epoch, None, cursor)
                answer = await self._call(Call.LIST, plugin_bodies.list_segments(asked))
                _, tag, rows, cursor = plugin_bodies.read_page(answer, tip)
                tags.add(tag)
                found += rows or ()
                if cursor is None:
                    break
            if len(tags) == 1:
                return found

    async def add(self, row: RemoteLogSegmentMetadata) -> None:
        """addRemoteLogSegmentMetadata."""
        await self._call(Call.ADD, plugin_bodies.row(row))

    async def update(
        self, row: RemoteLogSegmentMetadata, state: SegmentState, custom: bytes | None = None
    ) -> None:
        """updateRemoteLogSegmentMetadata."""
        update = RemoteLogSegmentMetadataUpdate(
            row.segment_id, self._machine.node_id, self._machine.now_ms(), custom, state
        )
        process = self._machine.up
        await self._call(Call.UPDATE, plugin_bodies.update(update))
        if state is SegmentState.DELETE_SEGMENT_STARTED:
            self._world.delegated.audit.told.marks(process, row.segment_id.id)

    async def delete(self, row: RemoteLogSegmentMetadata) -> None:
        """deleteLogSegmentData."""
        await self._call(Call.DELETE, plugin_bodies.row(row))

    async def copy(self, files: wire.CopyFiles) -> bytes:
        """copyLogSegmentData: the custom metadata."""
        body = wire.decode_copy(plugin_bodies.copy(files))
        self._world.delegated.rough.calls.copies(
            files.row.segment_id.id, lambda calls: calls.copy(body)
        )
        return await self._ask("copy", lambda calls: calls.copy(body), deadline_s=None)

    async def fetch(self, row: RemoteLogSegmentMetadata) -> bytes:
        """fetchLogSegment, read to its end."""
        asked = wire.decode_fetch(plugin_bodies.fetch(wire.Fetch(row, 0, row.size_bytes)))

        async def read(calls: BrokerCalls) -> bytes:
            found = calls.segment_to_read(asked.row)
            if await calls.reads.check_size(found, asked.row) != asked.row.size_bytes:
                raise InternalError("the plug-in takes another size for a wrong answer")
            chunks = calls.reads.reads.open_log(found.segment_id.id, asked.start, asked.end)
            return b"".join([chunk async for chunk in chunks])

        told, process = self._world.delegated.audit.told, self._machine.up
        at = told.asks()
        data = await self._ask("fetch", read, deadline_s=CHUNK_DEADLINE_S)
        told.served(process, row.segment_id.id, at, "a fetch")
        if len(data) != row.size_bytes:
            raise UnavailableError("fetch: another length than was asked for")
        return data

    async def index(self, row: RemoteLogSegmentMetadata, number: int) -> bytes:
        """fetchIndex, by Kafka's number."""

        async def read(calls: BrokerCalls) -> bytes:
            found = calls.segment_to_read(row)
            if INDEXES[number] in OF_A_FOLLOWER:
                await calls.reads.check_follower(found, row)
            chunks = calls.reads.index(found, INDEXES[number])
            return b"".join([chunk async for chunk in chunks])

        return await self._ask("index", read, deadline_s=CHUNK_DEADLINE_S)

    def _stamp(self) -> tuple[str, str]:
        """The headers of a call that is made now, however late it is sent."""
        return f"{self.session};{self.seq}", str(self._applied)

    async def _call(self, call: Call, body: bytes) -> bytes:
        seq, made = self.seq, self._stamp()
        told = await self._until_heard(seq)
        try:
            return await self._once(call, body, made)
        except UnavailableError as error:
            if error.reason != "ANNOUNCE":
                raise
        self._forgotten(told)
        await self._until_heard(seq)
        return await self._once(call, body, made)

    async def _once(self, call: Call, body: bytes, made: tuple[str, str]) -> bytes:
        deadline_s, (session, applied) = DEADLINES_S.get(call, READ_DEADLINE_S), made
        keeps = self._world.delegated.rough.is_on
        answer = await self._ask(
            call.value,
            lambda calls: answered(
                calls, call, session, body, applied, takes_changes=call is Call.LIST and keeps
            ),
            deadline_s=deadline_s,
        )
        if call is not Call.DELETE:  # which is the storage manager's
            self._applied = plugin_bodies.read_applied(answer[:8])
        return answer

    # ---- the way to the node and back

    async def _ask(
        self,
        name: str,
        make: Callable[[BrokerCalls], Awaitable[T]],
        *,
        deadline_s: float | None,
    ) -> T:
        """The answer of `make` on the node. `deadline_s` None: as long as the node lives."""
        world, machine = self._world, self._machine
        fate = world.delegated.fate(machine, name)
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        serving: list[asyncio.Task[None]] = []
        processes: list[Process] = []

        def arrive() -> None:
            process = machine.up
            if process is None:
                fail(future, UnavailableError(f"{name}: connection refused"))
                return
            processes.append(process)
            for at in range(1 + fate.twice):
                heard = future if at == 0 else None
                serve = serving_call(
                    process, name, make, heard, partial(world.schedule.after, fate.back_ms)
                )
                serving.append(world.loop.spawn(process.life, serve))

        if not fate.lost:
            world.schedule.after(fate.delay_ms, arrive)
        world.delegated.rough.calls.sent(machine, name, make)
        try:
            if deadline_s is not None:
                async with asyncio.timeout(deadline_s + GRACE_S):
                    return await future
            return await self._while_it_lives(future, processes, serving)
        except TimeoutError:
            raise UnavailableError(f"{name}: no answer") from None
        finally:
            if deadline_s is None:  # the client of a copy leaves
                for task in serving:
                    task.cancel()

    async def _while_it_lives(
        self, future: asyncio.Future[T], of: list[Process], serving: list[asyncio.Task[None]]
    ) -> T:
        """A node that works on the answer sends a sign of life; one that answered is silent."""
        silent_s = 0.0
        while silent_s < SILENCE_S:
            done, _ = await asyncio.wait({future}, timeout=1.0)
            if done:
                return future.result()
            works = not all(task.done() for task in serving)
            lives = works and of[0].life.alive and not of[0].life.paused
            silent_s = 0.0 if lives else silent_s + 1.0
        raise TimeoutError


async def serving_call(
    process: Process,
    name: str,
    make: Callable[[BrokerCalls], Awaitable[T]],
    future: asyncio.Future[T] | None,
    after: Callable[[Callable[[], None]], None],
) -> None:
    """Answer on the node. `future` None: nobody hears this answer."""
    try:
        value = await make(process.broker_calls)
    except StrandlineError as error:
        if future is not None:
            after(partial(fail, future, thrown(error, name)))
    else:
        if future is not None:
            after(partial(complete, future, value))
