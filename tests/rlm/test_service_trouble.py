"""Trouble that must stay where it is: late rows, doubtful clocks, directories that come and go,
stores that hang, errors that repeat themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import (
    InternalError,
    OutcomeUnknown,
    Refused,
    RetryLater,
    StrandlineError,
)
from rlm.control.node_problem import ProblemArea
from rlm.control.run_events import ClaimLost, SegmentDeleted
from rlm.control.why_not import WhyNot
from rlm.copy.partition_status import Role
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from rlmm.segment import RemoteLogSegmentMetadata
from tests.rlm.hooked_store import failing
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import CLEANED_UP_AFTER_S, LIMITS, Hook, Node, new_world
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def both(*hooks: Hook) -> Hook:
    async def hook(name: str) -> None:
        for each in hooks:
            await each(name)

    return hook


class Counter:
    """How often each step was passed."""

    def __init__(self) -> None:
        self.passed: dict[str, int] = {}

    async def __call__(self, name: str) -> None:
        self.passed[name] = self.passed.get(name, 0) + 1


def away() -> StrandlineError:
    return RetryLater("the store is away")


def refused() -> StrandlineError:
    return Refused("no permission to delete")


def test_a_row_that_appears_long_after_its_answer_was_given_up_is_cleaned_up(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        hook = failing(
            "before COPY_SEGMENT_STARTED",
            lambda: OutcomeUnknown("lost"),
            LIMITS.propose_attempts_max,
        )
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(200)
            assert len(node.finished(orders.partition)) == 2
            late = next(
                each for each in node.proposed if isinstance(each, RemoteLogSegmentMetadata)
            )
            await node.metadata.add_remote_log_segment_metadata(late)
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


async def lose_offsets_20_to_39(node: Node, orders: KafkaLog) -> None:
    await node.remote_log.run_once()
    orders.write(20, 30, 40, 50, end=55)
    for base in (0, 10, 20, 30):
        orders.delete_segment(base)
    await node.remote_log.run_once()
    orders.write(30, 40, 50, end=55)
    orders.set_epochs((0, 30))


def test_a_lost_range_that_could_not_be_filled_at_once_is_filled_later(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await lose_offsets_20_to_39(node, orders)
        async with world.boot(hook=failing("before put .indexes", away)) as node:
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            page = node.remote_log.status(orders.partition)
            assert [(each.start, each.end) for each in page.lost_ranges] == [(20, 29)]
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_a_one_shot_run_that_could_not_fill_a_lost_range_is_not_complete(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await lose_offsets_20_to_39(node, orders)
        async with world.boot(hook=failing("before put .indexes", away, times=100)) as node:
            report = await node.remote_log.run_once()
            assert [each.start_offset for each in report.failed] == [30]
            assert not report.complete

    run_virtually(main)


def test_a_damaged_segment_in_a_lost_range_gives_its_good_part_and_keeps_no_later_one_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await lose_offsets_20_to_39(node, orders)
        orders.write(50, 60, end=61)
        orders.damage(30)
        async with world.boot(data_plane=True) as node:
            report = await node.remote_log.run_once()
            # Its good part, 30 to 34, fills the range; the rest stays lost.
            assert [each.start_offset for each in report.copied] == [30, 50]
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert [(each.start, each.end) for each in state.lost_ranges] == [(20, 29), (35, 39)]

    run_virtually(main)


def test_a_run_whose_clean_up_was_refused_is_not_complete_and_names_what_is_left(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        hook = both(
            failing("before put .indexes", away),
            failing("before delete objects", refused, times=1_000),
        )
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            report = await node.remote_log.run_once()
            assert len(report.copied) == 2
            (left,) = node.metadata.left_overs(orders.partition)
            assert [each.segment_id for each in report.pending_clean_ups] == [left.segment_id]
            assert "no permission to delete" in report.pending_clean_ups[0].why
            assert not report.complete

    run_virtually(main)


def test_a_clean_up_that_keeps_failing_is_repeated_ever_more_slowly(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        count = Counter()
        hook = both(
            count,
            failing("before put .indexes", away),
            failing("before delete objects", refused, times=1_000),
        )
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            await node.remote_log.start()
            await asyncio.sleep(3_600)
            assert 5 < count.passed["before delete objects"] < 40
            page = node.remote_log.status(orders.partition)
            assert page.last_error is not None
            assert "no permission to delete" in page.last_error.text
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("step", ["record_log_start", "claim_partition"])
def test_an_error_that_repeats_itself_fills_no_log(
    tmp_path: Path, orders: KafkaLog, step: str
) -> None:
    async def main() -> None:
        count = Counter()
        broken = failing(f"after {step}", lambda: InternalError("a bug"), times=1_000)
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=both(count, broken)) as node:
            await node.remote_log.start()
            await asyncio.sleep(3_600)
            assert count.passed[f"before {step}"] < 60
            await node.remote_log.close()

    run_virtually(main)


def test_nothing_is_deleted_and_no_attempt_begins_anew_while_the_clock_is_in_doubt(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        count = Counter()

        async def doubt(name: str) -> None:
            if name == "before put .indexes" and not world.store.clock_offset_ms:
                world.store.clock_offset_ms = 3_600_000
                await asyncio.sleep(30)
                raise away()

        limits = replace(LIMITS, clock_check_interval_s=1.0)
        async with world.boot(hook=both(count, doubt), limits=limits) as node:
            await node.remote_log.start()
            await asyncio.sleep(200)
            assert "before DELETE_SEGMENT_STARTED" not in count.passed
            assert "before delete objects" not in count.passed
            assert len(node.pool.jobs) == 1
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.CLOCK
            assert "NTP" in page.why_not_text
            node.pool.hook = count
            world.store.clock_offset_ms = 0
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert len(node.finished(orders.partition)) == 2
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_a_clock_that_gets_into_doubt_while_a_clean_up_waits_keeps_the_final_delete_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        limits = replace(LIMITS, clock_check_interval_s=1.0)
        hook = failing("before put .indexes", away)
        async with world.boot(hook=hook, limits=limits) as node:
            await node.remote_log.start()
            await asyncio.sleep(60)
            (left,) = node.metadata.left_overs(orders.partition)
            world.store.clock_offset_ms = 3_600_000
            await asyncio.sleep(2 * LIMITS.upload_deadline_s)
            assert node.metadata.left_overs(orders.partition) != ()
            world.store.clock_offset_ms = 0
            await asyncio.sleep(2 * LIMITS.backoff_max_s)
            deleted = [each for each in node.events if isinstance(each, SegmentDeleted)]
            assert [each.segment_id for each in deleted] == [left.segment_id]
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_no_object_goes_while_a_policy_pauses_deleting(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        count = Counter()
        hook = both(count, failing("before put .indexes", away))
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hook) as node:
            paused = TopicPolicyChange("orders", TopicPolicy(delete_paused=True), -1)
            offset = await node.metadata.set_topic_policy(paused)
            await node.remote_log.start()
            await asyncio.sleep(CLEANED_UP_AFTER_S)
            assert len(node.finished(orders.partition)) == 2
            assert "before delete objects" not in count.passed
            page = node.remote_log.status(orders.partition)
            assert page.last_error is not None
            assert "paused" in page.last_error.text
            await node.metadata.set_topic_policy(TopicPolicyChange("orders", TopicPolicy(), offset))
            await asyncio.sleep(2 * LIMITS.backoff_max_s)
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_a_partition_that_cannot_be_read_for_a_while_keeps_its_claim_and_its_copy(
    tmp_path: Path, orders: KafkaLog
) -> None:
    checkpoint = orders.directory / "leader-epoch-checkpoint"
    kept = checkpoint.read_bytes()

    async def slowly(name: str) -> None:
        if name == "before put .indexes":
            await asyncio.sleep(50)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=slowly) as node:
            await node.remote_log.start()
            await asyncio.sleep(10)
            checkpoint.write_text("0\nnonsense\n")
            await asyncio.sleep(100)
            assert node.finished(orders.partition) == [(0, 9)]
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert "leader-epoch-checkpoint" in page.why_not_text
            assert page.role is Role.UNKNOWN
            checkpoint.write_bytes(kept)
            await asyncio.sleep(100)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert len(node.pool.jobs) == 2
            assert ClaimLost not in {type(each) for each in node.events}
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_a_log_directory_that_goes_away_stops_no_other(tmp_path: Path, orders: KafkaLog) -> None:
    other = KafkaLog.create(new_log_dir(tmp_path / "second disk"), "other", entries=((0, 0),))
    other.write(0, 10, end=12)
    meta = orders.log_dir / "meta.properties"
    kept = meta.read_bytes()

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir, other.log_dir)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(30)
            meta.unlink()
            other.write(10, 20, end=21)
            orders.write(20, 30, end=31)
            await asyncio.sleep(60)
            assert node.finished(other.partition) == [(0, 9), (10, 19)]
            page = node.remote_log.status(orders.partition)
            assert page.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert "meta.properties" in page.why_not_text
            assert [each.path for each in node.remote_log.problems()] == [meta]
            meta.write_bytes(kept)
            await asyncio.sleep(60)
            assert len(node.finished(orders.partition)) == 3
            await node.remote_log.close()

    run_virtually(main)


def test_a_store_that_hangs_delays_neither_the_start_nor_the_scans_for_ever(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def hanging(name: str) -> None:
        if name == "before put probe":
            await asyncio.Event().wait()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
        orders.write(20, 30, end=31)
        async with world.boot(hook=hanging) as node:
            await node.remote_log.start()
            await asyncio.sleep(3 * LIMITS.scan_interval_s)
            assert len(node.finished(orders.partition)) == 3
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("step", ["before get marker", "before put marker"])
def test_a_store_that_hangs_at_the_marker_ends_a_single_run_and_is_waited_for_by_a_node(
    tmp_path: Path, orders: KafkaLog, step: str
) -> None:
    async def hanging(name: str) -> None:
        if name == step:
            await asyncio.Event().wait()

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(hook=hanging) as node:
            with pytest.raises(RetryLater, match="'main'"):
                await node.remote_log.run_once()
            await node.remote_log.start()
            (problem,) = (
                each for each in node.remote_log.node_problems() if each.area is ProblemArea.STORE
            )
            assert problem.name == "main"
            await asyncio.sleep(3 * LIMITS.scan_interval_s)
            assert node.finished(orders.partition) == []

    run_virtually(main)


def test_a_look_that_never_ends_is_told_and_not_begun_a_second_time(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    disk_answers = asyncio.Event()
    in_thread = asyncio.to_thread

    async def hung(function: Callable[..., object], *args: object) -> object:
        nonlocal looks
        if getattr(function, "__name__", "") == "_find":
            looks += 1
            await disk_answers.wait()
        return await in_thread(function, *args)

    async def main() -> None:
        monkeypatch.setattr(asyncio, "to_thread", hung)
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(10 * LIMITS.scan_deadline_s)
            assert looks == 1
            assert str(orders.log_dir) in str(node.parts.looks.error)
            disk_answers.set()
            await asyncio.sleep(2 * LIMITS.scan_deadline_s)
            assert node.parts.looks.error is None
            assert len(node.finished(orders.partition)) == 2
            await node.remote_log.close()

    run_virtually(main)
