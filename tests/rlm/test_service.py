"""The remote log manager as a whole, on the real metadata log and view: runs that go well."""

from __future__ import annotations

import asyncio
import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest, NotFound, Refused
from rlm.control.node_problem import ProblemArea
from rlm.control.run_events import (
    LogStartRecorded,
    LostRangeRecorded,
    PartitionClaimed,
    SegmentCopied,
    SegmentProgress,
    SegmentStarted,
)
from rlm.control.why_not import WhyNot
from rlm.copy.partition_status import Role
from rlm.leadership.topic_filter import TopicFilter
from rlm.node_files.kill_switches import Switch
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import PartitionModeChange, TopicPolicyChange
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, new_world
from tests.rlm.planner_facts import PARTITION
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return new_log_dir(tmp_path / "kafka")


@pytest.fixture
def orders(log_dir: Path) -> KafkaLog:
    log = KafkaLog.create(log_dir, "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_a_one_shot_run_copies_every_sealed_segment_and_reports_it(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            report = await node.remote_log.run_once()
            assert report.complete, report
            copied = [(each.start_offset, each.end_offset) for each in report.copied]
            assert copied == [(0, 9), (10, 19)]
            assert report.copied_bytes == len(orders.log_bytes(0)) + len(orders.log_bytes(10))
            assert (report.failed, report.cleaned_up) == ((), ())
            assert report.partitions[0].next_offset == 20
            assert report.partitions[0].why_not is WhyNot.NO_SEALED_SEGMENT
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            await node.assert_quiesced()
            assert [type(event) for event in node.events] == [
                PartitionClaimed, LogStartRecorded,
                SegmentStarted, SegmentProgress, SegmentCopied,
                SegmentStarted, SegmentProgress, SegmentCopied,
            ]  # fmt: skip

    run_virtually(main)


def test_the_job_names_everything_the_worker_needs(tmp_path: Path, orders: KafkaLog) -> None:
    orders.set_epochs((0, 0), (2, 15))
    orders.write_across(10, 15, 20, epochs=(0, 2))
    orders.write(20, end=25, epoch=2)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            first, second = node.pool.jobs
            assert first.directory == orders.directory
            assert (first.start_offset, first.next_base_offset, first.store) == (0, 10, "main")
            assert first.lineage_checkpoint == b"0\n1\n0 0\n"
            assert second.leader_epochs == ((0, 10), (2, 15))
            assert second.lineage_checkpoint == b"0\n2\n0 0\n2 15\n"
            deadline_s = (first.upload_deadline_ms - first.event_timestamp_ms) / 1000
            assert deadline_s == LIMITS.upload_deadline_s

    run_virtually(main)


def test_a_second_run_copies_nothing_twice_and_goes_on_with_what_was_sealed_since(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
            assert (await node.remote_log.run_once()).copied == ()
        orders.write(20, 30, end=31)
        async with world.boot() as node:
            report = await node.remote_log.run_once()
            assert [each.start_offset for each in report.copied] == [20]
            await node.assert_quiesced()

    run_virtually(main)


def test_only_included_topics_are_touched_and_the_rest_is_named(
    tmp_path: Path, orders: KafkaLog
) -> None:
    for topic in ("__consumer_offsets", "other"):
        KafkaLog.create(orders.log_dir, topic, entries=((0, 0),)).write(0, 10, end=12)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(
            topics=TopicFilter(("o*s",))
        ) as node:
            report = await node.remote_log.run_once()
            assert [topic for topic, _ in report.left_out] == ["__consumer_offsets", "other"]
            assert report.complete
            assert list(node.metadata.partitions()) == [orders.partition]
            pages = {page.partition.topic: page for page in node.remote_log.statuses()}
            assert pages["other"].role is Role.NOT_TIERED
            assert pages["other"].why_not_copying is WhyNot.NOT_INCLUDED

    run_virtually(main)


def test_many_partitions_are_copied_with_no_more_than_the_bound_at_once(
    tmp_path: Path, log_dir: Path
) -> None:
    logs = [KafkaLog.create(log_dir, "orders", number, entries=((0, 0),)) for number in range(5)]
    for log in logs:
        log.write(0, 10, 20, end=21)
    running = most = 0

    async def hook(name: str) -> None:
        nonlocal running, most
        if name == "before upload":
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
        elif name == "after upload":
            running -= 1

    async def main() -> None:
        limits = replace(LIMITS, copies_parallel_max=2)
        async with new_world(tmp_path, (log_dir,)).boot(hook=hook, limits=limits) as node:
            report = await node.remote_log.run_once()
            assert len(report.copied) == 10
            assert most == 2
            await node.assert_quiesced()

    run_virtually(main)


def test_what_local_retention_took_is_recorded_as_lost_and_copying_goes_on(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
        orders.write(20, 30, 40, 50, end=55)
        kept = orders.log_bytes(30)
        for base in (0, 10, 20, 30):
            orders.delete_segment(base)
        async with world.boot() as node:
            report = await node.remote_log.run_once()
            assert [each.start_offset for each in report.copied] == [40]
            lost = [each for each in node.events if isinstance(each, LostRangeRecorded)]
            assert [(each.start, each.end) for each in lost] == [(20, 39)]
            page = node.remote_log.status(orders.partition)
            assert [(each.start, each.end) for each in page.lost_ranges] == [(20, 39)]
            assert page.log_start_offset == 0
        # The segment turns up again (another replica leads, a disk came back): it fills the range.
        orders.write(30, 40, 50, end=55)
        orders.set_epochs((0, 30))
        assert orders.log_bytes(30) == kept
        async with world.boot() as node:
            report = await node.remote_log.run_once()
            assert [each.start_offset for each in report.copied] == [30]
            page = node.remote_log.status(orders.partition)
            assert [(each.start, each.end) for each in page.lost_ranges] == [(20, 29)]
            assert page.next_offset == 50
            await node.assert_quiesced()

    run_virtually(main)


def test_local_retention_deletes_nothing_in_the_tier(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
            before = await node.keys()
        orders.delete_segment(0)
        orders.delete_segment(10)
        orders.set_epochs((0, 20))
        async with world.boot() as node:
            assert (await node.remote_log.run_once()).copied == ()
            assert await node.keys() == before
            page = node.remote_log.status(orders.partition)
            assert (page.log_start_offset, page.local_log_start_offset) == (0, 20)

    run_virtually(main)


def test_a_policy_or_the_kill_switch_pauses_copying_and_says_so(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.parts.given.switches.pause(Switch.COPYING, by="ann")
            assert node.parts.given.switches.pause_of(Switch.COPYING) is not None
            report = await node.remote_log.run_once()
            assert (report.copied, report.partitions[0].why_not) == ((), WhyNot.PAUSED)
            await node.parts.given.switches.resume(Switch.COPYING, by="ann")
            policy = TopicPolicy(copy_paused=True)
            offset = await node.metadata.set_topic_policy(TopicPolicyChange("orders", policy, -1))
            assert "policy" in (await node.remote_log.run_once()).partitions[0].text
            change = TopicPolicyChange("orders", TopicPolicy(), offset)
            await node.metadata.set_topic_policy(change)
            assert len((await node.remote_log.run_once()).copied) == 2

    run_virtually(main)


@pytest.mark.parametrize("mode", [Mode.READ_ONLY, Mode.PAUSED, Mode.DELEGATED])
def test_partitions_in_another_mode_are_left_alone(
    tmp_path: Path, orders: KafkaLog, mode: Mode
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.metadata.set_partition_mode(PartitionModeChange(orders.partition, mode, -1))
            report = await node.remote_log.run_once()
            assert (report.copied, report.partitions[0].why_not) == ((), WhyNot.MODE)
            assert node.remote_log.status(orders.partition).mode is mode

    run_virtually(main)


def test_the_service_finds_new_segments_by_itself_and_stops_when_closed(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            assert len(node.finished(orders.partition)) == 2
            orders.write(20, 30, end=31)
            await asyncio.sleep(60)
            assert node.finished(orders.partition)[-1] == (20, 29)
            page = node.remote_log.status(orders.partition)
            assert (page.role, page.why_not_copying) == (Role.LEADER, WhyNot.NO_SEALED_SEGMENT)
            await node.remote_log.close()
            await node.remote_log.close()
            orders.write(30, 40, end=41)
            await asyncio.sleep(60)
            assert len(node.finished(orders.partition)) == 3
            await node.assert_quiesced()

    run_virtually(main)


def test_a_directory_that_goes_away_stops_its_partition_and_one_that_comes_is_taken(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            shutil.rmtree(orders.directory)
            late = KafkaLog.create(orders.log_dir, "late", entries=((0, 0),))
            late.write(0, 10, end=12)
            await asyncio.sleep(60)
            page = node.remote_log.status(orders.partition)
            assert (page.role, page.why_not_copying) == (Role.REMOTE_ONLY, WhyNot.NO_LOCAL_LOG)
            assert node.finished(late.partition) == [(0, 9)]
            await node.remote_log.close()

    run_virtually(main)


def test_a_path_that_is_no_log_directory_is_refused_and_a_running_node_gets_over_it(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (tmp_path / "nothing",)).boot() as node:
            with pytest.raises(InvalidRequest, match="not a Kafka log directory"):
                await node.remote_log.run_once()
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            meta = orders.log_dir / "meta.properties"
            kept = meta.read_bytes()
            meta.unlink()
            caplog.set_level(logging.INFO, "rlm")
            await node.remote_log.start()
            await asyncio.sleep(60)
            (problem,) = node.remote_log.node_problems()
            assert (problem.area, problem.name) == (ProblemArea.LOG_DIRS, None)
            assert "meta.properties" in problem.text
            assert [record.levelname for record in caplog.records] == ["ERROR"]
            assert caplog.records[0].exc_info is None
            meta.write_bytes(kept)
            await asyncio.sleep(60)
            assert node.remote_log.node_problems() == ()
            of_others = node.parts.remote_log(problems=[lambda: (problem,)])
            assert of_others.node_problems() == (problem,)
            assert caplog.messages[1] == "over: problem with log dirs"
            assert len(node.finished(orders.partition)) == 2
            await node.remote_log.close()

    run_virtually(main)


def test_one_of_two_log_directories_that_is_lost_is_one_line_in_the_log(
    tmp_path: Path, orders: KafkaLog, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir, tmp_path / "lost"))
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(120)
            assert len(node.finished(orders.partition)) == 2
            await node.remote_log.close()
        lost = [message for message in caplog.messages if str(tmp_path / "lost") in message]
        assert len(lost) == 1

    run_virtually(main)


def test_another_clusters_marker_stops_the_node_before_anything_is_written(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
            before = await node.keys()
        world.cluster_id = "another-cluster"
        async with world.boot() as node:
            for attempt in (node.remote_log.run_once, node.remote_log.start):
                with pytest.raises(Refused, match="another-cluster"):
                    await attempt()
            assert await node.keys() == before
            await node.remote_log.close()

    run_virtually(main)


def test_a_partition_that_nobody_knows_has_no_status(tmp_path: Path, log_dir: Path) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (log_dir,)).boot() as node:
            with pytest.raises(NotFound):
                node.remote_log.status(PARTITION)
            assert node.remote_log.statuses() == ()
            assert node.remote_log.problems() == ()

    run_virtually(main)
