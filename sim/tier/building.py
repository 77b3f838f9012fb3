"""Followers that lost their disk or lag below the leader's, and new leaders: they ask a node for
their offsets, and build their log on its answer.

They ask any node, also one that has just started or gets no records of the metadata log; between
request and answer the partition's leader may change. Draws from a generator of its own, so that
seeds without it run as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats import leader_epoch_checkpoint, producer_snapshot
from kafka_formats.errors import StrandlineError
from kafka_formats.leader_epoch_checkpoint import truncate_from_start
from rlm.fetch.follower_start import FollowerFetchAnswer, FollowerFetchQuery, FollowerPlan
from rlm.fetch.leader_transition import LeaderTransitionQuery
from rlm.format.manifest import IndexType
from rlmm.rows import queries
from sim.tier.bucket import at_once
from sim.tier.building_audit import BuildingAudit
from sim.tier.partition import Partition
from sim.tier.replica import Replica

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

SEEDS_PER_BUILDING_ONE = 4
PERIOD_MS = 600
FRESH_MS = 3_000
"""A node that started within this time (ms) is asked first, at short intervals."""
DEAF_MS_MAX = 20_000
WAY_MS = (1, 20, 3_000)
ELECTS_ONE_IN = 6


class Building:
    """The requests, and the logs built on the answers. `is_on` None: the seed decides. `built`
    counts followers built from the tier, `told` answers to leaders.
    """

    def __init__(self, world: World, is_on: bool | None) -> None:
        self._world = world
        self._random = random = Random(f"building {world.seed}")
        drawn = not random.randrange(SEEDS_PER_BUILDING_ONE)
        self.is_on = drawn if is_on is None else is_on
        self.audit = BuildingAudit(world)
        self._goes_on = False
        self.asked = self.built = self.told = 0

    def begin(self) -> None:
        """Begin to ask now and then."""
        if self.is_on:
            self._goes_on = True
            self._go_on()

    def stop(self) -> None:
        """Stop, except for the requests of `left_to_do`."""
        self._goes_on = False

    def _go_on(self) -> None:
        if not self._goes_on:
            return
        world, random = self._world, self._random
        now_ms = world.schedule.now_ms
        ups = [machine.up for machine in world.machines if machine.up is not None]
        fresh = [each for each in ups if now_ms - each.began_ms < FRESH_MS]
        if ups and world.brokers.partitions:
            process = random.choice(fresh or ups)
            self._act(process, random.choice(world.brokers.partitions))
        world.schedule.after(1 + random.randrange(200 if fresh else 2 * PERIOD_MS), self._go_on)

    # ---- deeds

    def _act(self, process: Process, partition: Partition) -> None:
        random, leader = self._random, partition.leading
        draw = random.randrange(100)
        if leader is None:
            return
        if draw < 2:
            self._begin_anew(process)
        elif draw < 25:
            node_ids = sorted(partition.replicas)
            self._retain(partition, random.choice((*node_ids, partition.leader, partition.leader)))
        elif draw < 70:
            others = [each for each in sorted(partition.replicas) if each != partition.leader]
            if others:
                self._follow(process, partition, leader, random.choice(others))
        else:
            leads = [each for each in partition.replicas.values() if each.leads]
            replica = leader if draw < 90 else random.choice(leads)
            self._ask_to_lead(process, partition, replica)
        if not random.randrange(ELECTS_ONE_IN):
            self._elect(partition)

    def _begin_anew(self, process: Process) -> None:
        """Let a node restart whose view is lost, and which hears nothing of the log at first."""
        machine = process.machine
        if machine.process is process and not machine.cut_off:
            self._world.note(f"{machine.name} restarts without its view")
            machine.deaf = True
            machine.forget()
            machine.kill()
            self._world.schedule.after(self._random.randrange(DEAF_MS_MAX), machine.connect)

    def _retain(self, partition: Partition, node_id: int) -> None:
        """Remove sealed segments that are in the tier."""
        replica = partition.replicas[node_id]
        state = queries.partition_state(self._world.auditor.reference.rows, partition.tip)
        if state is None:
            return
        copied = min(state.next_offset, replica.high_watermark)
        bases = [base for base in replica.bases[1:] if base <= copied]
        if bases and replica.epoch == partition.epoch:
            self._world.note(f"{partition.tip.topic}: n{node_id} keeps what is from {bases[-1]} on")
            replica.trim(bases[-1])

    def _elect(self, partition: Partition) -> None:
        world, kinds = self._world, self._world.brokers.kinds
        alive = [b for b in sorted(partition.replicas) if world.machine(b).broker_up]
        clean = [b for b in partition.in_sync if b in alive]
        if "unclean" in kinds and alive and self._random.randrange(2):
            broker = self._random.choice(alive)
            world.brokers.elect(partition, broker, unclean=broker not in partition.in_sync)
        elif clean:
            world.brokers.elect(partition, self._random.choice(clean), unclean=False)

    # ---- followers

    def _follow(
        self, process: Process, partition: Partition, leader: Replica, node_id: int
    ) -> None:
        """Ask for a follower that has an empty disk, or fetches at the end of its log."""
        random, follower = self._random, partition.replicas[node_id]
        is_empty = bool(random.randrange(2))
        start = _local_start(leader)
        beside = process.machine.node_id == partition.leader
        query = FollowerFetchQuery(
            partition.tip,
            fetch_offset=0 if is_empty else follower.end,
            leader_epoch=follower.epoch,
            leader_local_log_start_offset=None if beside and random.randrange(2) else start,
            from_last_tiered=bool(random.randrange(2)) if is_empty else False,
        )
        ask = partial(self._ask_for, process, partition, node_id, query)
        self._world.schedule.after(random.choice(WAY_MS), ask)

    def _ask_for(
        self, process: Process, partition: Partition, node_id: int, query: FollowerFetchQuery
    ) -> None:
        if process.life.alive and not partition.deleted and self._goes_on:
            self.asked += 1
            self._world.loop.spawn(
                process.life, self._answer_for(process, partition, node_id, query)
            )

    async def _answer_for(
        self, process: Process, partition: Partition, node_id: int, query: FollowerFetchQuery
    ) -> None:
        assert process.parts is not None
        leader = partition.replicas[process.machine.node_id]
        first, audit = _local_start(leader), self.audit
        try:
            answer = await process.parts.answers.follower_fetch(query)
        except StrandlineError as error:
            self._note(process, partition, f"tells no follower: {type(error).__name__}")
            audit.refused(process, partition.tip, query.leader_epoch, error)
            return
        starts = range(first, _local_start(leader) + 1)
        self._note(
            process, partition, f"{answer.plan} for {query.fetch_offset}: {answer.fetch_offset}"
        )
        audit.told(process, query, starts, answer)
        if answer.segment is not None and not await self._read(process, answer):
            return
        build = partial(self._build, partition, node_id, query, answer)
        self._world.schedule.after(self._random.choice(WAY_MS), build)

    async def _read(self, process: Process, answer: FollowerFetchAnswer) -> bool:
        """Read what a follower restores; False if its node can't give it now."""
        assert process.parts is not None
        segment = answer.segment
        assert segment is not None
        seen = self.audit.seen(process, answer.partition)
        found: dict[IndexType, bytes] = {}
        for index in (IndexType.LEADER_EPOCH, IndexType.PRODUCER_SNAPSHOT):
            try:
                chunks = process.parts.reads.open_index(segment.segment_id.id, index)
                found[index] = b"".join([chunk async for chunk in chunks])
            except StrandlineError as error:
                self._note_error(process, answer, error)
                return False
        epochs = leader_epoch_checkpoint.parse(found[IndexType.LEADER_EPOCH], source="the tier")
        if seen is not None:
            self.audit.read(answer, epochs, seen)
        data = found.get(IndexType.PRODUCER_SNAPSHOT)
        if data is not None:
            ends = [each.last_offset for each in producer_snapshot.parse(data, source="the tier")]
            self.audit.restores(answer, ends)
        return True

    def _build(
        self,
        partition: Partition,
        node_id: int,
        query: FollowerFetchQuery,
        answer: FollowerFetchAnswer,
    ) -> None:
        """Build the follower's log, unless leader or log have changed meanwhile."""
        leader, follower = partition.leading, partition.replicas[node_id]
        epoch = query.leader_epoch
        if not self._goes_on or partition.deleted or leader is None:
            return
        if not partition.epoch == follower.epoch == epoch or node_id == partition.leader:
            return
        if answer.plan is FollowerPlan.FETCH_LOCALLY or answer.fetch_offset < _local_start(leader):
            return
        if answer.fetch_offset <= follower.bases[0] and follower.end >= answer.fetch_offset:
            return  # nothing is built anew
        self.audit.builds(partition, answer, leader)
        start = answer.fetch_offset
        before = [each for each in leader.batches if each.last < start]
        if before and before[-1].last + 1 < start:
            return  # a log that begins inside a batch is not played here
        self.built += 1
        self._world.note(f"{partition.tip.topic}: n{node_id} is built from {start} on")
        partition.drop_from_in_sync(node_id)
        follower.rebuild(before, start, start, truncate_from_start(answer.leader_epochs, start))

    # ---- leaders

    def _ask_to_lead(self, process: Process, partition: Partition, replica: Replica) -> None:
        query = LeaderTransitionQuery(
            partition.tip, replica.epoch, replica.epochs, _local_start(replica), replica.end
        )
        ask = partial(self._answer_leader, process, partition, query)
        self._world.schedule.after(self._random.choice(WAY_MS), ask)

    def _answer_leader(
        self, process: Process, partition: Partition, query: LeaderTransitionQuery
    ) -> None:
        if not process.life.alive or partition.deleted or not self._goes_on:
            return
        assert process.parts is not None
        self.asked += 1
        try:
            answer = process.parts.answers.leader_transition(query)
        except StrandlineError as error:
            self._note(process, partition, f"tells no leader: {type(error).__name__}")
            self.audit.refused(process, partition.tip, query.leader_epoch, error)
            return
        self.told += 1
        self._note(process, partition, f"tells a leader to go on at {answer.next_offset}")
        self.audit.leads(process, query, answer)

    # ---- healing

    def left_to_do(self) -> Iterator[str]:
        """The requests that a node refuses although nothing changes any more."""
        for partition in self._world.brokers.partitions if self.is_on else ():
            leader, tip = partition.leading, partition.tip
            assert leader is not None
            start = _local_start(leader)
            follows = FollowerFetchQuery(tip, 0, leader.epoch, start)
            leads = LeaderTransitionQuery(tip, leader.epoch, leader.epochs, start, leader.end)
            for machine in self._world.machines:
                process = machine.up
                if process is None or process.parts is None:
                    continue
                answers = process.parts.answers
                try:
                    told = at_once(answers.follower_fetch(follows))
                    self.audit.told(process, follows, range(start, start + 1), told)
                    self.audit.leads(process, leads, answers.leader_transition(leads))
                except StrandlineError as error:
                    yield f"{machine.name} does not tell where a replica of {tip} stands: {error}"

    def _note(self, process: Process, partition: Partition, what: str) -> None:
        self._world.note(f"{process.machine.name} of {partition.tip.topic}: {what}")

    def _note_error(
        self, process: Process, answer: FollowerFetchAnswer, error: StrandlineError
    ) -> None:
        name, error_name = answer.partition.topic, type(error).__name__
        self._world.note(f"{process.machine.name} of {name}: no state to restore, {error_name}")


def _local_start(replica: Replica) -> int:
    """The answer of a leader to ListOffsets(earliest local)."""
    return max(replica.bases[0], replica.log_start)
