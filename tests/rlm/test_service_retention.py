"""Retention of a whole node, on the real metadata log and view: from the policy to the bytes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, InvalidRequest, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.control.node_problem import ProblemArea
from rlm.data_plane.read_request import RecordsRequest
from rlm.format.object_keys import segment_keys
from rlm.node_files.kill_switches import Switch
from rlm.retention.acceptance import AskedAcceptance
from rlm.retention.retention_plan import Reason
from rlmm.partition_state import Mode, TopicPolicy
from rlmm.records.control_records import PartitionClaim, TopicPolicyChange
from rlmm.segment import SegmentState
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, PREFIX, Bucket, Node, Steps, World, new_world
from tests.rlm.planner_facts import ME, epochs
from tests.rlm.virtual_time import START_MS, run_virtually, virtual_ambient

GONE_AFTER_S = LIMITS.delete_delay_s + 1.0
EVERYTHING_IS_OLD = TopicPolicy(retention_ms=0)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return three_segments(tmp_path)


def three_segments(path: Path) -> KafkaLog:
    log = KafkaLog.create(new_log_dir(path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, 30, end=35)
    return log


async def decide(node: Node, policy: TopicPolicy, *, topic: str = "orders") -> None:
    before = node.metadata.topic_policy(topic)
    await node.metadata.set_topic_policy(TopicPolicyChange(topic, policy, before.offset))


def test_a_topic_that_is_made_again_keeps_everything_until_it_has_a_policy(
    tmp_path: Path, orders: KafkaLog
) -> None:
    former = replace(orders.partition, topic_id=Uuid(b"what-orders-were"))

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.claim is not None
            by = state.claim.incarnation
            await node.metadata.claim_partition(
                PartitionClaim(former, Mode.SIDECAR, 0, by, 1, epochs((0, 0)))
            )
            await decide(node, replace(EVERYTHING_IS_OLD, topic_id=former.topic_id))
            await expire(node)
            assert log_start(node, orders) == 0
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            own = replace(keeps_the_last(orders), topic_id=orders.partition.topic_id)
            await decide(node, own)
            await expire(node)
            assert node.finished(orders.partition) == [(20, 29)]

    run_virtually(main)


async def expire(node: Node) -> None:
    """A pass, and the time that objects are left to running readers."""
    await node.parts.expirer.run_pass()
    await asyncio.sleep(GONE_AFTER_S)


def log_start(node: Node, log: KafkaLog) -> int:
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    return state.log_start_offset


def keeps_the_last(log: KafkaLog) -> TopicPolicy:
    return TopicPolicy(retention_bytes=len(log.log_bytes(20)))


def test_size_retention_takes_the_oldest_down_to_their_bytes(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            await decide(node, keeps_the_last(orders))
            await node.parts.expirer.run_pass()
            assert log_start(node, orders) == 20, "moved before anything is gone"
            started = SegmentState.DELETE_SEGMENT_STARTED.name
            assert sorted(node.rows(orders.partition))[0] == (0, 9, started)
            assert await node.keys() == await node.expected_keys(), "left to running readers"
            await asyncio.sleep(GONE_AFTER_S)
            assert node.finished(orders.partition) == [(20, 29)]
            await node.assert_quiesced()
            with pytest.raises(InvalidRequest, match="log start"):
                async for _ in node.parts.reads.records(
                    orders.partition, RecordsRequest(19, 1_000)
                ):
                    pass
            read = [piece async for piece in node.parts.reads.records(
                orders.partition, RecordsRequest(20, 1_000)
            )]  # fmt: skip
            assert b"v20" in b"".join(read)

    run_virtually(main)


def test_time_retention_takes_them_when_they_are_due_and_not_before(
    tmp_path: Path, orders: KafkaLog
) -> None:
    due_s = 1_000

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.start()
            newest_ms = TIMESTAMP_MS + 29
            retention_ms = START_MS + due_s * 1_000 - newest_ms
            await decide(node, TopicPolicy(retention_ms=retention_ms))
            await asyncio.sleep(due_s - 1)
            assert len(node.finished(orders.partition)) == 3
            plan = await node.parts.expirer.plan(orders.partition)
            assert plan.next_due_ms == START_MS + due_s * 1_000 - 20 + 1
            await asyncio.sleep(LIMITS.retention_interval_s + GONE_AFTER_S + 1)
            assert node.rows(orders.partition) == []
            assert log_start(node, orders) == 30
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_what_the_broker_drops_locally_changes_nothing_in_the_tier(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            for base in (0, 10, 20):
                orders.delete_segment(base)
            orders.set_epochs((0, 30))
            await asyncio.sleep(3 * LIMITS.retention_interval_s)
            assert len(node.finished(orders.partition)) == 3
            assert log_start(node, orders) == 0
            await node.remote_log.close()

    run_virtually(main)


class StuckBucket(Bucket):
    """Does not delete the objects of segments that begin at 0."""

    async def delete_many(self, keys: Sequence[str]) -> None:
        if any("/00000000000000000000-" in key for key in keys):
            raise RetryLater("the store is away for this one")
        await super().delete_many(keys)


def test_a_segment_that_cannot_be_deleted_keeps_no_other_waiting(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.store = StuckBucket(virtual_ambient().now_ms)
        async with world.boot() as node:
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            await expire(node)
            started = SegmentState.DELETE_SEGMENT_STARTED.name
            assert node.rows(orders.partition) == [(0, 9, started)]
            assert "away for this one" in str(node.remote_log.status(orders.partition).last_error)

    run_virtually(main)


def test_switches_and_a_doubtful_clock_hold_everything_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            await decide(node, replace(EVERYTHING_IS_OLD, delete_paused=True))
            await expire(node)
            await decide(node, EVERYTHING_IS_OLD)
            await node.parts.given.switches.pause(Switch.DELETING, by="ann")
            await expire(node)
            plan = await node.parts.expirer.plan(orders.partition)
            assert "paused on this node" in str(plan.held_back)
            assert [each.reason for each in plan.deletions] == [Reason.TIME] * 3
            assert (log_start(node, orders), len(node.finished(orders.partition))) == (0, 3)
            await node.parts.given.switches.resume(Switch.DELETING, by="ann")
            await expire(node)
            assert node.rows(orders.partition) == []
            await node.assert_quiesced()

    run_virtually(main)


def test_a_clock_set_back_an_hour_deletes_nothing_until_it_is_right(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(LIMITS.scan_interval_s)
            world.store.clock_offset_ms = 3_600_000  # the store is right, the node is behind
            await asyncio.sleep(LIMITS.clock_check_interval_s + 2 * LIMITS.scan_interval_s)
            await decide(node, EVERYTHING_IS_OLD)
            before = await node.keys()
            await asyncio.sleep(2 * 3_600)
            assert (log_start(node, orders), len(node.finished(orders.partition))) == (0, 3)
            assert await node.keys() == before
            (problem,) = node.remote_log.node_problems()
            assert (problem.area, "NTP" in problem.text) == (ProblemArea.CLOCK, True)
            world.store.clock_offset_ms = 0
            await asyncio.sleep(LIMITS.retention_interval_s + GONE_AFTER_S + LIMITS.scan_interval_s)
            assert node.rows(orders.partition) == []
            await node.remote_log.close()
            await node.assert_quiesced()

    run_virtually(main)


def test_too_large_a_share_stops_until_somebody_accepts_it_once(tmp_path: Path) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(*range(0, 110, 10), 110, end=115)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            expirer = node.parts.expirer
            await expire(node)
            await expire(node)
            assert (log_start(node, log), len(node.finished(log.partition))) == (0, 11)
            (problem,) = node.remote_log.node_problems()
            assert problem.area is ProblemArea.RETENTION
            assert "11 segments, 100.0 %" in problem.text
            for percent, up_to, reason in (
                (99.0, 110, "TOO_MUCH"), (100.0, 109, "OTHER_PLAN"), (100.0, None, "OTHER_PLAN"),
            ):  # fmt: skip
                with pytest.raises(Conflict) as refused:
                    await expirer.accept(log.partition, AskedAcceptance(percent, up_to, "eve"))
                assert refused.value.reason == reason
            await expirer.accept(log.partition, AskedAcceptance(100.0, 110, "eve"))
            (_, told) = node.remote_log.node_problems()
            assert "eve let the next pass, and none after it, take 11 segments" in told.text
            assert expirer.accepted_text(log.partition) == told.text
            await expire(node)
            assert node.rows(log.partition) == []
            await expirer.run_pass()
            assert node.remote_log.node_problems() == ()
            await node.assert_quiesced()

    run_virtually(main)


def test_retention_that_fails_is_a_problem_of_the_node_until_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    down = False

    async def hook(step: str) -> None:
        if down and step == "before record_log_start":
            raise RetryLater("no leader of the quorum")

    async def main() -> None:
        nonlocal down
        async with new_world(tmp_path, (log.log_dir,)).boot(hook=hook) as node:
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            down = True
            for _ in range(3):
                await node.parts.expirer.run_pass()
                (problem,) = node.remote_log.node_problems()
                assert (problem.area, problem.name) == (ProblemArea.RETENTION, "fails")
                assert "of 1 partition orders-0: no leader of the quorum" in problem.text
            assert caplog.text.count("retention of") == 1, "and then with the node's problems"
            down = False
            await node.parts.expirer.run_pass()
            assert node.remote_log.node_problems() == ()

    run_virtually(main)


def test_too_large_a_share_of_the_node_stops_though_no_partition_is_too_large_a_one(
    tmp_path: Path,
) -> None:
    log_dir = new_log_dir(tmp_path / "kafka")
    logs = []
    for number in range(12):
        log = KafkaLog.create(log_dir, f"orders-{number}", entries=((0, 0),))
        log.write(*range(10), end=10)
        logs.append(log)

    async def main() -> None:
        async with new_world(tmp_path, (log_dir,)).boot() as node:
            await node.remote_log.run_once()
            for log in logs:
                await decide(node, EVERYTHING_IS_OLD, topic=log.partition.topic)
            expirer = node.parts.expirer
            await expire(node)
            assert all(len(node.finished(log.partition)) == 9 for log in logs)
            (problem,) = node.remote_log.node_problems()
            assert (problem.area, problem.name) == (ProblemArea.RETENTION, None)
            assert "108 segments of 12 partitions, 100.0 %" in problem.text
            await expirer.accept(logs[0].partition, AskedAcceptance(100.0, 9, "eve"))
            await expire(node)
            left = [len(node.rows(log.partition)) for log in logs]
            assert left == [0] + [9] * 11, "the accepted one alone, though 99 are few"
            for log in logs[1:7]:
                await decide(node, TopicPolicy(), topic=log.partition.topic)
            await expire(node)
            left = [len(node.rows(log.partition)) for log in logs]
            assert left == [0] + [9] * 6 + [0] * 5, "less than half of the node's"
            assert node.remote_log.node_problems() == ()
            await node.assert_quiesced()

    run_virtually(main)


def test_only_the_node_of_the_claim_can_be_asked_to_accept(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            asked = AskedAcceptance(100.0, None, "eve")
            with pytest.raises(Conflict, match="nobody has"):
                await node.parts.expirer.accept(orders.partition, asked)

    run_virtually(main)


def test_a_claim_that_somebody_newer_voided_takes_nothing_away(
    tmp_path: Path, orders: KafkaLog
) -> None:
    newer = replace(ME, node_id=2)
    voided = False

    async def main() -> None:
        async def void_the_claim(name: str) -> None:
            nonlocal voided
            moves = name == "before record_log_start"
            if moves and node.metadata.topic_policy("orders") == policy_in_force[0]:
                voided = True
                await node.metadata.claim_partition(
                    PartitionClaim(
                        orders.partition, Mode.SIDECAR, 1, newer, 1, epochs((0, 0), (1, 35))
                    ),
                    deadline_s=10.0,
                )

        policy_in_force: list[TopicPolicy] = [TopicPolicy(offset=-2)]
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=void_the_claim) as node:
            await node.remote_log.run_once()
            await decide(node, EVERYTHING_IS_OLD)
            policy_in_force[0] = node.metadata.topic_policy("orders")
            await expire(node)
            assert voided
            assert (log_start(node, orders), len(node.finished(orders.partition))) == (0, 3)

    run_virtually(main)


async def nothing_but_expiry(world: World, steps: Steps) -> None:
    """A life whose steps count from the pass of retention on."""
    counting = False

    async def hook(name: str) -> None:
        if counting:
            await steps(name)

    async with world.boot(hook=hook) as node:
        await node.remote_log.run_once()
        counting = True
        life = asyncio.create_task(expire(node), name="drive expiry")
        stopped = asyncio.create_task(steps.stopped.wait())
        await asyncio.wait({life, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()


def one_death(path: Path, number: int) -> list[str]:
    """A pass of retention that is killed at a step, then lives that finish it."""
    path.mkdir()
    log, steps = three_segments(path), Steps(number)

    async def main() -> None:
        world = new_world(path, (log.log_dir,))
        async with world.boot() as node:
            await node.remote_log.run_once()
            await decide(node, keeps_the_last(log))
        await nothing_but_expiry(world, steps)
        async with world.boot() as node:
            await node.remote_log.run_once()
            await expire(node)
            await node.remote_log.run_once()
            await asyncio.sleep(GONE_AFTER_S)
            await node.assert_quiesced()
            assert node.finished(log.partition) == [(20, 29)]
            assert log_start(node, log) == 20

    run_virtually(main)
    shutil.rmtree(path)
    return steps.names


def test_a_pass_killed_at_any_step_is_finished_by_the_next_life(tmp_path: Path) -> None:
    names = one_death(tmp_path / "whole", -1)
    kinds = {name.partition(" ")[2] for name in names}
    assert {"record_log_start", "DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"} <= kinds
    assert "delete objects" in kinds
    assert names.index("after record_log_start") < names.index("before DELETE_SEGMENT_STARTED")
    for number in range(1, len(names) + 1):
        try:
            one_death(tmp_path / str(number), number)
        except AssertionError as error:
            raise AssertionError(f"killed at step {number} ({names[number - 1]})") from error


def test_the_objects_that_go_are_those_of_the_segment_and_no_others(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.run_once()
            before = await node.keys()
            rows = {
                row.start_offset: row
                for row in node.metadata.list_remote_log_segments(orders.partition)
            }
            await decide(node, keeps_the_last(orders))
            await expire(node)
            gone = {
                key
                for base in (0, 10)
                for key in segment_keys(PREFIX, rows[base].segment_id, base).all()
            }
            assert before - await node.keys() == gone

    run_virtually(main)


def test_a_small_partition_outlives_its_brokers_disk(tmp_path: Path, orders: KafkaLog) -> None:
    """Its only replica comes back without a record, and leads: the tier has the last copy."""
    entire = [(0, 9), (10, 19), (20, 29)]

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            assert node.finished(orders.partition) == entire
            shutil.rmtree(orders.directory)
            KafkaLog.create(orders.log_dir, "orders", entries=((1, 0),))
            orders.write(0, 10, 20, 30, 40, 50, end=51, epoch=1)
            await node.remote_log.run_once()
            rewritten = [*entire, (30, 39), (40, 49)]
            assert node.finished(orders.partition) == [*entire, *rewritten]
            await expire(node)
            assert node.finished(orders.partition) == [*entire, *rewritten], "both histories"
            (problem,) = node.parts.expirer.problems()
            assert "3 segments" in problem.text
            asked = AskedAcceptance(100.0, None, "eve")
            await node.parts.expirer.accept(orders.partition, asked)
            await expire(node)
            assert node.finished(orders.partition) == rewritten
            await node.assert_quiesced()

    run_virtually(main)
