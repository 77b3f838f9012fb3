"""Holding in a whole node: what local retention takes is copied all the same."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from kafka_formats.log_names import segment_file_name
from rlm.control.node_problem import ProblemArea
from rlm.control.run_events import HoldReleased
from rlm.control.why_not import WhyNot
from rlm.copy import held_batches
from rlm.copy.hold import HoldLimits, Outside
from rlm.copy.partition_status import Role
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading, TopicConfig
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata
from tests.rlm.fake_broker import DELETE, FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    ROOM,
    Outage,
    four_segments,
    holding,
    lost,
    retention,
    still_open,
    units,
)
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.replicas import cluster, remove
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return four_segments(tmp_path)


def released(node: Node) -> list[tuple[int, str, bool]]:
    return [
        (each.start, each.why, each.missed)
        for each in node.events
        if isinstance(each, HoldReleased)
    ]


def test_what_local_retention_took_while_the_store_was_down_is_copied_from_the_hold(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            assert units(tmp_path) == ["0", "10", "20"]
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            page = node.remote_log.statuses()[0]
            assert page.lag is not None
            assert (page.lag.segments, page.local_log_start_offset) == (3, 20)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []
            assert units(tmp_path) == []
            assert {why for _, why, _ in released(node)} == {"copied"}
            await node.assert_quiesced()

    run_virtually(main)


def test_segments_are_held_while_the_start_waits_for_the_store(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A node that was killed comes back while its store goes away in the middle of a request."""
    store_answers = asyncio.Event()

    async def stuck(name: str) -> None:
        if name == "before get marker":
            await store_answers.wait()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, hold=ROOM, hook=stuck) as node:
            starting = asyncio.create_task(node.remote_log.start())
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (starting.done(), units(tmp_path)) == (False, ["0", "10", "20"])
            retention(orders, 0, 10, start=20)
            assert node.rows(orders.partition) == []
            store_answers.set()
            await starting
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []

    run_virtually(main)


def test_what_an_open_transaction_keeps_from_being_copied_is_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Local retention goes by the high watermark, and copies by the last stable offset."""
    still_open(orders, 5, 10, 20, 30, 35)
    broker = FakeBroker({("orders", 0): Leads(0, 5)})

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20"]
            retention(orders, 0, 10, start=20)
            broker.local_start = LocalLogStart(20, 0)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == []
            broker.words["orders", 0] = Leads(0, 35)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []
            assert units(tmp_path) == []

    run_virtually(main)


def test_what_was_held_of_an_open_transaction_and_then_cut_off_is_never_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Another broker was elected unclean, with records up to 15."""
    still_open(orders, 5, 10, 20, 30, 35)
    broker = FakeBroker({("orders", 0): Leads(0, 5)})

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True, broker=broker, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(orders, 0, start=10)
            broker.words["orders", 0] = NotLeading()
            for base in (10, 20, 30):
                orders.delete_segment(base)
            orders.write_across(10, 15, 20, epochs=(0, 1))
            orders.write(20, 30, end=35, epoch=1)
            orders.set_epochs((0, 10), (1, 15))
            await asyncio.sleep(A_FEW_SCANS_S)
            broker.words["orders", 0] = Leads(1, 35)
            broker.local_start = LocalLogStart(10, 1)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            rows = node.metadata.list_remote_log_segments(orders.partition)
            assert [row.leader_epochs for row in rows] == [
                ((0, 0),), ((0, 10), (1, 15)), ((1, 20),),
            ]  # fmt: skip
            assert (10, "diverged", True) in released(node)
            assert (20, "diverged", True) in released(node)
            assert units(tmp_path) == []

    run_virtually(main)


def test_files_that_vanish_between_others_are_copied_from_the_hold_whoever_else_lacks_them(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = cluster(orders, b1=[*range(10), *range(20, 30)])
        async with holding(world, outage) as node:
            remove(orders, 10)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20"]
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 19), (20, 29)]
            assert lost(node.events) == []
            assert units(tmp_path) == []
            await node.assert_quiesced()

    run_virtually(main)


def test_what_is_held_of_a_damaged_segment_is_walked_once_for_all_its_holes(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each hole was looked for from the beginning."""
    outage, looked = Outage(), list[int]()
    size = len(orders.log_bytes(10)) // 10

    def batches_from(log: Path, at: int, position: int, batch_bytes_max: int) -> tuple[bytes, int]:
        if log.name == f"{10:020d}.log":
            looked.append(position // size)
        return held_batches.batches_from(log, at, position, batch_bytes_max)

    monkeypatch.setattr("rlm.copy.mending.batches_from", batches_from)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        world.replicas = cluster(orders, b1=[*range(10), *range(20, 30)])
        async with holding(world, outage) as node:
            data = bytearray(orders.log_bytes(10))
            for each in (2, 5):
                data[each * size + 65] ^= 1
            (orders.directory / f"{10:020d}.log").write_bytes(data)  # the link is the same file
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert looked[:2] == [0, 2]  # the second goes on from the first
            assert looked[2:4] in ([], [0, 2])  # it is tried again
            assert lost(node.events) == []

    run_virtually(main)


def test_a_hold_survives_a_restart_and_brings_back_the_epochs_that_retention_cut(
    tmp_path: Path, orders: KafkaLog
) -> None:
    orders.write(10, 20, 30, end=35, epoch=2)
    orders.set_epochs((0, 0), (2, 10))
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage):
            pass
        retention(orders, 0, 10, start=20, epoch=2)
        outage.lasts = False
        async with world.boot(hook=outage, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            rows = node.metadata.list_remote_log_segments(orders.partition)
            assert [row.leader_epochs for row in rows] == [((0, 0),), ((2, 10),), ((2, 20),)]
            assert lost(node.events) == []

    run_virtually(main)


def test_history_that_left_before_anything_was_recorded_begins_where_the_hold_does(
    tmp_path: Path, orders: KafkaLog
) -> None:
    down = True

    async def no_claims(name: str) -> None:
        if down and name == "before claim_partition":
            raise RetryLater("no quorum")

    async def main() -> None:
        nonlocal down
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, no_claims) as node:
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            down = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.log_start_offset == 0

    run_virtually(main)


def test_a_kill_before_the_log_start_was_recorded_loses_nothing_that_is_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    down = True

    async def no_log_start(name: str) -> None:
        if down and name == "before record_log_start":
            raise RetryLater("no quorum")

    async def main() -> None:
        nonlocal down
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, no_log_start) as node:
            assert units(tmp_path) == ["0", "10", "20"]
        retention(orders, 0, 10, start=20)
        down = False
        async with world.boot(hook=no_log_start, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]

    run_virtually(main)


@pytest.mark.parametrize("linked_elsewhere", [False, True])
def test_when_the_budget_was_not_enough_the_oldest_is_recorded_as_lost_and_the_rest_is_copied(
    tmp_path: Path, orders: KafkaLog, linked_elsewhere: bool
) -> None:
    """Links of a second Strandline cluster, or of a backup, make nothing the broker's."""
    outage = Outage()
    one = HoldLimits(bytes_max=len(orders.log_bytes(10)), free_bytes_min=1)
    for base, mtime in ((0, 1_000), (10, 2_000), (20, 3_000)):
        path = orders.directory / segment_file_name(base, ".log")
        os.utime(path, (mtime, mtime))
        if linked_elsewhere:
            os.link(path, tmp_path / path.name)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage, hold=one) as node:
            assert units(tmp_path) == ["0", "10", "20"], "links of what the broker has are free"
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["10", "20"]
            assert released(node) == [(0, "bytes_max", True)]
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert lost(node.events) == [(0, 9)]
            assert node.finished(orders.partition) == [(10, 19), (20, 29)]

    run_virtually(main)


def test_a_held_segment_of_a_log_that_diverged_is_never_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            # An unclean leader began at 10: this replica was cut there and follows it.
            for base in (10, 20, 30):
                orders.delete_segment(base)
            orders.write(10, 25, 40, end=45, epoch=5)
            orders.set_epochs((0, 0), (5, 10))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (10, "diverged", True) in released(node)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 24), (25, 39)]

    run_virtually(main)


def test_a_topic_that_is_left_out_for_a_while_loses_nothing_that_was_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Somebody sets cleanup.policy=compact, sees the mistake, and sets it back."""
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        broker = FakeBroker({("orders", 0): Leads(0, 30)})
        async with world.boot(hook=outage, data_plane=True, hold=ROOM, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            broker.config = TopicConfig("compact", -1, -1, False)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.remote_log.statuses()[0].role is Role.NOT_TIERED
            broker.config = DELETE
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []

    run_virtually(main)


def test_what_is_held_of_a_topic_goes_with_its_data_and_not_with_its_directory(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            shutil.rmtree(orders.directory)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20", "30"], "a replica may come back"
            await node.metadata.put_remote_partition_delete_metadata(
                RemotePartitionDeleteMetadata(
                    orders.partition, 1, 0, PartitionDeleteState.DELETE_PARTITION_MARKED,
                    replaces_offset=-1, grace_ms=60_000,
                )
            )  # fmt: skip
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20", "30"], "and the deletion may be undone"
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.metadata.partition_state(orders.partition) is None
            assert units(tmp_path) == []
            gone = [(base, "partition_deleted", False) for base in (0, 10, 20, 30)]
            assert released(node) == gone

    run_virtually(main)


def test_trouble_with_a_hold_directory_is_told_and_keeps_nobody_from_copying(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=outage, data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            (tmp_path / "hold" / "cluster-1").rmdir()
            (tmp_path / "hold" / "cluster-1").write_bytes(b"")
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.hold is not None
            assert [each.area for each in node.hold.problems()] == [ProblemArea.HOLD]
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert node.hold.problems() == ()

    run_virtually(main)


def test_a_pass_that_outlasts_its_deadline_and_all_other_trouble_are_told_beside_each_other(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """By names, since of two with one name the node's status has the first."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, Outage()) as node:
            assert node.hold is not None
            hold = node.hold
            hold._outside = Outside({"/one": "is not used", "/other": "is not held"})
            hold._running = asyncio.get_running_loop().create_future()  # it hangs in its thread
            await hold.after_look(node.parts.table.works())
            problems = [(each.name, each.text) for each in hold.problems()]
            assert [name for name, _ in problems] == [None, "/one", "/other"]
            assert "could not be brought up to date within 60 s" in problems[0][1]

    run_virtually(main)


def test_while_the_checkpoint_is_damaged_nothing_more_is_held_and_that_is_told(
    tmp_path: Path, orders: KafkaLog
) -> None:
    checkpoint = orders.directory / "leader-epoch-checkpoint"

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=Outage(), data_plane=True, hold=ROOM) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.hold is not None
            sound = checkpoint.read_bytes()
            checkpoint.write_bytes(b"damaged")
            orders.write(30, 40, end=45)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.hold.usage().units == 3
            status = node.remote_log.status(orders.partition)
            assert status.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert str(checkpoint) in status.why_not_text
            problems = {each.name: each.text for each in node.remote_log.node_problems()}
            assert str(checkpoint) in problems["unusable_directory"]
            checkpoint.write_bytes(sound)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.hold.usage().units == 4

    run_virtually(main)
