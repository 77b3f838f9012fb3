"""Other nodes as views of the whole cluster find them: how many requests are with each, and a line
in the log when one falls silent, and when it answers again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AbstractAsyncContextManager

_log = logging.getLogger("strandline.api")


class SilentNodes:
    """Both are bounded by the registered nodes."""

    def __init__(self) -> None:
        self._slots: dict[int, asyncio.Semaphore] = {}
        self._silent: set[int] = set()

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
