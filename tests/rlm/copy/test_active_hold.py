"""Records that never left the active segment before local retention took it.

Kafka's retention by time rolls a log all of whose records are too old, and removes the segments in
the same step (UnifiedLog.deleteSegments), so that no look finds the last one sealed.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.log_names import segment_file_name
from rlm.control.run_events import HoldReleased
from rlm.control.why_not import WhyNot
from rlm.copy.active_hold import ActiveHold
from rlm.copy.hold_pass import Orders
from rlm.leadership.leadership import Leads, LocalLogStart, NotLeading
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import (
    A_FEW_SCANS_S,
    AFTER_ANY_BACK_OFF_S,
    Outage,
    holding,
    lost,
    units,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

ALL = set(range(35))


def quiet_log(tmp_path: Path, *sealed: int) -> KafkaLog:
    """Records 0 to 34, of which the active segment has those behind the `sealed` bases."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(*sealed, 30 if sealed else 0, end=35)
    return log


def retention_takes_all(log: KafkaLog, *sealed: int, epoch: int = 0) -> None:
    """The newest record is too old: the log is rolled at its end, and all before it goes."""
    log.write(35, end=35)
    for base in (*sealed, 30 if sealed else 0):
        log.delete_segment(base)
    log.set_epochs((epoch, 35))


def links(tmp_path: Path) -> list[str]:
    """The base offsets of linked active segments."""
    return sorted(
        path.stem.lstrip("0") or "0" for path in (tmp_path / "hold").rglob(".active/**/*.log")
    )


def tiered(node: Node, log: KafkaLog) -> set[int]:
    return {each for start, end in node.finished(log.partition) for each in range(start, end + 1)}


@pytest.mark.parametrize("sealed", [(), (0, 10, 20)])
def test_the_records_of_a_quiet_partition_are_in_the_tier_when_retention_took_them(
    tmp_path: Path, sealed: tuple[int, ...]
) -> None:
    log = quiet_log(tmp_path, *sealed)
    broker = FakeBroker({("orders", 0): Leads(0, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(3_600.0)
            assert node.remote_log.statuses()[0].why_not_copying is WhyNot.NO_SEALED_SEGMENT
            assert links(tmp_path) == ["30" if sealed else "0"]
            retention_takes_all(log, *sealed)
            broker.local_start = LocalLogStart(35, 0)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == ALL
            assert lost(node.events) == []
            assert (units(tmp_path), links(tmp_path)) == ([], [])
            await node.assert_quiesced()

    run_virtually(main)


def test_they_are_also_held_while_the_node_is_down_and_the_store_away(tmp_path: Path) -> None:
    log = quiet_log(tmp_path, 0, 10, 20)
    outage = Outage()
    broker = FakeBroker({("orders", 0): Leads(0, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, outage):
            assert units(tmp_path) == ["0", "10", "20"]
        retention_takes_all(log, 0, 10, 20)
        broker.local_start = LocalLogStart(35, 0)
        async with holding(world, outage, broker=broker) as node:
            assert units(tmp_path) == ["0", "10", "20", "30"]
            outage.lasts = False
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == ALL
            assert lost(node.events) == []

    run_virtually(main)


def test_a_leader_that_was_elected_since_the_last_record_changes_nothing(tmp_path: Path) -> None:
    """Its epoch begins at the log's end, where no record of it ever came."""
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): Leads(0, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            log.set_epochs((0, 0), (3, 35))
            broker.words["orders", 0] = Leads(3, 35)
            await asyncio.sleep(A_FEW_SCANS_S)
            retention_takes_all(log, epoch=3)
            broker.local_start = LocalLogStart(35, 3)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == ALL
            assert lost(node.events) == []

    run_virtually(main)


@pytest.mark.parametrize("was_claimed", [False, True])
def test_records_of_an_epoch_that_came_and_went_while_the_node_was_down_are_copied(
    tmp_path: Path, was_claimed: bool
) -> None:
    """The last checkpoint that the node saw tells nothing of what followed the file."""
    log = quiet_log(tmp_path)
    word = Leads(0, 35) if was_claimed else NotLeading()
    broker = FakeBroker({("orders", 0): word})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            assert links(tmp_path) == ["0"]
        log.write_as(0, 40, ((0, 0), (1, 35)))
        log.write(40, end=40)
        log.delete_segment(0)
        log.set_epochs((2, 40))
        broker.words["orders", 0] = Leads(2, 40)
        broker.local_start = LocalLogStart(40, 2)
        async with holding(world, broker=broker) as node:
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == set(range(40))
            assert lost(node.events) == []

    run_virtually(main)


def test_a_segment_that_is_rolled_and_copied_leaves_no_link_and_no_event(tmp_path: Path) -> None:
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): Leads(0, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            log.write(35, end=40)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            broker.words["orders", 0] = Leads(0, 40)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert tiered(node, log) == ALL
            assert links(tmp_path) == ["35"]
            assert {each.why for each in node.events if isinstance(each, HoldReleased)} <= {
                "copied"
            }

    run_virtually(main)


def test_records_that_a_follower_cut_off_are_not_held(tmp_path: Path) -> None:
    log = quiet_log(tmp_path, 0, 10, 20)
    broker = FakeBroker({("orders", 0): NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            assert links(tmp_path) == ["30"]
            log.delete_segment(30)
            log.set_epochs((0, 0))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert "30" not in units(tmp_path)
            assert links(tmp_path) == ["20"]

    run_virtually(main)


def test_records_that_were_cut_off_before_retention_passed_them_are_not_held(
    tmp_path: Path,
) -> None:
    """All between two looks: the follower cuts what was never committed, fetches the new leader's
    records, and retention takes those. The link is to the file that was cut.
    """
    log = quiet_log(tmp_path, 0, 10, 20)
    log.set_high_watermark(30)
    broker = FakeBroker({("orders", 0): NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            assert links(tmp_path) == ["30"]
            log.write(40, end=40)
            for base in (0, 10, 20, 30):
                log.delete_segment(base)
            log.set_epochs((2, 40))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert units(tmp_path) == ["0", "10", "20"]
            assert links(tmp_path) == []
            (told,) = [each for each in node.events if isinstance(each, HoldReleased)]
            assert (told.start, told.end, told.why, told.missed) == (
                30, 34, "diverged", True,
            )  # fmt: skip

    run_virtually(main)


def test_a_high_watermark_counts_for_a_file_that_is_still_in_the_log_behind_it(
    tmp_path: Path,
) -> None:
    """The broker cuts the log and commits other records between the look and the pass."""
    log = quiet_log(tmp_path)
    log.set_high_watermark(0)
    broker = FakeBroker({("orders", 0): NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        with pytest.MonkeyPatch.context() as amid:
            async with holding(world, broker=broker) as node:
                assert links(tmp_path) == ["0"]
                look = ActiveHold.look

                def cut_first(hold: ActiveHold, orders: Orders, *rest: object) -> None:
                    for order in orders.by_partition.values():
                        facts = replace(order.facts, high_watermark=35)
                        orders.by_partition[log.partition] = replace(order, facts=facts)
                    log.delete_segment(0)
                    log.write(40, end=40)
                    log.set_epochs((2, 40))
                    amid.setattr(ActiveHold, "look", look)
                    look(hold, orders, *rest)  # type: ignore[arg-type]

                amid.setattr(ActiveHold, "look", cut_first)
                await asyncio.sleep(A_FEW_SCANS_S)
                assert units(tmp_path) == []
                told = [each for each in node.events if isinstance(each, HoldReleased)]
                assert [(each.end, each.why) for each in told] == [(34, "diverged")]

    run_virtually(main)


@pytest.mark.parametrize("is_kept", [True, False])
def test_the_high_watermark_of_a_quiet_log_is_kept_for_the_next_process(
    tmp_path: Path, is_kept: bool
) -> None:
    """Elections and retention while the node is down leave nothing else that proves the records."""
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): NotLeading()})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker):
            await asyncio.sleep(A_FEW_SCANS_S)
            assert links(tmp_path) == ["0"]
        (kept,) = (tmp_path / "hold").rglob("high-watermark")
        assert kept.read_text() == "35\n"
        if not is_kept:
            kept.write_bytes(b"\0" * 8)  # a power cut
        retention_takes_all(log, epoch=5)
        async with holding(world, broker=broker):
            assert units(tmp_path) == (["0"] if is_kept else [])

    run_virtually(main)


def test_what_a_linked_file_has_is_unknown_when_its_batches_do_not_tell(tmp_path: Path) -> None:
    """A torn batch: the partition waits and says where, nothing is recorded as lost."""
    log = quiet_log(tmp_path)
    broker = FakeBroker({("orders", 0): Leads(0, 35)})

    async def main() -> None:
        world = new_world(tmp_path, (log.log_dir,))
        async with holding(world, broker=broker) as node:
            path = log.directory / segment_file_name(0, ".log")
            os.truncate(path, path.stat().st_size - 5)
            retention_takes_all(log)
            broker.local_start = LocalLogStart(35, 0)
            await asyncio.sleep(A_FEW_SCANS_S)
            status = node.remote_log.statuses()[0]
            assert status.why_not_copying is WhyNot.UNUSABLE_DIRECTORY
            assert "/.active/" in status.why_not_text
            assert lost(node.events) == []

    run_virtually(main)
