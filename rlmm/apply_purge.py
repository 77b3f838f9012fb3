"""Record time, and what goes away by it: tombstones, 30 days after they were written.

Record time is the running maximum of the batch timestamps that quorum leaders wrote. One step
counts for an hour at most, so that one leader's wrong clock cannot make everything old at once.
"""

from __future__ import annotations

from itertools import islice

from rlmm import row_keys as keys
from rlmm import row_values as values
from rlmm.apply_outcome import Draft
from rlmm.row_reads import read_record_time
from rlmm.rows import RowReader

RECORD_TIME_STEP_MS_MAX = 3_600_000
TOMBSTONE_KEPT_MS = 30 * 24 * 3_600_000
PURGES_PER_APPLY_MAX = 16
_TIME_MS_MAX = 2**62


def record_time_with(rows: RowReader, timestamp_ms: int) -> int:
    """Record time including a record of a batch with this timestamp, milliseconds."""
    return record_time_after(read_record_time(rows), timestamp_ms)


def record_time_after(before: int | None, timestamp_ms: int) -> int:
    """The same behind a record time, None for none."""
    timestamp_ms = min(max(timestamp_ms, 0), _TIME_MS_MAX)
    if before is None:
        return timestamp_ms
    if timestamp_ms <= before:
        return before
    return min(timestamp_ms, before + RECORD_TIME_STEP_MS_MAX)


def bury(draft: Draft, key: bytes, value: bytes) -> None:
    """Write a tombstone, and when it goes."""
    draft.rows.put(key, value)
    draft.rows.put(keys.purge_key(draft.record_time_ms + TOMBSTONE_KEPT_MS, key), b"")


def purge(draft: Draft) -> None:
    """Remove a few of the tombstones that are due; the next records go on with it."""
    lowest = draft.rows.lowest_key(keys.PURGE_PREFIX)
    if lowest is None:
        return
    end = keys.purge_from(draft.record_time_ms + 1)
    if lowest >= end:
        return
    for key, _ in list(islice(draft.rows.scan(lowest, end), PURGES_PER_APPLY_MAX)):
        draft.rows.delete(key)
        draft.rows.delete(key[keys.PURGE_PREFIX_BYTES :])


def put_record_time(draft: Draft) -> None:
    draft.rows.put_decoded(keys.RECORD_TIME_KEY, draft.record_time_ms, values.encode_offset)
