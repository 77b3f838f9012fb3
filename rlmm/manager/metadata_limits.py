"""Bounds of the remote log metadata manager."""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels

WRITE_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class MetadataLimits:
    """Limits of the metadata manager.

    `apply_cost_max` limits the time of one step on the event loop, in added segments (other
    records: `apply_loop.COST_OF_OTHERS`). For `apply_rest_ms` after a step no records are applied
    while no caller waits for any (`apply_loop.ApplyPace`). `view_flush_records` limits the replay
    after a crash. If flushes are less than `view_quiet_s` apart, the log is busy, and the view
    merges its files less often.

    A snapshot is made after `snapshot_records` records or `snapshot_bytes` bytes of them. It is the
    whole state, and a node starts from its view, so snapshots are far apart; they limit the log's
    size and what a fresh node applies (Kafka, which starts from snapshots, makes one every 20 MiB).
    A failed one is repeated after `snapshot_retry_s`.

    `outcomes_kept_max` outcomes wait for proposers that do not know their offset yet;
    `states_kept_max` partition states are cached until they change. Records of a level outside
    `feature_levels` are not applied. The quorum's leader fences a node that has not fetched for
    `node_silence_max_s`.
    """

    apply_cost_max: int = 120
    apply_rest_ms: int = 20
    view_flush_records: int = 10_000
    view_quiet_s: float = 60.0
    snapshot_records: int = 100_000
    snapshot_bytes: int = 128 * 1024 * 1024
    snapshot_slice_rows: int = 400
    snapshot_retry_s: float = 60.0
    outcomes_kept_max: int = 65_536
    states_kept_max: int = 20_000
    history_read_records: int = 100
    feature_levels: FeatureLevels = LEVELS_KNOWN
    node_silence_max_s: float = 10.0
