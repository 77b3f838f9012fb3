"""Retention with a trash of a whole node, on the real metadata log and view, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_formats.errors import Conflict, InvalidRequest
from kafka_formats.kafka_uuid import Uuid
from rlm.data_plane.read_request import RecordsRequest
from rlm.leadership.leadership import NoAnswer, TopicConfig
from rlm.retention.acceptance import AskedAcceptance
from rlm.retention.expirer import Expirer
from rlm.retention.mark_times import last_mark
from rlm.retention.retention_plan import RetentionPlan
from rlm.retention.topic_retention import SETTLE_S, ByTopicConfig
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.partition_state import Expiry, PartitionState, TopicPolicy
from rlmm.records.control_records import ExpiryTakenBack, PartitionDeleteUndo
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS, Node, new_world
from tests.rlm.retention.test_topic_deletion import mark, undo
from tests.rlm.test_service_retention import (
    EVERYTHING_IS_OLD,
    GONE_AFTER_S,
    decide,
    keeps_the_last,
    three_segments,
)
from tests.rlm.virtual_time import run_virtually

TRASH_S = 3_600.0
WITH_TRASH = replace(LIMITS, retention_trash_s=TRASH_S)
A_PASS_S = 2 * LIMITS.retention_interval_s


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return three_segments(tmp_path)


def state_of(node: Node, log: KafkaLog) -> PartitionState:
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    return state


async def read(node: Node, log: KafkaLog, offset: int) -> bytes:
    pieces = node.parts.reads.records(log.partition, RecordsRequest(offset, 1 << 20))
    return b"".join([piece async for piece in pieces])


def test_what_is_out_of_retention_is_hidden_first_and_goes_after_its_time(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            await decide(node, keeps_the_last(orders))
            await asyncio.sleep(A_PASS_S)
            state = state_of(node, orders)
            assert (state.log_start_offset, state.first_readable_offset) == (0, 20)
            with pytest.raises(InvalidRequest, match="in the trash"):
                await read(node, orders, 19)
            assert await read(node, orders, 20) == orders.log_bytes(20)
            await asyncio.sleep(TRASH_S - 2 * A_PASS_S)
            assert len(node.finished(orders.partition)) == 3, "its time is not over"
            await asyncio.sleep(2 * A_PASS_S + GONE_AFTER_S)
            state = state_of(node, orders)
            assert (state.log_start_offset, state.expiry.marks) == (20, ())
            assert node.finished(orders.partition) == [(20, 29)]
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_what_is_restored_is_all_there_and_held_while_the_policy_stands(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            before = await read(node, orders, 0)
            await decide(node, EVERYTHING_IS_OLD)
            await asyncio.sleep(A_PASS_S)
            assert state_of(node, orders).first_readable_offset == 30
            expiry = state_of(node, orders).expiry
            assert await node.parts.expirer.would_repeat(orders.partition)
            back = ExpiryTakenBack(orders.partition, expiry.offset, True, "ann", "by mistake")
            await node.metadata.take_expiry_back(back)
            assert await read(node, orders, 0) == before
            await asyncio.sleep(TRASH_S + A_PASS_S)
            assert await read(node, orders, 0) == before, "the policy is held"
            assert orders.partition in node.parts.expirer.quiet, "and not planned at each pass"
            await decide(node, keeps_the_last(orders))
            await asyncio.sleep(A_PASS_S)
            assert state_of(node, orders).first_readable_offset == 20, "another one takes again"
            await node.remote_log.close()

    run_virtually(main)


@pytest.mark.parametrize("policy", [EVERYTHING_IS_OLD, TopicPolicy()], ids=["policy", "configs"])
def test_a_hold_outlives_a_change_of_the_policy_that_leaves_its_retention_as_it_is(
    tmp_path: Path, orders: KafkaLog, policy: TopicPolicy
) -> None:
    """A topic without a policy, whose configs in Kafka decide, gets one with its first pause."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            if policy == TopicPolicy():
                config = TopicConfig("delete", 0, -1, remote_storage_enable=False)
                broker = FakeBroker(config=config)
                clock = expirer.around.ambient.monotonic
                expirer.rules = ByTopicConfig(node.metadata.topic_policy, broker, clock)
                await expirer.run_pass()
                await asyncio.sleep(SETTLE_S + 1)
            else:
                await decide(node, policy)
            await expirer.run_pass()
            expiry = state_of(node, orders).expiry
            assert expiry.below == 30
            back = ExpiryTakenBack(orders.partition, expiry.offset, True, "ann", "by mistake")
            await node.metadata.take_expiry_back(back)
            for paused in (True, False):
                await decide(node, replace(policy, delete_paused=paused))
                await decide(node, replace(policy, copy_paused=paused, delete_paused=paused))
                await expirer.run_pass()
            state = state_of(node, orders)
            assert (state.first_readable_offset, state.expiry.marks) == (0, ())
            (problem,) = (each for each in expirer.problems() if each.name == "held")
            assert "1 partition orders-0: ann took back what it had marked" in problem.text
            await decide(node, keeps_the_last(orders))
            await expirer.run_pass()
            assert state_of(node, orders).first_readable_offset == 20, "another one takes again"
            assert expirer.problems() == ()

    run_virtually(main)


def test_marks_do_not_grow_older_while_the_topic_is_to_be_deleted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=WITH_TRASH) as node:
            expirer = node.parts.expirer
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            await expirer.run_pass()
            await mark(node, orders.partition, 30 * 24 * 3_600_000)
            await asyncio.sleep(3 * TRASH_S)
            await expirer.run_pass()
            await undo(node, orders.partition)
            for _ in range(2):
                await expirer.run_pass()
            state = state_of(node, orders)
            assert (state.log_start_offset, state.expiry.below) == (0, 30), "its time began anew"
            await mark(node, orders.partition, 30 * 24 * 3_600_000)
            marked = state_of(node, orders)
            again = PartitionDeleteUndo(orders.partition, marked.delete_offset)
            await node.metadata.undo_partition_delete(again, hold=True, who="ann", why="whole")
            await expirer.run_pass()
            state = state_of(node, orders)
            assert (state.first_readable_offset, state.expiry.hold is not None) == (0, True)

    run_virtually(main)


def test_a_restart_neither_shortens_the_time_nor_makes_it_begin_anew(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """All nodes together measure it; the last measurement may have begun before the mark."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            await node.parts.expirer.run_pass()
            (mark,) = state_of(node, orders).expiry.marks
            assert (mark.offset, mark.segments) == (30, 3)
            await asyncio.sleep(TRASH_S / 2)
        async with world.boot(limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            await asyncio.sleep(TRASH_S / 2 - 1)
            await node.parts.expirer.run_pass()
            assert len(node.finished(orders.partition)) == 3
            await asyncio.sleep(3 * TIME_STEP_MS_MAX / 1000)
            await node.parts.expirer.run_pass()
            assert state_of(node, orders).log_start_offset == 30

    run_virtually(main)


def test_what_was_restored_is_not_emptied_by_who_looked_before(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=WITH_TRASH) as node:

            async def empty(seen: Expiry) -> None:
                await node.parts.expirer.delete_records(
                    orders.partition, seen.below, apply=True, emptied=last_mark(seen)
                )

            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            await node.parts.expirer.run_pass()
            seen = state_of(node, orders).expiry
            back = ExpiryTakenBack(orders.partition, seen.offset, True, "ann", "by mistake")
            await node.metadata.take_expiry_back(back)
            with pytest.raises(Conflict, match="took back"):
                await empty(seen)
            assert state_of(node, orders).log_start_offset == 0
            await node.metadata.take_expiry_back(
                replace(back, replaces_offset=state_of(node, orders).expiry.offset, hold=False)
            )
            await node.parts.expirer.run_pass()
            seen = state_of(node, orders).expiry
            await empty(seen)
            state = state_of(node, orders)
            assert (state.log_start_offset, state.expiry.marks) == (seen.below, ())

    run_virtually(main)


def test_a_retention_that_is_not_known_might_take_again(tmp_path: Path, orders: KafkaLog) -> None:
    """Asked of a node whose broker does not answer, where the topic's configs in Kafka decide."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            assert not await expirer.would_repeat(orders.partition)
            broker = FakeBroker(config=NoAnswer("it is down"))
            expirer.rules = ByTopicConfig(
                node.metadata.topic_policy, broker, expirer.around.ambient.monotonic
            )
            assert await expirer.would_repeat(orders.partition)
            await decide(node, TopicPolicy(delete_paused=True))
            assert await expirer.would_repeat(orders.partition), "a pause makes nothing known"

    run_virtually(main)


def test_a_node_that_cannot_tell_might_take_again_and_a_pause_makes_no_doubt(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock may be wrong, or a copy under way hides what retention takes once that ended."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            await decide(node, replace(keeps_the_last(orders), delete_paused=True))
            assert await expirer.would_repeat(orders.partition)
            await decide(node, TopicPolicy(retention_bytes=1 << 30, delete_paused=True))
            assert not await expirer.would_repeat(orders.partition), "it is paused, and right"
            doubtful = replace(expirer, held_back=lambda _: "the clocks differ")
            assert await doubtful.would_repeat(orders.partition)
            await decide(node, EVERYTHING_IS_OLD)
            claim = state_of(node, orders).claim
            assert claim is not None
            row = next(iter(node.metadata.list_remote_log_segments(orders.partition)))
            copying = replace(
                row, segment_id=replace(row.segment_id, id=Uuid(b"one more of them")),
                state=SegmentState.COPY_SEGMENT_STARTED, start_offset=0, token=claim.token,
            )  # fmt: skip

            async def with_a_copy(*_: object) -> list[RemoteLogSegmentMetadata]:
                return [row, copying]

            monkeypatch.setattr(Expirer, "_rows", with_a_copy)
            assert (await expirer.plan(orders.partition)).up_to is None
            assert await expirer.would_repeat(orders.partition)

    run_virtually(main)


def lacks_the_last(log: KafkaLog) -> None:
    """An unclean leader's log: from 20 on it is another one."""
    for base in (20, 30):
        log.delete_segment(base)
    log.write(20, end=21, epoch=1)
    log.set_epochs((0, 0), (1, 20))


def has_all_again(log: KafkaLog) -> None:
    """The replica with the records leads once more."""
    log.write(0, 10, 20, 30, end=31)
    log.set_epochs((0, 0), (2, 31))


@pytest.mark.parametrize("returns", [True, False])
def test_what_an_unclean_leader_cut_off_stays_for_the_time_of_the_trash(
    tmp_path: Path, orders: KafkaLog, returns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            before = await read(node, orders, 0)
            lacks_the_last(orders)
            await asyncio.sleep(2 * LIMITS.scan_interval_s + A_PASS_S)
            assert state_of(node, orders).next_offset == 20
            await asyncio.sleep(TRASH_S - 2 * A_PASS_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert orders.partition in node.parts.expirer.quiet, "and not planned at each pass"
            if returns:
                has_all_again(orders)
            await asyncio.sleep(2 * LIMITS.scan_interval_s + 2 * A_PASS_S + GONE_AFTER_S)
            if returns:
                assert await read(node, orders, 0) == before
            else:
                assert node.finished(orders.partition) == [(0, 9), (10, 19)]
                assert await node.keys() == await node.expected_keys()
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)
    assert "the log of its leader lacks 1 tiered segments" in caplog.text


def test_an_accepted_deletion_of_what_was_cut_off_does_not_wait(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            lacks_the_last(orders)
            await asyncio.sleep(2 * LIMITS.scan_interval_s + A_PASS_S)
            assert len(node.finished(orders.partition)) == 3
            await node.parts.expirer.accept(orders.partition, AskedAcceptance(100.0, None, "ann"))
            await asyncio.sleep(A_PASS_S + GONE_AFTER_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            await node.remote_log.close()

    run_virtually(main)


def test_what_has_stayed_by_the_end_of_its_plan_goes_with_the_next_one(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large partition is planned in a thread, which takes a moment."""
    real = Expirer.plan

    async def slow(*args: Any, **more: Any) -> RetentionPlan:
        made = await real(*args, **more)
        await asyncio.sleep(2.0)
        return made

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            lacks_the_last(orders)
            await node.remote_log.run_once()
            await expirer.run_pass()
            claim = state_of(node, orders).claim
            assert claim is not None
            token = claim.token
            assert len(expirer.cut_off.stayed(orders.partition, token, 0)) == 1
            await asyncio.sleep(TRASH_S - 1)
            expirer.quiet.forget(orders.partition)  # as after any change of the partition
            monkeypatch.setattr(Expirer, "plan", slow)
            await expirer.run_pass()
            monkeypatch.undo()
            trash_ms = round(TRASH_S * 1000)
            assert len(expirer.cut_off.stayed(orders.partition, token, trash_ms)) == 1
            assert (20, 29) in node.finished(orders.partition)
            await expirer.run_pass()
            assert (20, 29) not in node.finished(orders.partition)
            await node.remote_log.close()

    run_virtually(main)


def test_what_came_back_while_deletes_were_paused_stays_for_its_time_once_more(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """No plan is made in a pause, so only the claims tell that the segment was back."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, limits=WITH_TRASH) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            lacks_the_last(orders)
            await node.remote_log.run_once()
            await expirer.run_pass()
            await decide(node, TopicPolicy(delete_paused=True))
            await asyncio.sleep(TRASH_S + A_PASS_S)
            has_all_again(orders)
            await node.remote_log.run_once()
            await expirer.run_pass()
            for base in (20, 30):
                orders.delete_segment(base)
            orders.write(20, end=21, epoch=3)
            orders.set_epochs((0, 0), (3, 20))
            await node.remote_log.run_once()
            await decide(node, TopicPolicy(delete_paused=False))
            await expirer.run_pass()
            assert (20, 29) in node.finished(orders.partition)
            await asyncio.sleep(TRASH_S)
            await expirer.run_pass()
            assert (20, 29) not in node.finished(orders.partition)
            await node.remote_log.close()

    run_virtually(main)
