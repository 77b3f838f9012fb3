"""Leader changes since the snapshot: the store alone knows of their epochs once local retention has
cut the broker's checkpoint.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from rlm.control.why_not import WhyNot
from rlm.copy.claim_outlook import ClaimOutlook, NoOutlook, reset_refusal
from rlm.reconcile.lost_claims import merge_told, with_lost_claims
from rlm.reconcile.reconciliation import compare
from rlmm.apply import claims as apply_claims
from tests.rlm.after_disaster import ANEW, after_the_disaster, lower, nothing
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import Node, World, new_world
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.state_world import epochs

Pairs = tuple[tuple[int, int], ...]


@pytest.mark.parametrize(
    ("recorded", "told", "expected"),
    [
        # nothing since
        (((0, 0),), (), ((0, 0),)),
        (((0, 0), (1, 20)), (((0, 5),), ((1, 30),)), ((0, 0), (1, 20))),
        # later elections, told by manifests alone or by an index
        (((0, 0),), (((1, 20),), ((1, 30),), ((2, 40),)), ((0, 0), (1, 20), (2, 40))),
        (((0, 0),), (((2, 30),), ((0, 0), (1, 20), (2, 30))), ((0, 0), (1, 20), (2, 30))),
        ((), (((1, 20),), ((0, 0), (1, 20))), ((0, 0), (1, 20))),
        # a leader that was cut off
        (((0, 0),), (((0, 15),), ((1, 20),)), ((0, 0), (1, 20))),
        (((0, 0),), (((1, 20),), ((0, 0), (2, 15))), ((0, 0), (2, 15))),
        (((0, 0), (1, 20)), (((0, 0), (1, 20)), ((0, 0), (2, 15))), ((0, 0), (2, 15))),
        # a head that was cut, of the recorded lineage or of the copy
        (((2, 40),), (((0, 0), (1, 20)),), ((0, 0), (1, 20), (2, 40))),
        (((0, 0), (1, 20)), (((1, 30), (2, 50)),), ((0, 0), (1, 20), (2, 50))),
        # up to its last epoch the recorded lineage is right
        (((0, 0), (1, 20)), (((0, 0), (1, 10)),), ((0, 0), (1, 20))),
        (((0, 0), (2, 20)), (((0, 0), (1, 10)),), ((0, 0), (2, 20))),
    ],
)
def test_copies_tell_the_lineage_since_the_snapshot(
    recorded: Pairs, told: tuple[Pairs, ...], expected: Pairs
) -> None:
    assert merge_told(epochs(*recorded), [epochs(*each) for each in told]) == epochs(*expected)


@pytest.mark.parametrize(
    ("checkpoint", "lineage", "expected"),
    [
        (((1, 40),), (), ((1, 40),)),
        (((1, 40),), ((0, 0), (1, 20)), ((0, 0), (1, 20))),
        (((3, 40),), ((0, 0), (1, 20)), ((0, 0), (1, 20), (3, 40))),
        # where the checkpoint speaks, it is right
        (((0, 0), (2, 25)), ((0, 0), (1, 20)), ((0, 0), (2, 25))),
        (((1, 30), (2, 40)), ((2, 20),), ((1, 30), (2, 40))),
        ((), ((0, 0),), ()),
    ],
)
def test_a_claim_carries_them_below_the_brokers_checkpoint(
    checkpoint: Pairs, lineage: Pairs, expected: Pairs
) -> None:
    assert with_lost_claims(epochs(*checkpoint), epochs(*lineage)) == epochs(*expected)


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Sealed segments 0-9 and 10-19 of epoch 0."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


async def copied(world: World, log: KafkaLog) -> list[tuple[int, int, int]]:
    async with world.boot(data_plane=True) as node:
        assert (await node.remote_log.run_once()).complete
        return served(node, log)


def served(node: Node, log: KafkaLog) -> list[tuple[int, int, int]]:
    """First and last offset, and the first epoch of the segment that serves them."""
    state = node.metadata.partition_state(log.partition)
    assert state is not None
    ranges = node.metadata.served_segments(state, 0, 100)
    return [(at.first_offset, at.last_offset, by.leader_epochs[0][0]) for at, by in ranges]


async def snapshot_then_epoch_1(
    tmp_path: Path, orders: KafkaLog, log: KafkaLog
) -> tuple[World, list[tuple[int, int, int]]]:
    """A snapshot of the first two segments of `orders`; then a new leader, from 20 on, in `log`.
    The disaster, and local retention has taken what was copied.
    """
    world = new_world(tmp_path, (orders.log_dir,))
    async with world.boot(data_plane=True) as node:
        assert (await node.remote_log.run_once()).complete
        snapshot = await node.metadata.take_snapshot()
    log.write(20, 30, 40, end=45, epoch=1)
    log.set_epochs((0, 0), (1, 20))
    before = await copied(world, log)
    anew = await after_the_disaster(world, snapshot)
    for base in (0, 10, 20, 30):
        log.delete_segment(base)
    log.set_epochs((1, 40))
    return anew, before


async def adopted_whole(anew: World, log: KafkaLog, before: list[tuple[int, int, int]]) -> None:
    """Everything is served as before; nothing is lost, and nothing of the partition unknown."""
    async with anew.boot(data_plane=True, directory_id=ANEW) as node:
        report = await node.remote_log.run_once()
        assert report.copied == ()
        state = node.metadata.partition_state(log.partition)
        assert state is not None
        assert served(node, log) == before
        assert (state.lost_ranges, state.log_start_offset, state.next_offset) == ((), 0, 40)
        assert state.lineage == epochs((0, 0), (1, 20))


def test_segments_of_an_epoch_younger_than_the_snapshot_are_adopted(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        anew, before = await snapshot_then_epoch_1(tmp_path, orders, orders)
        assert before == [(0, 9, 0), (10, 19, 0), (20, 29, 1), (30, 39, 1)]
        await adopted_whole(anew, orders, before)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert (found.whole, found.missing, found.unknown_count) == (4, [], 0)

    run_virtually(main)


def test_a_topic_younger_than_the_snapshot_with_two_epochs_is_adopted_from_its_first_offset(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        news = KafkaLog.create(orders.log_dir, "news", entries=((0, 0),))
        news.write(0, 10, end=20)
        anew, before = await snapshot_then_epoch_1(tmp_path, orders, news)
        assert len(before) == 4
        await adopted_whole(anew, news, before)

    run_virtually(main)


@pytest.mark.parametrize("index", ["whole", "damaged"])
def test_copies_of_a_leader_that_was_cut_off_since_are_not_served(
    tmp_path: Path, orders: KafkaLog, index: str
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            snapshot = await node.metadata.take_snapshot()
        orders.write(20, 30, end=35)  # epoch 0 goes on
        assert len(await copied(world, orders)) == 3
        for base in (20, 30):
            orders.delete_segment(base)
        orders.write(20, 25, 40, end=45, epoch=1)  # an unclean election at 20
        orders.set_epochs((0, 0), (1, 20))
        before = await copied(world, orders)
        assert before == [(0, 9, 0), (10, 19, 0), (20, 24, 1), (25, 39, 1)]
        anew = await after_the_disaster(world, snapshot)
        for base in (0, 10, 20, 25):
            orders.delete_segment(base)
        orders.set_epochs((1, 40))
        if index == "damaged":
            page = await world.store.list_page("")
            (key,) = (k.key for k in page.objects if f"/{25:020}-" in k.key and "index" in k.key)
            (info,) = (each for each in page.objects if each.key == key)
            data = bytes(info.size)
            await world.store.put(key, data, crc32c=crc32c(data))
        await adopted_whole(anew, orders, before)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert [each.start_offset for each in found.unknown] == [20]

    run_virtually(main)


def test_a_refused_claim_that_carries_what_copies_tell_is_forecast_as_refused(
    tmp_path: Path, orders: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unclean election at 5 since the snapshot: the store tells of it, and the log no more."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            snapshot = await node.metadata.take_snapshot()
        for base in (0, 10, 20):
            orders.delete_segment(base)
        orders.write(0, 5, end=5)
        orders.write(5, 25, 40, end=45, epoch=1)
        orders.set_epochs((0, 0), (1, 5))
        assert await copied(world, orders) == [(0, 4, 0), (5, 24, 1), (25, 39, 1)]
        anew = await after_the_disaster(world, snapshot)
        for base in (0, 5, 25):
            orders.delete_segment(base)
        orders.set_epochs((1, 40))
        monkeypatch.setattr(apply_claims, "LINEAGE_CUT_OFFSETS_MAX", 5)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            assert isinstance(node.parts.answers.claim_outlook(orders.partition), NoOutlook)
            await node.remote_log.run_once()
            assert node.remote_log.status(orders.partition).why_not_copying is WhyNot.CLAIM_REFUSED
            outlook = node.parts.answers.claim_outlook(orders.partition)
            assert isinstance(outlook, ClaimOutlook)
            assert not outlook.as_it_is.is_accepted
            assert outlook.after_reset.cut_at == 5
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert reset_refusal(state, outlook, deleting_paused=True) is None

    run_virtually(main)
