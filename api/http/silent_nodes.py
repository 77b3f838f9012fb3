"""Views of the whole cluster that are being made, and other nodes as they find them: how many
requests are with each, and a line in the log when one falls silent, and when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from kafka_formats.errors import RetryLater

_log = logging.getLogger("strandline.api")


class SilentNodes:
    """Kept of registered nodes alone, and of the views being made."""

    def __init__(self) -> None:
        self._slots: dict[int, asyncio.Semaphore] = {}
        self._silent: set[int] = set()
        self._views = 0

    @contextmanager
    def view(self, most: int) -> Iterator[None]:
        """One of `most` views that are made at once. RetryLater: so many are."""
        if self._views >= most:
            raise RetryLater(
                f"{self._views} views of the whole cluster are being made, the most at once"
            )
        self._views += 1
        try:
            yield
        finally:
            self._views -= 1

    def slot(self, node_id: int, most: int) -> AbstractAsyncContextManager[None]:
        """One of `most` requests with the node at once."""
        return self._slots.setdefault(node_id, asyncio.Semaphore(most))

    def tell(self, node_id: int, why: str | None) -> None:
        """Note that the node answered, or why it did not."""
        if why is None and node_id in self._silent:
            self._silent.remove(node_id)
            _log.info("node %d answers again what views of the cluster ask it", node_id)
        elif why is not None and node_id not in self._silent:
            self._silent.add(node_id)
            _log.warning("node %d has no part in views of the cluster: %s", node_id, why)
