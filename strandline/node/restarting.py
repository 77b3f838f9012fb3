"""`strandline format --from-snapshot`: a new cluster takes over the tier of a lost one.

The order: read the whole snapshot, write the data directory except its last file, replace each
store's marker by compare and set, write the last file. So an interrupted run may be repeated, and
once the marker is replaced no node of the lost cluster writes or deletes any more.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, InvalidRequest, NotFound
from rlm.stores.cluster_marker import ClusterMarker, read_marker, take_over
from rlm.stores.snapshot_plan import newest_of, snapshot_key
from rlm.stores.snapshot_upload import uploaded_snapshots
from rlm.stores.tier_store import TierStore
from rlmm.log.snapshot_files import snapshot_file_name
from rsm_backends.open_store import open_store
from rsm_backends.streams import closing_stream
from strandline.node import ambient
from strandline.settings.settings import Settings
from strandline.settings.store_configs import store_configs

LATEST = "latest"
STORE_DEADLINE_S = 60.0
DOWNLOAD_DEADLINE_S = 3_600.0


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The snapshot a new cluster begins with, its former cluster, and the stores."""

    snapshot: str
    predecessor: str
    stores: tuple[str, ...]


WriteDirectory = Callable[[Path, Callable[[], None]], None]
"""(snapshot file, what to call before the last step): makes the data directory; blocks."""


async def restart_from(
    settings: Settings,
    source: str,
    *,
    cluster_id: str,
    kafka_cluster_id: str,
    confirmed: bool,
    write_directory: WriteDirectory,
) -> TakenOver:
    """Take the stores over. `source` is a snapshot file, or `latest`: the newest in the default
    store. `confirmed`: the operator says that no node of the former cluster is left.

    InvalidRequest: that is not confirmed. InvalidRequest, NotFound: no such snapshot, or the prefix
    has no owner. CorruptData: it is
    damaged. Conflict: another cluster takes the prefix over at the same time, or the directory is
    not empty.
    """
    async with AsyncExitStack() as opened:
        tiers = await _open_stores(settings, opened)
        markers = await _markers(tiers)
        default = markers.get(settings.default_store)
        if default is None:
            raise NotFound(
                f"the store {settings.default_store!r} has no cluster marker, so nothing there "
                "belongs to a Strandline cluster: correct bucket and prefix, or format without "
                "--from-snapshot"
            )
        _check_kafka_cluster(markers, kafka_cluster_id)
        if default.cluster_id != cluster_id and not confirmed:
            tier = tiers[settings.default_store]
            raise _not_confirmed(default, await _last_upload(tier, default))
        with TemporaryDirectory(prefix="strandline-snapshot-") as folder:
            if source == LATEST:
                path = await _fetch_latest(tiers[settings.default_store], default, Path(folder))
            else:
                path = Path(source)

            async def take_all_over() -> None:
                for name, before in markers.items():
                    if before.cluster_id != cluster_id:
                        after = before.successor(cluster_id, kafka_cluster_id)
                        await take_over(tiers[name], before, after, deadline_s=STORE_DEADLINE_S)

            loop = asyncio.get_running_loop()

            def before_last_step() -> None:
                asyncio.run_coroutine_threadsafe(take_all_over(), loop).result()

            await asyncio.to_thread(write_directory, path, before_last_step)
            return TakenOver(path.name, default.cluster_id, tuple(markers))


async def _last_upload(tier: TierStore, marker: ClusterMarker) -> str:
    """A sentence on the newest snapshot of the cluster that has the prefix."""
    async with asyncio.timeout(STORE_DEADLINE_S):
        uploaded = await uploaded_snapshots(tier, marker.cluster_id)
    newest_ms = max((each.uploaded_ms or 0 for each in uploaded), default=0)
    if newest_ms == 0:
        return "It has no snapshot in the store"
    ago_s = max(ambient.now_ms() - newest_ms, 0) // 1000
    return f"It last uploaded a snapshot {ago_s // 60} min {ago_s % 60} s ago"


def _not_confirmed(marker: ClusterMarker, last_upload: str) -> InvalidRequest:
    return InvalidRequest(
        f"the stores belong to the cluster {marker.cluster_id}. {last_upload}. Taking them over "
        "ends it for good: its nodes stop themselves, and what it recorded after the snapshot is "
        "not in the new cluster. Is a node of it still there, or a data directory whole? Then "
        "start that one instead. If not, or if all are stopped for good, say --yes. Nothing was "
        "changed",
        field="--yes",
    )


async def _open_stores(settings: Settings, opened: AsyncExitStack) -> dict[str, TierStore]:
    tiers = {}
    for name, config in store_configs(settings).items():
        store = await open_store(
            config,
            sleep=ambient.sleep,
            monotonic=ambient.monotonic,
            random_fraction=ambient.random_fraction,
            now_ms=ambient.now_ms,
        )
        opened.push_async_callback(store.close)
        tiers[name] = TierStore(name, store, config.prefix)
    return tiers


async def _markers(tiers: dict[str, TierStore]) -> dict[str, ClusterMarker]:
    """Markers of the stores that have one; a node's start claims the others."""
    found = {}
    for name, tier in tiers.items():
        async with asyncio.timeout(STORE_DEADLINE_S):
            marker = await read_marker(tier)
        if marker is not None:
            found[name] = marker
    return found


def _check_kafka_cluster(markers: dict[str, ClusterMarker], kafka_cluster_id: str) -> None:
    for name, marker in markers.items():
        if marker.kafka_cluster_id not in (None, kafka_cluster_id):
            raise InvalidRequest(
                f"the store {name!r} holds segments of the Kafka cluster {marker.kafka_cluster_id}"
                f", not of {kafka_cluster_id}",
                field="--kafka-cluster-id",
            )


async def _fetch_latest(tier: TierStore, marker: ClusterMarker, folder: Path) -> Path:
    """Download the newest snapshot of the cluster that has the prefix, or of the one before it: an
    interrupted restart leaves a marker without a snapshot.
    """
    async with asyncio.timeout(DOWNLOAD_DEADLINE_S):
        for cluster_id in (marker.cluster_id, *marker.predecessors):
            uploaded = await uploaded_snapshots(tier, cluster_id)
            newest = newest_of(each.snapshot for each in uploaded)
            if newest is not None:
                path = folder / snapshot_file_name(newest)
                await _download(tier, snapshot_key(tier.prefix, cluster_id, newest), path)
                return path
    raise NotFound(
        f"the store {tier.name!r} has no snapshot of the metadata: give one that was saved from a "
        "data directory, `--from-snapshot FILE`"
    )


async def _download(tier: TierStore, key: str, path: Path) -> None:
    """Download an object, and check its length and CRC32C; batches are checked when it is read."""
    info = await tier.store.head(key)
    size, checksum = 0, 0
    with await asyncio.to_thread(open, path, "wb") as file:
        async with closing_stream(tier.store.get(key)) as stream:
            async for piece in stream:
                size, checksum = size + len(piece), crc32c(piece, checksum)
                await asyncio.to_thread(file.write, piece)
    if size != info.size or info.crc32c not in (None, checksum):
        await asyncio.to_thread(os.unlink, path)
        raise CorruptData(
            f"{size} bytes with CRC32C {checksum:08x} were read, the store has {info.size} bytes. "
            "Try again, or give an earlier snapshot of that folder with --from-snapshot FILE",
            source=f"{tier.name}:{key}",
            position=0,
        )
