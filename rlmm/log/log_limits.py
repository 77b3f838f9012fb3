"""Bounds of the metadata log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LogLimits:
    """The bounds. `retain_bytes_max` of the log stay although a snapshot covers them, for the
    history of segments.

    For replicas that download a snapshot, up to `downloads_held_max` snapshots stay beside the
    `snapshots_kept` newest, and the log from a snapshot's end while that is at most
    `download_log_bytes_max` (`rlmm/quorum/log_cut.py`).
    """

    queue_bytes_max: int = 8 * 1024 * 1024
    proposal_bytes_max: int = 1024 * 1024
    group_bytes_max: int = 1024 * 1024
    segment_bytes_max: int = 16 * 1024 * 1024
    retain_bytes_max: int = 64 * 1024 * 1024
    snapshots_kept: int = 2
    downloads_held_max: int = 2
    download_log_bytes_max: int = 256 * 1024 * 1024
    recent_bytes_max: int = 8 * 1024 * 1024
    read_bytes_max: int = 256 * 1024
    recovery_point_interval_s: float = 1.0
