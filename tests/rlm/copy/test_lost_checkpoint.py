"""The broker's leader epoch checkpoint was lost, and an election began it anew: what lies below its
first epoch is on the disk all the same, and is never recorded as lost for that.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock, patch

import pytest

import rlm.local_log.lost_epochs
from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from kafka_formats.log_names import segment_file_name
from kafka_formats.offset_checkpoint import LOG_START_FILE
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer
from rlm.local_log.log_dir import find_partitions
from rlm.local_log.lost_epochs import EpochFinder, FoundEpochs, agree, read_heads, with_heads_found
from rlmm.partition_state import PartitionState
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.held_segments import A_FEW_SCANS_S, AFTER_ANY_BACK_OFF_S
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, World, new_world
from tests.rlm.planner_facts import epochs
from tests.rlm.virtual_time import run_virtually

ORDERS = ("orders", 0)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """0 to 24, the active segment begins at 20."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def lose_the_checkpoint(log: KafkaLog) -> None:
    """20 to 44 are sealed and not copied; the election at epoch 1 found no checkpoint."""
    log.write(20, 30, 40, end=45)
    log.write(45, end=50, epoch=1)
    log.set_epochs((1, 45))
    log.set_high_watermark(50)


def state_of(node: Node, log: KafkaLog) -> PartitionState:
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    return state


def why_not(node: Node) -> tuple[WhyNot | None, str]:
    page = node.remote_log.statuses()[0]
    return page.why_not_copying, page.why_not_text


async def copy_what_is_sealed(world: World, log: KafkaLog) -> None:
    async with world.boot() as node:
        await node.remote_log.start()
        await asyncio.sleep(A_FEW_SCANS_S)
        assert node.finished(log.partition) == [(0, 9), (10, 19)]


def test_whole_segments_below_the_first_epoch_are_waited_for_and_told(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_the_checkpoint(orders)
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            why, text = why_not(node)
            assert why is WhyNot.EPOCHS_MISSING
            assert "offsets 20 to 44 are on the disk" in text
            assert state_of(node, orders).lost_ranges == ()
            assert state_of(node, orders).next_offset == 20
            assert "epochs_missing" in [each.name for each in node.remote_log.node_problems()]
            orders.set_epochs((0, 0), (1, 45))
            await asyncio.sleep(A_FEW_SCANS_S)
            assert state_of(node, orders).next_offset == 45
            assert state_of(node, orders).lost_ranges == ()

    run_virtually(main)


@pytest.mark.parametrize("left", [None, b"", b"0\n0\n"])
def test_a_checkpoint_that_went_under_a_running_leader_is_told(
    tmp_path: Path, orders: KafkaLog, left: bytes | None
) -> None:
    """Its broker knows the epochs in memory, and writes the file anew at its next election only."""
    broker = FakeBroker({("orders", 0): Leads(0, 25)})

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert state_of(node, orders).next_offset == 20
            path = orders.directory / "leader-epoch-checkpoint"
            right = path.read_bytes()
            orders.write(20, 30, end=35)
            broker.words["orders", 0] = Leads(0, 35)
            path.unlink()
            if left is not None:
                path.write_bytes(left)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            assert "epochs_missing" in [each.name for each in node.remote_log.node_problems()]
            path.write_bytes(right)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert (state_of(node, orders).next_offset, why_not(node)[0]) == (
                30,
                WhyNot.NO_SEALED_SEGMENT,
            )

    run_virtually(main)


@pytest.mark.parametrize("said_by", ["checkpoint", "broker"])
def test_what_the_broker_says_is_below_its_log_start_is_gone(
    tmp_path: Path, orders: KafkaLog, said_by: str
) -> None:
    """DeleteRecords: the segments below go some time later."""
    broker = FakeBroker({ORDERS: Leads(1, 50)}, local_start=NoAnswer("not supported"))

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_the_checkpoint(orders)
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            if said_by == "broker":
                broker.local_start = LocalLogStart(45, 1)
            else:
                orders.set_log_start(45)
            await asyncio.sleep(A_FEW_SCANS_S)
            (lost,) = state_of(node, orders).lost_ranges
            assert (lost.start, lost.end) == (20, 44)

    run_virtually(main)


NOT_MOVED = LocalLogStart(0, -1)
"""A broker that lost its epochs, and knows where its log starts."""


def test_batches_that_name_the_recorded_epochs_stand_in_for_the_checkpoint(
    tmp_path: Path, orders: KafkaLog
) -> None:
    broker = FakeBroker({ORDERS: Leads(1, 50)}, local_start=NOT_MOVED)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_the_checkpoint(orders)
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition)[2:] == [(20, 29), (30, 39), (40, 44)]
            assert state_of(node, orders).lost_ranges == ()
            assert state_of(node, orders).lineage == epochs((0, 0), (1, 45))
            assert node.remote_log.node_problems() == ()
            orders.write(45, 60, end=65, epoch=1)
            broker.words[ORDERS] = Leads(1, 65)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert state_of(node, orders).next_offset == 60
            await node.assert_quiesced()
            await node.remote_log.close()

    run_virtually(main)


def test_batches_are_read_again_after_the_disk_failed_once(
    tmp_path: Path, orders: KafkaLog
) -> None:
    broker = FakeBroker({ORDERS: Leads(1, 50)}, local_start=NOT_MOVED)
    read = Mock(side_effect=[OSError(5, "Input/output error"), *[DEFAULT] * 9], wraps=read_heads)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_the_checkpoint(orders)
        with patch.object(rlm.local_log.lost_epochs, "read_heads", read):
            async with world.boot(broker=broker) as node:
                await node.remote_log.start()
                await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
                assert node.finished(orders.partition)[2:] == [(20, 29), (30, 39), (40, 44)]

    run_virtually(main)


def test_batches_of_a_slow_disk_are_read_to_the_end(orders: KafkaLog) -> None:
    """The first look gives them up at its deadline."""
    lose_the_checkpoint(orders)
    goes_on = threading.Event()

    def slowly(*args: Any, **limits: Any) -> Epochs:
        goes_on.wait(10)
        return read_heads(*args, **limits)

    async def main() -> None:
        (local,) = find_partitions((orders.log_dir,), kafka_cluster_id=None).partitions
        finder = EpochFinder(batches_max=1_000, deadline_s=0.01)
        asked = local, epochs((0, 0), (1, 45)), 20, 0
        with patch.object(rlm.local_log.lost_epochs, "read_heads", Mock(wraps=slowly)) as read:
            assert [await finder.find(*asked) for _ in range(2)] == [None, None]
            goes_on.set()
            finder.deadline_s = 10.0
            found = FoundEpochs(epochs((0, 20)), EpochEntry(1, 45))
            assert await finder.find(*asked) == found
            assert read.call_count == 1

    asyncio.run(main())


def test_a_tier_that_has_nothing_yet_begins_where_the_batches_do(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The claim at epoch 0 was recorded; the store was away until the checkpoint was lost."""
    broker = FakeBroker({ORDERS: Leads(0, 5)}, local_start=NOT_MOVED)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(broker=broker) as node:
            node.store.clock_offset_ms = 3_600_000
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert state_of(node, orders).log_start_offset == -1
        lose_the_checkpoint(orders)
        world.store.clock_offset_ms = 0
        broker.words[ORDERS] = Leads(1, 50)
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert state_of(node, orders).log_start_offset == 0
            assert state_of(node, orders).next_offset == 45

    run_virtually(main)


def test_batches_of_an_epoch_that_nobody_claimed_are_waited_for(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The recorded lineage says epoch 0 for all of them: what differs may be another's history."""
    broker = FakeBroker({ORDERS: Leads(2, 50)}, local_start=NOT_MOVED)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        orders.write(20, 30, end=30)
        orders.write(30, 40, end=45, epoch=1)
        orders.write(45, end=50, epoch=2)
        orders.set_epochs((2, 45))
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            assert state_of(node, orders).next_offset == 20
            assert state_of(node, orders).lost_ranges == ()

    run_virtually(main)


OWN = epochs((3, 45))


@pytest.mark.parametrize(
    ("heads", "lineage"),
    [
        ([(0, 20)], [(0, 0), (3, 45)]),
        ([(0, 20), (1, 30)], [(0, 0), (1, 30), (3, 45)]),
        ([(1, 35)], [(0, 0), (1, 30), (3, 45)]),
        ([(3, 42)], [(0, 0), (3, 40)]),
        ([(1, 30), (3, 40)], [(0, 0), (1, 30), (3, 40)]),
    ],
)
def test_epochs_of_batches_are_believed_where_the_lineage_says_the_same(
    heads: list[tuple[int, int]], lineage: list[tuple[int, int]]
) -> None:
    assert agree(epochs(*heads), OWN, epochs(*lineage))


@pytest.mark.parametrize(
    ("heads", "lineage"),
    [
        ([], [(0, 0), (3, 45)]),
        ([(0, 20)], []),
        ([(0, 20)], [(3, 45)]),
        ([(0, 20)], [(0, 30), (3, 45)]),
        ([(0, 20), (1, 30)], [(0, 0), (3, 45)]),
        ([(0, 20)], [(0, 0), (1, 30), (3, 45)]),
        ([(0, 20), (1, 35)], [(0, 0), (1, 30), (3, 45)]),
        ([(0, 20), (1, 30)], [(0, 0), (1, 35), (3, 45)]),
        ([(0, 20)], [(0, 0), (2, 45)]),
        ([(0, 20)], [(0, 0), (3, 45), (4, 60)]),
        ([(1, 20), (0, 30)], [(0, 0), (3, 45)]),
        ([(3, 20)], [(0, 0), (3, 45)]),
        ([(0, 20), (1, 45)], [(0, 0), (3, 45)]),
        ([(-1, 20)], [(0, 0), (3, 45)]),
    ],
)
def test_epochs_of_batches_never_change_a_lineage(
    heads: list[tuple[int, int]], lineage: list[tuple[int, int]]
) -> None:
    assert not agree(epochs(*heads), OWN, epochs(*lineage))


BEGUN_INSIDE = {
    "a sealed segment": ((0, 25), (1, 45)),
    "a sealed segment, at an election": ((1, 25),),
    "the active segment": ((1, 45),),
}
"""Below it are whole segments, too, or none."""


def lose_inside(log: KafkaLog, *entries: tuple[int, int]) -> None:
    """20 to 39 are sealed and not copied, 40 to 49 are active; the epochs begin in the middle."""
    (_, first), *_ = entries
    log.write(20, 40, end=50)
    log.set_epochs(*entries)
    if entries[-1] == (1, 45):
        log.write_across(40, 45, 50, epochs=(0, 1))
    else:
        log.write_across(20, first, 40, epochs=(0, 1))
        log.write(40, end=50, epoch=1)


@pytest.mark.parametrize("entries", BEGUN_INSIDE.values(), ids=BEGUN_INSIDE)
@pytest.mark.parametrize("copied", [True, False])
def test_records_below_a_first_epoch_inside_a_segment_are_waited_for_and_told(
    tmp_path: Path, orders: KafkaLog, entries: tuple[tuple[int, int], ...], *, copied: bool
) -> None:
    """Kafka's log starts at its first segment's base where no log start is written down."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        if copied:
            await copy_what_is_sealed(world, orders)
            orders.delete_segment(0)
            orders.delete_segment(10)
        lose_inside(orders, *entries)
        begins = 20 if copied else 0
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            why, text = why_not(node)
            assert why is WhyNot.EPOCHS_MISSING
            assert f"offsets {begins} to {entries[0][1] - 1} are on the disk" in text
            assert "epochs_missing" in [each.name for each in node.remote_log.node_problems()]
            orders.set_log_start(entries[0][1] - 1)
            await asyncio.sleep(AFTER_ANY_BACK_OFF_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            assert state_of(node, orders).lost_ranges == ()
            assert state_of(node, orders).log_start_offset == (0 if copied else -1)
        (orders.log_dir / LOG_START_FILE).unlink()
        orders.set_epochs((0, begins), (1, 25 if (1, 25) in entries else 45))
        async with world.boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert state_of(node, orders).next_offset == 40
            assert state_of(node, orders).lost_ranges == ()
            assert state_of(node, orders).log_start_offset == 0
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize("said_by", ["checkpoint", "broker"])
def test_what_delete_records_took_inside_a_segment_is_gone(
    tmp_path: Path, orders: KafkaLog, said_by: str
) -> None:
    broker = FakeBroker({ORDERS: Leads(1, 50)}, local_start=NoAnswer("not supported"))

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_inside(orders, (0, 25), (1, 45))
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            if said_by == "broker":
                broker.local_start = LocalLogStart(25, 1)
            else:
                orders.set_log_start(25)
            await asyncio.sleep(A_FEW_SCANS_S)
            (lost,) = state_of(node, orders).lost_ranges
            assert (lost.start, lost.end) == (20, 24)
            assert state_of(node, orders).next_offset == 40
            await node.assert_quiesced()

    run_virtually(main)


@pytest.mark.parametrize("entries", BEGUN_INSIDE.values(), ids=BEGUN_INSIDE)
def test_batches_stand_in_for_a_checkpoint_that_begins_inside_a_segment(
    tmp_path: Path, orders: KafkaLog, entries: tuple[tuple[int, int], ...]
) -> None:
    broker = FakeBroker({ORDERS: Leads(1, 50)}, local_start=NOT_MOVED)

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        await copy_what_is_sealed(world, orders)
        lose_inside(orders, *entries)
        async with world.boot(broker=broker) as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition)[2:] == [(20, 39)]
            assert state_of(node, orders).lost_ranges == ()
            begins = 25 if (1, 25) in entries else 45
            assert state_of(node, orders).lineage == epochs((0, 0), (1, begins))
            orders.write(50, 60, end=65, epoch=1)
            broker.words[ORDERS] = Leads(1, 65)
            await asyncio.sleep(A_FEW_SCANS_S)
            assert node.finished(orders.partition)[3:] == [(40, 49), (50, 59)]
            assert node.remote_log.node_problems() == ()
            await node.assert_quiesced()

    run_virtually(main)


def test_no_more_batches_are_read_than_the_bound_and_nothing_that_is_no_log(
    orders: KafkaLog,
) -> None:
    lose_the_checkpoint(orders)
    (found,) = find_partitions((orders.log_dir,), kafka_cluster_id=None).partitions
    above = EpochEntry(1, 45)
    assert read_heads(found.segments, 5, above, batches_max=45) == epochs((0, 5))
    with pytest.raises(CorruptData, match="batches are below offset"):
        read_heads(found.segments, 5, above, batches_max=44)
    inside = EpochEntry(1, 33)
    assert read_heads(found.segments, 5, inside, batches_max=34) == epochs((0, 5))
    path = orders.directory / segment_file_name(20, ".log")
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\0" * 70)
    with pytest.raises(CorruptData):
        read_heads(found.segments, 5, above, batches_max=45)
    path.write_bytes((orders.directory / segment_file_name(30, ".log")).read_bytes())
    with pytest.raises(CorruptData, match="belongs to the next segment"):
        read_heads(found.segments, 5, above, batches_max=45)


def test_what_was_found_counts_while_the_checkpoint_begins_where_it_did(orders: KafkaLog) -> None:
    lose_the_checkpoint(orders)
    (local,) = find_partitions((orders.log_dir,), kafka_cluster_id=None).partitions
    found = FoundEpochs(epochs((0, 20)), local.leader_epochs[0])
    assert with_heads_found(local, found, 0).leader_epochs == epochs((0, 20), (1, 45))
    assert with_heads_found(local, found, 30).leader_epochs == epochs((0, 30), (1, 45))
    assert with_heads_found(local, found, 45) is local
    assert with_heads_found(local, None, 0) is local
    began_inside = replace(local, leader_epochs=epochs((0, 45), (1, 47)))
    found_inside = FoundEpochs(epochs((0, 20)), began_inside.leader_epochs[0])
    joined = with_heads_found(began_inside, found_inside, 0)
    assert joined.leader_epochs == epochs((0, 20), (1, 47))
    other = replace(local, leader_epochs=epochs((1, 40)))
    assert with_heads_found(other, found, 0) is other


def test_a_tiers_first_log_start_does_not_pass_over_them(tmp_path: Path, orders: KafkaLog) -> None:
    lose_the_checkpoint(orders)

    async def main() -> None:
        async with new_world(tmp_path, (orders.log_dir,)).boot() as node:
            await node.remote_log.start()
            await asyncio.sleep(A_FEW_SCANS_S)
            assert why_not(node)[0] is WhyNot.EPOCHS_MISSING
            assert state_of(node, orders).log_start_offset == -1

    run_virtually(main)
