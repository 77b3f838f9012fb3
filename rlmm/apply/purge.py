"""Time in the log: measured time, for graces and tombstones, and record time, for display.

Deletion must not depend on a wall clock: if a leader's clock is a year ahead, everything is old at
once, and after its correction time stands still for a year. Measured time is the time that passed
on nodes' monotonic clocks: each TimePassed names the one before it, so that no interval counts
twice, and counts for `TIME_STEP_MS_MAX` at most. It may be behind real time, never ahead. Record
time is the running maximum of the batch timestamps, raised by an hour at most per record.
"""

from __future__ import annotations

from itertools import islice

from rlmm.apply.outcome import ACCEPTED, Draft, Outcome, conflict, invalid
from rlmm.partition_state import MeasuredTime
from rlmm.records.control_records import TimePassed
from rlmm.rows import keys, values
from rlmm.rows.reads import read_measured_time, read_record_time
from rlmm.rows.rows import RowReader

RECORD_TIME_STEP_MS_MAX = 3_600_000
TIME_STEP_MS_MAX = 600_000
TOMBSTONE_KEPT_MS = 30 * 24 * 3_600_000
PURGES_PER_APPLY_MAX = 16
_TIME_MS_MAX = 2**62


def record_time_with(rows: RowReader, timestamp_ms: int) -> int:
    """Record time (ms) after a record of a batch with this timestamp."""
    return record_time_after(read_record_time(rows), timestamp_ms)


def record_time_after(before: int | None, timestamp_ms: int) -> int:
    """The record time that follows `before` (None: none yet)."""
    timestamp_ms = min(max(timestamp_ms, 0), _TIME_MS_MAX)
    if before is None:
        return timestamp_ms
    if timestamp_ms <= before:
        return before
    return min(timestamp_ms, before + RECORD_TIME_STEP_MS_MAX)


def apply_time_passed(draft: Draft, record: TimePassed) -> Outcome:
    """Accept the record from any node; only the first one since the last TimePassed counts."""
    if record.passed_ms <= 0:
        return invalid(f"{record.passed_ms} ms is not a positive time")
    before = read_measured_time(draft.rows)
    if record.since_offset != before.offset:
        return conflict(
            f"time was measured up to metadata offset {before.offset}, not {record.since_offset}: "
            "measure from there"
        )
    ms = before.ms + min(record.passed_ms, TIME_STEP_MS_MAX)
    _put_measured_time(draft, MeasuredTime(ms, draft.offset, before.until_ms))
    return ACCEPTED


def _put_measured_time(draft: Draft, time: MeasuredTime) -> None:
    draft.rows.put_decoded(keys.MEASURED_TIME_KEY, time, values.encode_measured_time)


def wait_for_time(draft: Draft, for_ms: int) -> int:
    """The measured time at which `for_ms` have surely passed from now on; a step is added, since
    the next TimePassed may have begun earlier.
    """
    time = read_measured_time(draft.rows)
    until_ms = min(time.ms + TIME_STEP_MS_MAX + for_ms, _TIME_MS_MAX)
    if until_ms > time.until_ms:
        _put_measured_time(draft, time._replace(until_ms=until_ms))
    return until_ms


def bury(draft: Draft, key: bytes, value: bytes) -> None:
    """Write a tombstone, and queue its removal."""
    draft.rows.put(key, value)
    draft.rows.put(keys.purge_key(wait_for_time(draft, TOMBSTONE_KEPT_MS), key), b"")


def purge(draft: Draft) -> None:
    """Remove a few of the tombstones that are due; the next records remove more."""
    lowest = draft.rows.lowest_key(keys.PURGE_PREFIX)
    if lowest is None:
        return
    end = keys.purge_from(read_measured_time(draft.rows).ms + 1)
    if lowest >= end:
        return
    for key, _ in list(islice(draft.rows.scan(lowest, end), PURGES_PER_APPLY_MAX)):
        draft.rows.delete(key)
        draft.rows.delete(key[keys.PURGE_PREFIX_BYTES :])


def put_record_time(draft: Draft) -> None:
    draft.rows.put_decoded(keys.RECORD_TIME_KEY, draft.record_time_ms, values.encode_offset)
