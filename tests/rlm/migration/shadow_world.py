"""A small world of shadow writers: one metadata log, one metadata topic, and nodes that die, are
cut off, and go on believing that they lead. The writers are the shipped ones.

Each wait of a writer is a step, after which chance decides who goes on; the same seed gives the
same world. The topic is judged at each record as Kafka's own manager reads it, uncommitted ones
included: it has to be what the metadata log was at some time, and never go back.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kafka_formats.errors import Fenced, OutcomeUnknown, RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.shadow_plan import FoundRecord, ShadowRow, TransactionLimits
from rlm.migration.shadow_writer import ShadowWriter
from rlm.migration.topic_partitioner import metadata_partition
from rlm.migration.topic_replay import TopicReplay, digest
from rlmm.metadata_shadow import OutboxRow, Shadow, TopicPosition
from rlmm.records.control_records import ShadowWritten
from rlmm.records.segment_records import decode_segment_record, encode_segment_record
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
    SegmentState,
)

TOPIC_ID = Uuid(b"metadata-topic-1")
USER_PARTITIONS = tuple(
    TopicIdPartition("orders", Uuid(b"topic-id-16bytes"), number) for number in range(5)
)
NODES = 3
PARTITIONS = 3
ROWS = 40
COPYING, COPIED, DELETING, DELETED = SegmentState


class WrongTopicError(AssertionError):
    """The topic is not what the metadata log was at any time, or went back."""


class _Step:
    def __await__(self) -> Generator[None]:
        yield


def partition_of(value: bytes) -> TopicIdPartition:
    record = decode_segment_record(value, source="row")
    if isinstance(record, RemotePartitionDeleteMetadata):
        return record.partition
    return record.segment_id.partition


def state_of(replay: TopicReplay) -> tuple[tuple[str, str], ...]:
    """All that Kafka's manager knows by one partition of the topic."""
    return tuple(
        sorted((str(each), digest(cache)) for each, cache in replay.caches.items() if cache.rows)
    )


@dataclass(slots=True)
class Entry:
    """A record of the topic, or a marker without value; `epoch` is its producer's."""

    metadata_offset: int | None
    value: bytes | None
    epoch: int
    committed: bool = False


@dataclass(slots=True)
class TopicPartition:
    """`states` are the states of the metadata log's own records for it, one after each."""

    entries: list[Entry] = field(default_factory=list)
    fenced_below: int = 0
    has_leader: bool = True
    seen: TopicReplay = field(default_factory=lambda: TopicReplay("topic"))
    wanted: TopicReplay = field(default_factory=lambda: TopicReplay("log"))
    states: list[tuple[tuple[str, str], ...]] = field(default_factory=lambda: [()])
    at: int = 0

    def append(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.value is None:
            return
        self.seen.apply(len(self.entries) - 1, entry.value)
        now = state_of(self.seen)
        if now not in self.states[self.at :]:
            raise WrongTopicError(f"at metadata offset {entry.metadata_offset}")
        self.at = self.states.index(now, self.at)


@dataclass(slots=True)
class World:
    """See the module. Attributes that name a mistake plant it."""

    rng: Random
    fences: bool = True
    reads_before_it_fences: bool = False
    reads_committed_alone: bool = False
    log: list[OutboxRow | ShadowWritten] = field(default_factory=list)
    partitions: list[TopicPartition] = field(
        default_factory=lambda: [TopicPartition() for _ in range(PARTITIONS)]
    )
    epoch: int = 0
    open_in: set[int] = field(default_factory=set)
    open_epoch: int = 0
    nodes: list[Node] = field(default_factory=list)
    leader: int = 0
    in_flight: list[tuple[int, int, list[Entry]]] = field(default_factory=list)
    calm: bool = False
    unfinished: list[tuple[RemoteLogSegmentMetadata, SegmentState]] = field(default_factory=list)
    ended: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    segments: int = 0
    fenced: int = 0

    def chance(self, share: float) -> bool:
        return not self.calm and self.rng.random() < share

    async def pause(self) -> None:
        await _Step()

    def accept(self) -> None:
        """One more change is accepted."""
        value = encode_segment_record(self._change())
        number = metadata_partition(partition_of(value), PARTITIONS)
        self.log.append(OutboxRow(len(self.log), 1_000, value))
        partition = self.partitions[number]
        partition.wanted.apply(len(self.log) - 1, value)
        partition.states.append(state_of(partition.wanted))

    def _change(self) -> RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate:
        if not self.unfinished or self.rng.random() < 0.35:
            self.segments += 1
            id_ = Uuid(self.segments.to_bytes(16, "big"))
            start = 10 * self.segments
            row = RemoteLogSegmentMetadata(
                RemoteLogSegmentId(self.rng.choice(USER_PARTITIONS), id_),
                start, start + 9, 1, 1_000, 2_000, ((0, start),), 100, None, COPYING,
            )  # fmt: skip
            self.unfinished.append((row, COPYING))
            return row
        row, state = self.unfinished.pop(self.rng.randrange(len(self.unfinished)))
        state = self.rng.choice((COPIED, DELETING)) if state is COPYING else SegmentState(state + 1)
        if state is DELETED:
            self.ended.append(row)
        else:
            self.unfinished.append((row, state))
        return RemoteLogSegmentMetadataUpdate(row.segment_id, 1, 3_000, None, state)

    def fence(self) -> bool:
        """A new producer begins; False: markers can't be written yet."""
        if not self.fences:
            return True
        if any(not self.partitions[each].has_leader for each in self.open_in):
            return False
        self.epoch += 1
        self.end_transaction(committed=False)
        return True

    def end_transaction(self, *, committed: bool) -> None:
        """Write markers of the present epoch into the open transaction's partitions."""
        for number in sorted(self.open_in):
            partition = self.partitions[number]
            for entry in partition.entries:
                if entry.epoch == self.open_epoch and entry.value is not None:
                    entry.committed = entry.committed or committed
            partition.fenced_below = max(partition.fenced_below, self.epoch)
            partition.append(Entry(None, None, self.epoch))
        self.open_in.clear()

    def deliver(self, number: int, epoch: int, entries: Sequence[Entry]) -> None:
        """A Produce arrives. Fenced: a marker of a newer epoch is there."""
        partition = self.partitions[number]
        if not partition.has_leader:
            raise RetryLater("no leader")
        if epoch < partition.fenced_below:
            self.fenced += 1
            raise Fenced("a newer producer")
        for entry in entries:
            partition.append(entry)


@dataclass(slots=True)
class SimTopic:
    """`ShadowTopic`."""

    world: World
    sessions: int = 0

    async def open(self) -> SimSession:
        await self.world.pause()
        ends = [len(each.entries) for each in self.world.partitions]
        if self.world.reads_before_it_fences:
            await self.world.pause()
        if not self.world.fence():
            raise RetryLater("an earlier transaction can't be ended")
        session = SimSession(self.world, self.world.epoch)
        if self.world.reads_before_it_fences:
            session.ends = ends
        await self.world.pause()
        return session


@dataclass(slots=True)
class SimSession:
    """`TopicSession`."""

    world: World
    epoch: int
    topic_id: Uuid = TOPIC_ID
    partitions: int = PARTITIONS
    ends: list[int] | None = None

    async def extents(self) -> Mapping[int, tuple[int, int]]:
        await self.world.pause()
        ends = self.ends or [len(each.entries) for each in self.world.partitions]
        return {
            at: (0, ends[at]) for at, each in enumerate(self.world.partitions) if each.has_leader
        }

    async def read(self, partition: int, start: int, end: int) -> tuple[Sequence[FoundRecord], int]:
        await self.world.pause()
        if self.world.chance(0.05):
            raise RetryLater("the connection was lost")
        entries = self.world.partitions[partition].entries
        end = min(end, start + 20)
        return [
            FoundRecord(at, entries[at].metadata_offset, entries[at].value)
            for at in range(start, end)
            if entries[at].value is not None
            and (entries[at].committed or not self.world.reads_committed_alone)
        ], end

    async def write(self, rows: Mapping[int, Sequence[ShadowRow]]) -> None:
        world = self.world
        await world.pause()
        if self.epoch < world.epoch:
            raise Fenced("a newer producer")
        world.open_in |= rows.keys()
        world.open_epoch = self.epoch
        for number in world.rng.sample(sorted(rows), len(rows)):
            entries = [Entry(row.offset, row.value, self.epoch) for row in rows[number]]
            await self._append(number, entries)
        await world.pause()
        if self.epoch < world.epoch:
            raise Fenced("a newer producer")
        if world.chance(0.1):
            raise OutcomeUnknown("no answer to EndTxn")
        world.end_transaction(committed=True)
        if world.chance(0.1):
            raise OutcomeUnknown("the answer to EndTxn was lost")

    async def _append(self, number: int, entries: list[Entry]) -> None:
        """The request is on its way while this node may die."""
        request = (number, self.epoch, entries)
        self.world.in_flight.append(request)
        await self.world.pause()
        if request not in self.world.in_flight:
            raise OutcomeUnknown("the answer to Produce was lost")
        if self.world.chance(0.1):
            raise OutcomeUnknown("no answer to Produce")  # it arrives later, or never
        self.world.in_flight.remove(request)
        self.world.deliver(*request)

    async def settle(self) -> bool:
        return False  # its readers need no record behind a marker

    async def close(self) -> None:
        self.ends = None


@dataclass(slots=True)
class Node:
    """`ShadowLog`, and the task of a node that believes that it leads."""

    world: World
    number: int
    applied: int = 0
    cut_off: bool = False
    believes: bool = False
    rows: dict[int, OutboxRow] = field(default_factory=dict)
    state: Shadow = field(default_factory=Shadow)
    known: dict[int, TopicPosition] = field(default_factory=dict)
    writer: ShadowWriter | None = None
    task: Coroutine[Any, Any, None] | None = None

    def apply(self, count: int) -> None:
        """Apply so many entries of the log. The rules are those of `rlmm/apply/shadow.py`."""
        for entry in self.world.log[self.applied : self.applied + count]:
            if isinstance(entry, OutboxRow):
                self.rows[entry.offset] = entry
            else:
                self._apply_report(entry)
            self.applied += 1

    def _apply_report(self, report: ShadowWritten) -> None:
        self.rows = {at: row for at, row in self.rows.items() if at > report.written_up_to}
        self.state = replace(
            self.state,
            topic_id=report.topic_id,
            partitions=report.partitions,
            written_up_to=max(self.state.written_up_to, report.written_up_to),
            incomplete=self.state.incomplete or report.incomplete,
            foreign=self.state.foreign or report.foreign,
        )
        for each in report.positions:
            before = self.known.get(each.partition)
            if before is None or before.next_offset < each.next_offset:
                self.known[each.partition] = each

    def shadow(self) -> Shadow | None:
        return replace(self.state, rows=len(self.rows))

    def positions(self) -> Iterable[TopicPosition]:
        return list(self.known.values())

    def outbox(self) -> Iterator[OutboxRow]:
        return iter([self.rows[at] for at in sorted(self.rows)])

    def outbox_value(self, offset: int) -> bytes | None:
        row = self.rows.get(offset)
        return None if row is None else row.value

    def applied_offset(self) -> int:
        return self.applied - 1

    async def catch_up(self) -> None:
        await self.world.pause()
        if self.cut_off:
            raise RetryLater("no quorum")
        self.apply(len(self.world.log))

    async def report(self, report: ShadowWritten) -> None:
        await self.world.pause()
        if self.cut_off:
            raise RetryLater("no quorum")
        self.world.log.append(report)
        if self.world.chance(0.1):
            raise OutcomeUnknown("no answer")
        self.apply(len(self.world.log))

    def start(self) -> None:
        """Begin to work as the leader's node."""
        self.believes = True
        self.writer = ShadowWriter(
            SimTopic(self.world), self, partition_of, lambda: 0.0,
            limits=TransactionLimits(rows_max=5, looked_at_max=12),
        )  # fmt: skip
        self.task = self._work(self.writer)

    async def _work(self, writer: ShadowWriter) -> None:
        while self.believes:
            with suppress(StrandlineError):
                if self.world.rng.random() < 0.3:
                    await writer.look()
                else:
                    await writer.step()
            await self.world.pause()
        await writer.close()

    def die(self, lost: int) -> None:
        """Lose the process, and the last of what was applied."""
        task, self.task, self.writer = self.task, None, None
        if task is not None:
            task.close()
        self.believes = False
        keep = max(0, self.applied - lost)
        self.applied, self.rows, self.state, self.known = 0, {}, Shadow(), {}
        self.apply(keep)


def run(world: World, *, steps: int = 900) -> World:
    """Let the world go for so many steps, then heal it and let the leader's node end its work."""
    world.nodes = [Node(world, number) for number in range(NODES)]
    try:
        for _ in range(steps):
            _happens(world)
            _go_on(world)
        _heal(world)
        for _ in range(steps):
            for node in world.nodes:
                node.apply(2)
            _go_on(world)
    finally:
        for node in world.nodes:
            node.die(0)
    return world


def _heal(world: World) -> None:
    world.calm = True
    for node in world.nodes:
        node.believes = node.cut_off = False
    for partition in world.partitions:
        partition.has_leader = True
    world.in_flight.clear()
    last = world.nodes[world.leader]
    last.die(0)
    last.start()


def _happens(world: World) -> None:
    rng = world.rng
    node = rng.choice(world.nodes)
    if rng.random() < 0.25 and len(world.log) < 10 * ROWS and world.segments < ROWS:
        world.accept()
    if not node.cut_off:
        node.apply(rng.randrange(4))
    what = rng.random()
    if what < 0.02:
        world.leader = rng.randrange(NODES)  # the earlier one does not know yet
    elif what < 0.04:
        node.die(rng.randrange(3))
    elif what < 0.06:
        node.cut_off = not node.cut_off
    elif what < 0.08:
        partition = rng.choice(world.partitions)
        partition.has_leader = not partition.has_leader
    elif what < 0.12 and node.number != world.leader:
        node.believes = False
    elif what < 0.25 and world.in_flight:
        late = world.in_flight.pop(rng.randrange(len(world.in_flight)))
        with suppress(StrandlineError):
            world.deliver(*late)


def _go_on(world: World) -> None:
    leader = world.nodes[world.leader]
    if leader.task is None and not leader.cut_off:
        leader.start()
    able = [node for node in world.nodes if node.task is not None]
    if not able:
        return
    node = world.rng.choice(able)
    assert node.task is not None
    try:
        node.task.send(None)
    except StopIteration:
        node.task = node.writer = None
