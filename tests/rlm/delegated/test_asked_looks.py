"""A read of a partition whose leader moved waits for a look at that partition, not at all of them;
and no record that its new leader lacks is read, whichever look ends first [LOSS-9].
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_formats.properties import encode_partition_metadata
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.scanner import TopicPartition
from rlm.delegated import asked_looks
from rlm.delegated.asked_looks import WAIT_S, AskedLooks, next_look
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer, NotLeading
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import NO_TOPICS, TIERED
from tests.rlm.delegated.plugin_client import (
    PluginClient,
    client_of,
    refused,
    segment,
)
from tests.rlm.delegated.test_diverged_tail import (
    copied_across,
    elected_unclean,
    log_of_two_epochs,
)
from tests.rlm.delegated.test_unseen_disk import broker_of as telling_broker
from tests.rlm.delegated.test_unseen_disk import far
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import PARTITION as TIP
from tests.rlm.planner_facts import uuid
from tests.rlm.telling_broker import TellingBroker
from tests.rlm.virtual_time import run_virtually, virtual_ambient

SLOW_S = 30.0
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


@dataclass(slots=True)
class SlowBroker(FakeBroker):
    """Takes its time for a question about so many partitions, once it knows the answer."""

    slow_for: frozenset[int] = frozenset()

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        known = await FakeBroker.leadership(self, partitions)
        if len(partitions) in self.slow_for:
            await asyncio.sleep(SLOW_S)
        return known


@dataclass(slots=True)
class Beside:
    """A node beside a broker that leads two partitions, and a copied segment of the first."""

    node: Node
    plugin: PluginClient
    broker: SlowBroker
    orders: KafkaLog
    others: KafkaLog

    @property
    def tip(self) -> TopicIdPartition:
        return self.orders.partition

    async def announce(self) -> None:
        self.plugin.seq += 1
        await self.plugin.announce(self.tip, self.others.partition)

    async def moved(self) -> None:
        """Leadership came back, behind an election that cut nothing."""
        self.orders.set_epochs((0, 0), (1, 17), (2, 25))
        self.broker.words[self.tip.topic, 0] = Leads(2, 25)
        await self.announce()


@asynccontextmanager
async def of_two(tmp_path: Path) -> AsyncIterator[Beside]:
    orders = log_of_two_epochs(tmp_path)
    others = KafkaLog.create(orders.log_dir, "others", entries=((0, 0),))
    others.write(0, 10, end=15)
    leads = {(orders.partition.topic, 0): Leads(1, 25), (others.partition.topic, 0): Leads(0, 15)}
    broker = SlowBroker({**leads}, TIERED)
    world = new_world(tmp_path, (orders.log_dir,))
    async with world.boot(broker=broker, topics=NO_TOPICS, data_plane=True) as node:
        await node.remote_log.start()
        plugin = client_of(node)
        async with plugin.http:
            beside = Beside(node, plugin, broker, orders, others)
            await beside.announce()
            await asyncio.sleep(2)
            await copied_across(plugin, orders)
            await asyncio.sleep(20)
            yield beside
        await node.remote_log.close()


def test_a_read_behind_a_move_waits_for_no_look_at_all_partitions(tmp_path: Path) -> None:
    async def main() -> None:
        async with of_two(tmp_path) as beside:
            loop = asyncio.get_running_loop()
            beside.broker.slow_for = frozenset({2})
            await asyncio.sleep(8)  # a look at all is under way
            await beside.moved()
            began_s = loop.time()
            assert await beside.plugin.look_up(beside.tip, 0, 12) is not None
            assert loop.time() - began_s < WAIT_S
            assert await beside.plugin.look_up(beside.tip, 0, 12, with_txn_index=True) is None
            assert await beside.plugin.ready(beside.tip) == (True, "")
            assert not (await beside.plugin.ready(beside.others.partition))[0]

    run_virtually(main)


def test_a_read_of_what_the_tier_lacks_waits_for_no_such_look(tmp_path: Path) -> None:
    """Of aborted transactions, which most segments have none of."""

    async def main() -> None:
        async with of_two(tmp_path) as beside:
            beside.broker.slow_for = frozenset({2})
            await beside.moved()
            assert await beside.plugin.look_up(beside.tip, 0, 12, with_txn_index=True) is None

    run_virtually(main)


async def no_tail(beside: Beside, for_s: float) -> None:
    """Nothing is read of the segment that the new leader cuts, whose claim is refused."""
    for _ in range(round(for_s / 0.5)):
        for call in (
            beside.plugin.look_up(beside.tip, 0, 12),
            beside.plugin.look_up(beside.tip, 1, 17),
        ):
            assert (await refused(call)).kind == "retry_later"
        await asyncio.sleep(0.5)


@pytest.fixture
def claims_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the epochs that a look found tell of the cut then."""
    monkeypatch.setattr("rlmm.apply.claims.LINEAGE_CUT_OFFSETS_MAX", 3)


@pytest.mark.usefixtures("claims_refused")
def test_a_look_at_all_that_began_before_it_does_not_bring_the_log_of_before_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with of_two(tmp_path) as beside:
            beside.broker.slow_for = frozenset({2})
            await asyncio.sleep(8)
            elected_unclean(beside.orders, beside.broker)
            await beside.announce()
            await no_tail(beside, 2 * SLOW_S)

    run_virtually(main)


@pytest.mark.usefixtures("claims_refused")
def test_it_does_not_bring_back_the_log_from_before_a_later_look_at_all(tmp_path: Path) -> None:
    async def main() -> None:
        async with of_two(tmp_path) as beside:
            beside.broker.slow_for = frozenset({1})
            await beside.announce()
            await refused(beside.plugin.look_up(beside.tip, 5, 24))
            beside.broker.words[beside.tip.topic, 0] = NotLeading()
            elected_unclean(beside.orders, beside.broker)
            await beside.announce()
            await asyncio.sleep(2)
            assert (await beside.plugin.ready(beside.others.partition))[0]
            await no_tail(beside, 2 * SLOW_S)

    run_virtually(main)


@pytest.mark.usefixtures("claims_refused")
@pytest.mark.parametrize("word", [Leads(2, 25), NoAnswer("down"), NotLeading()])
def test_it_counts_for_nothing_before_the_leadership_is_on_the_disk(
    tmp_path: Path, word: BrokerWord
) -> None:
    async def main() -> None:
        async with of_two(tmp_path) as beside:
            beside.broker.slow_for = frozenset({2})
            beside.broker.words[beside.tip.topic, 0] = word
            await beside.announce()
            for _ in range(20):
                assert (await refused(beside.plugin.look_up(beside.tip, 0, 12))).kind
                await asyncio.sleep(0.1)
            elected_unclean(beside.orders, beside.broker)
            await no_tail(beside, 2.0)
            detail = (await refused(beside.plugin.look_up(beside.tip, 0, 12))).detail
            assert "no claim at leader epoch 2" in detail

    run_virtually(main)


def test_it_counts_for_nothing_where_the_directory_is_another_topics(tmp_path: Path) -> None:
    async def main() -> None:
        async with of_two(tmp_path) as beside:
            beside.broker.slow_for = frozenset({1})
            another = encode_partition_metadata(uuid(77))
            (beside.orders.directory / "partition.metadata").write_bytes(another)
            await beside.announce()
            for _ in range(4):
                await refused(beside.plugin.look_up(beside.tip, 0, 12))
            work = beside.node.parts.table.work(beside.tip)
            assert work is not None
            assert work.local is not None

    run_virtually(main)


def test_no_call_waits_for_a_look_that_takes_long(tmp_path: Path) -> None:
    """The broker reads in a few threads, and other partitions' reads would wait for one."""

    async def main() -> None:
        async with of_two(tmp_path) as beside:
            loop = asyncio.get_running_loop()
            beside.broker.slow_for = frozenset({1, 2})
            await beside.announce()
            waited = []
            for _ in range(5):
                began_s = loop.time()
                await refused(beside.plugin.look_up(beside.tip, 0, 12))
                waited.append(round(loop.time() - began_s, 3))
                await asyncio.sleep(0.01)
            assert waited == [WAIT_S, 0, 0, 0, 0]

    run_virtually(main)


def test_no_call_waits_in_the_pause_after_a_look_that_took_long() -> None:
    """The pause is as long as the look: no look of a call could begin in its time."""

    async def main() -> None:
        async def look(_asked: Collection[TopicIdPartition]) -> None:
            await asyncio.sleep(SLOW_S if asyncio.get_running_loop().time() < SLOW_S else 0)

        asked = AskedLooks(look, lambda _: True, virtual_ambient())
        loop = asyncio.ensure_future(asked.run())
        waited = []
        for pause_s in (SLOW_S, SLOW_S, 1.0):
            began_s = asyncio.get_running_loop().time()
            await asked.wait(TIP)
            waited.append(round(asyncio.get_running_loop().time() - began_s, 3))
            await asyncio.sleep(pause_s)
        assert waited == [WAIT_S, 0, 0]
        await asyncio.sleep(1)
        loop.cancel()

    run_virtually(main)


def test_partitions_that_wait_at_the_same_time_are_looked_at_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with of_two(tmp_path) as beside:
            await beside.announce()
            looks, asked = [], beside.node.parts.asked_looks
            look = asked.look

            async def spied(some: Collection[TopicIdPartition]) -> None:
                looks.append(some)
                await look(some)

            asked.look = spied
            two = (beside.tip, beside.others.partition)
            calls = [beside.plugin.look_up(tip, 0, 12) for tip in (*two, *two)]
            found = [each is not None for each in await asyncio.gather(*calls)]
            assert found == [True, False, True, False]
            assert looks == [two]

    run_virtually(main)


class SlowTeller(TellingBroker):
    slow = False

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        known = await FakeBroker.leadership(self, partitions)
        if self.slow and len(partitions) > 1:
            await asyncio.sleep(SLOW_S)
        return known


def test_a_broker_on_an_unseen_disk_is_asked_about_that_partition_alone(tmp_path: Path) -> None:
    async def main() -> None:
        quick = telling_broker()
        other = TopicIdPartition(TIP.topic, TIP.topic_id, TIP.partition + 1)
        words = {(tip.topic, tip.partition): Leads(2, 25) for tip in (TIP, other)}
        broker = SlowTeller(
            {**words}, quick.config, quick.local_start, quick.ids, epochs=quick.epochs
        )
        async with far(tmp_path, broker) as (_, plugin):
            await plugin.announce(TIP, other)
            await asyncio.sleep(2)
            row = segment(TIP, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, b"custom")
            broker.slow = True
            await asyncio.sleep(10)
            plugin.seq += 1
            await plugin.announce(TIP, other)
            assert await plugin.look_up(TIP, 0, 5) is not None
            assert not (await plugin.ready(other))[0]

    run_virtually(main)


def tips(count: int) -> tuple[TopicIdPartition, ...]:
    return tuple(TopicIdPartition("orders", uuid(1), number) for number in range(count))


def test_the_first_that_wait_are_looked_at_first_and_no_more_than_the_bound() -> None:
    asked = tips(asked_looks.PARTITIONS_PER_LOOK + 3)
    assert next_look(asked, lambda tip: tip.partition != 1) == (asked[0], *asked[2:-2])
    assert next_look(asked, lambda _: False) == ()


def test_all_that_wait_are_looked_at_in_turn_also_behind_a_look_that_fails() -> None:
    async def main() -> None:
        looks: list[int] = []
        unlooked = set(tips(120))

        async def look(asked: Collection[TopicIdPartition]) -> None:
            looks.append(len(asked))
            unlooked.difference_update(asked)
            if len(looks) == 1:
                raise RuntimeError("a test")

        asked = AskedLooks(look, unlooked.__contains__, virtual_ambient())
        loop = asyncio.ensure_future(asked.run())
        await asyncio.gather(*(asked.wait(tip) for tip in tips(120)))
        assert looks == [50, 50, 20]
        await asked.wait(tips(1)[0])  # known by now
        assert looks == [50, 50, 20]
        unlooked.add(tips(1)[0])
        await asked.wait(tips(1)[0])
        assert looks == [50, 50, 20, 1]
        loop.cancel()

    run_virtually(main)


def test_more_than_the_bound_waits_for_the_looks_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_looks, "ASKED_MAX", 2)

    async def main() -> None:
        async def look(_asked: Collection[TopicIdPartition]) -> None:
            raise AssertionError

        asked = AskedLooks(look, lambda _: True, virtual_ambient())
        times = []
        for tip in tips(3):
            began_s = asyncio.get_running_loop().time()
            await asked.wait(tip)
            times.append(asyncio.get_running_loop().time() - began_s)
        assert times == [WAIT_S, WAIT_S, 0]

    run_virtually(main)
