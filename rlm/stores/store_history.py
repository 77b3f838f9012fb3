"""Decides whether a store and the metadata belong to the same history.

A store that comes up empty (an unmounted disk, a different bucket of that name) has no marker
either. If it were taken for new, copies would go to it while the recorded segments are elsewhere.

A metadata log that was set back (the directory of a sole voter, restored from a backup) does not
know what was copied since. That would be recorded as lost once the broker has deleted it, and a
copy that finished since would be removed as unfinished.
"""

from __future__ import annotations

import asyncio

from kafka_formats.errors import NotFound, Refused, RetryLater
from rlm.control.surroundings import Ambient
from rlm.format.custom_metadata import custom_of
from rlm.format.object_keys import cluster_marker_key, segment_keys
from rlm.stores.cluster_marker import ClusterMarker
from rlm.stores.snapshot_upload import snapshot_owners, uploaded_snapshots
from rlm.stores.tier_store import TierStore
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

CAUGHT_UP_WAIT_S = 5.0
LOOK_AGAIN_S = 0.05
ROWS_PER_BREATH = 64
TRIED_MAX = 3
"""The most segments tried; a single object of one proves that the store is the right one."""


async def check_may_be_new(
    metadata: RemoteLogMetadataManager,
    tier: TierStore,
    marker: ClusterMarker,
    ambient: Ambient,
    *,
    is_default: bool,
) -> None:
    """Check that a store without a marker may be new. RetryLater: the metadata has been unknown
    here for long, or names segments of which the store has no object, or names no segment while
    the store has snapshots of a different cluster.

    A right store that lost its marker and all segments looks like a wrong one. Only an operator can
    tell, and puts `marker` there.
    """
    give_up_s = ambient.monotonic() + CAUGHT_UP_WAIT_S
    while not metadata.is_caught_up():
        if ambient.monotonic() >= give_up_s:
            raise RetryLater(
                f"the store {tier.name!r} has no cluster marker, and whether it should have one is "
                "unknown without the metadata: this node has not reached the quorum's leader yet. "
                "It is tried again; check the quorum's other nodes and the network"
            )
        await ambient.sleep(LOOK_AGAIN_S)
    tried: list[RemoteLogSegmentMetadata] = []
    # Segments that wait for deletion are in the store too, for days if it was unreachable.
    going: list[RemoteLogSegmentMetadata] = []
    seen = 0
    for partition in list(metadata.partitions()):
        for row in metadata.list_remote_log_segments(partition):
            seen += 1
            if seen % ROWS_PER_BREATH == 0:
                await ambient.sleep(0)
            if not _names(row, tier, is_default):
                continue
            if row.state is SegmentState.COPY_SEGMENT_FINISHED:
                tried.append(row)
            elif row.state is SegmentState.DELETE_SEGMENT_STARTED and len(going) < TRIED_MAX:
                going.append(row)
        if len(tried) >= TRIED_MAX:
            break
    if not tried and not going:
        await _check_nobodys(tier, marker)
        return
    for row in (*tried, *going)[:TRIED_MAX]:
        if await is_there(tier, row):
            return
    raise RetryLater(
        f"the store {tier.name!r} has neither its cluster marker "
        f"{cluster_marker_key(tier.prefix)} nor the segments that the metadata names there: it is "
        "empty or a different one, and nothing is written to it. Check that the disk is mounted "
        "and that bucket, prefix and endpoint are right. Only if it is the right one, and lost "
        f"or was cleared of all its objects, put the marker there by hand: {marker.on_a_line()}"
    )


async def _check_nobodys(tier: TierStore, marker: ClusterMarker) -> None:
    """Raise RetryLater if a different cluster's snapshots show that the prefix lost only its
    marker: a marker of this cluster would shut that cluster's nodes out for good.
    """
    try:
        owners = await snapshot_owners(tier)
    except Refused:
        return  # the task that uploads snapshots reports that they can't be listed
    others = [each for each in owners if each != marker.cluster_id]
    if others:
        raise RetryLater(
            f"the store {tier.name!r} has no cluster marker, and has metadata snapshots of the "
            f"Strandline cluster {', '.join(others)}: nothing is written to it. If the prefix is "
            f"that one's, give this cluster another ([stores.{tier.name}] prefix). If it is this "
            f"one's, put the marker {cluster_marker_key(tier.prefix)} there by hand: "
            f"{marker.on_a_line()}"
        )


async def check_not_set_back(
    metadata: RemoteLogMetadataManager, tier: TierStore, cluster_id: str, *, deadline_s: float
) -> None:
    """Raise Refused, with an instruction, if the cluster's newest snapshot in the store ends above
    the metadata log.

    RetryLater: the store does not answer, or no quorum leader is known to report the log's end.
    """
    try:
        async with asyncio.timeout(deadline_s):
            uploaded = await uploaded_snapshots(tier, cluster_id)
    except TimeoutError:
        raise RetryLater(
            f"the store {tier.name!r} did not list its snapshots within {deadline_s:g} s"
        ) from None
    except Refused:
        return  # the task that uploads snapshots reports that they can't be listed
    end = max((each.snapshot.end_offset for each in uploaded), default=0)
    if metadata.applied_offset + 1 < end:
        await metadata.catch_up(deadline_s=CAUGHT_UP_WAIT_S)
    if metadata.applied_offset + 1 < end:
        raise Refused(
            f"the metadata log ends at offset {metadata.applied_offset + 1}, and had ended at "
            f"{end} when its newest snapshot was uploaded to the store {tier.name!r}: it was set "
            "back since, to a backup for example, and lacks what was copied meanwhile. Keep "
            "this data directory aside, and start a new cluster from that snapshot: `strandline "
            "format --from-snapshot latest` (disaster recovery)"
        )


def _names(row: RemoteLogSegmentMetadata, tier: TierStore, is_default: bool) -> bool:
    """True if the row names this store. A row that names no store counts for the default store,
    unless it waits for deletion: then its objects may be in any store.
    """
    custom = custom_of(row.custom_metadata)
    if custom is None:
        return is_default and row.state is SegmentState.COPY_SEGMENT_FINISHED
    return custom.store == tier.name


async def is_there(tier: TierStore, row: RemoteLogSegmentMetadata) -> bool:
    """True if the store has any object of the segment: a deletion that was interrupted leaves
    some. Raises the store's errors except NotFound.
    """
    for key in segment_keys(tier.prefix, row.segment_id, row.start_offset).all():
        try:
            await tier.store.head(key)
        except NotFound:
            continue
        return True
    return False
