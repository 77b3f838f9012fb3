"""A store that sends no byte of an upload at or after the upload's deadline.

The deadline is in the COPY_SEGMENT_STARTED record: the clean-up of a failed attempt waits for it,
then deletes for good. So it must apply to every request, retries included, even if requests hang.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from kafka_formats.errors import RetryLater
from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, Send, StoreWrapper

_Answer = TypeVar("_Answer")


PASSING = frozenset(
    ("head", "list_page", "list_folders", "delete_many", "abort_multipart", "list_uploads",
     "uploads_below", "versions")
)  # fmt: skip
"""The calls that write nothing. All other calls are made only before the deadline."""


class DeadlineStore(StoreWrapper):
    """Refuses writes at or after `deadline_ms` (since the epoch), and cancels running ones at it.
    Reads, deletes and the abort of an upload are always allowed.
    """

    def __init__(self, store: ObjectStore, deadline_ms: int, now_ms: Callable[[], int]) -> None:
        super().__init__(store)
        self._deadline_ms = deadline_ms
        self._now_ms = now_ms

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:
        if call.operation in PASSING:
            return await send(self._store)
        left_ms = self._deadline_ms - self._now_ms()
        if left_ms <= 0:
            raise self._too_late()
        try:
            async with asyncio.timeout(left_ms / 1000):
                return await send(self._store)
        except TimeoutError:
            raise self._too_late() from None

    def _too_late(self) -> RetryLater:
        return RetryLater(
            f"the upload's deadline ({self._deadline_ms} ms since the epoch) has passed: a new "
            "attempt needs a new segment id"
        )
