"""A leadership that moves is noticed long before the next look at the log directories."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from rlm.control.run_events import ClaimLost, PartitionClaimed
from rlm.control.surroundings import Ambient
from rlm.control.why_not import WhyNot
from rlm.copy.leadership_watch import LOOKS_AFTER_GAIN, LeadershipWatch
from rlm.copy.partition_status import Role
from rlm.copy.scanner import TopicPartition
from rlm.leadership.announced import NoPlugin
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer, NotLeading
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionClaim
from rlmm.segment import Incarnation
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Steps, new_world
from tests.rlm.planner_facts import epochs, uuid
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)
SOON_S = 1.0
SELDOM = replace(LIMITS, scan_interval_s=3_000.0)
"""The looks of the interval come too late for every test here."""


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_a_copy_is_cancelled_within_a_second_of_losing_the_leadership(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        steps = Steps("before put .indexes")
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, hook=steps, limits=SELDOM) as node:
            await node.remote_log.start()
            await steps.stopped.wait()
            broker.words[ORDERS] = NotLeading()
            await asyncio.sleep(SOON_S)
            page = node.remote_log.status(orders.partition)
            assert (page.role, page.copying) == (Role.FOLLOWER, None)
            assert page.why_not_copying is WhyNot.NOT_LEADER
            assert [type(each) for each in node.events].count(ClaimLost) == 1

    run_virtually(main)


def test_a_partition_led_anew_is_claimed_and_copied_at_once(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: NotLeading()})
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(100)
            assert node.finished(orders.partition) == []
            orders.set_epochs((0, 0), (2, 25))
            broker.words[ORDERS] = Leads(2, 25)
            await asyncio.sleep(SOON_S)
            assert len(node.finished(orders.partition)) == 2

    run_virtually(main)


def test_a_checkpoint_that_comes_after_the_brokers_word_is_waited_for(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(SOON_S)
            broker.words[ORDERS] = Leads(1, 25)
            await asyncio.sleep(SOON_S)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.EPOCH_NOT_ON_DISK
            orders.set_epochs((0, 0), (1, 25))
            await asyncio.sleep(SOON_S)
            claims = [each for each in node.events if isinstance(each, PartitionClaimed)]
            assert [each.leader_epoch for each in claims] == [0, 1]

    run_virtually(main)


def test_another_nodes_claim_ends_the_copy_also_where_the_broker_is_silent(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        steps = Steps("before put .indexes")
        broker = FakeBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        often = replace(LIMITS, scan_interval_s=5.0)
        async with world.boot(broker=broker, hook=steps, limits=often) as node:
            await node.remote_log.start()
            await steps.stopped.wait()
            broker.words[ORDERS] = NoAnswer("connection refused")
            await asyncio.sleep(20)
            assert node.remote_log.status(orders.partition).copying is not None
            await node.metadata.claim_partition(
                PartitionClaim(
                    orders.partition, Mode.SIDECAR, 4, Incarnation(7, uuid(77), 1), 1,
                    epochs((0, 0), (4, 25)),
                )
            )  # fmt: skip
            await asyncio.sleep(SOON_S)
            assert node.remote_log.status(orders.partition).copying is None
            assert [type(each) for each in node.events].count(ClaimLost) == 1

    run_virtually(main)


class CountingBroker(FakeBroker):
    """Counts the looks: each asks for the configs once."""

    looks = 0

    async def topic_configs(self, topics: Sequence[str]):  # type: ignore[no-untyped-def]
        self.looks += 1
        return {each: NoAnswer("not now") for each in topics}


def test_what_cannot_be_claimed_is_looked_at_a_few_times_and_then_left_to_the_interval(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = CountingBroker({ORDERS: Leads(0, 25)})
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(1_000)
            assert broker.looks == 1 + LOOKS_AFTER_GAIN

    run_virtually(main)


def test_many_partitions_are_asked_for_in_several_questions_and_pauses_grow_with_them(
    tmp_path: Path,
) -> None:
    log_dir = new_log_dir(tmp_path / "kafka")
    for number in range(260):
        KafkaLog.create(log_dir, "orders", number, entries=()).write(0, end=0)

    class SlowBroker(FakeBroker):
        questions: list[int] = []  # noqa: RUF012

        async def leadership(
            self, partitions: Sequence[TopicPartition]
        ) -> dict[TopicPartition, BrokerWord]:
            self.questions.append(len(partitions))
            await asyncio.sleep(1)
            return dict.fromkeys(partitions, NotLeading())

    async def main() -> None:
        broker = SlowBroker()
        async with new_world(tmp_path, (log_dir,)).boot(broker=broker, limits=SELDOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(80)
            assert broker.questions[:3] == [260, 250, 10]
            assert len(broker.questions) == 1 + 2 * 4

    run_virtually(main)


def test_a_log_directory_that_is_away_is_told_without_a_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async def look() -> None:
            raise InvalidRequest("not a Kafka log directory", field="log_dirs")

        async def cancelled(_: float) -> None:
            raise asyncio.CancelledError

        ambient = Ambient(lambda: 0, lambda: 0.0, cancelled, lambda: 0.5, lambda: uuid(1))
        news = NoPlugin()
        news.take_news = lambda: True  # type: ignore[method-assign]
        watch = LeadershipWatch(
            FakeBroker({}), lambda: (), lambda _: None, look, ambient, 1.0, news
        )
        with pytest.raises(asyncio.CancelledError):
            await watch.run()

    asyncio.run(main())
    (record,) = caplog.records
    assert (record.levelname, record.exc_info) == ("WARNING", None)
    assert "not a Kafka log directory" in record.getMessage()
