"""`strandline format --from-snapshot`: a new cluster takes over the tier of a lost one.

The order: read the whole snapshot, write the data directory except its last file, replace each
store's marker by compare and set, write the last file. So an interrupted run may be repeated, and
once the marker is replaced no node of the lost cluster writes or deletes any more.

A cluster begins once, from one snapshot, which its first marker names: the rows of another one, or
of a snapshot of its own, rewritten on a single node, would differ from the others' for ever.
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
    """The snapshot a new cluster begins with, its former cluster, and the stores."""

    snapshot: str
    predecessor: str
    stores: tuple[str, ...]


Tiers = dict[str, TierStore]
"""The opened stores by their names."""

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
    """Take the stores over. `source` is a snapshot file, or `latest`: the newest in all of
    them. `confirmed`: the operator says that no node of the former cluster is left.

    InvalidRequest: that is not confirmed, or this cluster has begun already, without this node or
    with another snapshot. InvalidRequest, NotFound: no such snapshot, or the prefix has no owner.
    CorruptData: it is damaged. Conflict: another cluster takes the prefix over at the same time, or
    the directory is not empty.
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
                            # Another voter of this cluster, formatted at the same time, did it.
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
            f"the store {tier.name!r} has no cluster marker, so nothing there belongs to a "
            "Strandline cluster: correct bucket and prefix, or format without --from-snapshot"
        )
    lost = ClusterMarker(owners[-1], kafka_cluster_id, store=tier.name)
    return NotFound(
        f"the store {tier.name!r} has no cluster marker, and has metadata snapshots of the "
        f"Strandline cluster {', '.join(owners)}: the marker was lost. Put that of the last of "
        f"these there by hand, then repeat the command: {cluster_marker_key(tier.prefix)} with "
        f"{lost.on_a_line()}"
    )


async def _check_has_not_begun(tiers: Tiers, marker: ClusterMarker, cluster_id: str) -> None:
    """Raise InvalidRequest once the cluster has run: its snapshots contain what it began with."""
    if cluster_id in marker.predecessors:
        raise InvalidRequest(
            f"the cluster {cluster_id} has lost the prefix to {marker.cluster_id}: {NEW_IDS}. "
            "Nothing was changed",
            field="--cluster-id",
        )
    if marker.cluster_id != cluster_id:
        return
    if await _uploaded(tiers, cluster_id) or not (marker.began_with and marker.predecessors):
        raise InvalidRequest(
            f"the cluster {cluster_id} has the prefix and runs already, so it does not begin again "
            "from a snapshot. A node that is formatted for the first time gets the metadata from "
            "the others: repeat the command without --from-snapshot and --yes. One that ran in "
            "this cluster and lost its disk: remove it from the quorum, format it with "
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
        f"the cluster {marker.cluster_id} began with {marker.began_with}, and this is {snapshot}: "
        "its nodes would differ for ever. Give the snapshot that the others were formatted from; "
        f"to begin with another one on all of them, {NEW_IDS}",
        field="--from-snapshot",
    )


async def _uploaded(tiers: Tiers, cluster_id: str) -> list[tuple[UploadedSnapshot, TierStore]]:
    """A cluster's snapshots in all stores, the newest last: its default store may be another one
    than before, or on other nodes.
    """
    found = []
    for tier in tiers.values():
        async with _in_time(tier):
            found += [(each, tier) for each in await uploaded_snapshots(tier, cluster_id)]
    begun = (each for each in found if each[0].snapshot.end_offset > 0)
    return sorted(begun, key=lambda each: each[0].snapshot)


def _places(settings: Settings, names: Iterable[str]) -> str:
    """Tells the places of these stores: a second one that is no copy shows in a drill."""
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
            f" The store has a later snapshot than {Path(source).name}, which ends at metadata "
            f"offset {given.end_offset}: {snapshot_file_name(newest)}; `latest` takes that."
        )
    return _not_confirmed(marker, places, _last_upload(uploaded), older)


def _last_upload(uploaded: Sequence[UploadedSnapshot]) -> str:
    """A sentence on the newest snapshot of the cluster that has the prefix."""
    newest_ms = max((each.uploaded_ms or 0 for each in uploaded), default=0)
    if newest_ms == 0:
        return "It has no snapshot in the store"
    ago_s = max(ambient.now_ms() - newest_ms, 0) // 1000
    return f"It last uploaded a snapshot {ago_s // 60} min {ago_s % 60} s ago"


def _not_confirmed(
    marker: ClusterMarker, places: str, last_upload: str, older: str
) -> InvalidRequest:
    return InvalidRequest(
        f"the stores {places} belong to the cluster {marker.cluster_id}, or to one that it took "
        f"over from. {last_upload}. Taking them over ends that cluster for good: its nodes stop "
        "themselves, and what it recorded after the snapshot is not in the new cluster. Are the "
        "data directories of most of its voters whole, or that of its only one? Then "
        f"start those instead.{older} If not, and if all its nodes are stopped "
        "for good, say --yes. Nothing was changed",
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
    """Raises RetryLater, which names the store, when it does not answer."""
    deadline_s = STORE_DEADLINE_S if deadline_s is None else deadline_s
    try:
        async with asyncio.timeout(deadline_s):
            yield
    except TimeoutError:
        raise RetryLater(
            f"the store {tier.name!r} did not answer within {deadline_s:g} s: check its endpoint "
            "and the network. One that was not the default store may be left out of the settings "
            "until it is back. Nothing was changed"
        ) from None


async def _markers(tiers: Tiers) -> dict[str, ClusterMarker]:
    """Markers of the stores that have one; a node's start claims the others."""
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
                f"the store {name!r} holds segments of the Kafka cluster {marker.kafka_cluster_id}"
                f", not of {kafka_cluster_id}",
                field="--kafka-cluster-id",
            )


def _check_owners(
    markers: dict[str, ClusterMarker], default: ClusterMarker, cluster_id: str
) -> None:
    """Check that every store is the lost cluster's, or one's before it. InvalidRequest: another
    cluster has one, and nobody said that this one is no more.
    """
    known = {cluster_id, default.cluster_id}
    for marker in markers.values():
        # The default store may have come after a takeover: its marker then names nobody.
        if marker.cluster_id == default.cluster_id:
            known.update(marker.predecessors)
    for name, marker in markers.items():
        if marker.cluster_id not in known:
            raise InvalidRequest(
                f"the store {name!r} belongs to the Strandline cluster {marker.cluster_id}, not to "
                f"{default.cluster_id}, which is taken over: that would end a cluster that may "
                f"still run. Correct bucket and prefix of [stores.{name}], or take it out of the "
                "settings. Nothing was changed",
                field=f"stores.{name}",
            )


async def _fetch_latest(tiers: Tiers, marker: ClusterMarker, folder: Path) -> Path:
    """Download the newest snapshot of the cluster that has the prefix, or of the one before it: an
    interrupted restart leaves a marker without a snapshot.
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
        f"the stores {', '.join(map(repr, tiers))} have no snapshot of the metadata: give one that "
        "was saved from a data directory, `--from-snapshot FILE`"
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
