"""Two replicas in two zones, and a consumer that goes where it is sent, as Java's does."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kafka_listener.connections import nearer_replica
from kafka_listener.connections.nearer_replica import COMES_BACK_S, STAYS_S
from kafka_listener.protocol.error_codes import ErrorCode
from kafka_listener.reading.read_port import BrokerLogEnds, FetchAnswer, NotAvailable, OutOfRange
from kafka_listener.virtual_nodes import Replica, VirtualNodes, virtual_id
from rlmm.wire.schema import Values
from tests.kafka_listener.connections.fetch_scene import ENDS, Scene

HERE, THERE = Replica(100, "a", 19_092, "a"), Replica(101, "b", 19_092, "b")


def replica(own: Replica, told: BrokerLogEnds | int | None = ENDS) -> Scene:
    scene = Scene(told)
    scene.replicas.own = own
    scene.replicas.nodes = VirtualNodes(own, (HERE, THERE))
    return scene


@dataclass
class Consumer:
    """Fetches as Java's FetchCollector says; `there` None: nobody takes its connections."""

    here: Scene
    there: Scene | None
    preferred: int = -1
    resets: int = 0
    went: list[str] = field(default_factory=list)

    async def fetch(self, offset: int) -> Values | None:
        if self.preferred < 0:
            (one,) = await self.here.fetch(offset, rack_id="b")
            self.preferred = one["preferred_read_replica"]
            self.went.append("here" if self.preferred < 0 else "sent away")
            self.resets += one["error_code"] == ErrorCode.OFFSET_OUT_OF_RANGE
            return one if self.preferred < 0 else None
        assert self.preferred == virtual_id(101, 3)
        self.went.append("there")
        found = None if self.there is None else await self.there.fetch(offset, rack_id="b")
        if found is None or found[0]["error_code"]:
            self.preferred = -1  # and metadata is asked for
            return None
        return found[0]


@pytest.mark.parametrize("offset", [5, 101])
async def test_an_offset_out_of_range_is_told_here(offset: int) -> None:
    here, there = replica(HERE), replica(THERE)
    for each in (here, there):
        each.tier.answers[5] = OutOfRange(10)
        each.client.error, each.client.records = ErrorCode.OFFSET_OUT_OF_RANGE, b""
    consumer = Consumer(here, there)
    await consumer.fetch(offset)
    assert (consumer.resets, consumer.went) == (1, ["here"])


@pytest.mark.parametrize("answer", [OutOfRange(10), NotAvailable("its store is away"), None])
async def test_one_that_comes_back_is_answered_here(answer: FetchAnswer | None) -> None:
    """The other replica is out of reach, or knows more or less of the offset than this one."""
    here, there = replica(HERE), replica(THERE)
    if answer is not None:
        there.tier.answers[5] = answer
    consumer = Consumer(here, None if answer is None else there)
    assert [await consumer.fetch(5) for _ in range(2)] == [None, None]
    here.now += COMES_BACK_S / 2
    one = await consumer.fetch(5)
    assert one is not None
    assert one["records"]
    here.now += STAYS_S - 1
    await consumer.fetch(39)
    assert consumer.went == ["sent away", "there", "here", "here"]
    here.now += 2
    await consumer.fetch(40)
    assert consumer.went[-1] == "sent away"


async def test_one_that_asks_for_another_offset_or_much_later_is_sent_away_again() -> None:
    """A client forgets the other replica each few minutes, and asks anew."""
    here = replica(HERE)
    for offset in (5, 6):
        (one,) = await here.fetch(offset, rack_id="b")
        assert one["preferred_read_replica"] == virtual_id(101, 3)
    here.now += COMES_BACK_S + 1
    (one,) = await here.fetch(6, rack_id="b")
    assert one["preferred_read_replica"] == virtual_id(101, 3)


@pytest.mark.parametrize("told", [6, None])
async def test_without_a_leaders_word_the_tier_says_what_is_in_range(
    told: int | None,
) -> None:
    here = replica(HERE, told)
    (one,) = await here.fetch(15, rack_id="b")
    assert one["error_code"] == (told or 0)
    assert (one["preferred_read_replica"] > 0) == (told is None)


async def test_no_more_partitions_are_remembered_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nearer_replica, "PARTITIONS_MAX", 1)
    here = replica(HERE)
    await here.fetch(5, 5, rack_id="b")
    assert [(tip.partition, sent.offset) for tip, sent in here.client.sent_away.items()] == [(1, 5)]
