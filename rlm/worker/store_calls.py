"""Collects a worker's calls to the stores for the supervisor's metrics."""

from __future__ import annotations

from collections.abc import Callable

from rsm_backends.measured_store import StoreCall

CALLS_KEPT_MAX = 256
"""The number of calls that are sent at once; fewer are sent with the next message."""

OnStoreCall = Callable[[str, StoreCall], None]
"""Called with the store's name and the finished call."""


def ignore_store_call(_store: str, _call: StoreCall) -> None:
    """An `on_store_call` for callers without metrics."""


class StoreCallLog:
    """Collects calls until `take`; calls `full` when there are enough to send."""

    def __init__(self, full: Callable[[], None]) -> None:
        self._full = full
        self._calls: list[tuple[str, StoreCall]] = []

    def observer(self, store: str) -> NamedStoreObserver:
        """The observer for a `MeasuredStore` around the store of this name."""
        return NamedStoreObserver(store, self.add)

    def add(self, store: str, call: StoreCall) -> None:
        self._calls.append((store, call))
        if len(self._calls) >= CALLS_KEPT_MAX:
            self._full()

    def take(self) -> tuple[tuple[str, StoreCall], ...]:
        """All calls since the previous `take`."""
        taken, self._calls = tuple(self._calls), []
        return taken


class NamedStoreObserver:
    """A `rsm_backends.measured_store.StoreObserver` that adds the store's name."""

    def __init__(self, store: str, on_store_call: OnStoreCall) -> None:
        self._store = store
        self._on_store_call = on_store_call

    def store_call_ended(self, call: StoreCall) -> None:
        self._on_store_call(self._store, call)
