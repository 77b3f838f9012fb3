"""Rows of the metadata state as an ordered map of bytes, and reads through pending writes.

Keys sort bytewise. Their formats are in `rlmm/rows/keys.py`, those of values in
`rlmm/rows/values.py`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any, Protocol, TypeVar

Value = TypeVar("Value")

RowWrite = tuple[bytes, bytes | None]
"""A key with its new value; None removes the row."""

RowChange = tuple[bytes, bytes | None, bytes | None]
"""A key with the value before and the value after; None: there is no row."""


class RowReader(Protocol):
    """Read access to rows. A scan may see later changes: collect it before you change rows."""

    def get(self, key: bytes) -> bytes | None:
        """The row's value, or None."""

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `start` <= key < `end`, ascending, or descending with `reverse`."""


def first_row(rows: RowReader, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
    """The lowest row in [`start`, `end`)."""
    return next(rows.scan(start, end), None)


def last_row(rows: RowReader, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
    """The highest row in [`start`, `end`)."""
    return next(rows.scan(start, end, reverse=True), None)


def read_decoded(rows: RowReader, key: bytes, decode: Callable[[bytes], Value]) -> Value | None:
    """The decoded row; None if there is no such row."""
    if isinstance(rows, OverlayRows):
        return rows.decoded(key, decode)
    value = rows.get(key)
    return None if value is None else decode(value)


def lacks(rows: RowReader, prefix: bytes) -> bool:
    """True if no key begins with `prefix`. Only `OverlayRows` checks, as it caches the result."""
    return isinstance(rows, OverlayRows) and rows.lowest_key(prefix) is None


def _lowest_key(rows: RowReader, prefix: bytes) -> bytes | None:
    row = first_row(rows, prefix, prefix_end(prefix))
    return None if row is None else row[0]


def prefix_end(prefix: bytes) -> bytes:
    """The lowest key above every key that begins with `prefix`."""
    kept = prefix.rstrip(b"\xff")
    assert kept, "no key begins with 0xff"
    return kept[:-1] + bytes((kept[-1] + 1,))


class MemoryRows:
    """Rows in memory, for tests, the simulation and a snapshot's first rows."""

    def __init__(self, rows: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self._values = dict(rows)
        self._keys = sorted(self._values)

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, end)]
        return ((key, self._values[key]) for key in (reversed(keys) if reverse else keys))

    def write(self, writes: Iterable[RowWrite]) -> None:
        """Apply writes, in order."""
        for key, value in writes:
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value

    def items(self) -> list[tuple[bytes, bytes]]:
        """All rows in key order."""
        return [(key, self._values[key]) for key in self._keys]


Unencoded = tuple[Any, Callable[[Any], bytes]]
"""A row's decoded value, and the function that encodes it."""

# A constant instead of the overlay itself: a reference cycle would keep that alive, with its cache.
_NOT_PENDING = object()


class OverlayRows:
    """Rows with pending writes over them, which reads see before they are committed.

    Valid only as long as its base is unchanged: reads of the base are cached. A row that many
    records change one after the other is encoded only when its bytes are read (`put_decoded`,
    `decoded`).
    """

    __slots__ = ("_base", "_journal", "_keys", "_kinds", "_lowest", "_pending", "_read")

    def __init__(self, base: RowReader) -> None:
        self._base = base
        self._pending: dict[bytes, bytes | Unencoded | None] = {}
        self._read: dict[bytes, bytes | None] = {}
        self._lowest: dict[bytes, bytes | None] = {}
        self._kinds: set[int] = set()  # first bytes of the pending keys, and of some taken back
        self._keys: list[bytes] = []  # of the pending writes; sorted on demand
        # The values replaced since `begin`; `_NOT_PENDING` for keys that had no pending value.
        self._journal: list[tuple[bytes, object]] = []

    def get(self, key: bytes) -> bytes | None:
        if key not in self._pending:
            return self._read[key] if key in self._read else self._in_base(key)
        value = self._pending[key]
        if isinstance(value, tuple):
            value = self._pending[key] = value[1](value[0])
        return value

    def decoded(self, key: bytes, decode: Callable[[bytes], Value]) -> Value | None:
        """The decoded row, or None; `decode` must be the inverse of the `encode` of its writes."""
        value = self._pending[key] if key in self._pending else self._in_base(key)
        if value is None:
            return None
        if isinstance(value, tuple):
            meaning: Value = value[0]
            return meaning
        return decode(value)

    def _in_base(self, key: bytes) -> bytes | None:
        if key in self._read:
            return self._read[key]
        value = self._read[key] = self._base.get(key)
        return value

    def lowest_key(self, prefix: bytes) -> bytes | None:
        """The lowest key that begins with `prefix`, None if there is none."""
        if prefix[0] in self._kinds:
            return _lowest_key(self, prefix)
        if prefix not in self._lowest:
            base = self._base
            self._lowest[prefix] = (
                base.lowest_key(prefix)
                if isinstance(base, OverlayRows)
                else _lowest_key(base, prefix)
            )
        return self._lowest[prefix]

    def put(self, key: bytes, value: bytes) -> None:
        """Write one row; `writes` leaves it out if its value is the base's."""
        self._set(key, value)

    def put_new(self, key: bytes, value: bytes) -> None:
        """`put` for a row that the caller knows to be missing: the base is not read."""
        if key not in self._pending:  # a pending removal may hide a row of the base
            self._read.setdefault(key, None)
        self._set(key, value)

    def put_decoded(self, key: bytes, value: Value, encode: Callable[[Value], bytes]) -> None:
        """`put` of `encode(value)`, which is encoded when its bytes are read."""
        self._set(key, (value, encode))

    def delete(self, key: bytes) -> None:
        """Remove one row, if there is one."""
        self._set(key, None)

    def write(self, writes: Iterable[RowWrite]) -> None:
        """Apply writes, in order."""
        for key, value in writes:
            self._set(key, value)

    def begin(self) -> None:
        """Start recording the writes that `take_back` undoes."""
        self._journal.clear()

    def take_back(self) -> None:
        """Undo the writes since `begin`."""
        for key, before in reversed(self._journal):
            if before is _NOT_PENDING:
                del self._pending[key]
            else:
                self._pending[key] = before  # type: ignore[assignment]  # it was there
        self._journal.clear()
        self._keys = []

    def _set(self, key: bytes, value: bytes | Unencoded | None) -> None:
        pending = self._pending
        before = pending.get(key, _NOT_PENDING)
        if before is _NOT_PENDING:
            self._kinds.add(key[0])
        self._journal.append((key, before))
        pending[key] = value

    def _keys_in_order(self) -> list[bytes]:
        if len(self._keys) != len(self._pending):  # which only grows between two `take_back`
            self._keys = sorted(self._pending)
        return self._keys

    def writes(self) -> tuple[RowWrite, ...]:
        """The pending writes in key order, without those that change nothing."""
        return tuple((key, after) for key, _, after in self.changes())

    def changes(self) -> list[RowChange]:
        """The pending writes with the base's values, in key order, without unchanged ones."""
        changes = []
        pending, read = self._pending, self._read
        for key in self._keys_in_order():
            before = read[key] if key in read else self._in_base(key)
            after = pending[key]
            if isinstance(after, tuple):
                after = self.get(key)
            if before != after:
                changes.append((key, before, after))
        return changes

    def scan(
        self, start: bytes, end: bytes, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        if start >= end:
            return iter(())
        keys = self._keys_in_order()
        pending = keys[bisect_left(keys, start) : bisect_left(keys, end)]
        base = self._base.scan(start, end, reverse=reverse)
        if not pending:
            return base
        if reverse:
            pending.reverse()
        return self._merged(base, [(key, self.get(key)) for key in pending], reverse=reverse)

    @staticmethod
    def _merged(
        base: Iterator[tuple[bytes, bytes]], pending: list[RowWrite], *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        row = next(base, None)
        for key, value in pending:
            while row is not None and (row[0] > key if reverse else row[0] < key):
                yield row
                row = next(base, None)
            if row is not None and row[0] == key:
                row = next(base, None)
            if value is not None:
                yield key, value
        if row is not None:
            yield row
            yield from base


def in_slices(
    rows: Iterable[tuple[bytes, bytes]], size: int
) -> Iterator[list[tuple[bytes, bytes]]]:
    """Cut a long sequence of rows into lists of `size`, so that no single step takes long."""
    iterator = iter(rows)
    while part := list(islice(iterator, size)):
        yield part
