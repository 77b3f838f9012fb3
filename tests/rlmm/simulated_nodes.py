"""Nodes that write into the metadata state of a simulated partition, honest and zombie alike.

Every node acts on its own, older copy of the rows; a node that lost its leadership goes on with its
old token; answers get lost, records come late and twice. `StateAuditor` looks at the state, and at
the objects in the store, after every event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from random import Random

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import entries_in_range
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply import purge as apply_purge
from rlmm.apply.outcome import Verdict
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import (
    ClaimReset,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    TimePassed,
)
from rlmm.records.records import MetadataRecord
from rlmm.rows import queries
from rlmm.rows.reads import read_measured_time, read_totals
from rlmm.rows.rows import MemoryRows
from rlmm.segment import (
    Incarnation,
    PartitionDeleteState,
    RemoteLogSegmentMetadata,
    RemotePartitionDeleteMetadata,
    SegmentState,
)
from tests.rlmm.recomputed_state import number_of
from tests.rlmm.simulated_partition import Replica, SimulatedPartition
from tests.rlmm.state_auditor import StateAuditor
from tests.rlmm.state_world import World
from tests.rlmm.tombstones import is_segment_tombstone

COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED
DONE = (Verdict.ACCEPTED, Verdict.NO_EFFECT)
OTHER_MODES = (Mode.PAUSED, Mode.READ_ONLY, Mode.DELEGATED, Mode.DELEGATED)
GRACES_MS = (0, 0, 7_200_000)
LATE_RECORDS_MAX = 20
REPEATED_RECORDS_MAX = 60


@dataclass
class Node:
    """`view` is what it last saw of the rows."""

    replica: Replica
    incarnation: Incarnation
    token: int = -1
    claims: int = 0
    view: MemoryRows = field(default_factory=MemoryRows)


class Simulation:
    """One seed. `run` raises AssertionError with the invariant's name in its message."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.graces = Random(seed)
        self.borders = Random(f"borders of {seed}")
        self.world = World()
        self.objects: set[int] = set()
        self.auditor = StateAuditor(self.world, self.objects, Random(seed))
        self.kafka = SimulatedPartition(self.random)
        self.nodes = [
            Node(replica, Incarnation(replica.node_id, Uuid(bytes((replica.node_id,)) * 16), 1))
            for replica in self.kafka.replicas
        ]
        self.segments = 0
        self.topics = 0
        self.late: list[MetadataRecord] = []
        self.sent: list[tuple[int, MetadataRecord]] = []
        self.seen: set[str] = set()

    def run(self, steps: int) -> None:
        often = self.random.choice
        actions: list[tuple[int, Callable[[], None]]] = [
            (8, self.kafka_appends),
            (often((2, 5, 8)), self.kafka_replicates),
            (often((1, 3, 6)), self.kafka_elects),
            (often((1, 3)), self.kafka_retains),
            (2, self.claim),
            (1, self.reboot),
            (8, self.add),
            (12, self.finish),
            (often((4, 12)), self.delete),
            (often((2, 6)), self.finish_delete),
            (2, self.collect),
            (often((2, 5)), self.log_start),
            (5, self.lost_range),
            (4, self.repeat),
            (4, self.arrive_late),
            (2, self.admin),
        ]
        weights = [weight for weight, _ in actions]
        for action in self.random.choices([each for _, each in actions], weights, k=steps):
            self.pass_time()
            action()
            self.end_standstill()
            self.auditor.check_objects()
        self.auditor.check_replay()

    # ---- the metadata log

    def send(self, record: MetadataRecord) -> Verdict | None:
        """What the node hears: nothing when the record is late or the answer is lost."""
        if self.chance(0.1):
            self.late = [*self.late, record][-LATE_RECORDS_MAX:]
            return None
        verdict = self.commit(record)
        return None if self.chance(0.1) else verdict

    def commit(self, record: MetadataRecord) -> Verdict:
        self.sent = [*self.sent, (self.world.time_ms, record)][-REPEATED_RECORDS_MAX:]
        verdict = self.auditor.put(record)
        self.seen.add(f"{type(record).__name__} {verdict.name}")
        return verdict

    def arrive_late(self) -> None:
        if self.late:
            self.commit(self.late.pop(self.random.randrange(len(self.late))))

    def repeat(self) -> None:
        """No record is repeated for as long as tombstones are kept."""
        oldest = self.world.time_ms - apply_purge.TOMBSTONE_KEPT_MS // 4
        found = [record for time_ms, record in self.sent if time_ms >= oldest]
        if self.chance(0.5):
            found = [each for each in found if isinstance(each, RemoteLogSegmentMetadata)]
        if found:
            self.auditor.put(self.random.choice(found))

    def pass_time(self) -> None:
        """Sometimes a quorum leader's clock is wrong by weeks, for one record."""
        self.world.time_ms += self.random.choice((0, 60_000, 1_200_000))
        if self.graces.random() < 0.5:
            self.let_time_pass(0)
        self.auditor.wrong_clock_ms = 10**9 if self.chance(0.003) else 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # ---- the brokers

    def kafka_appends(self) -> None:
        self.kafka.append()

    def kafka_replicates(self) -> None:
        self.kafka.replicate()

    def kafka_elects(self) -> None:
        """Sometimes the leader comes back without the last record of a copy that is under way, or
        with that one as its last, and claims: borders that a random cut hardly ever hits.
        """
        leader = self.kafka.leader
        found = (
            []
            if self.borders.random() > 0.3
            else [
                each
                for each in queries.list_segments(self.world.rows, self.world.partition)
                if each.state is COPY_STARTED
                and leader.local_start < each.end_offset < len(leader.log)
            ]
        )
        if not found:
            self.kafka.elect()
            return
        self.kafka.come_back(self.borders.choice(found).end_offset + self.borders.randrange(2))
        if self.borders.randrange(2):
            self.claim_as(next(each for each in self.nodes if each.replica is leader))

    def kafka_retains(self) -> None:
        self.kafka.retain()

    # ---- nodes

    def writer(self) -> Node:
        """Mostly who leads, sometimes a zombie; the world's short ways write as this node."""
        node = self.random.choice(self.nodes)
        if self.chance(0.8):
            node = next(each for each in self.nodes if each.replica is self.kafka.leader)
        if self.chance(0.7):
            self.refresh(node)
        if node.replica is self.kafka.leader and self.chance(0.5):
            self.take_over(node)
        self.world.token, self.world.node = node.token, node.incarnation
        return node

    def take_over(self, node: Node) -> None:
        """Who leads claims first, and says where the log begins."""
        state = self.state_for(node)
        if state is None or state.claim is None or state.claim.token != node.token:
            self.claim_as(node)
        elif state.next_offset < 0:
            self.log_start_of(node, state)

    def refresh(self, node: Node) -> None:
        node.view = MemoryRows(self.world.rows.items())

    def state_for(self, node: Node) -> PartitionState | None:
        return queries.partition_state(node.view, self.world.partition)

    def claim(self) -> None:
        self.claim_as(self.writer())

    def claim_as(self, node: Node) -> None:
        checkpoint = node.replica.checkpoint()
        state = queries.partition_state(self.world.rows, self.world.partition)
        mode = Mode.SIDECAR if state is None else state.mode
        if not checkpoint:
            return
        node.claims += 1
        record = PartitionClaim(
            self.world.partition,
            mode,
            checkpoint[-1].epoch,
            node.incarnation,
            node.claims,
            checkpoint,
            node.replica.local_start,
        )
        if self.send(record) in DONE:
            self.auditor.claimed_by(node.replica)
            self.refresh(node)
            state = self.state_for(node)
            assert state is not None
            if state.claim is not None and state.claim.incarnation == node.incarnation:
                node.token = state.claim.token

    def reboot(self) -> None:
        node = self.random.choice(self.nodes)
        counter = node.incarnation.boot_counter + 1
        node.incarnation = replace(node.incarnation, boot_counter=counter)
        node.claims = 0
        node.token = -1

    def add(self) -> None:
        node = self.writer()
        state = self.state_for(node)
        if state is None:
            return
        low, high = node.replica.local_start, len(node.replica.log) - 1
        first = max(state.next_offset, 0) + self.random.choice((0, 0, 0, 0, 1, 3))
        if self.chance(0.3) and state.lost_ranges:
            first = self.random.choice(state.lost_ranges).start
        start = max(low, first - self.random.choice((0, 0, 2, 7)))
        end = min(high, max(first, start) + self.random.choice((0, 3, 8, 15)))
        found = entries_in_range(node.replica.checkpoint(), start, end + 1)
        if end < start or not found:
            return
        if start == low and self.chance(0.3):
            start = max(0, start - 5)  # the log start lies inside the broker's first segment
        self.segments += 1
        self.auditor.contents[self.segments] = dict(enumerate(node.replica.log[: end + 1]))
        self.send(self.world.an_add(self.segments, start, end, found))

    def pick(self, node: Node, *states: SegmentState) -> RemoteLogSegmentMetadata | None:
        segments = list(queries.list_segments(node.view, self.world.partition))
        found = [each for each in segments if each.state in states]
        return self.random.choice(found) if found else None

    def finish(self) -> None:
        """The upload ends, however old the node's word for it is."""
        node = self.writer()
        segment = self.pick(node, COPY_STARTED)
        if segment is None:
            return
        if self.chance(0.1):
            self.kafka.elect()  # during the upload
        number = number_of(segment)
        self.objects.add(number)
        if self.send(self.world.a_finish(number)) is None:
            self.after_lost_answer(number)

    def after_lost_answer(self, number: int) -> None:
        """The row will say what became of the copy; or a watchdog gives the attempt up."""
        if self.chance(0.7):
            record = self.world.a_delete(number, COPY_STARTED)
            if self.send(record) in DONE:
                self.objects.discard(number)

    def delete(self) -> None:
        node = self.writer()
        segment = self.pick(node, COPY_STARTED, COPY_FINISHED)
        if segment is not None:
            self.delete_one(segment)

    def delete_one(self, segment: RemoteLogSegmentMetadata) -> None:
        number = number_of(segment)
        self.before_delete(number)
        if self.send(self.world.a_delete(number, segment.state)) in DONE and self.chance(0.5):
            self.objects.discard(number)

    def before_delete(self, number: int) -> None:
        """Nothing: objects go after DELETE_SEGMENT_STARTED is committed."""

    def finish_delete(self) -> None:
        node = self.writer()
        segment = self.pick(node, DELETE_STARTED)
        if segment is not None:
            number = number_of(segment)
            self.objects.discard(number)
            self.send(self.world.a_delete_finish(number))

    def collect(self) -> None:
        """Orphans: the log knows their ids as tombstones, after a barrier."""
        for number in sorted(self.objects):
            if is_segment_tombstone(self.world.rows, Uuid(number.to_bytes(16, "big"))):
                self.objects.discard(number)

    def log_start(self) -> None:
        node = self.writer()
        state = self.state_for(node)
        if state is not None:
            self.log_start_of(node, state)

    def log_start_of(self, node: Node, state: PartitionState) -> None:
        offset = state.log_start_offset + self.random.choice((-3, 1, 5, 20))
        if self.chance(0.2):
            offset = state.next_offset
        if state.log_start_offset < 0:
            offset = node.replica.local_start
        holding = [entry.epoch for entry in state.lineage if entry.start_offset <= offset]
        epoch = holding[-1] if holding else state.lineage[0].epoch if state.lineage else 0
        self.send(self.world.a_log_start(offset, epoch))

    def lost_range(self) -> None:
        node = self.writer()
        state = self.state_for(node)
        if state is not None and node.replica.local_start > state.next_offset:
            start, end = state.next_offset, node.replica.local_start - 1
            if self.chance(0.1):
                start += self.random.choice((-2, 1))
            self.send(self.world.a_lost_range(start, end))

    # ---- admins

    def admin(self) -> None:
        state = queries.partition_state(self.world.rows, self.world.partition)
        if state is None:
            return
        claim = state.claim or state.voided_claim
        mode = self.random.choice(OTHER_MODES)
        deeds: list[MetadataRecord] = [
            PartitionModeChange(self.world.partition, mode, state.mode_offset),
            self.world.a_step(
                PartitionDeleteState.DELETE_PARTITION_MARKED,
                grace_ms=self.graces.choice(GRACES_MS),
            ),
        ]
        if claim is not None:
            cut_at = (None, 0, max(0, state.next_offset - 5))[claim.token % 3]
            deeds.append(ClaimReset(self.world.partition, claim.token, cut_at))
        self.send(self.random.choice(deeds))

    def end_standstill(self) -> None:
        """A marked or paused partition is one again soon, or goes for good."""
        state = queries.partition_state(self.world.rows, self.world.partition)
        if state is None:
            if read_totals(self.world.rows).partitions == 0 and self.auditor.known:
                self.recreate()
            return
        if state.delete_state is not None:
            self.go_on_deleting(state)
        elif self.chance({Mode.SIDECAR: 0, Mode.DELEGATED: 0.05}.get(state.mode, 0.3)):
            self.send(PartitionModeChange(self.world.partition, Mode.SIDECAR, state.mode_offset))

    def go_on_deleting(self, state: PartitionState) -> None:
        partition = self.world.partition
        if state.delete_state is PartitionDeleteState.DELETE_PARTITION_MARKED:
            if self.chance(0.2):
                self.send(PartitionDeleteUndo(partition, state.delete_offset))
                self.a_step_arrives_late()
            elif self.chance(0.1):
                self.send(self.world.a_step(PartitionDeleteState.DELETE_PARTITION_STARTED))
            elif self.graces.random() < 0.3:
                self.let_time_pass(state.delete_grace_ms)
            return
        self.end_segments(queries.list_segments(self.world.rows, partition))
        if self.chance(0.3):
            self.send(self.world.a_step(PartitionDeleteState.DELETE_PARTITION_FINISHED))

    def let_time_pass(self, ms: int) -> None:
        """The nodes measure it."""
        for _ in range(1 + -(-ms // TIME_STEP_MS_MAX)):
            since = read_measured_time(self.world.rows).offset
            self.commit(TimePassed(since, TIME_STEP_MS_MAX))

    def a_step_arrives_late(self) -> None:
        """Of a mark that may be undone by now: nobody heard what became of it."""
        steps = [each for _, each in self.sent if isinstance(each, RemotePartitionDeleteMetadata)]
        if steps and self.graces.random() < 0.5:
            self.commit(self.graces.choice(steps))

    def end_segments(self, segments: Iterable[RemoteLogSegmentMetadata]) -> None:
        """Any node's work, without a token."""
        for segment in list(segments)[:3]:
            if segment.state is not DELETE_STARTED:
                self.delete_one(segment)
            else:
                self.objects.discard(number_of(segment))
                self.send(self.world.a_delete_finish(number_of(segment)))

    def recreate(self) -> None:
        """A topic of the same name, with another topic id."""
        self.topics += 1
        topic_id = Uuid(self.topics.to_bytes(16, "big"))
        self.world.partition = TopicIdPartition("orders", topic_id, 3)
        self.auditor.recreated()
        self.kafka = SimulatedPartition(self.random)
        for node, replica in zip(self.nodes, self.kafka.replicas, strict=True):
            node.replica, node.token = replica, -1
