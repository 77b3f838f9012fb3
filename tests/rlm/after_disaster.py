"""A cluster that starts anew from a snapshot, for tests: formatted, settled, reconciled."""

from __future__ import annotations

import asyncio

from kafka_formats.kafka_uuid import Uuid
from rlm.reconcile.reconciliation import compare
from rlm.stores.cluster_marker import read_marker, take_over
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.data_directory.restart_snapshot import write_restart_snapshot
from rlmm.log.disk import OsDisk
from rlmm.log.quorum_records import Voter
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.log.snapshot_files import snapshot_file_name
from rlmm.metadata_log import SnapshotId
from rlmm.records.control_records import Reconciled, SegmentMissing
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import LIMITS, PREFIX, Node, World
from tests.rlm.planner_facts import DIRECTORY

ANEW = Uuid(b"directory-anew-1")


async def after_the_disaster(world: World, snapshot: SnapshotId, *, settled: bool = True) -> World:
    """What a new cluster begins with: a snapshot, the bucket, the broker's directory."""
    source = world.path / "log" / PARTITION_DIRECTORY / snapshot_file_name(snapshot)
    anew = World(
        world.path / "anew",
        world.log_dirs,
        world.store,
        boots=world.boots + 10,
        cluster_id="the-next-one",
    )
    directory = anew.path / "log" / PARTITION_DIRECTORY
    directory.mkdir(parents=True)
    write_restart_snapshot(OsDisk(), directory, source, (Voter(1, DIRECTORY),))
    tier = TierStore("main", world.store, PREFIX)
    before = await read_marker(tier)
    assert before is not None
    await take_over(
        tier, before, before.successor("the-next-one", None, began_with="a snapshot"), deadline_s=5
    )
    if settled:
        await asyncio.sleep(LIMITS.takeover_settle_s)
    return anew


def lower(node: Node) -> TierStores:
    return TierStores({"main": TierStore("main", node.store, PREFIX)}, "main")


async def record_reconciled(node: Node, *, missing: int = 0) -> None:
    """What `strandline reconcile --apply` does."""
    found = await compare(node.metadata, lower(node), breathe=nothing)
    assert len(found.missing) == missing
    for each in found.missing:
        id_ = each.row.segment_id
        record = SegmentMissing(id_.partition, id_.id, each.row.finished_at)
        await node.metadata.record_restart(record)
    restart = node.metadata.restart()
    assert restart is not None
    await node.metadata.record_restart(Reconciled(restart.offset))


async def nothing() -> None:
    """Between two slices."""


def later(orders: KafkaLog) -> None:
    """Segments 20-29 and 30-39 are sealed as well."""
    orders.write(20, 30, 40, end=45)


def ids(node: Node, log: KafkaLog) -> set[Uuid]:
    rows = node.metadata.list_remote_log_segments(log.partition)
    return {row.segment_id.id for row in rows if row.state.name == "COPY_SEGMENT_FINISHED"}


async def copied_then_ahead(world: World, orders: KafkaLog) -> tuple[SnapshotId, set[Uuid]]:
    """Two segments in the snapshot, two more in the store; the ids of all four."""
    async with world.boot(data_plane=True) as node:
        assert (await node.remote_log.run_once()).complete
        snapshot = await node.metadata.take_snapshot()
        later(orders)
    async with world.boot(data_plane=True) as node:
        assert (await node.remote_log.run_once()).complete
        return snapshot, ids(node, orders)


async def all_keys(world: World) -> set[str]:
    page = await world.store.list_page("")
    return {each.key for each in page.objects}


async def of_base(world: World, base: int, *suffixes: str) -> list[str]:
    """Keys of the segments with this base offset."""
    keys = sorted(await all_keys(world))
    return [key for key in keys if f"/{base:020}-" in key and key.endswith(suffixes)]
