"""[LOSS-9] A follower's log is built once its leader's claim tells where segments end."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated.follower_builds import FollowerBuilds
from rlm.leadership.leadership import NoAnswer, NotLeading
from rlmm.partition_state import Mode
from rlmm.records.control_records import PartitionClaim
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata
from tests.rlm.delegated.delegating import announcement, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, refused
from tests.rlm.delegated.test_copies import LEADER_EPOCHS, beside
from tests.rlm.delegated.test_diverged_tail import PRODUCERS, copied_across, log_of_two_epochs
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node
from tests.rlm.planner_facts import epochs, uuid
from tests.rlm.virtual_time import run_virtually

NOT_CLAIMED = "no claim of that leader is recorded"


@dataclass(slots=True)
class Follower:
    """A follower that led at epoch 1, and its node. `row`: offsets 10 to 19, which it copied then;
    its disk begins above that.
    """

    node: Node
    plugin: PluginClient
    broker: FakeBroker
    orders: KafkaLog
    row: RemoteLogSegmentMetadata

    @property
    def tip(self) -> TopicIdPartition:
        return self.orders.partition

    async def lose_disk(self) -> None:
        shutil.rmtree(self.orders.directory)
        await asyncio.sleep(60)

    async def claimed(self, epoch: int, *history: tuple[int, int]) -> None:
        """The node beside the leader claims."""
        other = Incarnation(2, uuid(20), 1)
        claim = PartitionClaim(self.tip, Mode.DELEGATED, epoch, other, 1, epochs(*history), 0)
        await self.node.metadata.claim_partition(claim)


@asynccontextmanager
async def follower(tmp_path: Path, orders: KafkaLog) -> AsyncIterator[Follower]:
    tip, broker = orders.partition, broker_of(orders, epoch=1)
    async with beside(tmp_path, orders, broker=broker) as (node, plugin):
        row = await copied_across(plugin, orders)
        broker.words[tip.topic, tip.partition] = NotLeading()
        broker.followed_epoch = 1
        orders.delete_segment(0)
        orders.delete_segment(10)
        plugin.seq = 2
        await plugin.say(replace(announcement(seq=2), followers=(tip,)))
        await asyncio.sleep(30)
        yield Follower(node, plugin, broker, orders, row)


def test_a_follower_builds_on_no_segment_that_its_leader_may_cut(tmp_path: Path) -> None:
    """An unclean election, whose claim is not recorded yet, or is refused. A log that began behind
    the diverged tail would have its log start in the midst of the partition, once it is cut back.
    """
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        async with follower(tmp_path, orders) as at:
            await at.lose_disk()
            at.broker.followed_epoch = 2
            for call in (
                at.plugin.look_up(at.tip, 0, 12),
                at.plugin.index(at.row, LEADER_EPOCHS),
                at.plugin.index(at.row, PRODUCERS),
            ):
                told = await refused(call)
                assert told.kind == "retry_later"
                assert NOT_CLAIMED in told.detail
            await at.claimed(2, (0, 0), (2, 15))
            found = await at.plugin.look_up(at.tip, 0, 12)
            assert found is not None
            assert found.end_offset == 14
            assert b"1 17" not in await at.plugin.index(found, LEADER_EPOCHS)
            for number in (LEADER_EPOCHS, PRODUCERS):
                assert "look it up again" in (await refused(at.plugin.index(at.row, number))).detail

    run_virtually(main)


def test_a_follower_of_the_claimed_leader_is_built_at_once(tmp_path: Path) -> None:
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        async with follower(tmp_path, orders) as at:
            await at.lose_disk()
            found = await at.plugin.look_up(at.tip, 0, 12)
            assert found is not None
            assert found.end_offset == 19
            assert b"1 17" in await at.plugin.index(found, LEADER_EPOCHS)
            assert await at.plugin.index(found, PRODUCERS)
            at.broker.followed_epoch = 0  # older than the claim: its leader fences it
            await asyncio.sleep(5)
            assert await at.plugin.look_up(at.tip, 0, 12) == found

    run_virtually(main)


def test_consumers_of_a_follower_need_no_claim_for_what_is_below_its_disk(tmp_path: Path) -> None:
    """Its own leader epochs tell where its history ends, as of a leader."""
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        async with follower(tmp_path, orders) as at:
            at.broker.followed_epoch = 2
            found = await at.plugin.look_up(at.tip, 0, 12)
            assert found is not None
            assert await at.plugin.look_up(at.tip, 0, 12, with_txn_index=True) is None
            assert await at.plugin.fetch(found, 0, found.size_bytes)
            assert NOT_CLAIMED in (await refused(at.plugin.look_up(at.tip, 1, 20))).detail
            assert NOT_CLAIMED in (await refused(at.plugin.index(found, PRODUCERS))).detail

    run_virtually(main)


def test_a_broker_that_does_not_tell_whom_it_follows_builds_nothing(tmp_path: Path) -> None:
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        async with follower(tmp_path, orders) as at:
            await at.lose_disk()
            at.broker.followed_epoch = NoAnswer("it is away")
            for call in (
                at.plugin.look_up(at.tip, 0, 12),
                at.plugin.index(at.row, LEADER_EPOCHS),
            ):
                told = await refused(call)
                assert told.kind == "retry_later"
                assert "it is away" in told.detail

    run_virtually(main)


def test_an_answer_counts_for_a_second_and_never_for_what_a_follower_restores(
    tmp_path: Path,
) -> None:
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        async with follower(tmp_path, orders) as at:
            await at.lose_disk()
            found = await at.plugin.look_up(at.tip, 0, 12)
            assert found is not None
            at.broker.followed_epoch = 2
            assert await at.plugin.look_up(at.tip, 0, 12) == found
            assert NOT_CLAIMED in (await refused(at.plugin.index(found, LEADER_EPOCHS))).detail
            await asyncio.sleep(1)
            assert NOT_CLAIMED in (await refused(at.plugin.look_up(at.tip, 0, 12))).detail

    run_virtually(main)


def test_what_no_leader_was_claimed_for_builds_no_follower() -> None:
    """Segments of Kafka's own metadata topic, right behind the move."""
    tip, broker = TopicIdPartition("orders", uuid(1), 0), FakeBroker()
    plugin = Mock(leaders=())
    metadata = Mock()
    metadata.partition_state.return_value.last_claim = None
    builds = FollowerBuilds(plugin, metadata, Mock(return_value=None), broker, Mock())
    for offset in (None, 12):
        with pytest.raises(RetryLater, match=NOT_CLAIMED):
            asyncio.run(builds.check(tip, offset))
    metadata.partition_state.return_value = None
    asyncio.run(builds.check(tip, 12))
