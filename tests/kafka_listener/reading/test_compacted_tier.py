"""Offsets that the cleaner took before they were tiered, between the tier and the leader's disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_formats import offset_checkpoint
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import Record, encode_batch
from kafka_listener.reading.read_port import GoToBroker
from tests.kafka_listener.reading.tier_client import LEADER, Client, with_node
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import Node


def test_offsets_that_compaction_took_from_the_end_of_the_tier_are_passed_over(
    tmp_path: Path,
) -> None:
    """The leader's disk begins behind them: asked for the first of them it has nothing to say."""
    orders = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    orders.write(0, 10, 20, 30, end=35)
    kept = [
        encode_batch(
            [Record(offset, TIMESTAMP_MS + offset, None, b"v", ())],
            base_offset=offset,
            partition_leader_epoch=0,
        )
        for offset in range(20, 25)
    ]
    segment = orders.directory / segment_file_name(20, ".log")
    segment.write_bytes(b"".join(kept))
    segment.with_suffix(".index").write_bytes(b"")
    cleaned = offset_checkpoint.encode({("orders", 0): 30})
    (orders.log_dir / offset_checkpoint.CLEANER_FILE).write_bytes(cleaned)

    async def check(node: Node) -> None:
        leader = replace(LEADER, local_log_start_offset=30)
        for committed in (False, True):
            client = Client(node, orders.partition, committed=committed)
            assert await client.scan(20, leader) == (b"".join(kept), GoToBroker(30))
            assert (await client.fetch(27, leader))[0] == GoToBroker(30)

    with_node(tmp_path, orders, check)
