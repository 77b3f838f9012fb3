"""Tells of calls that hang in a store's file system, in this process and in the workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rsm_backends.filesystem import THREADS_MAX
from rsm_backends.store_config import StoreConfig
from rsm_backends.store_threads import hanging_calls


class HungCalls:
    """One per node. `workers` returns the hanging calls of the workers, by the store's folder."""

    def __init__(
        self, configs: Mapping[str, StoreConfig], workers: Callable[[], Mapping[str, int]]
    ) -> None:
        self._folders = {
            name: str(config.path) for name, config in configs.items() if config.path is not None
        }
        self._workers = workers

    def texts(self) -> dict[str, str]:
        """Hanging calls as text, by the store's name; other calls may still work."""
        own, workers = hanging_calls(), self._workers()
        found = {}
        for name, folder in self._folders.items():
            count = own.get(folder, 0) + workers.get(folder, 0)
            if count:
                calls = "call hangs" if count == 1 else "calls hang"
                found[name] = (
                    f"{count} {calls} in the file system of {folder}: look whether its disk or "
                    f"mount answers (df, dmesg). A process in which {THREADS_MAX} hang refuses more"
                )
        return found
