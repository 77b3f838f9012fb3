"""Rows kept from step to step are always those of the base."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from rlmm.rows import keys
from rlmm.rows.rows import MemoryRows, OverlayRows, first_row, lacks, prefix_end
from rlmm.view import hot_rows
from rlmm.view.hot_rows import HotRows
from tests.rlmm.state_world import ORDERS, PAYMENTS

KEYS = st.sampled_from(
    [
        keys.RECORD_TIME_KEY,
        keys.TOTALS_KEY,
        keys.RESTART_KEY,
        b"\x20one",
        b"\x20two",
        b"\x30segment",
        keys.purge_key(1, b"\x40a"),
        keys.purge_key(2, b"\x40b"),
        keys.lost_range_key(ORDERS, 5),
        keys.lost_range_key(PAYMENTS, 5),
        keys.lost_range_key(PAYMENTS, 7),
    ]
)
PREFIXES = (
    keys.PURGE_PREFIX,
    keys.lost_range_prefix(ORDERS),
    keys.lost_range_prefix(PAYMENTS),
)
VALUES = st.none() | st.sampled_from([b"", b"1", b"2", bytes(hot_rows.HOT_VALUE_BYTES_MAX + 1)])
STEPS = st.lists(st.lists(st.tuples(KEYS, VALUES), max_size=4), max_size=6)


@settings(deadline=None)
@given(STEPS, st.lists(KEYS, max_size=8), st.integers(0, 6), st.integers(1, 3))
def test_what_is_kept_is_what_the_base_has(
    steps: list[list[tuple[bytes, bytes | None]]],
    read: list[bytes],
    replaced_at: int,
    rows_max: int,
) -> None:
    base = MemoryRows()
    rows = HotRows(base)
    kept_max, hot_rows.HOT_ROWS_MAX = hot_rows.HOT_ROWS_MAX, rows_max
    try:
        for number, writes in enumerate(steps):
            if number == replaced_at:
                base.write([(key, None) for key, _ in base.items()])
                rows.forget()
            for key in read:
                assert rows.get(key) == base.get(key)
            step = OverlayRows(rows)
            for prefix in PREFIXES:
                lowest = first_row(base, prefix, prefix_end(prefix))
                for one in (rows, step):
                    assert one.lowest_key(prefix) == (None if lowest is None else lowest[0])
                    assert lacks(one, prefix) == (lowest is None)
            step.write(writes)
            for prefix in PREFIXES:
                assert lacks(step, prefix) == (first_row(step, prefix, prefix_end(prefix)) is None)
            changes = step.changes()
            base.write((key, after) for key, _, after in changes)
            rows.committed(changes)
            assert len(rows._read) <= rows_max
            assert len(rows._lowest) <= rows_max
            assert list(rows.scan(b"\x01", b"\xf0")) == base.items()
            for key in read:
                assert rows.get(key) == base.get(key)
    finally:
        hot_rows.HOT_ROWS_MAX = kept_max


class CountedRows(MemoryRows):
    reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return super().get(key)


def test_hot_rows_are_read_once_and_others_each_time() -> None:
    base = CountedRows([(keys.TOTALS_KEY, b"1"), (b"\x30segment", b"2")])
    rows = HotRows(base)
    for _ in range(3):
        assert rows.get(keys.TOTALS_KEY) == b"1"
        assert rows.get(b"\x20no partition") is None
    assert base.reads == 2
    for _ in range(3):
        assert rows.get(b"\x30segment") == b"2"
    assert base.reads == 5
