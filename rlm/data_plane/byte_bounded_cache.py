"""A least-recently-used cache whose bound is in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Value = TypeVar("_Value")


class ByteBoundedCache(Generic[_Key, _Value]):
    """Keeps values up to `bytes_max` by the weights given; the longest unused go first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._entries: OrderedDict[_Key, tuple[_Value, int]] = OrderedDict()

    @property
    def bytes_held(self) -> int:
        """The sum of the weights of what is kept."""
        return self._bytes

    def get(self, key: _Key) -> _Value | None:
        """The value, which now counts as just used."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._entries.move_to_end(key)
        return entry[0]

    def put(self, key: _Key, value: _Value, weight_bytes: int) -> None:
        """Keep the value, unless it alone passes the bound."""
        if weight_bytes > self._bytes_max:
            return
        if key in self._entries:
            self._bytes -= self._entries.pop(key)[1]
        self._entries[key] = (value, weight_bytes)
        self._bytes += weight_bytes
        while self._bytes > self._bytes_max:
            self._bytes -= self._entries.popitem(last=False)[1][1]
