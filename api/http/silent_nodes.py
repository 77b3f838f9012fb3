"""Tracks the views of the whole cluster under way: how many requests are with each node, and a log
line when a node stops answering and when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager

from kafka_formats.errors import RetryLater

_log = logging.getLogger("strandline.api")


class SilentNodes:
    """The requests with registered nodes, and the number of views under way."""

    def __init__(self) -> None:
        self._slots: dict[int, asyncio.Semaphore] = {}
        self._silent: set[int] = set()
        self._views = 0

    @contextmanager
    def view(self, most: int) -> Iterator[None]:
        """Take one of `most` views. RetryLater: all of them are taken."""
        if self._views >= most:
            raise RetryLater(
                f"{self._views} views of the whole cluster are under way, which is the most at "
                "once: ask again later"
            )
        self._views += 1
        try:
            yield
        finally:
            self._views -= 1

    def slot(self, node_id: int, most: int) -> AbstractAsyncContextManager[None]:
        """Take one of `most` requests to this node, or wait for one."""
        return self._slots.setdefault(node_id, asyncio.Semaphore(most))

    def tell(self, node_id: int, why: str | None) -> None:
        """Record that the node answered, or why it did not."""
        if why is None and node_id in self._silent:
            self._silent.remove(node_id)
            _log.info("node %d takes part in views of the cluster again", node_id)
        elif why is not None and node_id not in self._silent:
            self._silent.add(node_id)
            _log.warning("node %d is missing in views of the cluster: %s", node_id, why)
