"""A topic is deleted and made again between a look at its directory and the broker's answer, which
is asked by name: the answer is of the new topic, and nothing follows from it for the old one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import PARTITION_METADATA_FILE
from kafka_formats.properties import encode_partition_metadata
from rlm.control.why_not import WhyNot
from rlm.copy.scanner import TopicPartition
from rlm.fetch.follower_start import FollowerFetchQuery
from rlm.leadership.leadership import BrokerWord, Leads, LocalLogStart, NoAnswer, NotLeading
from rlmm.records.control_records import LogStart, LostRange, PartitionClaim
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)
NEW_ID = Uuid(b"orders-made-anew")


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def make_again(log: KafkaLog) -> None:
    """As far as the old one, in the same epoch: by its name alone nothing tells them apart."""
    shutil.rmtree(log.directory)
    log.directory.mkdir()
    metadata = log.directory / PARTITION_METADATA_FILE
    metadata.write_bytes(encode_partition_metadata(NEW_ID))
    log.set_epochs((0, 0))
    log.write(0, 10, 20, end=25)


@dataclass(slots=True)
class BrokerOfALaterTime(FakeBroker):
    """`right_before` is done when it is asked what is named, once."""

    asked: str = "leadership"
    right_before: Callable[[], None] | None = None

    def _now(self, asked: str) -> None:
        if self.right_before is not None and asked == self.asked:
            happens, self.right_before = self.right_before, None
            happens()

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        self._now("leadership")
        return await FakeBroker.leadership(self, partitions)

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        self._now("local_log_start")
        return await FakeBroker.local_log_start(self, partitions)


def recorded(node: Node, log: KafkaLog, *kinds: type) -> list[object]:
    return [
        each for _, each in node.accepted if type(each) in kinds and each.partition == log.partition
    ]


@pytest.mark.parametrize(
    "happens",
    [make_again, lambda log: shutil.rmtree(log.directory)],
    ids=["made again", "only deleted"],
)
def test_the_deleted_topic_is_not_claimed(
    tmp_path: Path, orders: KafkaLog, happens: Callable[[KafkaLog], None]
) -> None:
    broker = BrokerOfALaterTime({ORDERS: Leads(0, 25)}, right_before=lambda: happens(orders))

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert recorded(node, orders, PartitionClaim) == []
            assert report.partitions[0].why_not is WhyNot.BROKER_UNAVAILABLE
            assert str(orders.directory) in report.partitions[0].text
            again = await node.remote_log.run_once()
            assert len(again.copied) == (2 if happens is make_again else 0)
            assert {each.segment_id.partition.topic_id for each in again.copied} <= {NEW_ID}

    run_virtually(main)


def test_a_broker_that_answers_as_before_is_believed_without_another_look_at_the_disk(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[Path] = []
    broker = FakeBroker({ORDERS: Leads(0, 10)})
    monkeypatch.setattr(
        "rlm.copy.scanner.why_another", lambda directory, _: looks.append(directory)
    )

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            await node.remote_log.run_once()
            assert len(looks) == 1
            broker.words[ORDERS] = Leads(0, 20)
            await node.remote_log.run_once()
            assert looks == [orders.directory, orders.directory]

    run_virtually(main)


def test_what_the_new_topics_broker_says_is_not_recorded_of_the_old_ones_log(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The broker is asked once more before a log start is recorded."""
    broker = BrokerOfALaterTime({ORDERS: Leads(0, 25)})

    async def claimed(name: str) -> None:
        if name == "after claim_partition" and broker.right_before is None:
            broker.right_before = lambda: make_again(orders)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker, hook=claimed) as node:
            report = await node.remote_log.run_once()
            assert recorded(node, orders, LogStart, LostRange) == []
            assert report.partitions[0].why_not is WhyNot.BROKER_UNAVAILABLE

    run_virtually(main)


def test_the_new_topics_log_start_makes_no_offset_of_the_old_one_lost(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Files are gone at the head, and the broker is asked where its log starts."""
    broker = BrokerOfALaterTime(
        {ORDERS: Leads(0, 25)}, local_start=LocalLogStart(20, 0), asked="local_log_start"
    )

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        early = FakeBroker({ORDERS: Leads(0, 10)})
        async with world.boot(broker=early) as node:
            await node.remote_log.run_once()
            assert node.finished(orders.partition) == [(0, 9)]
        for base in (0, 10):
            for path in orders.directory.glob(f"{base:020}.*"):
                path.unlink()
        broker.right_before = lambda: make_again(orders)
        async with world.boot(broker=broker) as node:
            report = await node.remote_log.run_once()
            assert recorded(node, orders, LogStart, LostRange) == []
            assert report.partitions[0].why_not is WhyNot.BROKER_UNAVAILABLE

    run_virtually(main)


def test_a_follower_of_the_old_topic_is_not_answered_by_the_new_ones_log_start(
    tmp_path: Path, orders: KafkaLog
) -> None:
    broker = BrokerOfALaterTime(
        {ORDERS: Leads(0, 25)}, local_start=LocalLogStart(20, 0), asked="local_log_start"
    )

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
            await node.remote_log.run_once()
            query = FollowerFetchQuery(orders.partition, 0, 0, None)
            answer = await node.parts.answers.follower_fetch(query)
            assert answer.leader_local_log_start_offset == 20
            broker.right_before = lambda: make_again(orders)
            with pytest.raises(RetryLater, match=str(orders.directory)):
                await node.parts.answers.follower_fetch(query)

    run_virtually(main)
