"""A segment is as old as its newest batch, whatever a time index says."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from kafka_formats import time_index
from kafka_formats.log_names import segment_file_name
from kafka_formats.record_batch import Record, encode_batch
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, new_world
from tests.rlm.virtual_time import START_MS, run_virtually

DAY_MS = 86_400_000


@pytest.mark.parametrize("kind", ["short", "missing", "whole"])
def test_a_wrong_time_index_makes_no_segment_older(tmp_path: Path, kind: str) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    times = [START_MS - 10 * DAY_MS + day * DAY_MS for day in range(10)]
    path = log.directory / segment_file_name(0, ".log")
    path.write_bytes(
        b"".join(
            encode_batch(
                [Record(at, time_ms, None, b"v", ())], base_offset=at, partition_leader_epoch=0
            )
            for at, time_ms in enumerate(times)
        )
    )
    path.with_suffix(".index").write_bytes(b"")
    index = path.with_suffix(".timeindex")
    last = {"short": 2, "whole": 9}.get(kind)
    if last is None:
        index.unlink()
        os.utime(path, ((START_MS - 9 * DAY_MS) / 1000,) * 2)
    else:
        index.write_bytes(time_index.encode([(times[last], last)], 0))

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            row = min(
                node.metadata.list_remote_log_segments(log.partition),
                key=lambda each: each.start_offset,
            )
            assert row.max_timestamp_ms == times[9]
            found = await node.parts.answers.offsets(log.partition, times[5])
            assert found.offset == 5
            policy = TopicPolicy(retention_ms=5 * DAY_MS)
            await node.metadata.set_topic_policy(TopicPolicyChange("orders", policy, -1))
            await asyncio.sleep(2 * LIMITS.retention_interval_s)
            assert (0, 9) in node.finished(log.partition)

    run_virtually(main)


def test_of_records_without_a_time_the_file_tells_the_age_whatever_a_time_index_says(
    tmp_path: Path,
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    path = log.directory / segment_file_name(0, ".log")
    path.write_bytes(
        b"".join(
            encode_batch([Record(at, -1, None, b"v", ())], base_offset=at, partition_leader_epoch=0)
            for at in range(10)
        )
    )
    path.with_suffix(".index").write_bytes(b"")
    path.with_suffix(".timeindex").write_bytes(time_index.encode([(START_MS - 100 * DAY_MS, 9)], 0))
    written_ms = START_MS - 2 * DAY_MS
    os.utime(path, (written_ms / 1000,) * 2)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            row = min(
                node.metadata.list_remote_log_segments(log.partition),
                key=lambda each: each.start_offset,
            )
            assert row.max_timestamp_ms == written_ms

    run_virtually(main)
