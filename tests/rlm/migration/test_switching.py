"""The switch and the way back in small worlds: brokers, nodes and the topic by one seed, with a
crash at any step. The mistakes planted below are found.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration import switching
from rlm.migration.acknowledgements import LEASE_S
from rlm.migration.kafka_cache import KafkaCache
from rlm.migration.switching import Switching, Time
from rlm.migration.topic_checks import PartitionRead
from rlm.migration.topic_replay import TopicReplay, digest
from rlmm.migration_phase import RETURNS_TO, Migration, MigrationPhase
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState

TOPIC_ID = Uuid(b"topic-id-16bytes")
PARTITIONS = tuple(TopicIdPartition("orders", TOPIC_ID, number) for number in range(3))
DEADLINE_S = 60.0
ASKS_EVERY_S = 1.0


class CrashedError(Exception):
    """The process that carries the attempt out is gone."""


@dataclass
class Broker:
    """A broker with the bridge. `heard` is the phase of its lease, asked for at `asked_at`."""

    id: int
    heard: MigrationPhase = MigrationPhase.KAFKA
    asked_at: float = 0.0
    outstanding: int = 0
    lives: bool = True
    sees_node: bool = True
    frozen_until: float = 0.0


@dataclass
class World:
    """Everything but the switch. Time passes in `sleep` alone, and with it brokers do things."""

    seed: int
    crash_at: int | None = None
    phase: MigrationPhase = MigrationPhase.SWITCHING
    before: MigrationPhase = field(init=False)
    random: Random = field(init=False)
    now: float = 0.0
    steps: int = 0
    since: int = 100
    why: str = ""
    ends: Sequence[int] = ()
    topic: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    log: dict[TopicIdPartition, KafkaCache] = field(default_factory=dict)
    acknowledged_: set[int] = field(default_factory=set)
    brokers: list[Broker] = field(default_factory=list)
    unheard: set[int] = field(default_factory=set)
    unheard_in_flight: int = 0
    unshadowed: list[RemoteLogSegmentMetadata] = field(default_factory=list)
    shadow_works: bool = True
    markers: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.before = RETURNS_TO[self.phase]
        self.shadow_works = self.random.random() < 0.9
        self.brokers = [Broker(number, self.before) for number in range(3)]
        for broker in self.brokers:
            broker.outstanding = self.random.choice((0, 0, 1))
            if self.random.random() < 0.2:
                broker.sees_node = False
            if self.random.random() < 0.1:
                broker.lives = False
        for _ in range(self.random.randrange(5)):
            self.write()
        if self.phase is MigrationPhase.BACK:
            self.markers = self.random.choice((0, 1))
        if self.phase is MigrationPhase.SWITCHING and self.random.random() < 0.3:
            self.log[PARTITIONS[2]] = cache_of(self.topic[:1])

    # what brokers do ------------------------------------------------------------------

    def write(self) -> None:
        """A record reaches the truth of before: the first one of a segment."""
        number = len(self.topic) + len(self.unshadowed)
        id_ = RemoteLogSegmentId(self.random.choice(PARTITIONS), Uuid(number.to_bytes(16, "big")))
        row = RemoteLogSegmentMetadata(
            id_, number, number, 1, 1, 1, ((0, number),), 10, None,
            SegmentState.COPY_SEGMENT_STARTED,
        )  # fmt: skip
        if self.before is MigrationPhase.KAFKA:
            self.topic.append(row)
        else:
            self.unshadowed.append(row)
            self.log.setdefault(id_.partition, KafkaCache()).add(row)

    async def sleep(self, seconds: float) -> None:
        self.step()
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.25)
            for broker in self.brokers:
                self.act(broker)
            if self.unshadowed and self.shadow_works and self.random.random() < 0.2:
                self.topic.append(self.unshadowed.pop(0))
            if self.markers and not self.unshadowed and self.random.random() < 0.02:
                self.markers = 0  # a filler
            if self.random.random() < 0.02:
                broker = self.random.choice(self.brokers)
                broker.lives = not broker.lives
            if self.random.random() < 0.02:
                broker = self.random.choice(self.brokers)
                broker.sees_node = not broker.sees_node
            if self.random.random() < 0.02:
                self.random.choice(self.brokers).frozen_until = self.now + self.random.random() * 20

    def act(self, broker: Broker) -> None:
        """One broker at one moment. A broker that its controller takes for dead may go on."""
        if broker.frozen_until > self.now:
            return
        if broker.sees_node and self.now - broker.asked_at >= ASKS_EVERY_S:
            broker.asked_at = self.now
            broker.heard = (
                MigrationPhase.KAFKA if self.phase is MigrationPhase.KAFKA else self.phase
            )
        if broker.outstanding and self.random.random() < 0.03:
            broker.outstanding -= 1
            self.write()
        fresh = self.now - broker.asked_at < LEASE_S
        if fresh and broker.heard is self.before and self.random.random() < 0.1:
            broker.outstanding += 1
        if broker.sees_node and broker.heard is self.phase and not broker.outstanding:
            self.acknowledged_.add(broker.id)

    # LogPort --------------------------------------------------------------------------

    def step(self) -> None:
        self.steps += 1
        if self.steps == self.crash_at:
            raise CrashedError

    def leads(self) -> bool:
        return True

    def standing(self) -> Migration:
        return Migration(self.phase, self.since)

    def acknowledged(self, since: int) -> Collection[int]:
        return set(self.acknowledged_) if since == self.since else ()

    def partitions(self) -> Collection[TopicIdPartition]:
        return tuple(self.log)

    async def bring(self, tip: TopicIdPartition, cache: KafkaCache | None, since: int) -> None:
        self.step()
        assert since == self.since
        if cache is None:
            self.log.pop(tip, None)
        else:
            self.log[tip] = copy.deepcopy(cache)
        self.step()

    def newest_topic(self, name: str) -> Uuid:
        return TOPIC_ID

    async def differences(self, tip: TopicIdPartition, cache: KafkaCache | None) -> Sequence[str]:
        self.step()
        ours, theirs = self.log.get(tip) or KafkaCache(), cache or KafkaCache()
        return () if digest(ours) == digest(theirs) else ("other segments",)

    def behind_topic(self) -> int:
        return len(self.unshadowed)

    async def begin_shadow(self, since: int, topic_id: Uuid, ends: Sequence[int]) -> None:
        self.step()
        assert (since, topic_id) == (self.since, TOPIC_ID)
        self.ends = ends

    async def move(self, before: Migration, phase: MigrationPhase, why: str) -> None:
        self.step()
        if before != self.standing():
            raise Conflict("another phase stands")
        if self.random.random() < 0.1:
            raise RetryLater("no leader")
        silent = [each for each in self.brokers if each.id in self.unheard]
        self.unheard_in_flight = sum(each.outstanding for each in silent)
        self.phase, self.since, self.why = phase, self.since + 1, why
        self.acknowledged_.clear()
        self.step()

    async def hand_over(self, since: int) -> bool:
        return False  # there is one node

    # BrokersPort ----------------------------------------------------------------------

    async def live(self) -> Collection[int]:
        self.step()
        if self.random.random() < 0.05:
            raise RetryLater("the broker did not answer")
        self.unheard |= {each.id for each in self.brokers if not each.lives} - self.acknowledged_
        return [each.id for each in self.brokers if each.lives]

    async def open_topic(self) -> TopicAsRead:
        self.step()
        return TopicAsRead(self)


@dataclass
class TopicAsRead:
    world: World

    topic_id: Uuid = TOPIC_ID

    @property
    def partitions(self) -> Sequence[int]:
        return (0, 1)

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        self.world.step()
        progress(0, 1)
        replay = TopicReplay("topic")
        mine = [
            each
            for each in self.world.topic
            if each.segment_id.partition.partition % 2 == partition
        ]
        for record in mine:
            replay.caches.setdefault(record.segment_id.partition, KafkaCache()).add(record)
        end = len(mine) + self.world.markers  # the shadow's, until a filler stands behind them
        return replay, PartitionRead(partition, 0, end, len(mine), last_record=len(mine) - 1)

    async def close(self) -> None:
        pass


def cache_of(records: Iterable[RemoteLogSegmentMetadata]) -> KafkaCache:
    cache = KafkaCache()
    for record in records:
        cache.add(record)
    return cache


async def carry_out(world: World) -> None:
    """Attempts as a node makes them, one process after the other, until none stands."""
    while True:
        ours = Switching(world, world, Time(lambda: world.now, world.sleep), DEADLINE_S)
        attempt = ours.begin()
        if attempt is None:
            return
        try:
            await ours.run(attempt)
        except CrashedError:
            world.crash_at = None


def check(world: World) -> None:
    """Invariants: an attempt ends, and where the truth moved, log and topic have the same."""
    assert world.phase in (MigrationPhase.QUORUM, MigrationPhase.KAFKA)
    if world.phase is world.before:
        assert world.why, "the way back has a reason"
        return
    assert not world.unshadowed
    assert not world.markers, "Kafka's own manager would wait for ever"
    if world.phase is MigrationPhase.QUORUM:
        assert sum(world.ends) == len(world.topic), "the ends are those of the whole topic"
    tips = {record.segment_id.partition for record in world.topic}
    assert set(world.log) == tips
    for tip in tips:
        mine = [record for record in world.topic if record.segment_id.partition == tip]
        assert digest(world.log[tip]) == digest(cache_of(mine))


async def late_writes(world: World) -> None:
    """Brokers go on behind the switch, and none begins to write. What one that was not alive had
    sent before may still arrive: the topic is watched for that.
    """
    if world.phase is not world.before:
        before = len(world.topic)
        world.crash_at = None
        await world.sleep(40)
        late = len(world.topic) - before + len(world.unshadowed)
        assert late <= world.unheard_in_flight, "a broker wrote behind the switch"


def play(
    seed: int, crash_at: int | None = None, phase: MigrationPhase = MigrationPhase.SWITCHING
) -> World:
    world = World(seed, crash_at, phase)

    async def all_of_it() -> None:
        await carry_out(world)
        check(world)
        await late_writes(world)

    asyncio.run(all_of_it())
    return world


@pytest.mark.parametrize("phase", [MigrationPhase.SWITCHING, MigrationPhase.BACK])
@pytest.mark.parametrize("first", range(0, 100, 50))
def test_log_and_topic_have_the_same_and_nobody_writes_behind(
    first: int, phase: MigrationPhase
) -> None:
    ended = [play(seed, phase=phase).phase for seed in range(first, first + 50)]
    assert set(ended) == {MigrationPhase.QUORUM, MigrationPhase.KAFKA}


def play_all(seeds: int) -> None:
    for seed in range(seeds):
        play(seed)
        play(seed, phase=MigrationPhase.BACK)


def lease_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switching, "CLOCKS_DIFFER_S", 1.0 - LEASE_S)


def acknowledgements_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(World, "acknowledged", lambda self, _since: {each.id for each in self.brokers})


def nothing_compared(patch: pytest.MonkeyPatch) -> None:
    """Together with an import that keeps what an earlier one left."""
    patch.setattr(Switching, "_check", _nothing)
    bring = World.bring

    async def keep(
        self: World, tip: TopicIdPartition, cache: KafkaCache | None, since: int
    ) -> None:
        if tip not in self.log:
            await bring(self, tip, cache, since)

    patch.setattr(World, "bring", keep)


def left_partitions_stay(patch: pytest.MonkeyPatch) -> None:
    bring = World.bring

    async def keep(
        self: World, tip: TopicIdPartition, cache: KafkaCache | None, since: int
    ) -> None:
        if cache is not None:
            await bring(self, tip, cache, since)

    patch.setattr(World, "bring", keep)


def topic_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Together with no comparison."""
    patch.setattr(World, "behind_topic", lambda _self: 0)
    patch.setattr(Switching, "_compare", _nothing)


async def _nothing(*_: object) -> None:
    pass


def marker_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionRead, "ends_with_marker", False)


def never_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        switching,
        "RETURNS_TO",
        {
            MigrationPhase.SWITCHING: MigrationPhase.QUORUM,
            MigrationPhase.BACK: MigrationPhase.KAFKA,
        },
    )


@pytest.mark.parametrize(
    "plant",
    [
        lease_not_waited_for,
        acknowledgements_not_waited_for,
        nothing_compared,
        left_partitions_stay,
        topic_not_waited_for,
        marker_not_waited_for,
        never_too_late,
    ],
)
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all(300)


def test_a_crash_at_each_step_comes_to_the_same_kind_of_end() -> None:
    for phase in RETURNS_TO:
        for seed, every in ((3, 1), (4, 9), (5, 9)):
            for at in range(1, play(seed, phase=phase).steps, every):
                play(seed, at, phase)


def test_an_attempt_ends_whose_topic_can_not_be_opened() -> None:
    """Nobody writes by then, and nobody can: that must not last for as long as a broker is away."""
    world = World(11)
    begun_at: list[float] = []

    async def unreachable() -> TopicAsRead:
        world.step()
        begun_at.append(world.now)
        assert world.now < DEADLINE_S + 10, "the attempt goes on for ever"
        raise RetryLater("the broker does not answer")

    world.open_topic = unreachable  # type: ignore[method-assign]
    for broker in world.brokers:
        broker.lives, broker.sees_node, broker.outstanding = True, True, 0

    asyncio.run(carry_out(world))
    assert world.phase is MigrationPhase.KAFKA
    assert begun_at, "it was silent by then"


def test_a_partition_that_is_only_claimed_does_not_close_the_way_back() -> None:
    ended = set()
    for seed in range(20):
        world = World(seed, phase=MigrationPhase.BACK)
        claimed = {each: world.log.get(each, KafkaCache()) for each in PARTITIONS}
        world.log.update(claimed)
        asyncio.run(carry_out(world))
        ended.add(world.phase)
        assert "metadata log" not in world.why, seed
    assert MigrationPhase.KAFKA in ended


def test_nothing_is_imported_by_a_broker_that_does_not_know_one_that_acknowledged() -> None:
    """Cut off from its controller while the other was away, it leads on, by its own word alone:
    what the other wrote as its successor is missing in what it has.
    """
    world = World(2)
    for broker in world.brokers:
        broker.lives, broker.sees_node, broker.outstanding = True, True, 0

    async def old() -> Collection[int]:
        world.step()
        return [0, 1]

    world.live = old  # type: ignore[method-assign]
    asyncio.run(carry_out(world))
    assert world.phase is MigrationPhase.KAFKA
    assert "brokers 2 have stopped writing" in world.why


def test_the_reason_of_an_attempt_stays_while_the_log_can_not_be_told() -> None:
    """The quorum may have no leader for hours: each try wrote its reason around the one before."""
    world = World(2)
    tried = 0
    attempts = []
    move = world.move

    async def fails(before: Migration, phase: MigrationPhase, why: str) -> None:
        nonlocal tried
        tried += 1
        if tried < 50:
            raise RetryLater("no leader")
        await move(before, phase, why)

    async def unheard() -> Collection[int]:
        raise RetryLater("the broker is away")

    world.move, world.live = fails, unheard  # type: ignore[method-assign]

    async def main() -> None:
        ours = Switching(world, world, Time(lambda: world.now, world.sleep), DEADLINE_S)
        attempt = ours.begin()
        assert attempt is not None
        attempts.append(attempt)
        await ours.run(attempt)

    asyncio.run(main())
    assert tried >= 50
    (attempt,) = attempts
    assert len(attempt.trouble) < 300
    assert world.why == (
        "it took longer than 60 s, while waiting until no broker writes: the broker is away"
    )
