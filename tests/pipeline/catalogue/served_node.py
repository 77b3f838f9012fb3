"""The HTTP interface of a small node, served on a free port by a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from api.server import serve
from tests.api.fakes import FakeNode

DEADLINE_S = 30


@contextmanager
def served(node: FakeNode) -> Iterator[str]:
    """Its address."""
    ready = threading.Event()
    urls: list[str] = []
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        server = await serve(node.app(), "127.0.0.1", 0)
        asked = asyncio.Event()
        urls.append(f"http://127.0.0.1:{server.port}")
        stop.append((asyncio.get_running_loop(), asked))
        ready.set()
        await asked.wait()
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    try:
        assert ready.wait(DEADLINE_S)
        yield urls[0]
    finally:
        for loop, asked in stop:
            loop.call_soon_threadsafe(asked.set)
        thread.join(DEADLINE_S)
