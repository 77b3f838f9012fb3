"""Whether a store without a cluster marker may be a new one, by what the metadata says lies in it.

A store that comes up empty (a disk that is not mounted, another bucket of that name) has no marker
either. Taken for new it would be written to, while what the metadata names is somewhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kafka_formats.errors import CorruptData, NotFound, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Ambient
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import cluster_marker_key, segment_keys
from rlm.stores.tier_store import TierStore
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState

CAUGHT_UP_WAIT_S = 5.0
LOOK_AGAIN_S = 0.05
ROWS_PER_BREATH = 64
TRIED_MAX = 3
"""Segments of which one whose manifest is there proves that the store is the right one."""


class HistoryPort(Protocol):
    """The part used here of `rlmm.manager.manager.RemoteLogMetadataManager`."""

    def is_caught_up(self) -> bool:
        """Whether everything completed before this start is applied here."""
        ...

    def partitions(self) -> Iterator[TopicIdPartition]:
        """Every partition that has a row."""
        ...

    def list_remote_log_segments(
        self, tip: TopicIdPartition, leader_epoch: int | None = None
    ) -> Iterator[RemoteLogSegmentMetadata]:
        """All rows of a partition."""
        ...


async def check_may_be_new(
    metadata: HistoryPort, tier: TierStore, ambient: Ambient, *, is_default: bool
) -> None:
    """RetryLater unless no row names the store, or what one names is there. Waits a little until
    the metadata is known here at all.
    """
    give_up_s = ambient.monotonic() + CAUGHT_UP_WAIT_S
    while not metadata.is_caught_up():
        if ambient.monotonic() >= give_up_s:
            raise RetryLater(
                f"the store {tier.name!r} has no cluster marker, and whether it should have one is "
                "not known before the metadata is: no quorum leader was heard yet"
            )
        await ambient.sleep(LOOK_AGAIN_S)
    tried: list[RemoteLogSegmentMetadata] = []
    # What waits for its deletion lies there as well: for days, if the store was away.
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
        return
    for row in (*tried, *going)[:TRIED_MAX]:
        if await _is_there(tier, row):
            return
    raise RetryLater(
        f"the store {tier.name!r} has neither its cluster marker "
        f"{cluster_marker_key(tier.prefix)} nor the segments that the metadata names there: it is "
        "empty or another one, and nothing is written to it. Look whether the disk is mounted and "
        "whether bucket, prefix and endpoint are right"
    )


def _names(row: RemoteLogSegmentMetadata, tier: TierStore, is_default: bool) -> bool:
    """A finished row that names no store of ours counts for the default one; what waits for its
    deletion, which may have lain in any, for none.
    """
    unnamed = is_default and row.state is SegmentState.COPY_SEGMENT_FINISHED
    if row.custom_metadata is None:
        return unnamed
    try:
        return CustomMetadata.decode(row.custom_metadata).store == tier.name
    except CorruptData:
        return unnamed


async def _is_there(tier: TierStore, row: RemoteLogSegmentMetadata) -> bool:
    keys = segment_keys(tier.prefix, row.segment_id, row.start_offset)
    try:
        await tier.store.head(keys.manifest)
    except NotFound:
        return False
    return True
