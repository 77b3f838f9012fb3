"""The remote log manager when uploads fail, sources change, answers get lost, workers hang."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import (
    Conflict,
    CorruptData,
    OutcomeUnknown,
    Refused,
    RetryLater,
    StrandlineError,
)
from rlm.control.run_events import SegmentDeleted, SegmentFailed
from rlm.control.surroundings import CopyLimits
from rlm.control.why_not import WhyNot
from tests.rlm.hooked_store import failing
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import CLEANED_UP_AFTER_S, LIMITS, Hook, new_world
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def changed() -> StrandlineError:
    return Conflict("truncated while being read", reason="SOURCE_CHANGED")


def corrupt() -> StrandlineError:
    return CorruptData("checksum mismatch", source="00000.log", position=120)


def away() -> StrandlineError:
    return RetryLater("the store is away")


def unknown() -> StrandlineError:
    return OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize(
    "step", ["before upload", "before complete .log", "before put .rsm-manifest", "after upload"]
)
@pytest.mark.parametrize("error", [away, changed])
def test_a_failed_attempt_is_cleaned_up_and_made_again_under_a_new_id(
    tmp_path: Path, orders: KafkaLog, step: str, error: Callable[[], StrandlineError]
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=failing(step, error)) as node:
            report = await node.remote_log.run_once()
            assert report.complete, report
            assert len(report.copied) == 2
            assert [(each.start_offset, each.error) for each in report.failed] == [
                (0, str(error()))
            ]
            (failed,) = [each for each in node.events if isinstance(each, SegmentFailed)]
            assert report.cleaned_up == (failed.segment_id,)
            assert failed.segment_id not in {each.segment_id for each in report.copied}
            assert [type(each) for each in node.events].count(SegmentDeleted) == 1
            page = node.remote_log.status(orders.partition)
            assert page.last_error is None
            await node.assert_quiesced()

    run_virtually(main)


def test_a_new_attempt_starts_while_the_old_ones_clean_up_still_waits(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        hook = failing("before put .indexes", changed)
        limits = replace(LIMITS, stopped_margin_s=100.0, once_clean_up_wait_s=200.0)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook, limits=limits) as node:
            await node.remote_log.run_once()
            kinds = [type(each).__name__ for each in node.events]
            assert kinds.index("SegmentCopied") < kinds.index("SegmentDeleted")
            await node.assert_quiesced()

    run_virtually(main)


def test_a_store_that_stays_away_is_given_up_in_a_one_shot_run_and_reported(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        hook = failing("before put .indexes", away, times=100)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert len(report.failed) == LIMITS.once_attempts_max
            assert not report.complete
            assert report.partitions[0].why_not is WhyNot.BACK_OFF
            assert "the store is away" in report.partitions[0].text
            await node.assert_quiesced()

    run_virtually(main)


def test_a_corrupt_segment_blocks_its_partition_only_and_is_tried_again_slowly(
    tmp_path: Path, orders: KafkaLog
) -> None:
    other = KafkaLog.create(orders.log_dir, "other", entries=((0, 0),))
    other.write(0, 10, end=12)
    blocked = True

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:

            async def hook(name: str) -> None:
                job = node.pool.jobs[-1] if node.pool.jobs else None
                corrupt_job = job is not None and job.directory == orders.directory
                if name == "before upload" and corrupt_job and blocked:
                    raise corrupt()

            node.pool.hook = hook
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.corrupt_retry_s * 0.9)
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.BLOCKED
            assert page.blocked is not None
            assert "00000.log at byte 120" in page.blocked
            assert page.last_error is not None
            assert page.last_error.kind == "corrupt_data"
            assert node.finished(other.partition) == [(0, 9)]
            jobs = [job for job in node.pool.jobs if job.directory == orders.directory]
            assert len(jobs) == 1
            nonlocal blocked
            blocked = False
            await asyncio.sleep(LIMITS.corrupt_retry_s)
            assert len(node.finished(orders.partition)) == 2
            assert node.remote_log.status(orders.partition).blocked is None
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_an_unreadable_directory_is_a_problem_and_the_others_go_on(
    tmp_path: Path, orders: KafkaLog
) -> None:
    broken = KafkaLog.create(orders.log_dir, "broken", entries=((0, 0),))
    broken.write(0, 10, end=12)
    (broken.directory / "leader-epoch-checkpoint").write_text("0\nnonsense\n")

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            report = await node.remote_log.run_once()
            assert len(report.copied) == 2
            assert [each.topic for each in report.problems] == ["broken"]
            assert node.remote_log.problems() == report.problems
            assert not report.complete

    run_virtually(main)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(
    "step",
    [
        "after COPY_SEGMENT_STARTED",
        "before COPY_SEGMENT_STARTED",
        "after COPY_SEGMENT_FINISHED",
        "before COPY_SEGMENT_FINISHED",
    ],
)
def test_a_lost_answer_is_settled_by_the_row_and_never_by_a_clean_up(
    tmp_path: Path, orders: KafkaLog, step: str, times: int
) -> None:
    async def main() -> None:
        hook = failing(step, unknown, times)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert (len(report.copied), report.failed, report.cleaned_up) == (2, (), ())
            assert len(node.pool.jobs) == 2
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize(
    "step",
    [
        "after DELETE_SEGMENT_STARTED",
        "before DELETE_SEGMENT_STARTED",
        "after DELETE_SEGMENT_FINISHED",
        "before DELETE_SEGMENT_FINISHED",
    ],
)
def test_a_lost_answer_during_a_clean_up_is_settled_by_the_row(
    tmp_path: Path, orders: KafkaLog, step: str
) -> None:
    upload, answer = failing("before put .indexes", away), failing(step, unknown)

    async def hook(name: str) -> None:
        await upload(name)
        await answer(name)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert report.complete, report
            assert len(report.cleaned_up) == 1
            await node.assert_quiesced()

    run_virtually(main)


def test_without_a_quorum_leader_nothing_starts_and_the_reason_is_said(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        hook = failing("before claim_partition", lambda: RetryLater("no leader"), times=100)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert report.partitions[0].why_not is WhyNot.METADATA_UNAVAILABLE
            assert report.partitions[0].text == "no leader"
            assert node.pool.jobs == []

    run_virtually(main)


def test_a_finished_upload_waits_for_a_quorum_leader_instead_of_being_thrown_away(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        hook = failing("before COPY_SEGMENT_FINISHED", lambda: RetryLater("no leader"), times=6)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert (len(report.copied), len(node.pool.jobs)) == (2, 2)

    run_virtually(main)


def test_a_finished_upload_does_not_sleep_long_after_the_quorum_leader_is_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    failures = 30

    async def main() -> None:
        hook = failing("before COPY_SEGMENT_FINISHED", lambda: RetryLater("no leader"), failures)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            began = asyncio.get_running_loop().time()
            report = await node.remote_log.run_once()
            assert len(report.copied) == 2
            took_s = asyncio.get_running_loop().time() - began
            assert took_s <= failures * LIMITS.propose_deadline_s

    run_virtually(main)


def hanging(step: str) -> Hook:
    """The first passage never ends."""
    hung = False

    async def hook(name: str) -> None:
        nonlocal hung
        if name == step and not hung:
            hung = True
            await asyncio.Event().wait()

    return hook


@pytest.mark.parametrize(
    ("limits", "text"),
    [
        (replace(LIMITS, stall_deadline_s=40.0), "no progress for 40 s"),
        (replace(LIMITS, stall_deadline_s=900.0), "before its deadline"),
    ],
)
def test_a_hung_upload_is_cancelled_by_the_watchdog_and_tried_again(
    tmp_path: Path, orders: KafkaLog, limits: CopyLimits, text: str
) -> None:
    async def main() -> None:
        hook = hanging("before put .indexes")
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook, limits=limits) as node:
            report = await node.remote_log.run_once()
            assert report.complete, report
            assert [text in each.error for each in report.failed] == [True]
            await node.assert_quiesced()

    run_virtually(main)


def test_a_clean_up_that_the_store_refuses_is_shown_and_repeated(
    tmp_path: Path, orders: KafkaLog
) -> None:
    upload = failing("before put .indexes", away)
    delete = failing("before delete objects", lambda: Refused("no permission to delete"), times=4)

    async def hook(name: str) -> None:
        await upload(name)
        await delete(name)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(0.9)  # the upload has failed; the first delete too
            while node.remote_log.status(orders.partition).last_error is None:
                await asyncio.sleep(0.1)
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert len(node.finished(orders.partition)) == 2
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_a_doubtful_clock_keeps_the_first_log_start_back(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.store.clock_offset_ms = 3_600_000
        async with world.boot() as node:
            report = await node.remote_log.run_once()
            assert report.partitions[0].why_not is WhyNot.CLOCK
            assert "NTP" in report.partitions[0].text
            world.store.clock_offset_ms = 0
            assert (await node.remote_log.run_once()).complete

    run_virtually(main)
