"""Counts, latencies and bytes of every store operation, reported to a small observer.

Around the retrying store it measures the whole call, retries included; inside it, each attempt.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from kafka_formats.errors import StrandlineError
from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, Read, Send, StoreWrapper
from rsm_backends.streams import closing_stream

_log = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One ended call. `operation` is the port's method name.

    `duration_s` is the time spent waiting for the store; for a stream, without the reader's time.
    `error` is None, the `kind` of our error, "cancelled", or "internal" for anything else.
    """

    operation: str
    duration_s: float
    bytes_sent: int
    bytes_received: int
    error: str | None


class StoreObserver(Protocol):
    """Receives the measurements. Called on the event loop; must not block or raise."""

    def store_call_ended(self, call: StoreCall) -> None:
        """One call ended, successfully or not."""


class MeasuredStore(StoreWrapper):
    """A store that reports each call to `observer`."""

    def __init__(
        self, store: ObjectStore, observer: StoreObserver, *, monotonic: Callable[[], float]
    ) -> None:
        super().__init__(store)
        self._observer = observer
        self._monotonic = monotonic

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        waited_s = 0.0
        received = 0
        error: str | None = None
        try:
            async with closing_stream(read(self._store, call.start)) as stream:
                while True:
                    began_at = self._monotonic()
                    try:
                        piece = await anext(stream, None)
                    finally:
                        waited_s += self._monotonic() - began_at
                    if piece is None:
                        return
                    received += len(piece)
                    yield piece
        except GeneratorExit:
            raise  # the reader stopped early: not an error
        except BaseException as raised:
            error = _kind_of(raised)
            raise
        finally:
            self._ended(call, waited_s, 0, received, error)

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:
        began_at = self._monotonic()
        error: str | None = None
        try:
            return await send(self._store)
        except BaseException as raised:
            error = _kind_of(raised)
            raise
        finally:
            duration_s = self._monotonic() - began_at
            self._ended(call, duration_s, call.body_bytes or 0, 0, error)

    def _ended(
        self, call: PortCall, duration_s: float, sent: int, received: int, error: str | None
    ) -> None:
        ended = StoreCall(call.operation, duration_s, sent, received, error)
        self._observer.store_call_ended(ended)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug(
                "%r: %s ended in %.0f ms, %d bytes sent, %d received: %s",
                self._store,
                call,
                duration_s * 1_000,
                sent,
                received,
                error or "ok",
            )


def _kind_of(error: BaseException) -> str:
    if isinstance(error, StrandlineError):
        return error.kind
    return "cancelled" if isinstance(error, asyncio.CancelledError) else "internal"
