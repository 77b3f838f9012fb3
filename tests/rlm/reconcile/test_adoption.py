"""A cluster that starts from an older snapshot: what the store holds is neither lost nor copied
again, and nothing of it is deleted before somebody compared both.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlm.reconcile.reconciliation import compare
from rlm.repair.repair_run import Outcome
from rlmm.metadata_log import SnapshotId
from rsm_backends.store import ListPage
from rsm_backends.streams import read_all
from tests.rlm.after_disaster import (
    ANEW,
    after_the_disaster,
    all_keys,
    copied_then_ahead,
    ids,
    lower,
    nothing,
    of_base,
    record_reconciled,
)
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.one_node import LIMITS, Bucket, Node, World, new_world
from tests.rlm.repairing import GONE_AFTER_S, keys_of, only, row_at
from tests.rlm.virtual_time import run_virtually, virtual_ambient


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    """Sealed segments 0-9 and 10-19."""
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, 10, 20, end=25)
    return log


def test_what_was_copied_after_the_snapshot_is_adopted_not_copied_again(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_then_ahead(world, orders)
        keys = await all_keys(world)
        anew = await after_the_disaster(world, snapshot)
        for _ in range(2):  # and a restart of the node finds it done
            async with anew.boot(data_plane=True, directory_id=ANEW) as node:
                report = await node.remote_log.run_once()
                assert (report.complete, report.copied) == (True, ())
                assert ids(node, orders) == all_ids
                assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29), (30, 39)]
                state = node.metadata.partition_state(orders.partition)
                assert state is not None
                assert (state.next_offset, state.adopting) == (40, False)
                for uuid in all_ids:
                    row = node.metadata.find_segment(uuid)
                    assert row is not None
                    stream = node.parts.reads.open_log(uuid)
                    data = b"".join([piece async for piece in stream])
                    assert data == orders.log_bytes(row.start_offset)
                assert await all_keys(world) == keys
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert (found.whole, found.missing, found.unknown_count) == (4, [], 0)

    run_virtually(main)


def test_nothing_is_given_up_while_a_store_of_the_snapshot_is_not_named(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """What was copied there since the snapshot would be taken for lost, for ever."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_then_ahead(world, orders)
        for base in (0, 10, 20, 30):
            orders.delete_segment(base)
        anew = await after_the_disaster(world, snapshot)
        theirs, anew.store = anew.store, Bucket(virtual_ambient().now_ms)
        anew.store_name = "other"
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()  # which makes its marker
            await asyncio.sleep(LIMITS.takeover_settle_s)
            await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.lost_ranges, state.adopting) == ((), True)
            error = node.remote_log.status(orders.partition).last_error
            assert error is not None
            assert "add [stores.main]" in error.text
        anew.store, anew.store_name = theirs, "main"
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()
            assert ids(node, orders) == all_ids

    run_virtually(main)


async def copied_during_the_snapshot(
    world: World, orders: KafkaLog
) -> tuple[SnapshotId, set[Uuid]]:
    """The first copy is under way in the snapshot; everything is copied in the end."""
    taken: list[SnapshotId] = []
    nodes: list[Node] = []

    async def hook(step: str) -> None:
        if step == "before put .rsm-manifest" and not taken:
            taken.append(await nodes[0].metadata.take_snapshot())

    async with world.boot(data_plane=True, hook=hook) as node:
        nodes.append(node)
        assert (await node.remote_log.run_once()).complete
        return taken[0], ids(node, orders)


def test_a_copy_that_ended_after_the_snapshot_is_finished_by_the_next_claimant(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_during_the_snapshot(world, orders)
        anew = await after_the_disaster(world, snapshot)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            assert node.rows(orders.partition) == [(0, 9, "COPY_SEGMENT_STARTED")]
            report = await node.remote_log.run_once()
            assert (report.complete, report.copied) == (True, ())
            assert ids(node, orders) == all_ids

    run_virtually(main)


@pytest.mark.parametrize("damage", ["no manifest", "short log", "another log"])
def test_what_is_not_whole_is_copied_again_and_goes_after_the_reconciliation(
    tmp_path: Path, orders: KafkaLog, damage: str
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_during_the_snapshot(world, orders)
        anew = await after_the_disaster(world, snapshot)
        manifest, log = await of_base(world, 0, ".rsm-manifest"), await of_base(world, 0, ".log")
        if damage == "no manifest":
            await world.store.delete_many(manifest)
        elif damage == "short log":
            await world.store.put(log[0], b"short", crc32c=crc32c(b"short"))
        else:
            await world.store.delete_many(log)
        half = {each for each in await of_base(world, 0, "") if each in await all_keys(world)}
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            report = await node.remote_log.run_once()
            # What lies behind the gap is adopted once the gap is copied.
            assert [each.start_offset for each in report.copied] == [0]
            assert len(ids(node, orders) & all_ids) == 1
            assert half <= await all_keys(world), "nothing goes before the reconciliation"
            assert [row.start_offset for row in node.metadata.left_overs(orders.partition)] == [0]
            await record_reconciled(node)
            await node.remote_log.run_once()
            await asyncio.sleep(3_600)  # past the upload's deadline
            assert not half & await all_keys(world)
            assert node.metadata.left_overs(orders.partition) == ()
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_a_log_whose_manifest_alone_is_damaged_stays_while_its_offsets_are_lost(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """The copy had ended after the snapshot, and the broker deleted its own: nobody else has it."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_during_the_snapshot(world, orders)
        orders.delete_segment(0)
        orders.delete_segment(10)
        anew = await after_the_disaster(world, snapshot)
        (manifest,) = await of_base(world, 0, ".rsm-manifest")
        turned = b"\xff" + (await read_all(world.store, manifest, end=1 << 20))[1:]
        await world.store.put(manifest, turned, crc32c=crc32c(turned))
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()
            await record_reconciled(node)
            await node.remote_log.run_once()
            await asyncio.sleep(GONE_AFTER_S)
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert [(each.start, each.end) for each in state.lost_ranges] == [(0, 9)]
            assert len(await of_base(world, 0, ".log")) == 1

    run_virtually(main)


def test_what_nobody_has_any_more_is_lost_and_what_is_behind_it_is_not(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 20, ".rsm-manifest", ".log", ".indexes"))
        for base in (0, 10, 20, 30):
            orders.delete_segment(base)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert [(each.start, each.end) for each in state.lost_ranges] == [(20, 29)]
            assert node.finished(orders.partition) == [(0, 9), (10, 19), (30, 39)]
            assert state.next_offset == 40

    run_virtually(main)


@pytest.mark.parametrize("lie", ["byte", "size"])
def test_one_wrong_answer_of_the_store_makes_nothing_lost(
    tmp_path: Path, orders: KafkaLog, lie: str
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        (manifest,) = await of_base(world, 20, ".rsm-manifest")
        for base in (0, 10, 20, 30):
            orders.delete_segment(base)
        sound, turned = world.store.get, list[str]()

        async def turning(
            key: str, *, start: int = 0, end: int | None = None
        ) -> AsyncIterator[bytes]:
            async for piece in sound(key, start=start, end=end):
                if key == manifest and not turned:
                    turned.append(key)
                    yield b"\xff" + piece[1:]
                else:
                    yield piece

        listed = world.store.list_page

        async def misjudging(
            prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> ListPage:
            page = await listed(prefix, cursor=cursor, limit=limit)
            return replace(page, objects=tuple(each._replace(size=1) for each in page.objects))

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                world.store, *(("get", turning) if lie == "byte" else ("list_page", misjudging))
            )
            async with anew.boot(data_plane=True, directory_id=ANEW) as node:
                await node.remote_log.run_once()
                state = node.metadata.partition_state(orders.partition)
                assert state is not None
                assert turned == [manifest] * (lie == "byte")
                assert state.lost_ranges == ()
                assert node.finished(orders.partition) == [(0, 9), (10, 19), (20, 29), (30, 39)]

    run_virtually(main)


@pytest.mark.parametrize("hidden", ["", ".log", ".indexes", ".rsm-manifest"])
def test_a_listing_that_leaves_keys_out_makes_nothing_lost(
    tmp_path: Path, orders: KafkaLog, hidden: str
) -> None:
    """Nor is the only copy deleted as what an unfinished copy left."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_during_the_snapshot(world, orders)
        orders.delete_segment(0)
        orders.delete_segment(10)
        anew = await after_the_disaster(world, snapshot)
        whole, left_out = await of_base(world, 0, ""), set(await of_base(world, 0, hidden))
        listed = world.store.list_page

        async def list_page(
            prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> ListPage:
            page = await listed(prefix, cursor=cursor, limit=limit)
            shown = tuple(each for each in page.objects if each.key not in left_out)
            left_out.difference_update(each.key for each in page.objects)
            return replace(page, objects=shown)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.store, "list_page", list_page)
            async with anew.boot(data_plane=True, directory_id=ANEW) as node:
                await node.remote_log.run_once()
                assert not left_out, "nothing was hidden"
                await record_reconciled(node)
                await node.remote_log.run_once()
                await asyncio.sleep(GONE_AFTER_S)
                state = node.metadata.partition_state(orders.partition)
                assert state is not None
                assert state.lost_ranges == ()
                assert node.finished(orders.partition) == [(0, 9), (10, 19)]
                assert set(whole) <= await all_keys(world)

    run_virtually(main)


def test_a_partition_that_the_snapshot_never_heard_of_is_adopted_from_its_first_offset(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            snapshot = await node.metadata.take_snapshot()
        news = KafkaLog.create(orders.log_dir, "news", entries=((0, 0),))
        news.write(0, 10, 20, end=25)
        async with world.boot(data_plane=True) as node:
            assert len((await node.remote_log.run_once()).copied) == 2
        anew = await after_the_disaster(world, snapshot)
        news.delete_segment(0)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            report = await node.remote_log.run_once()
            assert report.copied == ()
            assert node.finished(news.partition) == [(0, 9), (10, 19)]
            state = node.metadata.partition_state(news.partition)
            assert state is not None
            assert (state.log_start_offset, state.next_offset) == (0, 20)

    run_virtually(main)


def test_a_partition_that_the_snapshot_never_heard_of_begins_where_its_broker_does(
    tmp_path: Path, orders: KafkaLog
) -> None:
    """Its first copy is not whole any more: the broker still has those offsets."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            snapshot = await node.metadata.take_snapshot()
        news = KafkaLog.create(orders.log_dir, "news", entries=((0, 0),))
        news.write(0, 10, 20, end=25)
        async with world.boot(data_plane=True) as node:
            assert len((await node.remote_log.run_once()).copied) == 2
        anew = await after_the_disaster(world, snapshot)
        (manifest,) = [each for each in await of_base(world, 0, ".rsm-manifest") if "news-" in each]
        await world.store.delete_many([manifest])
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()
            state = node.metadata.partition_state(news.partition)
            assert state is not None
            assert (state.log_start_offset, state.next_offset, state.lost_ranges) == (0, 20, ())
            assert node.finished(news.partition) == [(0, 9), (10, 19)]

    run_virtually(main)


def test_segments_that_the_predecessor_deleted_serve_nothing_after_the_reconciliation(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, _ = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        await world.store.delete_many(await of_base(world, 0, ".rsm-manifest", ".log", ".indexes"))
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert [(each.row.start_offset, each.why) for each in found.missing] == [
                (0, ".log is gone, .indexes is gone, .rsm-manifest is gone")
            ]
            assert (found.whole, found.unknown_count) == (1, 2)
            await record_reconciled(node, missing=1)
            await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert (state.log_start_offset, state.lost_ranges) == (10, ())
            assert node.finished(orders.partition) == [(10, 19), (20, 29), (30, 39)]
            await asyncio.sleep(3_600)
            assert node.metadata.left_overs(orders.partition) == ()

    run_virtually(main)


@pytest.mark.parametrize("base", [0, 10])
def test_a_segment_that_was_repaired_after_the_snapshot_is_served(
    tmp_path: Path, orders: KafkaLog, base: int
) -> None:
    """The damaged one is missing, and the copy that replaced it is unknown."""

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        async with world.boot(data_plane=True) as node:
            assert (await node.remote_log.run_once()).complete
            snapshot = await node.metadata.take_snapshot()
            await node.store.damage(keys_of(row_at(node, orders, base)).log)
            assert (await only(node)).outcome is Outcome.REPAIRED
            await asyncio.sleep(GONE_AFTER_S)
        anew = await after_the_disaster(world, snapshot)
        for each in (0, 10):
            orders.delete_segment(each)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await record_reconciled(node, missing=1)
            await node.remote_log.run_once()
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert node.finished(orders.partition) == [(0, 9), (10, 19)]
            assert (state.log_start_offset, state.lost_ranges) == (0, ())
            found = await compare(node.metadata, lower(node), breathe=nothing)
            assert (found.whole, found.missing, found.unknown_count) == (2, [], 0)

    run_virtually(main)


def test_a_store_that_is_away_keeps_the_partition_waiting(tmp_path: Path, orders: KafkaLog) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        away, lists = True, 0

        async def hook(step: str) -> None:
            nonlocal lists
            lists += step == "before list"
            if away and step == "before list" and lists > 1:  # snapshots are listed at the start
                raise RetryLater("the store is away")

        async with anew.boot(data_plane=True, directory_id=ANEW, hook=hook) as node:
            report = await node.remote_log.run_once()
            assert (report.complete, report.copied) == (False, ())
            error = node.remote_log.status(orders.partition).last_error
            assert error is not None
            assert error.text == "the store is away"
            away = False
            await node.remote_log.run_once()
            assert ids(node, orders) == all_ids

    run_virtually(main)


def test_what_the_predecessor_may_still_be_deleting_is_not_adopted_yet(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot, settled=False)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            report = await node.remote_log.run_once()
            assert (report.complete, report.copied) == (False, ())
            error = node.remote_log.status(orders.partition).last_error
            assert error is not None
            assert "was taken over a moment ago" in error.text
            assert len(ids(node, orders)) == 2
            await asyncio.sleep(LIMITS.takeover_settle_s)
            assert (await node.remote_log.run_once()).copied == ()
            assert ids(node, orders) == all_ids

    run_virtually(main)


def test_nothing_is_concluded_from_what_a_store_lacks_that_goes_away_meanwhile(
    tmp_path: Path, orders: KafkaLog
) -> None:

    async def main() -> None:
        world = new_world(tmp_path, (orders.log_dir,))
        snapshot, all_ids = await copied_then_ahead(world, orders)
        anew = await after_the_disaster(world, snapshot)
        right = {each: await read_all(world.store, each) for each in await all_keys(world)}

        async def hook(step: str) -> None:
            if step == "before list":
                await world.store.delete_many(tuple(right))  # as if its disk were unmounted

        async with anew.boot(data_plane=True, directory_id=ANEW, hook=hook) as node:
            world.store.metadata = None  # what goes here, no node deletes
            report = await node.remote_log.run_once()
            assert not report.complete
            state = node.metadata.partition_state(orders.partition)
            assert state is not None
            assert state.adopting
        for each, data in right.items():
            await world.store.put(each, data, crc32c=crc32c(data))
        await asyncio.sleep(LIMITS.takeover_settle_s)
        async with anew.boot(data_plane=True, directory_id=ANEW) as node:
            await node.remote_log.run_once()
            assert ids(node, orders) == all_ids

    run_virtually(main)
