"""Answers whose bytes come from a worker, chunk by chunk.

Invariant: however a stream ends, its iterator is closed, which stops the worker's read: at the end,
after an error, when the client disconnects or stops reading, at the node's shutdown.

An error after the first byte can't become a problem document. It is raised and the connection is
aborted: the client sees fewer bytes than Content-Length, or no last chunk, and never takes a part
for the whole.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.http.api_limits import ApiLimits
from kafka_formats.errors import RetryLater

HEAD_SCOPE_KEY = "strandline.head"
"""The key in the scope of a HEAD request, which runs as a GET without its body."""


class StreamSlots:
    """Counts open streams. Each occupies a job of a worker while its client reads, and slow readers
    must not keep copies out.
    """

    def __init__(self) -> None:
        self.open = 0

    async def limited(
        self, chunks: AsyncIterator[bytes], limits: ApiLimits
    ) -> AsyncIterator[bytes]:
        """The chunks of a stream, which takes a slot. RetryLater at the first chunk: all slots are
        taken.
        """
        with self.taken(limits):
            try:
                async for chunk in chunks:
                    yield chunk
            finally:
                await close_iterator(chunks, limits.close_iterator_deadline_s)

    @contextmanager
    def taken(self, limits: ApiLimits) -> Iterator[None]:
        """Take a slot. RetryLater: all slots are taken."""
        if self.open >= limits.streams_parallel_max:
            raise RetryLater(
                f"{self.open} streams are open, which is the most at once: ask again later"
            )
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


class PumpedAnswer(Response):
    """An answer whose body is sent by a task, which ends when the client disconnects."""

    def __init__(self, *, status_code: int, headers: Mapping[str, str], media_type: str) -> None:
        self.status_code = status_code
        self.media_type = media_type
        self.background = None
        self.body = b""
        self.init_headers(headers)
        if "content-length" not in headers and "Content-Length" not in headers:
            del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the end, or until the client disconnects, which cancels the read."""
        if scope.get(HEAD_SCOPE_KEY):
            await self._start(send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        pump = asyncio.create_task(self._pump(send))
        gone = asyncio.create_task(self._gone(receive))
        try:
            await asyncio.wait({pump, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not pump.done():
                pump.cancel()
            await asyncio.wait({pump, gone})
        if not pump.cancelled():
            pump.result()

    async def _gone(self, receive: Receive) -> None:
        """Return once the client has disconnected."""
        await _client_gone(receive)

    async def _start(self, send: Send) -> None:
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )

    @abstractmethod
    async def _pump(self, send: Send) -> None:
        """Send the whole answer, the start included."""


class StreamAnswer(PumpedAnswer):
    """An answer that sends `chunks`; `open_stream` makes it."""

    def __init__(
        self,
        first: bytes | None,
        chunks: AsyncIterator[bytes],
        limits: ApiLimits,
        *,
        status_code: int = 200,  # the default is what FastAPI documents
        headers: Mapping[str, str],
        media_type: str,
    ) -> None:
        """`first` was already read from `chunks`; None: there are no chunks."""
        super().__init__(status_code=status_code, headers=headers, media_type=media_type)
        self._first = first
        self._chunks = chunks
        self._limits = limits

    async def _pump(self, send: Send) -> None:
        try:
            await self._start(send)
            chunk = self._first
            self._first = None
            while chunk is not None:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                chunk = await next_chunk(self._chunks, self._limits.chunk_deadline_s)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await close_iterator(self._chunks, self._limits.close_iterator_deadline_s)


async def open_stream(
    scope: Scope,
    chunks: AsyncIterator[bytes],
    limits: ApiLimits,
    *,
    media_type: str,
    status_code: int = 200,
    headers: Mapping[str, str] | None = None,
) -> StreamAnswer:
    """Read the first chunk before answering, so that an early error still gets its own status."""
    first: bytes | None = None
    if scope.get(HEAD_SCOPE_KEY):
        await close_iterator(chunks, limits.close_iterator_deadline_s)
    else:
        try:
            first = await next_chunk(chunks, limits.chunk_deadline_s)
        except BaseException:
            await close_iterator(chunks, limits.close_iterator_deadline_s)
            raise
    return StreamAnswer(
        first,
        chunks,
        limits,
        status_code=status_code,
        headers=headers or {},
        media_type=media_type,
    )


async def close_iterator(chunks: AsyncIterator[bytes], deadline_s: float) -> None:
    """Stop a read. Generators have `aclose`; an iterator without it has nothing to stop."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        with contextlib.suppress(TimeoutError):  # the worker's own deadline ends the read then
            async with asyncio.timeout(deadline_s):
                await close()


async def next_chunk(chunks: AsyncIterator[bytes], deadline_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(deadline_s):
            return await anext(chunks, None)
    except TimeoutError:
        raise RetryLater(
            f"the store sent no bytes within {deadline_s:g} s: try again, and check the store if "
            "it persists"
        ) from None


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
