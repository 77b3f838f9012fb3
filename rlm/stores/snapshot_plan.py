"""Decides which metadata snapshots are uploaded to the store, and which are deleted there. Pure.

Keys are `<prefix>_strandline/snapshots/<cluster id>/<end offset>-<epoch>.checkpoint`. Offset and
epoch identify a state only within one cluster: a cluster started from a snapshot repeats them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlm.format.object_keys import snapshots_prefix
from rlmm.log.snapshot_files import parse_snapshot_file_name, snapshot_file_name
from rlmm.metadata_log import SnapshotId


@dataclass(frozen=True, slots=True)
class UploadedSnapshot:
    """A snapshot in the store; `uploaded_ms` by the store's clock, None if unknown."""

    snapshot: SnapshotId
    uploaded_ms: int | None


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """The facts that a pass decides by.

    `leads`: this node leads the metadata quorum. `newest`: the newest snapshot on its disk;
    `uploaded`: this cluster's snapshots in the store. `last_taken_ms`: when this process last took
    a snapshot for the store. `has_segments`: the tier holds a finished segment.
    """

    leads: bool
    newest: SnapshotId | None
    uploaded: tuple[UploadedSnapshot, ...]
    last_taken_ms: int | None
    has_segments: bool
    now_ms: int


def take_is_due(facts: SnapshotFacts, *, interval_ms: int) -> bool:
    """True if a new snapshot is needed, so that the store's newest never gets much older."""
    if not facts.leads:
        return False
    times = [each.uploaded_ms for each in facts.uploaded if each.uploaded_ms is not None]
    if facts.last_taken_ms is not None:
        times.append(facts.last_taken_ms)
    if not times:
        return facts.has_segments
    # A time in the future, because the store's clock is ahead or this node's was set back, must
    # neither postpone the next snapshot by as much nor cause one at each pass.
    return not any(0 <= facts.now_ms - each < interval_ms for each in times)


def to_upload(facts: SnapshotFacts) -> SnapshotId | None:
    """The newest snapshot, unless the store has it or a later one; None if this is no leader."""
    if not facts.leads or facts.newest is None:
        return None
    highest = max((_order(each.snapshot) for each in facts.uploaded), default=None)
    if highest is not None and _order(facts.newest) <= highest:
        return None
    return facts.newest


def to_delete(facts: SnapshotFacts, *, kept: int) -> tuple[SnapshotId, ...]:
    """All snapshots but the newest `kept` (at least one stays), oldest first."""
    if not facts.leads:
        return ()
    ordered = sorted((each.snapshot for each in facts.uploaded), key=_order)
    return tuple(ordered[: -max(kept, 1)])


def cluster_snapshots_prefix(prefix: str, cluster_id: str) -> str:
    """The start of the keys of one cluster's snapshots."""
    return f"{snapshots_prefix(prefix)}{cluster_id}/"


def snapshot_key(prefix: str, cluster_id: str, snapshot: SnapshotId) -> str:
    return cluster_snapshots_prefix(prefix, cluster_id) + snapshot_file_name(snapshot)


def parse_snapshot_key(prefix: str, cluster_id: str, key: str) -> SnapshotId | None:
    """The snapshot of a key that `snapshot_key` made; None for every other object."""
    start = cluster_snapshots_prefix(prefix, cluster_id)
    return parse_snapshot_file_name(key[len(start) :]) if key.startswith(start) else None


def is_snapshot_key(prefix: str, key: str) -> bool:
    """True for the key of any cluster's snapshot."""
    start = snapshots_prefix(prefix)
    _, _, name = key[len(start) :].partition("/")
    return key.startswith(start) and parse_snapshot_file_name(name) is not None


def newest_of(snapshots: Iterable[SnapshotId]) -> SnapshotId | None:
    """The newest snapshot; None if there is only the empty one of a formatted directory."""
    return max((each for each in snapshots if each.end_offset > 0), key=_order, default=None)


def _order(snapshot: SnapshotId) -> tuple[int, int]:
    return snapshot.end_offset, snapshot.epoch
