"""[LOSS-9] Records of a copied segment that a later leader does not have never reach the broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest

from kafka_formats import leader_epoch_checkpoint, transaction_index
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.transaction_index import AbortedTransaction
from rlm.delegated.diverged_tail import aborted_until, epochs_until, last_valid_offset
from rlm.delegated.segment_reads import SegmentReads
from rlm.format.manifest import IndexType
from rlm.leadership.leadership import Leads, NotLeading
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import PluginClient, files_of, of_disk, refused
from tests.rlm.delegated.test_copies import LEADER_EPOCHS, beside
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.planner_facts import epochs, segment_row
from tests.rlm.virtual_time import run_virtually

FINISHED = SegmentState.COPY_SEGMENT_FINISHED
PRODUCERS = 2
SNAPSHOT = IndexType.PRODUCER_SNAPSHOT


@pytest.mark.parametrize(
    ("of_segment", "lineage", "last"),
    [
        (((1, 10),), ((1, 0),), None),
        (((1, 10),), ((1, 0), (2, 20)), None),
        (((1, 10),), ((1, 0), (2, 15)), 14),
        (((1, 10), (2, 15)), ((1, 0), (3, 15)), 14),
        (((1, 10), (2, 15)), ((1, 0), (3, 12)), 11),
        (((1, 10), (2, 15)), ((1, 0), (2, 15)), None),
        (((2, 10),), ((1, 0), (3, 10)), 9),  # nothing of it is the partition's
        (((1, 10),), ((2, 30),), None),  # the log start passed it
        (((1, 10), (2, 15)), ((2, 17),), None),  # the log start is inside
        (((1, 10),), (), None),
    ],
)
def test_a_segment_ends_where_a_later_history_begins(
    of_segment: tuple[tuple[int, int], ...],
    lineage: tuple[tuple[int, int], ...],
    last: int | None,
) -> None:
    row = replace(segment_row(1, 10, 19), leader_epochs=of_segment)
    assert last_valid_offset(row, epochs(*lineage)) == last


def test_the_leader_epochs_of_a_diverged_tail_are_left_out() -> None:
    checkpoint = leader_epoch_checkpoint.encode(epochs((1, 0), (2, 15)))
    assert epochs_until(checkpoint, 14) == leader_epoch_checkpoint.encode(epochs((1, 0)))
    assert epochs_until(checkpoint, 15) == checkpoint


def test_the_aborts_of_a_diverged_tail_are_left_out() -> None:
    before, behind = AbortedTransaction(7, 10, 13, 14), AbortedTransaction(8, 12, 16, 17)
    index = transaction_index.encode((before, behind))
    assert aborted_until(index, 15) == transaction_index.encode((before,))
    assert aborted_until(index, 16) == index
    assert aborted_until(index, 12) == b""


@pytest.mark.parametrize("index", [each for each in IndexType if each != SNAPSHOT])
def test_no_index_that_the_broker_believes_goes_beyond_the_cut(index: IndexType) -> None:
    bodies = {
        IndexType.LEADER_EPOCH: leader_epoch_checkpoint.encode(epochs((1, 10), (2, 15))),
        IndexType.TRANSACTION: transaction_index.encode((AbortedTransaction(8, 12, 16, 17),)),
    }
    lines = {
        IndexType.LEADER_EPOCH: leader_epoch_checkpoint.encode(epochs((1, 10))),
        IndexType.TRANSACTION: b"",
    }

    async def open_index(_id: Uuid, index: IndexType) -> AsyncIterator[bytes]:
        yield bodies.get(index, b"as it is")

    reads = Mock(open_index=open_index)
    reads.metadata.partition_state.return_value.lineage = epochs((1, 0), (3, 15))

    async def read() -> bytes:
        row = replace(segment_row(1, 10, 19), leader_epochs=((1, 10), (2, 15)))
        of_broker = SegmentReads(reads, lambda _: (), lambda _: None)
        return b"".join([chunk async for chunk in of_broker.index(row, index)])

    assert asyncio.run(read()) == lines.get(index, b"as it is")


def log_of_two_epochs(tmp_path: Path) -> KafkaLog:
    """Its middle segment has the end of epoch 0 and the beginning of epoch 1."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0), (1, 17)))
    orders.write(0, end=10)
    orders.write_across(10, 17, 20, epochs=(0, 1))
    orders.write(20, end=25, epoch=1)
    return orders


async def copied_across(plugin: PluginClient, orders: KafkaLog) -> RemoteLogSegmentMetadata:
    """That segment, once its broker had it copied."""
    row = replace(of_disk(orders, 1, 10, 19), leader_epochs=((0, 10), (1, 17)))
    await plugin.add(row)
    await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
    return row


def elected_unclean(orders: KafkaLog, broker: FakeBroker) -> None:
    """Another leader has other records from 15 on."""
    for _ in range(2):  # the files, the checkpoint, and files that are newer than that
        orders.write_across(10, 15, 20, epochs=(0, 2))
        orders.write(20, end=25, epoch=2)
        orders.set_epochs((0, 0), (2, 15))
    broker.words[orders.partition.topic, 0] = Leads(2, 25)


def test_the_broker_reads_a_segment_up_to_where_its_leader_has_other_records(
    tmp_path: Path,
) -> None:
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders, epoch=1)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            row = await copied_across(plugin, orders)
            assert await plugin.look_up(tip, 0, 12) is not None
            assert b"1 17" in await plugin.index(row, LEADER_EPOCHS)
            log = orders.log_bytes(10)
            elected_unclean(orders, broker)
            await asyncio.sleep(60)
            found = await plugin.look_up(tip, 0, 12)
            assert found is not None
            cut = found.size_bytes
            assert found.end_offset == 14  # where a follower goes on that builds on this segment
            assert await plugin.fetch(found, 0, cut) == log[:cut]
            assert log.find(b"v14") < cut < log.find(b"v15")
            assert (await refused(plugin.fetch(found, 0, cut + 1))).kind == "invalid_request"
            told = await refused(plugin.fetch(row, 0, row.size_bytes))
            assert told.kind == "retry_later"
            assert "look it up again" in told.detail
            assert b"1 17" not in await plugin.index(found, LEADER_EPOCHS)
            for number in (LEADER_EPOCHS, PRODUCERS):
                assert "look it up again" in (await refused(plugin.index(row, number))).detail
            told = await refused(plugin.index(found, PRODUCERS))
            assert "no tiered segment that ends at offset" in told.detail
            assert await plugin.look_up(tip, 2, 15) is None
            listed = (await plugin.page(tip))[1]
            assert [each.size_bytes for each in listed or ()] == [len(log)]

    run_virtually(main)


def test_nothing_is_read_of_a_segment_before_its_new_leader_was_looked_at(tmp_path: Path) -> None:
    """The broker announces that it leads; where its history cuts what was copied is not known."""
    orders = log_of_two_epochs(tmp_path)

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders, epoch=1)
        async with beside(tmp_path, orders, broker=broker) as (node, plugin):
            node.parts.asked_looks.look = AsyncMock()  # no look at it alone
            row = await copied_across(plugin, orders)
            assert await plugin.look_up(tip, 0, 12) is not None
            elected_unclean(orders, broker)
            plugin.seq += 1
            await plugin.announce(tip)
            await asyncio.sleep(0.05)
            for call in (
                plugin.look_up(tip, 0, 12),
                plugin.look_up(tip, 0, 12, with_txn_index=True),
                plugin.fetch(row, 0, row.size_bytes),
                plugin.index(row, LEADER_EPOCHS),
                plugin.index(row, PRODUCERS),
            ):
                told = await refused(call)
                assert told.kind == "retry_later"
                assert "has not looked at its broker since" in told.detail
            await asyncio.sleep(60)
            found = await plugin.look_up(tip, 0, 12)
            assert found is not None
            assert found.end_offset == 14

    run_virtually(main)


def test_a_claim_that_is_refused_gives_the_broker_no_record_that_it_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rlmm.apply.claims.LINEAGE_CUT_OFFSETS_MAX", 3)
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)

    async def main() -> None:
        tip, broker = orders.partition, broker_of(orders)
        async with beside(tmp_path, orders, broker=broker) as (_, plugin):
            for row in (of_disk(orders, 1, 0, 9), of_disk(orders, 2, 10, 19)):
                await plugin.add(row)
                await plugin.update(row, FINISHED, await plugin.copy(files_of(orders, row)))
            below = await plugin.look_up(tip, 0, 2)
            assert below is not None
            elected_unclean(orders, broker)
            await asyncio.sleep(60)
            assert "(limit 3)" in (await refused(plugin.highest(tip, 0))).detail
            for call in (
                plugin.look_up(tip, 0, 12),
                plugin.fetch(row, 0, row.size_bytes),
                plugin.index(row, LEADER_EPOCHS),
            ):
                told = await refused(call)
                assert told.kind == "retry_later"
                assert "no claim at leader epoch 2" in told.detail
            assert await plugin.look_up(tip, 0, 2) == below
            broker.words[tip.topic, 0] = NotLeading()  # consumers may read from followers, too
            await asyncio.sleep(60)
            assert (await refused(plugin.fetch(row, 0, row.size_bytes))).kind == "retry_later"

    run_virtually(main)
