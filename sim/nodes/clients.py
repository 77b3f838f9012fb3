"""Clients of nodes, and checks that each answer is true.

Every call runs in the node's own life: when that ends, its caller hears nothing and the outcome is
unknown. It is resolved by reading the row by its id.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import Conflict, Fenced, InvalidRequest, OutcomeUnknown, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.apply.outcome import Verdict
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import FeatureLevel, NodeSilence, PartitionClaim
from rlmm.records.records import MetadataRecord, encode
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from sim.nodes.brokers import Partition, a_policy, an_admin_deed, an_update
from sim.nodes.log_copy import StoredBytes
from sim.nodes.reference import Reference

if TYPE_CHECKING:
    from sim.nodes.machine import Machine, Process
    from sim.nodes.world import World

COPY_STARTED = SegmentState.COPY_SEGMENT_STARTED
COPY_FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETE_STARTED = SegmentState.DELETE_SEGMENT_STARTED
DELETE_FINISHED = SegmentState.DELETE_SEGMENT_FINISHED
DONE = (Verdict.ACCEPTED, Verdict.NO_EFFECT)
REPEATED_MAX = 40
OPEN_MAX = 40
LEVEL_RAISED = 2


@dataclass(eq=False)
class Call:
    """A call of a client; `value` is the record that it wants in the log."""

    process: Process
    record: MetadataRecord
    value: bytes


class Clients:
    """Clients that ask for something now and then, from `begin` on while `on`."""

    def __init__(self, world: World) -> None:
        self._world = world
        random = world.random
        self.on = True
        self.quiet = False
        """True while nobody proposes anything by himself."""
        self.calls = self.done = self.refused = self.unknown = self.later = self.reads = 0
        self._numbers = 0
        self._open: dict[Call, None] = {}
        self._tokens: dict[tuple[Process, TopicIdPartition], int] = {}
        self._in_doubt: list[Call] = []
        self._sent: list[MetadataRecord] = []
        self._uses: dict[bytes, int] = {}
        self._never: set[bytes] = set()
        self._period_ms = random.choice((2, 10, 40))
        self._bursts = Random(f"bursts of {world.seed}")
        self._burst_max = self._bursts.choice((0, 15, 40))
        self._late_words = Random(f"late words of {world.seed}")
        self._deadline_s = random.choice((0.2, 1.0, 3.0))
        self.partitions = [
            Partition(TopicIdPartition(f"t{at}", Uuid(b"topic-%010d" % at), at))
            for at in range(random.choice((1, 2, 3)))
        ]

    def begin(self) -> None:
        if self.on:
            if not self.quiet:
                self._act()
            delay_ms = 1 + self._world.random.randrange(2 * self._period_ms)
            self._world.schedule.after(delay_ms, self.begin)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _act(self) -> None:
        world, random = self._world, self._world.random
        partition = random.choice(self.partitions)
        draw = random.randrange(100)
        if draw < 12:
            partition.grow(random)
        elif draw < 15:
            partition.elect(random, [machine.key.node_id for machine in world.machines])
        process = self._writer(partition)
        if process is None or process.life.paused or len(self._open) >= OPEN_MAX:
            return
        self._late_word(process)
        if draw < 70:
            record = self._next_record(process, partition, draw)
            if record is not None:
                self.propose(process, record)
                self._burst(process, partition)
        elif draw < 80:
            self._policy(process)
        elif draw < 95:
            self.read(process)
        elif (
            draw == 95
            and "feature_level" in world.faults.kinds
            and world.auditor.reference.level == 1
        ):
            self.propose(process, FeatureLevel(LEVEL_RAISED, -1))
        else:
            self._resolve(process)

    def _writer(self, partition: Partition) -> Process | None:
        """A process to write through: mostly the leader's node, sometimes any."""
        machines = [machine for machine in self._world.machines if machine.up is not None]
        leading = [m for m in machines if m.key.node_id == partition.leader]
        if leading and self._world.random.randrange(5):
            machines = leading
        return self._world.random.choice(machines).up if machines else None

    # ---- what a node would propose next

    def _next_record(
        self, process: Process, partition: Partition, draw: int
    ) -> MetadataRecord | None:
        random, manager = self._world.random, process.manager
        assert manager is not None
        if self._sent and random.randrange(25) == 0:
            return random.choice(self._sent)
        state = manager.partition_state(partition.tip)
        token = self._tokens.get((process, partition.tip))
        if state is None or token is None:
            mode = Mode.SIDECAR if state is None else state.mode
            return partition.a_claim(process.incarnation, self._number(), mode)
        if random.randrange(25) == 0 or state.delete_state is not None:
            return self._admin(manager, process, state)
        if state.log_start_offset < 0 or draw < 20:
            return partition.a_log_start(token, state, random)
        if draw < 25:
            return partition.a_lost_range(token, state)
        segments = list(manager.list_remote_log_segments(partition.tip))
        if draw < 45 or not segments:
            return partition.an_add(process.incarnation, token, self._number(), state, random)
        return self._update(process, token, random.choice(segments))

    def _burst(self, process: Process, partition: Partition) -> None:
        """Start several segments in one turn with the last proposal, so that they share a batch."""
        manager, draw = process.manager, self._bursts
        token = self._tokens.get((process, partition.tip))
        if not self._burst_max or token is None or draw.randrange(4):
            return
        assert manager is not None
        state = manager.partition_state(partition.tip)
        for _ in range(draw.randrange(self._burst_max)):
            if state is not None:
                add = partition.an_add(process.incarnation, token, self._number(), state, draw)
                if add is not None:
                    self.propose(process, add)

    def _update(
        self, process: Process, token: int, segment: RemoteLogSegmentMetadata
    ) -> MetadataRecord:
        to = DELETE_FINISHED
        if segment.state is COPY_STARTED:
            to = self._world.random.choice((COPY_FINISHED, COPY_FINISHED, DELETE_STARTED))
        elif segment.state is COPY_FINISHED:
            to = DELETE_STARTED
        return an_update(segment, to, process.incarnation, token)

    def _admin(
        self, manager: RemoteLogMetadataManager, process: Process, state: PartitionState
    ) -> MetadataRecord | None:
        segments = list(manager.list_remote_log_segments(state.partition))
        if state.delete_state is not None and segments:
            return self._update(process, -1, self._world.random.choice(segments))
        return an_admin_deed(state, self._world.random)

    def _late_word(self, process: Process) -> None:
        """The judgement of an earlier leader arrives, about somebody who may live."""
        if self._world.auditor.liveness.on and self._late_words.randrange(40) == 0:
            assert process.manager is not None
            assert process.view is not None
            epoch = process.view.applied_epoch - 1  # nobody appends in it any more
            for node in process.manager.registered_nodes()[-1:]:
                self.propose(process, NodeSilence(node.node_id, node.boot_offset, epoch, True))

    def _policy(self, process: Process) -> None:
        topic = self._world.random.choice(self.partitions).tip.topic
        assert process.manager is not None
        policy = process.manager.topic_policy(topic)
        self.propose(process, a_policy(topic, self._number(), policy.offset))

    def pour(self, process: Process, count: int) -> None:
        """Have a node propose so many records at once."""
        for _ in range(count):
            self._policy(process)

    # ---- writes and their outcomes

    def propose(self, process: Process, record: MetadataRecord) -> None:
        call = Call(process, record, encode(record).value)
        self.calls += 1
        self._sent = [*self._sent, record][-REPEATED_MAX:]
        self._uses[call.value] = self._uses.get(call.value, 0) + 1
        self._never.discard(call.value)
        self._open[call] = None
        self._world.asked(process)
        self._world.loop.spawn(process.life, self._write(call))

    async def _write(self, call: Call) -> None:
        manager = call.process.manager
        assert manager is not None
        record, auditor = call.record, self._world.auditor
        try:
            if isinstance(record, PartitionClaim):
                answer = await manager.claim_partition(record, deadline_s=self._deadline_s)
                self._tokens[call.process, record.partition] = offset = answer.token
            else:
                offset = await manager._write(record, self._deadline_s)
        except (Conflict, Fenced, InvalidRequest):
            self._ended(call)
            self.refused += 1
            offsets = self._offsets_of(call.value)
            auditor.check(
                any(auditor.reference.verdicts[each] not in DONE for each in offsets),
                "outcome_is_true",
                f"{record} was refused, the log has it at {offsets}",
            )
        except OutcomeUnknown:
            self._ended(call)
            self._doubted(call)
        except RetryLater:
            self._ended(call)
            self.later += 1
            # Repeated elsewhere with the same bytes, it may be there through that; the leader of
            # the epoch may have said the same of a silent node.
            if self._uses[call.value] == 1 and not isinstance(call.record, NodeSilence):
                self._never.add(call.value)
                auditor.check(
                    not self._offsets_of(call.value),
                    "retry_later_appended_nothing",
                    f"{record} was told not to be appended and is committed",
                )
        else:
            self._ended(call)
            self._succeeded(call, offset)

    def _succeeded(self, call: Call, offset: int) -> None:
        self.done += 1
        auditor, view = self._world.auditor, call.process.view
        reference = auditor.reference
        auditor.check(
            reference.values.get(offset) == call.value and reference.verdicts[offset] in DONE,
            "acknowledged_is_durable",
            f"{call.record} was acknowledged at {offset}, there is "
            f"{reference.verdicts.get(offset)} {reference.values.get(offset)!r}",
        )
        assert view is not None
        auditor.check(
            view.applied_offset >= offset,
            "read_your_writes",
            f"{call.record} at {offset} is told before it is applied ({view.applied_offset})",
        )
        auditor.acknowledged(offset + 1)

    def _offsets_of(self, value: bytes) -> list[int]:
        return self._world.auditor.reference.offsets.get(value, [])

    def _ended(self, call: Call) -> None:
        self._open.pop(call, None)

    def _doubted(self, call: Call) -> None:
        self.unknown += 1
        self._in_doubt.append(call)

    def died(self, process: Process) -> None:
        """Put the calls of a dead process in doubt: their callers hear nothing."""
        for call in [each for each in self._open if each.process is process]:
            self._ended(call)
            self._doubted(call)

    def committed_values(self, reference: Reference, batch: StoredBytes) -> None:
        """Check that no newly committed record was refused with "not appended"."""
        for offset in range(batch.base_offset, batch.end_offset):
            found = reference.values.get(offset)
            self._world.auditor.check(
                found not in self._never,
                "retry_later_appended_nothing",
                f"what is committed at {offset} was told not to be appended",
            )

    # ---- reads

    def read(self, process: Process) -> None:
        """Read, and check that it has what anybody was told before it began."""
        self._world.asked(process)
        told_before = self._world.auditor.acknowledged_end
        self._world.loop.spawn(process.life, self._read(process, told_before))

    async def _read(self, process: Process, told_before: int) -> bool:
        manager, log, view = process.manager, process.log, process.view
        assert manager is not None
        assert log is not None
        assert view is not None
        try:
            end = await log.barrier(deadline_s=self._deadline_s)
            await manager.wait_for_offset(end - 1, deadline_s=self._deadline_s)
        except RetryLater:
            return False
        self.reads += 1
        self._world.auditor.check(
            end >= told_before and view.applied_offset >= told_before - 1,
            "linearizable_reads",
            f"a read at {view.applied_offset} behind the barrier {end} misses what was "
            f"acknowledged up to {told_before}",
        )
        return True

    def _resolve(self, process: Process) -> None:
        """Ask for the outcome of a record in doubt."""
        if self._in_doubt:
            call = self._in_doubt.pop(self._world.random.randrange(len(self._in_doubt)))
            self._world.loop.spawn(process.life, self._look_up(process, call))

    async def _look_up(self, process: Process, call: Call) -> None:
        """Look for a row with the record's token or id, which proves that it was accepted."""
        told_before = self._world.auditor.acknowledged_end
        if not await self._read(process, told_before):
            self._in_doubt.append(call)
            return
        record, manager = call.record, process.manager
        assert manager is not None
        found = False
        if isinstance(record, PartitionClaim):
            state = manager.partition_state(record.partition)
            claim = None if state is None else state.claim
            found = claim is not None and (claim.incarnation, claim.claim_number) == (
                record.incarnation,
                record.claim_number,
            )
            if found and claim is not None and call.process is process:
                self._tokens[process, record.partition] = claim.token
        elif isinstance(record, RemoteLogSegmentMetadata):
            found = manager.find_segment(record.segment_id.id) is not None
        if found:
            verdicts = self._world.auditor.reference.verdicts
            offsets = self._offsets_of(call.value)
            self._world.auditor.check(
                any(verdicts[each] in DONE for each in offsets),
                "outcome_is_true",
                f"{record} has a row and was never accepted ({offsets})",
            )

    # ---- after healing

    def prove_alive(self, machine: Machine) -> None:
        """Write and read once through this node; `World` checks that both succeed."""
        process = machine.up
        if process is not None:
            topic = f"healed-{self._number()}"
            self._world.loop.spawn(process.life, self._prove(process, topic))

    async def _prove(self, process: Process, topic: str) -> None:
        manager = process.manager
        assert manager is not None
        record = a_policy(topic, self._number(), -1)
        call = Call(process, record, encode(record).value)
        self._uses[call.value] = 1
        told_before = self._world.auditor.acknowledged_end
        try:
            offset = await manager.set_topic_policy(record, deadline_s=self._deadline_s)
        except (RetryLater, OutcomeUnknown):
            return
        self._succeeded(call, offset)
        if await self._read(process, told_before):
            process.proven = True
