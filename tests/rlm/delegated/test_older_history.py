"""[LOSS-8] A later leader whose log begins above what nodes tiered before the brokers did."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlm.delegated import deletions, wire
from rlm.delegated.older_history import is_kept
from rlm.leadership.leadership import Leads, NoAnswer, NotLeading, TopicConfig
from rlm.leadership.unseen_disk import EpochAt
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import PartitionModeChange
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.delegated.delegating import COUNTED, TIERED, broker_of
from tests.rlm.delegated.plugin_client import PluginClient, client_of, refused, segment
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.planner_facts import ONE_EPOCH, epochs, segment_row, state
from tests.rlm.virtual_time import run_virtually

Entries = tuple[tuple[int, int], ...]
DELETING = SegmentState.DELETE_SEGMENT_STARTED
FINISHED = SegmentState.COPY_SEGMENT_FINISHED


@asynccontextmanager
async def switched(
    tmp_path: Path, orders: KafkaLog, broker: FakeBroker, *, entries: Entries = ()
) -> AsyncIterator[tuple[Node, PluginClient]]:
    """A node that tiered 0 to 19 itself; the broker does since, and leads at epoch 1. With
    `entries` the broker did from the beginning, and nothing is tiered yet.
    """
    tip = orders.partition
    if not entries:
        broker.config = TopicConfig("delete", -1, -1, False)
    async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
        plugin = client_of(node)
        if not entries:
            await node.remote_log.run_once()
            assert node.finished(tip) == [(0, 9), (10, 19)]
            before = state_of(node, orders).mode_offset
            await node.metadata.set_partition_mode(PartitionModeChange(tip, Mode.DELEGATED, before))
            broker.config = TIERED
        lead(broker, orders, 1, *(entries or ((0, 0), (1, 25))))
        await node.remote_log.start()
        async with plugin.http:
            await plugin.announce(tip)
            await asyncio.sleep(30)
            assert await plugin.ready(tip) == (True, "")
            yield node, plugin
        await node.remote_log.close()


def lead(broker: FakeBroker, orders: KafkaLog, epoch: int, *entries: tuple[int, int]) -> None:
    """Let the broker lead at an epoch, with these in its checkpoint."""
    orders.set_epochs(*entries)
    broker.words[(orders.partition.topic, orders.partition.partition)] = Leads(epoch, 25)


def state_of(node: Node, orders: KafkaLog) -> PartitionState:
    state = node.metadata.partition_state(orders.partition)
    assert state is not None
    return state


async def listed(plugin: PluginClient, orders: KafkaLog) -> list[RemoteLogSegmentMetadata]:
    return list((await plugin.page(orders.partition))[1] or ())


def test_what_a_new_leader_lacks_stays_until_its_log_start_moves(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        broker.tiered_start = EpochAt(0, 10)
        async with switched(tmp_path, orders, broker) as (node, plugin):
            first, second = await listed(plugin, orders)
            for _ in range(2):
                told = await refused(plugin.update(first, DELETING))
                assert (told.kind, told.reason) == ("retry_later", "")
                assert "log began at 10" in told.detail
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            shown = node.remote_log.status(orders.partition).last_error
            assert shown is not None
            assert shown.text == told.detail
            broker.tiered_start = EpochAt(0, 20)  # DeleteRecords, or retention
            await plugin.update(first, DELETING)
            assert state_of(node, orders).log_start_offset == 20
            broker.tiered_start = NoAnswer("not asked again")
            await plugin.update(second, DELETING)
            assert node.finished(orders.partition) == []

    run_virtually(main)


def test_what_a_new_leader_lacks_does_not_count_as_kept(tmp_path: Path, orders: KafkaLog) -> None:
    """A broker counts all segments that it is listed, and deletes as much of what is readable. Its
    look-ups have the size.
    """

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        broker.tiered_start = EpochAt(0, 10)
        async with switched(tmp_path, orders, broker) as (_, plugin):
            broker.config = COUNTED
            for epoch in (wire.ALL_EPOCHS, 0):
                first, second = (await plugin.page(tip, epoch))[1] or ()
                assert (first.size_bytes, second.size_bytes > 0) == (0, True)
            for each in (first, second):
                found = await plugin.look_up(tip, 0, each.start_offset)
                assert found is not None
                assert found.size_bytes > 0

    run_virtually(main)


def test_what_does_not_count_is_known_from_the_claim_before(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A run that a change of leaders comes into goes on: it has listed all, and lists epochs."""

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        broker.tiered_start = EpochAt(0, 10)
        async with switched(tmp_path, orders, broker) as (_, plugin):
            await listed(plugin, orders)
            lead(broker, orders, 2, (0, 0), (2, 25))
            await asyncio.sleep(60)
            broker.tiered_start = NoAnswer("it is busy")
            first, second = (await plugin.page(tip, 0))[1] or ()
            assert (first.size_bytes, second.size_bytes > 0) == (0, True)
            broker.tiered_start = EpochAt(0, 9)  # its log was begun anew
            assert all(row.size_bytes > 0 for row in (await plugin.page(tip, 0))[1] or ())

    run_virtually(main)


def test_what_stays_below_the_log_start_stops_no_expiration(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its log start would never move, which they wait for."""
    monkeypatch.setattr(deletions, "MARKED_BY_CALL", 1)

    async def main() -> None:
        broker = broker_of(orders)
        broker.tiered_start = EpochAt(0, 20)
        async with switched(tmp_path, orders, broker) as (node, plugin):
            broker.config = COUNTED
            assert [row.state for row in await listed(plugin, orders)] == [FINISHED, FINISHED]
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]

    run_virtually(main)


@pytest.mark.parametrize("config", [TIERED, COUNTED])
def test_what_lies_behind_that_goes(tmp_path: Path, orders: KafkaLog, config: TopicConfig) -> None:
    """A run of the broker ends at the first segment that it must not delete."""

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with switched(tmp_path, orders, broker) as (node, plugin):
            await plugin.add(segment(tip, 9, 20, 22))
            await plugin.update(segment(tip, 9, 20, 22), FINISHED, b"custom")
            broker.config, broker.tiered_start = config, EpochAt(0, 23)  # DeleteRecords
            lead(broker, orders, 2, (0, 0), (2, 25))
            await asyncio.sleep(60)
            rows = await listed(plugin, orders)
            assert "began at 23" in (await refused(plugin.update(rows[0], DELETING))).detail
            assert node.finished(tip) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_a_log_start_that_moves_behind_the_first_list_counts(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        async with switched(tmp_path, orders, broker) as (node, plugin):
            first, second = await listed(plugin, orders)
            broker.tiered_start = EpochAt(0, 12)
            await plugin.update(first, DELETING)
            assert "12 now" in (await refused(plugin.update(second, DELETING))).detail
            assert node.finished(orders.partition) == [(10, 19)]

    run_virtually(main)


def test_what_the_log_start_passed_before_anything_was_listed_is_not_known(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        broker.tiered_start = NoAnswer("it starts")
        async with switched(tmp_path, orders, broker) as (_, plugin):
            assert "it starts" in (await refused(listed(plugin, orders))).detail
            (first, _) = (await plugin.page(orders.partition, 0))[1] or ()
            assert "it starts" in (await refused(plugin.update(first, DELETING))).detail
            broker.tiered_start = NotLeading()
            assert "does not lead" in (await refused(plugin.update(first, DELETING))).detail
            broker.tiered_start = EpochAt(0, 10)
            assert "began at 10" in (await refused(plugin.update(first, DELETING))).detail
            broker.tiered_start = EpochAt(0, 11)
            await plugin.update(first, DELETING)

    run_virtually(main)


def test_a_log_start_that_the_broker_takes_from_the_list_proves_nothing(
    tmp_path: Path,
) -> None:
    """Of its first epoch, 1 from 10 on, the tier has nothing below 13: it begins there."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0), (1, 10)))
    orders.write(0, end=10)
    orders.write(10, 20, end=25, epoch=1)

    async def main() -> None:
        broker, tip = broker_of(orders), orders.partition
        async with switched(tmp_path, orders, broker, entries=((0, 0), (1, 10))) as (node, plugin):
            head = replace(segment(tip, 1, 0, 4), leader_epochs=(EpochEntry(0, 0),))
            tail = replace(segment(tip, 2, 13, 19), leader_epochs=(EpochEntry(1, 13),))
            for row in (head, tail):
                await plugin.add(row)
                await plugin.update(row, FINISHED, b"custom")
            for mode in (Mode.PAUSED, Mode.DELEGATED):
                before = state_of(node, orders).mode_offset
                await node.metadata.set_partition_mode(PartitionModeChange(tip, mode, before))
            await asyncio.sleep(10)
            broker.tiered_start = EpochAt(1, 10)
            lead(broker, orders, 2, (1, 10), (2, 25))
            await asyncio.sleep(60)
            assert await plugin.ready(tip) == (True, "")
            await listed(plugin, orders)
            broker.tiered_start = EpochAt(1, 13)
            assert "began at 13" in (await refused(plugin.update(head, DELETING))).detail
            broker.tiered_start = EpochAt(1, 14)
            await plugin.update(head, DELETING)

    run_virtually(main)


def test_a_deleted_topic_goes_with_all_that_was_tiered(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        broker.tiered_start = EpochAt(0, 10)
        async with switched(tmp_path, orders, broker) as (node, plugin):
            rows = await listed(plugin, orders)
            shutil.rmtree(orders.directory)
            broker.tiered_start = NoAnswer("unknown topic")
            broker.unknown_topics = True
            for row in rows:
                await plugin.update(row, DELETING)
            assert node.finished(orders.partition) == []

    run_virtually(main)


@pytest.mark.parametrize("unknown", [False, NoAnswer("next attempt in 1.0 s")])
def test_a_replica_that_is_moved_away_takes_nothing_with_it(
    tmp_path: Path, orders: KafkaLog, unknown: bool | NoAnswer
) -> None:
    """Its broker renames the directory first, and ends the tasks of its remote log manager then."""

    async def main() -> None:
        broker = broker_of(orders)
        broker.tiered_start, broker.unknown_topics = EpochAt(0, 10), unknown
        async with switched(tmp_path, orders, broker) as (node, plugin):
            rows = await listed(plugin, orders)
            shutil.rmtree(orders.directory)
            for row in rows:
                assert (await refused(plugin.update(row, DELETING))).kind == "retry_later"
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_what_the_broker_tiered_itself_goes_unasked(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        broker = broker_of(orders)
        async with switched(tmp_path, orders, broker) as (node, plugin):
            row = segment(orders.partition, 9, 20, 24)
            await plugin.add(row)
            await plugin.update(row, FINISHED, b"custom")
            broker.tiered_start = NoAnswer("not asked")
            await plugin.update(row, DELETING)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_only_what_the_partition_still_has_from_before_the_mode_is_kept() -> None:
    row = replace(segment_row(1, 10, 19), token=6, upload_deadline_ms=1)
    before = replace(state(lineage=ONE_EPOCH), mode_offset=7)
    assert is_kept(row, before)
    assert not is_kept(replace(row, token=7), before)
    assert is_kept(replace(row, token=7, upload_deadline_ms=-1), before), "adopted"
    assert is_kept(row, replace(before, log_start_offset=19))
    assert not is_kept(row, replace(before, log_start_offset=20))
    assert is_kept(row, replace(before, lineage=epochs((0, 0), (2, 15))))
    assert not is_kept(row, replace(before, lineage=epochs((0, 0), (2, 10)))), "cut off"
    assert is_kept(row, replace(before, lineage=epochs((1, 12)))), "a head that is known no more"
