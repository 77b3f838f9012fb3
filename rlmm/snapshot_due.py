"""When the metadata log is due for its next snapshot. Pure.

Kafka's rule is metadata.log.max.record.bytes.between.snapshots (KIP-630): 20 MiB of records since
the last one. A snapshot is the whole state, so at a fixed distance a growing state costs ever more
a record. Here the distance grows with what the last snapshot held, up to a bound of its own. The
bound on records stays: a fresh node has to apply no more than those behind a snapshot.
"""

from __future__ import annotations

from rlmm.metadata_limits import MetadataLimits


def bytes_between_snapshots(last_snapshot_bytes: int, limits: MetadataLimits) -> int:
    """How many bytes of records there may be behind a snapshot with so many bytes of rows; 0 for
    one that is not known.
    """
    wanted = last_snapshot_bytes * limits.snapshot_growth_percent // 100
    return max(limits.snapshot_bytes, min(wanted, limits.snapshot_bytes_max))


def snapshot_due(
    records: int, size_bytes: int, *, last_snapshot_bytes: int, limits: MetadataLimits
) -> bool:
    """Whether so many records, with so many bytes, since the last snapshot ask for the next."""
    return records >= limits.snapshot_records or size_bytes >= bytes_between_snapshots(
        last_snapshot_bytes, limits
    )
