"""What is held stays known and is never taken for a gap, whatever fails or happens meanwhile."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlm.control.why_not import Wait
from rlm.copy.copy_plan import CopySegment, PlanFacts, RecordLostRange, plan
from rlm.copy.hold import HoldLimits
from rlm.copy.partition_work import HOLD_NOT_LOOKED_AT, PartitionWork
from rlm.copy.work_table import WorkTable
from rlm.leadership.leadership import Leads, TopicConfig
from rlm.local_log.hold_directory import HoldDirectory
from rlm.local_log.hold_dirs import hold_directories
from rlm.local_log.hold_plan import Unit
from rlm.local_log.log_dir import LocalPartition, LocalSegment, find_partitions
from rlmm.lineage import merge
from tests.rlm.fake_broker import DELETE, FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    ROOM,
    NoQuorum,
    Outage,
    four_segments,
    holding,
    lost,
    retention,
    units,
)
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import new_world
from tests.rlm.planner_facts import epochs, state
from tests.rlm.virtual_time import run_virtually


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return four_segments(tmp_path)


def directory_of(tmp_path: Path, log: KafkaLog) -> HoldDirectory:
    (tmp_path / "hold").mkdir()
    (found,) = hold_directories([tmp_path / "hold"], [log.log_dir], own_name="cluster-1")
    found.prepare()
    return found


def look_at(log: KafkaLog) -> LocalPartition:
    (found,) = find_partitions([log.log_dir], kafka_cluster_id=None).partitions
    return found


def unit_of(log: KafkaLog, base: int, next_base: int, epoch: int) -> Unit:
    segment = LocalSegment(base, log.directory / f"{base}.log", 100, next_base)
    return Unit(log.partition, segment, epochs((epoch, base)), 0, alone=True, followed_by=epoch)


def test_links_that_nobody_knows_of_do_not_keep_a_segment_from_being_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    directory = directory_of(tmp_path, orders)
    local = look_at(orders)
    assert directory.hold(local, local.segments[0]) is not None
    again = directory.hold(local, local.segments[0])
    assert again is not None
    assert directory.find().units == (again,)
    assert len(os.listdir(again.segment.log_path.parent.parent)) == 1


def test_one_link_that_fails_keeps_no_other_from_being_held_and_copied(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage = Outage()
    link = os.link
    failing = True

    def full_at_second(source: Path, target: Path) -> None:
        if failing and Path(source).name == f"{10:020d}.log":
            raise OSError(28, "No space left on device", str(target))
        link(source, target)

    async def main() -> None:
        nonlocal failing
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=outage, data_plane=True, hold=ROOM) as node:
            monkeypatch.setattr(os, "link", full_at_second)
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.hold is not None
            assert node.hold.problems() != ()
            assert node.hold.usage().units == 2, "the others were linked, and are known"
            failing = False
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.hold.problems() == ()
            assert units(tmp_path) == ["0", "10", "20"]
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []

    run_virtually(main)


def test_room_is_made_on_a_disk_on_which_nothing_more_can_be_linked(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_source: Path, target: Path) -> None:
        raise OSError(28, "No space left on device", str(target))

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        none_at_all = HoldLimits(bytes_max=0, free_bytes_min=1)
        async with world.boot(hook=Outage(), data_plane=True, hold=none_at_all) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20"]
            monkeypatch.setattr(os, "link", full)
            orders.write(30, 40, end=45)
            retention(orders, 0, 10, start=20)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["20"]

    run_virtually(main)


def test_links_that_could_not_be_removed_are_removed_once_they_can(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    outage, listdir = Outage(), os.listdir

    def fails(path: Path) -> list[str]:
        if path.name.startswith(".removing-"):
            raise OSError(5, "Input/output error", str(path))
        return listdir(path)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with holding(world, outage) as node:
            monkeypatch.setattr(os, "listdir", fails)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert [path.name for path in (tmp_path / "hold").glob("*/orders-0/*/.removing-*")]
            monkeypatch.setattr(os, "listdir", listdir)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert [path.name for path in (tmp_path / "hold").glob("*/orders-0/*/*")] == []
            assert node.hold is not None
            assert node.hold.problems() == ()

    run_virtually(main)


def test_a_segment_removed_since_the_last_pass_of_the_hold_is_held_and_no_gap(
    orders: KafkaLog,
) -> None:
    """A drive plans while the pass that follows a look still runs."""
    work = PartitionWork(orders.partition, local=look_at(orders))
    work.units = (unit_of(orders, 0, 10, 0), unit_of(orders, 10, 20, 0))
    assert work.kept == ()
    retention(orders, 0, 10, start=20)
    work.local = look_at(orders)
    assert [each.base_offset for each in work.segments] == [0, 10, 20, 30]
    assert len(work.claimed_checkpoint) == 1
    assert work.claimed_checkpoint[0].start_offset == 0, "the head that retention cut is known"


def test_nothing_is_planned_before_it_is_known_what_is_held(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """A leadership watch may drive a new row while the first pass of the hold runs."""
    seen: list[Wait | None] = []

    class LooksOn:
        async def after_look(self, works: Any) -> None:
            seen.extend(work.hold_wait for work in works)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot() as node:
            inner = node.remote_log.table
            hold: Any = LooksOn()
            table = WorkTable(inner._scanner, inner._driver, hold)
            await table.scan(cancel_lost=False)
            await table.drive_all_to_the_end(back_offs_max=0)
            assert node.finished(orders.partition) == []

    run_virtually(main)
    assert seen == [HOLD_NOT_LOOKED_AT]


def test_a_unit_behind_a_gap_says_nothing_in_a_claim_that_would_cut_what_others_copied(
    orders: KafkaLog,
) -> None:
    """An unclean leader began epoch 4 at 600; this replica was cut there, and, since that leader
    had nothing below 1000 any more, began anew at 1000.
    """
    for base in (0, 10, 20, 30):
        orders.delete_segment(base)
    orders.write(1000, 1010, end=1015, epoch=5)
    orders.set_epochs((5, 1000))
    work = PartitionWork(orders.partition, local=look_at(orders))
    work.units = (unit_of(orders, 600, 700, 3),)
    view = epochs((3, 0), (4, 600), (5, 1000))
    merged = merge(view, work.claimed_checkpoint, leader_epoch=5, higher_epoch=True)
    assert (merged.epochs, merged.cut_at) == (view, None)


def test_a_held_segment_of_another_lineage_keeps_nothing_else_from_being_copied(
    orders: KafkaLog,
) -> None:
    """Else the live segments wait behind it until local retention has taken them, too."""
    held = unit_of(orders, 600, 700, 3).segment
    live = LocalSegment(1000, orders.directory / "1000.log", 100, 1010)
    facts = PlanFacts(
        segments=(held, live, LocalSegment(1010, orders.directory / "1010.log", 100, None)),
        linked_count=1,
        checkpoint=epochs((3, 600), (5, 1000)),
        local_log_start_offset=1000,
        last_stable_offset=1010,
        state=replace(state(), next_offset=600, lineage=epochs((3, 0), (4, 600), (5, 1000))),
        now_ms=0,
    )
    step = plan(facts)
    assert isinstance(step, RecordLostRange)
    assert (step.start, step.end) == (600, 999)


def test_what_is_held_below_a_head_that_delete_records_took_says_nothing_of_that_head(
    orders: KafkaLog,
) -> None:
    """Else a claim says that the epoch of what is held went on, and is refused from then on."""
    orders.delete_segment(0)
    orders.set_epochs((2, 15))
    orders.write(10, 20, 30, end=35, epoch=2)
    orders.write_across(10, 15, 20, epochs=(0, 2))
    work = PartitionWork(orders.partition, local=look_at(orders))
    work.units = (unit_of(orders, 0, 10, 0),)
    assert work.claimed_checkpoint == epochs((2, 15))
    facts = PlanFacts(
        segments=work.segments,
        linked_count=1,
        checkpoint=work.checkpoint,
        local_log_start_offset=15,
        last_stable_offset=30,
        state=replace(state(), next_offset=15, lineage=epochs((0, 0), (1, 10), (2, 12))),
        now_ms=0,
    )
    assert plan(facts) == CopySegment(10, 20, work.segments[1].size_bytes)


def test_of_a_held_segment_only_what_delete_records_left_of_it_is_copied(
    tmp_path: Path, orders: KafkaLog
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(hook=outage, data_plane=True, hold=ROOM) as node:
            orders.set_epochs((0, 5))
            orders.set_log_start(5)
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            orders.set_epochs((0, 15))  # retention is faster than the checkpoint of the log start
            orders.write(30, 40, end=45)
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(orders, 0, 10, start=20)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29), (30, 39)]
            rows = list(node.metadata.list_remote_log_segments(orders.partition))
            assert rows[0].leader_epochs == ((0, 5),), "it was held when its head was gone"
            assert rows[1].leader_epochs == ((0, 10),), "it was held before"
            assert lost(node.events) == [], "not while the broker had the segments"
            partition = node.metadata.partition_state(orders.partition)
            assert partition is not None
            assert partition.lost_ranges == ()

    run_virtually(main)


def rewritten_from_15_on(log: KafkaLog, end: int) -> None:
    """An unclean election cut the log at 15, and the same file was written up to `end`."""
    log.delete_segment(20)
    log.write_across(10, 15, end, epochs=(0, 2))
    log.write(end, 30, end=35, epoch=2)
    log.set_epochs((0, 0), (2, 15))


@pytest.fixture
def elected(orders: KafkaLog) -> KafkaLog:
    """A log in whose segment from 10 to 19 the second epoch begins."""
    orders.write_across(10, 15, 20, epochs=(0, 1))
    orders.write(20, 30, end=35, epoch=1)
    orders.set_epochs((0, 0), (1, 15))
    return orders


@pytest.mark.parametrize("end", [17, 20, 25])
def test_what_the_broker_cut_and_wrote_anew_while_the_node_was_down_is_held_as_it_is_now(
    tmp_path: Path, elected: KafkaLog, end: int
) -> None:
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (elected.log_dir,))
        async with holding(world, outage):
            pass
        rewritten_from_15_on(elected, end)
        async with holding(world, outage) as node:
            assert node.hold is not None
            assert node.hold.problems() == ()
            assert units(tmp_path) == ["0", "10", str(end)]
            retention(elected, 0, 10, start=end, epoch=2)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(elected.partition) == [(0, 9), (10, end - 1), (end, 29)]
            assert lost(node.events) == []
            assert units(tmp_path) == []

    run_virtually(main)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("end", [17, 20, 25])
def test_what_the_broker_cut_and_wrote_anew_and_deleted_is_copied_as_it_is_now(
    tmp_path: Path, elected: KafkaLog, end: int, *, down: bool, whole: bool
) -> None:
    """While the node was down, or between two looks. `whole`: the batches at the begin of the file
    do not contradict what it was when it was held.
    """
    outage = Outage()
    if whole:
        elected.write_as(10, 20, ((0, 10),))
        elected.write(20, 30, end=35)
        elected.set_epochs((0, 0))

    def written_and_deleted() -> bytes:
        rewritten_from_15_on(elected, end)
        data = elected.log_bytes(10)
        retention(elected, 0, 10, start=end, epoch=2)
        return data

    async def main() -> None:
        world = new_world(tmp_path, (elected.log_dir,))
        async with holding(world, outage):
            if not down:
                data = written_and_deleted()
                await asyncio.sleep(A_FEW_SCANS_S)
        if down:
            data = written_and_deleted()
        async with holding(world, outage) as node:
            assert node.hold is not None
            assert node.hold.problems() == ()
            assert units(tmp_path) == ["0", "10", str(end)]
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(elected.partition) == [(0, 9), (10, end - 1), (end, 29)]
            rows = list(node.metadata.list_remote_log_segments(elected.partition))
            assert rows[1].leader_epochs == ((0, 10), (2, 15))
            assert rows[1].size_bytes == len(data)
            assert lost(node.events) == []
            assert units(tmp_path) == []

    run_virtually(main)


@pytest.mark.parametrize("copied", [True, False])
def test_what_was_written_anew_and_tells_no_end_goes_once_its_offsets_are_copied(
    tmp_path: Path, elected: KafkaLog, *, copied: bool
) -> None:
    """Until then a person decides: its epochs are unknown, and nobody else has its records."""
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (elected.log_dir,))
        async with holding(world, outage):
            pass
        rewritten_from_15_on(elected, 25)
        if copied:
            async with world.boot(data_plane=True) as node:
                await node.remote_log.start()
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert node.finished(elected.partition) == [(0, 9), (10, 24), (25, 29)]
        os.truncate(elected.directory / f"{10:020d}.log", 1000)  # amid a batch
        retention(elected, 0, 10, start=25, epoch=2)
        async with holding(world, outage) as node:
            assert node.hold is not None
            assert len(node.hold.problems()) == (0 if copied else 1)
            assert units(tmp_path) == ([] if copied else ["0", "10", "20", "25"])

    run_virtually(main)


def test_what_the_broker_cut_and_wrote_anew_up_to_the_same_size_is_held_as_it_is_now(
    tmp_path: Path, elected: KafkaLog
) -> None:
    """Between two looks, and before anybody can claim the partition again."""
    quorum = NoQuorum()

    async def main() -> None:
        world = new_world(tmp_path, (elected.log_dir,))
        async with holding(world, quorum) as node:
            rewritten_from_15_on(elected, 20)
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(elected, 0, 10, start=20, epoch=2)
            await asyncio.sleep(A_FEW_SCANS_S)
            quorum.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(elected.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []
            assert units(tmp_path) == []

    run_virtually(main)


def test_what_was_written_anew_in_a_topic_that_is_left_out_stays_until_it_can_be_held_again(
    tmp_path: Path, elected: KafkaLog
) -> None:
    """Of a topic that is left out, perhaps by a mistake, nothing is held anew."""
    outage = Outage()

    async def main() -> None:
        world = new_world(tmp_path, (elected.log_dir,))
        broker = FakeBroker({("orders", 0): Leads(1, 35)})
        async with world.boot(hook=outage, data_plane=True, hold=ROOM, broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            broker.config = TopicConfig("compact", -1, -1, False)
            await asyncio.sleep(A_FEW_SCANS_S)
            rewritten_from_15_on(elected, 20)
            broker.words["orders", 0] = Leads(2, 35)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20"]
            broker.config = DELETE
            await asyncio.sleep(A_FEW_SCANS_S)
            retention(elected, 0, 10, start=20, epoch=2)
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert node.finished(elected.partition) == [(0, 9), (10, 19), (20, 29)]
            assert lost(node.events) == []

    run_virtually(main)
