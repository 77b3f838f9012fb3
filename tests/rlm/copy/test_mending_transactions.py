"""What was fetched from other replicas has no producer snapshot and no transaction index beside it:
both come from the tier's segment below and the batches.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats import transaction_index
from kafka_formats.batch_scan import scan
from kafka_formats.control_record import control_key
from kafka_formats.errors import NotFound
from kafka_formats.record_batch import ControlType, Record, encode_batch
from kafka_formats.transaction_index import AbortedTransaction
from rlm.copy.mending import MendLimits
from rlm.data_plane.read_request import Isolation, RecordsRequest
from rlm.format.manifest import IndexType
from tests.kafka_formats.transaction_markers import end_transaction_value
from tests.rlm.copy.test_head_hole import ALL, Trial, log, remove_all
from tests.rlm.held_segments import A_FEW_SCANS_S
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog
from tests.rlm.one_node import Node
from tests.rlm.replicas import Cluster, cluster, give_up

__all__ = ["log"]

PRODUCER = 5


def with_transaction(brokers: Cluster, log: KafkaLog, *data: int, abort: int) -> Cluster:
    """Batches of an aborted transaction at these offsets, on every broker's disk."""
    for number, offset in enumerate(data):
        brokers.batches[offset] = encode_batch(
            [Record(offset, TIMESTAMP_MS, None, b"x", ())], base_offset=offset,
            partition_leader_epoch=0, producer_id=PRODUCER, producer_epoch=0, base_sequence=number,
            transactional=True,
        )  # fmt: skip
    marker = Record(abort, TIMESTAMP_MS, control_key(ControlType.ABORT), end_transaction_value(7))
    brokers.batches[abort] = encode_batch(
        [marker], base_offset=abort, partition_leader_epoch=0, producer_id=PRODUCER,
        producer_epoch=0, transactional=True, control=True,
    )  # fmt: skip
    for base in (0, 10, 20, 30):
        batches = [brokers.batches[offset] for offset in range(base, base + 10)]
        (log.directory / f"{base:020d}.log").write_bytes(b"".join(batches))
        for suffix in ("index", "timeindex"):  # of other positions
            (log.directory / f"{base:020d}.{suffix}").unlink()
    return brokers


async def aborted(it: Trial, node: Node) -> list[AbortedTransaction]:
    """The entries of all transaction indexes in the tier."""
    found: list[AbortedTransaction] = []
    state = node.metadata.partition_state(it.log.partition)
    assert state is not None
    for _, row in node.metadata.served_segments(state, 0, 10**9):
        stream = node.parts.reads.open_index(row.segment_id.id, IndexType.TRANSACTION)
        try:
            data = b"".join([piece async for piece in stream])
        except NotFound:
            continue
        found += transaction_index.parse(data, source="tier")
    return found


async def read_committed(it: Trial, node: Node) -> list[int]:
    request = RecordsRequest(0, 10**9, isolation=Isolation.READ_COMMITTED)
    pieces = node.parts.reads.records(it.log.partition, request)
    data = b"".join([piece async for piece in pieces])
    return [batch.header.base_offset for batch in scan(data, source="read")]


@pytest.mark.parametrize("bytes_max", [2**30, 300])
@pytest.mark.parametrize("gone", [(0, 10, 20), (10, 20)])
def test_an_aborted_transaction_in_what_was_fetched_is_aborted_in_the_tier(
    tmp_path: Path, log: KafkaLog, gone: tuple[int, ...], bytes_max: int
) -> None:
    """In steps, too, where it goes over several of them."""
    brokers = with_transaction(cluster(log, b1=[], b2=ALL), log, 12, 13, 22, abort=25)
    brokers.answer_bytes = 220
    it = Trial(tmp_path, log, brokers, limits=MendLimits(bytes_max=bytes_max))

    async def main(node: Node) -> None:
        assert await it.read(node) == list(ALL)
        assert (it.finished(node)[-1], it.lost(node)) == ((30, 39), [])
        assert await aborted(it, node) == [AbortedTransaction(PRODUCER, 12, 25, 26)]
        assert not {12, 13, 22} & set(await read_committed(it, node))

    it.run(main, after_the_first=lambda: remove_all(log, gone))


def test_behind_what_is_lost_it_begins_with_what_is_left_of_it(
    tmp_path: Path, log: KafkaLog
) -> None:
    brokers = with_transaction(
        cluster(log, b2=[*range(10), *range(14, 40)]), log, 12, 13, 22, abort=25
    )
    it = Trial(tmp_path, log, brokers)

    async def main(node: Node) -> None:
        await give_up(node)
        await asyncio.sleep(A_FEW_SCANS_S)
        assert it.lost(node) == [(10, 13)]
        assert it.finished(node) == [(0, 9), (14, 29), (30, 39)]
        assert await aborted(it, node) == [AbortedTransaction(PRODUCER, 22, 25, 26)]
        assert 22 not in await read_committed(it, node)

    it.run(main, after_the_first=lambda: remove_all(log, (0, 10, 20)))
