"""`strandline format --from-snapshot`: a new cluster takes over the tier of a lost cluster.

The order: read the whole snapshot, write the data directory except its last file, replace each
store's marker by compare-and-set, write the last file. So an interrupted run may be repeated, and
once the marker is replaced no node of the lost cluster writes or deletes any more.

A cluster begins once, from one snapshot, which its first marker names. A node that began with a
different snapshot, or with a later one of its own cluster, would have different rows than the other
nodes for ever.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Conflict, CorruptData, InvalidRequest, NotFound, RetryLater
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.cluster_marker import ClusterMarker, read_marker, take_over
from rlm.stores.snapshot_plan import UploadedSnapshot, newest_of, snapshot_key
from rlm.stores.snapshot_upload import snapshot_owners, uploaded_snapshots
from rlm.stores.tier_store import TierStore
from rlmm.log.snapshot_files import parse_snapshot_file_name, snapshot_file_name
from rsm_backends.open_store import open_store
from rsm_backends.streams import closing_stream
from strandline.node import ambient
from strandline.node.surroundings import store_surroundings
from strandline.settings.settings import Settings
from strandline.settings.store_configs import store_configs

LATEST = "latest"
STORE_DEADLINE_S = 60.0
DOWNLOAD_DEADLINE_S = 3_600.0
READ_BYTES = 1024 * 1024
NEW_IDS = "make a new cluster id and new directory ids, and format all nodes with these"


@dataclass(frozen=True, slots=True)
class TakenOver:
    """The snapshot with which a new cluster begins, the cluster that it succeeds, and the
    stores.
    """

    snapshot: str
    predecessor: str
    stores: tuple[str, ...]


Tiers = dict[str, TierStore]
"""The opened stores by their names."""

WriteDirectory = Callable[[Path, Callable[[], None]], None]
"""Function of (snapshot file, callback before the last step) that makes the data directory; it
blocks.
"""


async def restart_from(
    settings: Settings,
    source: str,
    *,
    cluster_id: str,
    kafka_cluster_id: str,
    confirmed: bool,
    write_directory: WriteDirectory,
) -> TakenOver:
    """Take the stores over. `source` is a snapshot file, or `latest` for the newest snapshot in all
    stores. `confirmed`: the operator says that no node of the lost cluster is left.

    Raises InvalidRequest if that is not confirmed, or if this cluster has begun already without
    this node or with a different snapshot; InvalidRequest or NotFound if there is no such snapshot
    or no cluster owns the prefix; CorruptData if the snapshot is damaged; Conflict if a different
    cluster takes the prefix over at the same time, or if the directory is not empty.
    """
    async with AsyncExitStack() as opened:
        tiers = await _open_stores(settings, opened)
        markers = await _markers(tiers)
        default = markers.get(settings.default_store)
        if default is None:
            raise await _no_owner(tiers[settings.default_store], kafka_cluster_id)
        _check_kafka_cluster(markers, kafka_cluster_id)
        _check_owners(markers, default, cluster_id)
        is_first = default.cluster_id != cluster_id
        await _check_has_not_begun(tiers, default, cluster_id)
        if is_first and not confirmed:
            raise await _unconfirmed(tiers, default, source, _places(settings, markers))
        with TemporaryDirectory(prefix="strandline-snapshot-") as folder:
            path = Path(source)
            if source == LATEST:
                path = await _fetch_latest(tiers, default, Path(folder))

            async def take_all_over(snapshot: str) -> None:
                # The default store first: an interrupted run leaves the others with a predecessor.
                default_first = sorted(markers, key=lambda name: name != settings.default_store)
                for name in default_first:
                    before = markers[name]
                    if before.cluster_id != cluster_id:
                        after = before.successor(cluster_id, kafka_cluster_id, began_with=snapshot)
                        try:
                            await take_over(tiers[name], before, after, deadline_s=STORE_DEADLINE_S)
                        except Conflict:
                            # A voter of this cluster, formatted at the same time, may have done it.
                            if (await _markers({name: tiers[name]})).get(name) != after:
                                raise

            loop = asyncio.get_running_loop()

            def before_last_step() -> None:
                snapshot = _name_and_checksum(path)
                if not is_first and snapshot != default.began_with:
                    raise _began_otherwise(default, snapshot)
                asyncio.run_coroutine_threadsafe(take_all_over(snapshot), loop).result()

            await asyncio.to_thread(write_directory, path, before_last_step)
            lost = default.cluster_id if is_first else default.predecessors[0]
            return TakenOver(path.name, lost, tuple(markers))


async def _no_owner(tier: TierStore, kafka_cluster_id: str) -> NotFound:
    async with _in_time(tier):
        owners = await snapshot_owners(tier)
    if not owners:
        return NotFound(
            f"the store {tier.name!r} has no cluster marker, so it is not the tier of a "
            "Strandline cluster: correct bucket and prefix, or format without --from-snapshot"
        )
    lost = ClusterMarker(owners[-1], kafka_cluster_id, store=tier.name)
    return NotFound(
        f"the store {tier.name!r} has no cluster marker, but has metadata snapshots of the "
        f"Strandline clusters {', '.join(owners)}: the marker was lost. Write the marker of the "
        f"last of these by hand, then repeat the command: {cluster_marker_key(tier.prefix)} with "
        f"{lost.on_a_line()}"
    )


async def _check_has_not_begun(tiers: Tiers, marker: ClusterMarker, cluster_id: str) -> None:
    """Raise InvalidRequest if the cluster has begun without a snapshot, has run, or has lost the
    prefix: it can't begin from this snapshot then.
    """
    if cluster_id in marker.predecessors:
        raise InvalidRequest(
            f"the cluster {cluster_id} has lost the prefix to the cluster {marker.cluster_id}: "
            f"{NEW_IDS}. Nothing was changed",
            field="--cluster-id",
        )
    if marker.cluster_id != cluster_id:
        return
    if await _uploaded(tiers, cluster_id) or not (marker.began_with and marker.predecessors):
        raise InvalidRequest(
            f"the cluster {cluster_id} owns the prefix and runs already, so it can't begin again "
            "from a snapshot. A node that is formatted for the first time gets the metadata from "
            "the other nodes: repeat the command without --from-snapshot and --yes. A node that "
            "ran in this cluster and lost its disk: remove it from the quorum, format it with "
            f"--no-initial-voters, and add it again. If no node of this cluster is left: {NEW_IDS}."
            " Nothing was changed",
            field="--from-snapshot",
        )


def _name_and_checksum(path: Path) -> str:
    checksum = 0
    with path.open("rb") as file:
        while piece := file.read(READ_BYTES):
            checksum = crc32c(piece, checksum)
    return f"{path.name}, CRC32C {checksum:08x}"


def _began_otherwise(marker: ClusterMarker, snapshot: str) -> InvalidRequest:
    return InvalidRequest(
        f"the cluster {marker.cluster_id} began with the snapshot {marker.began_with}, but this is "
        f"{snapshot}: the metadata of its nodes would differ for ever. Give the snapshot that the "
        f"other nodes were formatted from; to begin with a different one on all nodes, {NEW_IDS}",
        field="--from-snapshot",
    )


async def _uploaded(tiers: Tiers, cluster_id: str) -> list[tuple[UploadedSnapshot, TierStore]]:
    """The cluster's snapshots in all stores, the newest last. All stores are listed, since the
    default store may have been a different one before, or on other nodes. Empty snapshots are left
    out.
    """
    found = []
    for tier in tiers.values():
        async with _in_time(tier):
            found += [(each, tier) for each in await uploaded_snapshots(tier, cluster_id)]
    begun = (each for each in found if each[0].snapshot.end_offset > 0)
    return sorted(begun, key=lambda each: each[0].snapshot)


def _places(settings: Settings, names: Iterable[str]) -> str:
    """The locations of these stores as text, so that an operator who practises a restart sees if
    they are the real stores and not copies.
    """
    found = []
    for name, config in store_configs(settings).items():
        if name in names:
            at = f" at {config.endpoint_url}" if config.endpoint_url else ""
            bucket = f"s3://{config.bucket}/{config.prefix}{at}"
            found.append(f"{name!r} ({bucket if config.path is None else config.path})")
    return ", ".join(found)


async def _unconfirmed(
    tiers: Tiers, marker: ClusterMarker, source: str, places: str
) -> InvalidRequest:
    uploaded = [each for each, _ in await _uploaded(tiers, marker.cluster_id)]
    given = None if source == LATEST else parse_snapshot_file_name(Path(source).name)
    newest = newest_of(each.snapshot for each in uploaded)
    older = ""
    if given is not None and newest is not None and given < newest:
        older = (
            f" {Path(source).name} ends at metadata offset {given.end_offset}, and the store has a "
            f"later snapshot, {snapshot_file_name(newest)}: give `latest` to take that."
        )
    return _not_confirmed(marker, places, _last_upload(uploaded), older)


def _last_upload(uploaded: Sequence[UploadedSnapshot]) -> str:
    """A sentence about the newest snapshot of the cluster that owns the prefix."""
    newest_ms = max((each.uploaded_ms or 0 for each in uploaded), default=0)
    if newest_ms == 0:
        return "That cluster has no snapshot in the store"
    ago_s = max(ambient.now_ms() - newest_ms, 0) // 1000
    return f"That cluster last uploaded a snapshot {ago_s // 60} min {ago_s % 60} s ago"


def _not_confirmed(
    marker: ClusterMarker, places: str, last_upload: str, older: str
) -> InvalidRequest:
    return InvalidRequest(
        f"the stores {places} belong to the cluster {marker.cluster_id} or to one of its "
        f"predecessors. {last_upload}. Taking the stores over ends it for good: its nodes stop "
        "themselves, and its records after the snapshot are not in the new cluster. If the data "
        f"directories of most of its voters are whole, start those nodes instead.{older} "
        "Otherwise, once all its nodes are stopped for good, give --yes. Nothing was changed",
        field="--yes",
    )


async def _open_stores(settings: Settings, opened: AsyncExitStack) -> Tiers:
    tiers = {}
    for name, config in store_configs(settings).items():
        store = await open_store(config, **store_surroundings())
        opened.push_async_callback(store.close)
        tiers[name] = TierStore(name, store, config.prefix)
    return tiers


@asynccontextmanager
async def _in_time(tier: TierStore, deadline_s: float | None = None) -> AsyncGenerator[None]:
    """Bound the requests inside to `deadline_s`, by default STORE_DEADLINE_S; raises RetryLater
    with the store's name after that.
    """
    deadline_s = STORE_DEADLINE_S if deadline_s is None else deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError:
        raise RetryLater(
            f"the store {tier.name!r} did not answer within {deadline_s:g} s: check its endpoint "
            "and the network. A store that was not the default one may be left out of the settings "
            "until it is back. Nothing was changed"
        ) from None


async def _markers(tiers: Tiers) -> dict[str, ClusterMarker]:
    """The markers of the stores that have one; a node writes those of the other stores at its
    start.
    """
    found = {}
    for name, tier in tiers.items():
        async with _in_time(tier):
            marker = await read_marker(tier)
        if marker is not None:
            found[name] = marker
    return found


def _check_kafka_cluster(markers: dict[str, ClusterMarker], kafka_cluster_id: str) -> None:
    for name, marker in markers.items():
        if marker.kafka_cluster_id not in (None, kafka_cluster_id):
            raise InvalidRequest(
                f"the store {name!r} has the segments of the Kafka cluster "
                f"{marker.kafka_cluster_id}, not of {kafka_cluster_id}: correct this or the store",
                field="--kafka-cluster-id",
            )


def _check_owners(
    markers: dict[str, ClusterMarker], default: ClusterMarker, cluster_id: str
) -> None:
    """Raise InvalidRequest if a store belongs neither to the lost cluster nor to one of its
    predecessors: the operator did not confirm that the nodes of its cluster are gone.
    """
    known = {cluster_id, default.cluster_id}
    for marker in markers.values():
        # A default store that was added after a takeover has a marker without predecessors, so the
        # markers of all stores count.
        if marker.cluster_id == default.cluster_id:
            known.update(marker.predecessors)
    for name, marker in markers.items():
        if marker.cluster_id not in known:
            raise InvalidRequest(
                f"the store {name!r} belongs to the Strandline cluster {marker.cluster_id}, not to "
                f"{default.cluster_id}, which is taken over: taking this store over would end a "
                f"cluster that may still run. Correct bucket and prefix of [stores.{name}], or "
                "remove it from the settings. Nothing was changed",
                field=f"stores.{name}",
            )


async def _fetch_latest(tiers: Tiers, marker: ClusterMarker, folder: Path) -> Path:
    """Download the newest snapshot of the cluster that owns the prefix, or if it has none (its
    restart was interrupted) that of its latest predecessor with one.
    """
    for cluster_id in (marker.cluster_id, *marker.predecessors):
        uploaded = await _uploaded(tiers, cluster_id)
        if uploaded:
            newest, tier = uploaded[-1]
            path = folder / snapshot_file_name(newest.snapshot)
            async with _in_time(tier, DOWNLOAD_DEADLINE_S):
                await _download(tier, snapshot_key(tier.prefix, cluster_id, newest.snapshot), path)
            return path
    raise NotFound(
        f"the stores {', '.join(map(repr, tiers))} have no snapshot of the metadata: give one of a "
        "data directory with `--from-snapshot FILE`"
    )


async def _download(tier: TierStore, key: str, path: Path) -> None:
    """Download an object, and check its length and CRC32C. The batches in it are checked when the
    snapshot is read.
    """
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
            f"{size} bytes with CRC32C {checksum:08x} were read, but the store has {info.size} "
            "bytes, or a different checksum. Try again, or give an earlier snapshot of that folder "
            "with --from-snapshot FILE",
            source=f"{tier.name}:{key}",
            position=0,
        )
