"""The remote log manager as a whole, on the real metadata log and view."""

from __future__ import annotations

from pathlib import Path

from rlm.copy_plan import WhyNot
from rlm.events import LogStartRecorded, PartitionClaimed, SegmentCopied, SegmentStarted
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually


def test_a_one_shot_run_copies_every_sealed_segment_and_reports_it(tmp_path: Path) -> None:
    log_dir = new_log_dir(tmp_path / "kafka")
    orders = KafkaLog.create(log_dir, "orders", entries=((0, 0),))
    orders.write(0, 10, 20, end=25)

    async def main() -> None:
        world = new_world(tmp_path, (log_dir,))
        async with world.boot() as node:
            report = await node.remote_log.run_once()
            assert report.complete, report
            assert [(each.start_offset, each.end_offset) for each in report.copied] == [
                (0, 9),
                (10, 19),
            ]
            assert report.failed == ()
            assert report.partitions[0].next_offset == 20
            assert report.partitions[0].why_not is WhyNot.NO_SEALED_SEGMENT
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            kinds = [type(event) for event in node.events]
            assert kinds[:3] == [PartitionClaimed, LogStartRecorded, SegmentStarted]
            assert kinds.count(SegmentCopied) == 2
            await node.assert_quiesced()

    run_virtually(main)
