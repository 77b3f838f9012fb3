"""Administrators: retention policies, deletion of tiered data and its undo, garbage collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.gap_rule import Offsets, overlaps
from rlm.reconcile.collector import CollectionRequest
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import OffsetsSkipped, PartitionDeleteUndo, TopicPolicyChange
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata
from sim.tier.other_replicas import file_of

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.partition import Partition
    from sim.tier.replica import Replica
    from sim.tier.world import World

KINDS = ("retention_ms", "retention_bytes", "switches", "collect", "undo")
PERIOD_MS = 20_000
GRACE_MS = 15_000
DEADLINE_S = 10.0
EVERYTHING = 1_000_000
SKIPPED = "skipped: on no disk, or nothing proves its place"
MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED


class Admins:
    """Administrators who act while `on`. `kinds` None: the seed draws them."""

    def __init__(self, world: World, kinds: frozenset[str] | None) -> None:
        self._world = world
        random = world.random
        if kinds is None:
            kinds = frozenset(kind for kind in KINDS if random.randrange(100) < 40)
        self.kinds = kinds
        self.on = True

    def begin(self) -> None:
        if not self.on:
            return
        random = self._world.random
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups:
            self._act(random.choice(ups))
        self._world.schedule.after(1 + random.randrange(2 * PERIOD_MS), self.begin)

    def _act(self, process: Process) -> None:
        world, random = self._world, self._world.random
        for partition in world.brokers.deleted:
            self.delete(process, partition.tip)
        kind = random.choice(sorted(self.kinds)) if self.kinds else ""
        topic = random.choice(world.brokers.partitions).tip.topic
        if kind == "collect":
            self.collect(process, accept=random.choice((0, EVERYTHING)))
        elif kind == "undo":
            self._spawn(process, partial(self._undo, process))
        elif kind:
            policy = TopicPolicy(
                retention_ms=random.choice((20_000, 120_000, 600_000))
                if "retention_ms" in self.kinds
                else -1,
                retention_bytes=random.choice((300, 3_000)) if kind == "retention_bytes" else -1,
                copy_paused=kind == "switches" and not random.randrange(3),
                delete_paused=kind == "switches" and not random.randrange(3),
            )
            self.set_policy(process, topic, policy)

    def heal(self, process: Process) -> None:
        """Lift the kill switches and the retention; mark what is left of deleted topics; skip what
        is on no replica's disk.
        """
        for topic in sorted({each.tip.topic for each in self._world.brokers.partitions}):
            self.set_policy(process, topic, TopicPolicy())
        for partition in self._world.brokers.deleted:
            self.delete(process, partition.tip)
        for partition in self._world.brokers.partitions:
            leader = self._world.machine(partition.leader).up
            damage = leader and leader.remote_log and leader.remote_log.damage_of(partition.tip)
            replicas = self._replicas(partition)
            gone = [each for each in damage.missing if not _has(replicas, each)] if damage else []
            if leader and gone:
                self._spawn(leader, partial(self._skip, leader, partition.tip, gone))

    def _replicas(self, partition: Partition) -> list[Replica]:
        """The replicas whose broker did not go for good."""
        machine = self._world.machine
        return [each for id_, each in partition.replicas.items() if not machine(id_).is_gone]

    async def _skip(
        self, process: Process, tip: TopicIdPartition, missing: Sequence[Offsets]
    ) -> None:
        manager = _manager(process)
        state = manager.partition_state(tip)
        if state is None or state.claim is None:
            return
        for first, last in missing:
            skipped = OffsetsSkipped(tip, state.claim.token, first, last, SKIPPED)
            await manager.skip_offsets(skipped, deadline_s=DEADLINE_S)
        assert process.remote_log is not None
        process.remote_log.try_again(tip)

    def set_policy(self, process: Process, topic: str, policy: TopicPolicy) -> None:
        self._spawn(process, partial(self._set_policy, process, topic, policy))

    def follow(self, process: Process, topic: str, *, follow: bool) -> None:
        """Follow DeleteRecords on the broker from now on, or stop doing so."""
        self._spawn(process, partial(self._follow, process, topic, follow))

    def delete(self, process: Process, tip: TopicIdPartition) -> None:
        """Mark a partition's data for deletion, if it is not marked."""
        self._spawn(process, partial(self._delete, process, tip))

    def collect(self, process: Process, *, accept: int) -> None:
        """Run a pass of the collector on that node."""
        collector = process.collector
        assert collector is not None

        async def start() -> None:
            collector.start(CollectionRequest(apply=True, accept_objects=accept), "an admin")

        self._spawn(process, start)

    def _spawn(self, process: Process, deed: Callable[[], Awaitable[None]]) -> None:
        async def quietly() -> None:
            try:
                await deed()
            except StrandlineError as error:
                self._world.note(f"an admin is told {type(error).__name__}")

        self._world.loop.spawn(process.life, quietly())

    async def _set_policy(self, process: Process, topic: str, policy: TopicPolicy) -> None:
        manager = _manager(process)
        before = manager.topic_policy(topic)
        policy = replace(policy, follow_delete_records=self._followed(topic, before))
        if (policy.retention_ms, policy.retention_bytes, policy.copy_paused,
            policy.delete_paused) == (before.retention_ms, before.retention_bytes,
            before.copy_paused, before.delete_paused):  # fmt: skip
            return
        change = TopicPolicyChange(topic, policy, before.offset)
        await manager.set_topic_policy(change, deadline_s=DEADLINE_S)

    async def _follow(self, process: Process, topic: str, follow: bool) -> None:
        manager = _manager(process)
        before = manager.topic_policy(topic)
        policy = replace(
            before.counts_for(self._topic_id(topic)),
            topic_id=self._topic_id(topic),
            follow_delete_records=follow,
        )
        change = TopicPolicyChange(topic, policy, before.offset)
        await manager.set_topic_policy(change, deadline_s=DEADLINE_S)

    def _followed(self, topic: str, policy: TopicPolicy) -> bool:
        """The policy's present `follow_delete_records`, which a new retention keeps."""
        return policy.counts_for(self._topic_id(topic)).follow_delete_records

    def _topic_id(self, topic: str) -> Uuid:
        """Id of the living topic of that name."""
        partition = self._world.brokers.named((topic, 0))
        assert partition is not None
        return partition.tip.topic_id

    async def _delete(self, process: Process, tip: TopicIdPartition) -> None:
        state = _manager(process).partition_state(tip)
        if state is None or state.delete_state is not None:
            return
        await _manager(process).put_remote_partition_delete_metadata(
            RemotePartitionDeleteMetadata(
                tip, process.machine.node_id, process.machine.now_ms(), MARKED,
                replaces_offset=state.delete_offset, grace_ms=GRACE_MS,
            ),
            deadline_s=DEADLINE_S,
        )  # fmt: skip

    async def _undo(self, process: Process) -> None:
        manager = _manager(process)
        for partition in self._world.brokers.deleted:
            state = manager.partition_state(partition.tip)
            if state is not None and state.delete_state is MARKED:
                await manager.undo_partition_delete(
                    PartitionDeleteUndo(partition.tip, state.delete_offset), deadline_s=DEADLINE_S
                )


def _has(replicas: Iterable[Replica], missing: Offsets) -> bool:
    """True if a replica's disk has a batch of these offsets, and a second batch in the same file:
    if its broker sends only lone batches, the place of one can't be proven.
    """
    for replica in replicas:
        there = [
            each
            for each in replica.batches
            if each not in replica.lost and each.last >= max(replica.bases[0], replica.log_start)
        ]
        beside = Counter(file_of(replica, each) for each in there)
        if any(
            overlaps(each.base, each.last, (missing,)) and beside[file_of(replica, each)] > 1
            for each in there
        ):
            return True
    return False


def _manager(process: Process) -> RemoteLogMetadataManager:
    assert process.manager is not None
    return process.manager
