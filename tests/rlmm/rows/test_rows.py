from __future__ import annotations

import gc
import weakref

from hypothesis import given, settings
from hypothesis import strategies as st

from rlmm.rows.rows import (
    MemoryRows,
    OverlayRows,
    first_row,
    in_slices,
    last_row,
    prefix_end,
    read_decoded,
)

KEYS = st.binary(min_size=1, max_size=2)
WRITES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=2)), max_size=12)


@settings(max_examples=100, deadline=None)
@given(WRITES, WRITES, WRITES, KEYS, KEYS)
def test_an_overlay_reads_as_if_its_writes_were_done(
    base_writes: list[tuple[bytes, bytes | None]],
    first: list[tuple[bytes, bytes | None]],
    second: list[tuple[bytes, bytes | None]],
    low: bytes,
    high: bytes,
) -> None:
    base = MemoryRows()
    base.write(base_writes)
    outer = OverlayRows(base)
    outer.write(first)
    inner = OverlayRows(outer)
    inner.write(first)
    inner.begin()
    inner.write(second)
    inner.take_back()
    assert inner.writes() == ()
    inner.begin()
    inner.write(second)
    expected = MemoryRows(base.items())
    expected.write([*first, *second])
    for reverse in (False, True):
        assert list(inner.scan(low, high, reverse=reverse)) == list(
            expected.scan(low, high, reverse=reverse)
        )
    for key, _ in [*base_writes, *first, *second]:
        assert inner.get(key) == expected.get(key)
    if low.rstrip(b"\xff"):
        row = first_row(expected, low, prefix_end(low))
        assert inner.lowest_key(low) == inner.lowest_key(low) == (None if row is None else row[0])
    for key, value in second:
        if value is not None and outer.get(key) is None:
            outer.put_new(key, value)
        else:
            outer.write([(key, value)])
    assert outer.changes() == [
        (key, base.get(key), expected.get(key))
        for key in sorted({key for key, _ in [*first, *second]})
        if base.get(key) != expected.get(key)
    ]
    base.write(outer.writes())
    assert base.items() == expected.items()


def test_a_decoded_row_is_encoded_once_and_read_as_either() -> None:
    encoded = []

    def encode(number: int) -> bytes:
        encoded.append(number)
        return b"%d" % number

    overlay = OverlayRows(MemoryRows([(b"a", b"1"), (b"b", b"2")]))
    assert overlay.decoded(b"a", int) == 1
    for number in (5, 6, 7):
        overlay.put_decoded(b"a", number, encode)
        assert overlay.decoded(b"a", int) == read_decoded(overlay, b"a", int) == number
    assert encoded == []
    assert overlay.get(b"a") == b"7"
    assert overlay.decoded(b"a", int) == 7
    assert list(overlay.scan(b"a", b"c")) == [(b"a", b"7"), (b"b", b"2")]
    overlay.put_decoded(b"b", 2, encode)
    assert overlay.changes() == [(b"a", b"1", b"7")]
    assert encoded == [7, 2]
    overlay.delete(b"a")
    assert overlay.decoded(b"a", int) is None
    assert overlay.decoded(b"x", int) is None


def test_a_row_that_is_known_to_be_new_is_not_looked_for() -> None:
    class Asked(MemoryRows):
        def get(self, key: bytes) -> bytes | None:
            raise AssertionError(key)

    overlay = OverlayRows(Asked())
    overlay.put_new(b"a", b"1")
    assert overlay.get(b"a") == b"1"
    assert overlay.changes() == [(b"a", None, b"1")]


def test_a_new_row_may_follow_one_that_was_removed_since() -> None:
    overlay = OverlayRows(MemoryRows([(b"a", b"1")]))
    overlay.delete(b"a")
    overlay.put_new(b"a", b"2")
    assert overlay.changes() == [(b"a", b"1", b"2")]


def test_only_what_was_written_since_the_beginning_is_taken_back() -> None:
    overlay = OverlayRows(MemoryRows([(b"a", b"1")]))
    overlay.put_decoded(b"a", 2, lambda number: b"%d" % number)
    overlay.begin()
    for key, value in ((b"a", b"3"), (b"a", b"4"), (b"b", b"5")):
        overlay.put(key, value)
    assert overlay.writes() == ((b"a", b"4"), (b"b", b"5"))
    overlay.take_back()
    overlay.put(b"c", b"6")
    assert overlay.writes() == ((b"a", b"2"), (b"c", b"6"))
    assert overlay.lowest_key(b"b") is None


def test_an_overlay_goes_at_once_when_nobody_has_it() -> None:
    """Without a garbage collection, which would hold the event loop for what many of them read."""
    base = MemoryRows([(b"a", b"1")])
    gone = weakref.ref(base)
    overlay = OverlayRows(base)
    overlay.put(b"a", overlay.get(b"b") or b"2")
    assert overlay.writes() == ((b"a", b"2"),)
    gc.disable()
    try:
        del overlay, base
        assert gone() is None
    finally:
        gc.enable()


def test_writes_come_in_key_order_without_those_that_change_nothing() -> None:
    overlay = OverlayRows(MemoryRows([(b"a", b"1"), (b"b", b"2")]))
    overlay.put(b"c", b"3")
    overlay.put(b"a", b"1")
    overlay.delete(b"b")
    overlay.delete(b"x")
    assert overlay.writes() == ((b"b", None), (b"c", b"3"))


def test_first_and_last_row() -> None:
    rows = MemoryRows([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    assert first_row(rows, b"aa", b"c") == (b"b", b"2")
    assert last_row(rows, b"a", b"c") == (b"b", b"2")
    assert first_row(rows, b"d", b"e") is None
    assert last_row(rows, b"c", b"b") is None


def test_the_end_of_a_prefix() -> None:
    assert prefix_end(b"ab") == b"ac"
    assert prefix_end(b"a\xff\xff") == b"b"


def test_long_runs_come_in_slices() -> None:
    rows = [(bytes((n,)), b"") for n in range(5)]
    assert list(in_slices(rows, 2)) == [rows[:2], rows[2:4], rows[4:]]
    assert list(in_slices([], 2)) == []
