"""A turned bit in a batch's length, which Kafka's CRC leaves out, hides the good batches behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats import offset_index
from kafka_formats.record_batch import Record, encode_batch
from rlm.data_plane.segment_survey import SurveyJob, survey
from rlm.local_log.log_dir import find_partitions
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    Outage,
    four_segments,
    holding,
    retention,
)
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.replicas import cluster
from tests.rlm.tier import copy_job
from tests.rlm.virtual_time import run_virtually

BATCH_BYTES = 128
"""So that a turned bit of the length ends a batch where a later one ends."""


def _write_batches(log: KafkaLog) -> None:
    def batch(offset: int, value_bytes: int) -> bytes:
        record = Record(offset, TIMESTAMP_MS + offset, None, b"x" * value_bytes, ())
        return encode_batch([record], base_offset=offset, partition_leader_epoch=0)

    fits = next(n for n in range(30, 70) if len(batch(5, n)) == BATCH_BYTES)
    name = log.directory / f"{0:020d}.log"
    name.write_bytes(b"".join(batch(offset, fits) for offset in range(10)))
    entries = [(offset, BATCH_BYTES * offset) for offset in range(1, 10)]
    name.with_suffix(".index").write_bytes(offset_index.encode(entries, 0))


@pytest.mark.parametrize("bit", [7, 8])
def test_nothing_that_a_turned_length_covers_is_lost_by_itself(tmp_path: Path, bit: int) -> None:
    orders = four_segments(tmp_path)
    _write_batches(orders)
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = brokers = cluster(orders, b1=range(20, 40), b2=range(20, 40))
        brokers.starts = {1: 20, 2: 20}
        async with holding(world, outage) as node:
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            (held,) = (tmp_path / "hold").glob(f"*/orders-0/*/*/{0:020d}.log")
            data = bytearray(held.read_bytes())
            at = 3 * BATCH_BYTES + 8
            length = int.from_bytes(data[at : at + 4], "big") ^ (1 << bit)
            data[at : at + 4] = length.to_bytes(4, "big")
            with held.open("r+b") as file:
                file.write(data)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.lost_ranges == ()
            why = node.remote_log.status(orders.partition).why_not_text
            assert "partitions skip" in why

    run_virtually(main)


def test_a_length_and_an_end_that_are_turned_together_prove_nothing(tmp_path: Path) -> None:
    """The batch at 2 seems to be that of offsets 2 to 4, between neighbours that fit."""
    orders = four_segments(tmp_path)
    _write_batches(orders)
    name = orders.directory / f"{0:020d}.log"
    data, at = bytearray(name.read_bytes()), 2 * BATCH_BYTES
    length = int.from_bytes(data[at + 8 : at + 12], "big") + 2 * BATCH_BYTES
    data[at + 8 : at + 12] = length.to_bytes(4, "big")
    data[at + 23 : at + 27] = (2).to_bytes(4, "big")
    name.write_bytes(data)
    (local,) = find_partitions([orders.log_dir], kafka_cluster_id=None).partitions
    found = survey(SurveyJob(copy_job(local, local.segments[0]), len(data)))
    assert found.missing == ((2, 4),)
    assert found.doubtful == ((2, 4),)
