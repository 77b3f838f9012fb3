"""Which metadata snapshots go to the store, and which go from it. Pure.

Keys are `<prefix>_strandline/snapshots/<cluster id>/<end offset>-<epoch>.checkpoint`: a snapshot's
offset and epoch say which state it is, but only within one cluster, and a cluster that was started
anew from a snapshot repeats the numbers of the one before it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rlm.format.object_keys import snapshots_prefix
from rlmm.log.snapshot_files import parse_snapshot_file_name, snapshot_file_name
from rlmm.metadata_log import SnapshotId


@dataclass(frozen=True, slots=True)
class UploadedSnapshot:
    """A snapshot in the store; `uploaded_ms` by the store's clock, None where it does not say."""

    snapshot: SnapshotId
    uploaded_ms: int | None


@dataclass(frozen=True, slots=True)
class SnapshotFacts:
    """What a pass decides on.

    `leads`: this node leads the metadata quorum. `newest` is the newest snapshot on its disk,
    `uploaded` what the store has of this cluster. `last_taken_ms` is when this process last had a
    snapshot taken for the store. `has_segments`: the tier holds a finished segment.
    """

    leads: bool
    newest: SnapshotId | None
    uploaded: tuple[UploadedSnapshot, ...]
    last_taken_ms: int | None
    has_segments: bool
    now_ms: int


def take_is_due(facts: SnapshotFacts, *, interval_ms: int) -> bool:
    """Whether a new snapshot is to be taken, so that the store's is never much older."""
    if not facts.leads:
        return False
    times = [each.uploaded_ms for each in facts.uploaded if each.uploaded_ms is not None]
    if facts.last_taken_ms is not None:
        times.append(facts.last_taken_ms)
    if not times:
        return facts.has_segments
    # A clock that was set back must not put it off for as long as it was wrong.
    return not 0 <= facts.now_ms - max(times) < interval_ms


def to_upload(facts: SnapshotFacts) -> SnapshotId | None:
    """The newest snapshot, unless the store has it or a later one; None on every other node."""
    if not facts.leads or facts.newest is None:
        return None
    highest = max((_order(each.snapshot) for each in facts.uploaded), default=None)
    if highest is not None and _order(facts.newest) <= highest:
        return None
    return facts.newest


def to_delete(facts: SnapshotFacts, *, kept: int) -> tuple[SnapshotId, ...]:
    """All but the newest `kept` (at least one), oldest first."""
    if not facts.leads:
        return ()
    ordered = sorted((each.snapshot for each in facts.uploaded), key=_order)
    return tuple(ordered[: -max(kept, 1)])


def cluster_snapshots_prefix(prefix: str, cluster_id: str) -> str:
    """What the keys of one cluster's snapshots start with."""
    return f"{snapshots_prefix(prefix)}{cluster_id}/"


def snapshot_key(prefix: str, cluster_id: str, snapshot: SnapshotId) -> str:
    """Where a snapshot stands in the store."""
    return cluster_snapshots_prefix(prefix, cluster_id) + snapshot_file_name(snapshot)


def parse_snapshot_key(prefix: str, cluster_id: str, key: str) -> SnapshotId | None:
    """The snapshot of a key of `snapshot_key`; None for every other object."""
    start = cluster_snapshots_prefix(prefix, cluster_id)
    return parse_snapshot_file_name(key[len(start) :]) if key.startswith(start) else None


def is_snapshot_key(prefix: str, key: str) -> bool:
    """Whether a snapshot of whichever cluster stands there."""
    start = snapshots_prefix(prefix)
    _, _, name = key[len(start) :].partition("/")
    return key.startswith(start) and parse_snapshot_file_name(name) is not None


def newest_of(snapshots: Iterable[SnapshotId]) -> SnapshotId | None:
    """The newest; the bootstrap snapshot of a formatted directory holds nothing and is none."""
    return max((each for each in snapshots if each.end_offset > 0), key=_order, default=None)


def _order(snapshot: SnapshotId) -> tuple[int, int]:
    return snapshot.end_offset, snapshot.epoch
