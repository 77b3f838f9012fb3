"""The view's rows for the steps of apply, with a cache of the few rows that nearly every record
needs: they are not read again while only these steps change them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlmm.rows.keys import RowKind
from rlmm.rows.rows import OverlayRows, RowChange

HOT_ROWS_MAX = 4_096
HOT_VALUE_BYTES_MAX = 1_024
_HOT = frozenset(
    {RowKind.RECORD_TIME, RowKind.TOTALS, RowKind.RESTART, RowKind.NODE, RowKind.PARTITION}
)
_SEARCHED = frozenset({RowKind.PURGE, RowKind.LOST_RANGE})
"""Row kinds for which `lowest_key` is called."""


class HotRows(OverlayRows):
    """A read-only cache; a step writes into an overlay over it. Invariant: `committed` or `forget`
    is called for every change of the base before the next read here.
    """

    __slots__ = ()

    def get(self, key: bytes) -> bytes | None:
        return self._in_base(key)  # nothing is pending

    def lowest_key(self, prefix: bytes) -> bytes | None:
        if len(self._lowest) >= HOT_ROWS_MAX:
            self._lowest.clear()
        return super().lowest_key(prefix)

    def _in_base(self, key: bytes) -> bytes | None:
        if key in self._read:
            return self._read[key]
        value = self._base.get(key)
        if key[0] in _HOT:
            self._keep(key, value)
        return value

    def _keep(self, key: bytes, value: bytes | None) -> None:
        if value is not None and len(value) > HOT_VALUE_BYTES_MAX:
            self._read.pop(key, None)
            return
        if len(self._read) >= HOT_ROWS_MAX:
            self._read.clear()
        self._read[key] = value

    def committed(self, changes: Iterable[RowChange]) -> None:
        """Take the changes that the base has now; there were no others since it was read."""
        for key, _, after in changes:
            if key[0] in _HOT:
                self._keep(key, after)
            elif key[0] in _SEARCHED:
                self._lowest.clear()

    def forget(self) -> None:
        """Forget all rows, after the base may have changed in any way."""
        self._read.clear()
        self._lowest.clear()
