"""A broker stands still (SIGSTOP) at any step of a switch or a way back: also the one beside the
node that carries it out, which is how that node sees the Kafka cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from kafka_formats.errors import Conflict, RetryLater
from rlm.migration import switching
from rlm.migration.handing_over import HandingOver
from rlm.migration.switching import Attempt, Switching, Time, Watch
from rlm.migration.topic_checks import PartitionRead
from rlm.migration.topic_replay import TopicReplay
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import ReplicaState
from rlmm.migration_phase import RETURNS_TO, MigrationPhase
from tests.rlm.migration.test_switching import Broker, TopicAsRead, World, check, late_writes

PAUSE_S = 30.0
DEADLINE_S = 120.0
FENCED_S = 9.0
"""Kafka's broker.session.timeout.ms: so long a silent broker counts as living."""
ASKED_S = 2.0
OPENED_S = 5.0
READ_S = 10.0
FOR_EVER_S = 1e9


@dataclass
class FrozenWorld(World):
    """Nothing happens by chance but writes: one broker freezes, at a step or at a time."""

    broker: int = 0
    freeze_at: int | None = None
    thaws: float = FOR_EVER_S
    froze: float = FOR_EVER_S
    leader: int = 0
    handed: list[int] = field(default_factory=list)
    nodes: list[Switching] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shadow_works = True
        for broker in self.brokers:
            broker.lives = broker.sees_node = True

    def step(self) -> None:
        super().step()
        if self.steps == self.freeze_at:
            self.froze = self.now
            self.brokers[self.broker].frozen_until = self.now + self.thaws

    def is_frozen(self, broker: int) -> bool:
        return self.brokers[broker].frozen_until > self.now

    def is_fenced(self, broker: int) -> bool:
        return self.is_frozen(broker) and self.now - self.froze >= FENCED_S

    def living(self) -> list[int]:
        return [each.id for each in self.brokers if not self.is_fenced(each.id)]

    def leads_topic(self, partition: int) -> int:
        """The partition's leader: it moves when the broker is fenced."""
        return next(each for each in (partition, partition + 1) if not self.is_fenced(each))

    async def sleep(self, seconds: float) -> None:
        self.step()
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 0.25)
            for broker in self.brokers:
                self.act(broker)
            # The shadow asks the broker of the node that leads.
            works = not self.is_frozen(self.leader) and self.random.random() < 0.2
            if self.unshadowed and works:
                self.topic.append(self.unshadowed.pop(0))
            if self.markers and not self.unshadowed and works:
                self.markers = 0
            self.look_on()

    def act(self, broker: Broker) -> None:
        """Requests are answered within a second or so."""
        super().act(broker)
        if broker.outstanding and broker.frozen_until <= self.now and self.random.random() < 0.3:
            broker.outstanding -= 1
            self.write()

    def look_on(self) -> None:
        """The other nodes, as their loops do all the while."""
        for number, node in enumerate(self.nodes):
            if number != self.leader and not self.is_frozen(number):
                node.watch.note(self.acknowledged(self.since), self.living())


@dataclass
class NodeOf:
    """A node, beside the broker with its number."""

    world: FrozenWorld
    number: int

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world, name)

    def leads(self) -> bool:
        return self.world.leader == self.number

    async def hand_over(self, since: int) -> bool:
        world = self.world
        world.step()
        others = sorted(set(world.acknowledged(since)) - {self.number})
        if not others:
            return False
        await world.sleep(1.0)
        world.leader = others[0]
        world.handed.append(others[0])
        return True

    async def live(self) -> Collection[int]:
        world = self.world
        world.step()
        if world.is_frozen(self.number):
            await world.sleep(ASKED_S)
            raise RetryLater("this node's broker does not answer")
        living = world.living()
        world.unheard |= {each.id for each in world.brokers} - {*living, *world.acknowledged_}
        return living

    async def open_topic(self) -> FrozenTopic:
        world = self.world
        world.step()
        if world.is_frozen(self.number) or any(map(world.is_frozen, world.living())):
            await world.sleep(OPENED_S)
            raise RetryLater("a broker does not tell who leads")
        return FrozenTopic(world)


@dataclass
class FrozenTopic(TopicAsRead):
    world: FrozenWorld

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        if self.world.is_frozen(self.world.leads_topic(partition)):
            await self.world.sleep(READ_S)
            nothing = PartitionRead(partition, 0, 0, 0, error="no answer")
            return TopicReplay("topic"), nothing
        return await super().read(partition, progress)


async def carried_out(world: FrozenWorld) -> float:
    """All nodes look on, and the one that leads carries out. Returns the pause in seconds."""
    nodes = [NodeOf(world, number) for number in range(3)]
    time = Time(lambda: world.now, world.sleep)
    world.nodes = [Switching(node, node, time, DEADLINE_S) for node in nodes]
    for node in world.nodes:
        node.begin()
    for _ in range(1_000):
        if world.phase not in RETURNS_TO:
            break
        leading = world.nodes[world.leader]
        attempt = leading.begin()
        assert attempt is not None
        await leading.run(attempt)
    return world.now


def play(
    broker: int, freeze_at: int | None, phase: MigrationPhase, seed: int = 3,
    thaws: float = FOR_EVER_S,
) -> FrozenWorld:  # fmt: skip
    world = FrozenWorld(seed, None, phase, broker=broker, freeze_at=freeze_at, thaws=thaws)

    async def all_of_it() -> None:
        pause = await carried_out(world)
        told = f"broker {broker} froze at {world.froze:.1f} s, step {freeze_at}: {world.why}"
        assert world.phase is not world.before, told
        assert pause <= PAUSE_S, f"{pause:.1f} s; {told}"
        check(world)
        await late_writes(world)

    asyncio.run(all_of_it())
    return world


def at_any_step(broker: int, thaws: float, phase: MigrationPhase) -> list[FrozenWorld]:
    last = play(broker, None, phase).steps
    return [play(broker, at, phase, thaws=thaws) for at in range(1, last)]


@pytest.mark.parametrize("phase", sorted(RETURNS_TO))
@pytest.mark.parametrize("thaws", [FOR_EVER_S, 6.0, 13.0])
@pytest.mark.parametrize("broker", [0, 1, 2])
def test_a_broker_that_freezes_at_any_step_costs_less_than_half_a_minute(
    broker: int, thaws: float, phase: MigrationPhase
) -> None:
    played = at_any_step(broker, thaws, phase)
    handed = {to for world in played for to in world.handed}
    assert bool(handed) == (broker == 0), "the node beside the frozen broker hands over, no other"


def never_handed_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(switching, "OWN_SILENT_S", FOR_EVER_S)


def what_was_seen_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A broker that froze behind its acknowledgement is waited for."""
    patch.setattr(Watch, "note", lambda *_: None)


def the_wait_begins_anew(patch: pytest.MonkeyPatch) -> None:
    """With each node that takes over."""
    begin = Switching.begin

    def late(self: Switching, before: Attempt | None = None) -> Attempt | None:
        self.watch.standing = None
        return begin(self, before)

    patch.setattr(Switching, "begin", late)


def leases_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Of a frozen broker that goes on as soon as nobody waits for it."""
    patch.setattr(switching, "LEASE_S", 0.0)
    patch.setattr(NodeOf, "live", living_at_once)


async def living_at_once(self: NodeOf) -> Collection[int]:
    self.world.step()
    self.world.unheard.clear()
    return [each.id for each in self.world.brokers if not self.world.is_frozen(each.id)]


def play_all() -> None:
    for broker in (0, 1):
        for phase in RETURNS_TO:
            for thaws in (FOR_EVER_S, 3.0):
                at_any_step(broker, thaws, phase)


@pytest.mark.parametrize(
    "plant",
    [never_handed_over, what_was_seen_is_forgotten, the_wait_begins_anew, leases_not_waited_for],
)
def test_a_planted_mistake_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all()


class Quorum:
    """The manager and the quorum as `HandingOver` uses them: node 1 leads."""

    def __init__(self, acknowledged: set[int], away: set[int]) -> None:
        self.acknowledged, self.away, self.leader_id = acknowledged, away, 1
        self.wins: int | None = None
        self.tried: list[int] = []

    def migration_brokers(self, _since: int) -> set[int]:
        return self.acknowledged

    @property
    def voters(self) -> list[ReplicaState]:
        """Node 4 has not fetched for a while, node 5 is an observer."""
        fetched = {1: 20_000, 2: 19_000, 3: 15_000, 4: 14_999}
        return [ReplicaState(number, "", 0, at, at) for number, at in fetched.items()]

    def describe(self) -> Quorum:
        return self

    def is_caught_up(self) -> bool:
        return True

    async def transfer(self, node_id: int) -> None:
        self.tried.append(node_id)
        if self.wins is not None:
            self.leader_id = self.wins
            raise Conflict("another node won the election", reason="NOT_TRANSFERRED")
        if node_id in self.away:
            raise RetryLater("it did not catch up in time")
        self.leader_id = node_id


@pytest.mark.parametrize(
    ("acknowledged", "away", "tried", "leader"),
    [
        ({1}, set(), [], 1),
        ({1, 2, 3}, {2}, [2, 3], 3),
        ({2, 3}, {2, 3}, [2, 3], 1),
        ({3, 4, 5}, set(), [3], 3),
        ({4, 5}, set(), [], 1),
    ],
)
async def test_the_quorum_is_led_on_beside_a_broker_that_acknowledged(
    acknowledged: set[int], away: set[int], tried: list[int], leader: int
) -> None:
    quorum = Quorum(acknowledged, away)
    ours = HandingOver(cast("RemoteLogMetadataManager", quorum), 1, quorum.transfer)
    assert await ours.beside_broker(70) is (leader != 1)
    assert (quorum.tried, quorum.leader_id) == (tried, leader)


async def test_an_election_that_another_node_wins_is_no_hand_over() -> None:
    """It is tried again soon, if this node leads again; who leads now hands over itself."""
    quorum = Quorum({2, 3}, set())
    quorum.wins = 4
    ours = HandingOver(cast("RemoteLogMetadataManager", quorum), 1, quorum.transfer)
    assert await ours.beside_broker(70) is False
    assert (quorum.tried, quorum.leader_id) == ([2], 4)
