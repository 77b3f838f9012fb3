"""A repair never guesses which transactions were aborted: readers of committed records go by it."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kafka_formats import transaction_index
from kafka_formats.batch_scan import scan
from kafka_formats.producer_snapshot import OpenTransaction
from rlm.data_plane.read_request import Isolation, RecordsRequest
from rlm.format.manifest import IndexType, parse_manifest
from rlm.repair.repair_run import Outcome
from rsm_backends.streams import read_all
from tests.rlm.broker_files import TOPIC_ID, ReplicaWriter, write_checkpoint
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node
from tests.rlm.repairing import copied, delete, keys_of, only, row_at
from tests.rlm.virtual_time import run_virtually

COMMITTED = RecordsRequest(0, 1 << 30, Isolation.READ_COMMITTED)


def replica(log_dir: Path, rolls: Collection[int]) -> ReplicaWriter:
    """The transaction that begins at 0 is aborted at 10, that of 11 at 15. The last segment is
    active, and ends at 34.
    """
    log = ReplicaWriter(log_dir, topic_id=TOPIC_ID)

    def roll() -> None:
        if log.next_offset in rolls:
            log.roll()

    log.append(5, producer_id=7, transactional=True)
    log.append(5)
    roll()
    log.end_transaction(7, commit=False)
    log.append(2, producer_id=8, transactional=True)
    log.append(2)
    roll()
    log.end_transaction(8, commit=False)
    log.append(4)
    roll()
    log.append(10)
    roll()
    log.append(5)
    log.flush()
    if log.aborted:
        log.path(log.base_offset, ".txnindex").write_bytes(transaction_index.encode(log.aborted))
    return log


@asynccontextmanager
async def without(tmp_path: Path, *suffixes: str) -> AsyncIterator[tuple[Node, KafkaLog]]:
    """A node whose segment at 10 lacks these objects."""
    log_dir = new_log_dir(tmp_path / "kafka")
    log = replica(log_dir, (10, 20, 30))
    write_checkpoint(log_dir, "replication-offset-checkpoint", {("orders", 0): 35})
    orders = KafkaLog(log_dir, log.partition)
    async with copied(tmp_path, orders) as node:
        for suffix in suffixes:
            await delete(node.store, getattr(keys_of(row_at(node, orders, 10)), suffix))
        yield node, orders


async def rolled_at(node: Node, orders: KafkaLog, *rolls: int, start: int = 0) -> None:
    """The broker's log is another replica's now."""
    shutil.rmtree(orders.directory)
    replica(orders.log_dir, rolls).cut_head(start)
    await node.remote_log.start()
    await asyncio.sleep(30)


async def committed(node: Node, orders: KafkaLog) -> list[int]:
    """The offsets of the records that a reader of committed ones gets."""
    pieces = node.parts.reads.records(orders.partition, COMMITTED)
    data = b"".join([piece async for piece in pieces])
    return [
        offset
        for batch in scan(data, source="read")
        for offset in range(batch.header.base_offset, batch.header.last_offset + 1)
    ]


RIGHT = [*range(5, 10), 13, 14, *range(16, 30)]


async def index_of(node: Node, orders: KafkaLog, index: IndexType) -> bytes:
    """An index of the segment at 10, as it was put into the store."""
    row = row_at(node, orders, 10)
    pieces = node.parts.reads.open_index(row.segment_id.id, index)
    return b"".join([piece async for piece in pieces])


async def open_at_base(node: Node, orders: KafkaLog) -> tuple[OpenTransaction, ...] | None:
    """By the manifest of the segment at 10."""
    data = await read_all(node.store, keys_of(row_at(node, orders, 10)).manifest)
    sums = parse_manifest(data, source="test").checksums
    assert sums is not None
    return sums.open_at_base


async def assert_left(node: Node, orders: KafkaLog, why: str) -> None:
    old = row_at(node, orders, 10)
    told = await only(node)
    assert told.outcome is Outcome.UNREPAIRABLE, told
    assert why in told.text
    assert "no source has its whole transaction index, which has entries" in told.text
    assert row_at(node, orders, 10) == old


@pytest.mark.parametrize("suffixes", [("indexes",), ("indexes", "manifest")])
def test_a_log_that_has_only_the_end_of_a_segment_does_not_know_its_aborts(
    tmp_path: Path, suffixes: tuple[str, ...]
) -> None:
    async def main() -> None:
        async with without(tmp_path, *suffixes) as (node, orders):
            await rolled_at(node, orders, 15, 20, 30, start=15)
            await assert_left(node, orders, "the broker's segments: they lack some of the segment")

    run_virtually(main)


@pytest.mark.parametrize("rolls", [(5, 15, 20, 30), (5, 15), (5,), (10, 20, 30)])
def test_a_log_that_has_all_of_a_segment_knows_them_wherever_it_rolled(
    tmp_path: Path, rolls: tuple[int, ...]
) -> None:
    async def main() -> None:
        async with without(tmp_path, "indexes", "manifest") as (node, orders):
            await rolled_at(node, orders, *rolls)
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert await committed(node, orders) == RIGHT

    run_virtually(main)


def test_an_index_with_fewer_aborts_than_the_manifest_tells_is_not_whole(tmp_path: Path) -> None:
    async def main() -> None:
        async with without(tmp_path, "indexes") as (node, orders):
            await rolled_at(node, orders, 10, 20, 30)
            path = orders.directory / "00000000000000000010.txnindex"
            path.write_bytes(path.read_bytes()[34:])
            (orders.directory / "00000000000000000010.snapshot").unlink()
            await assert_left(node, orders, "their transaction index has 34 bytes, not 68")

    run_virtually(main)


def test_a_whole_index_object_is_read_without_its_manifest(tmp_path: Path) -> None:
    """The broker has nothing of the segment any more."""

    async def main() -> None:
        async with without(tmp_path) as (node, orders):
            old = await index_of(node, orders, IndexType.PRODUCER_SNAPSHOT)
            await delete(node.store, keys_of(row_at(node, orders, 10)).manifest)
            await rolled_at(node, orders, 20, 30, start=20)
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert await committed(node, orders) == RIGHT
            assert await index_of(node, orders, IndexType.PRODUCER_SNAPSHOT) == old

    run_virtually(main)


@pytest.mark.parametrize("suffix", ["log", "indexes"])
def test_transactions_open_at_the_base_are_told_as_before(tmp_path: Path, suffix: str) -> None:
    """Readers that cross a lost range below the segment go by them: without, what was committed in
    it counts as undecided.
    """

    async def main() -> None:
        async with without(tmp_path, suffix) as (node, orders):
            assert await open_at_base(node, orders) == (OpenTransaction(7, 0),)
            (orders.directory / "00000000000000000010.snapshot").unlink()
            told = await only(node)
            assert told.outcome is Outcome.REPAIRED, told
            assert await open_at_base(node, orders) == (OpenTransaction(7, 0),)

    run_virtually(main)
