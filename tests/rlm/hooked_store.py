"""The store as one life of a node reaches it: a hook before and after every call, and no effect
any more once the process is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from kafka_formats.errors import StrandlineError
from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, Read, Send, StoreWrapper

Hook = Callable[[str], Awaitable[None]]
OnLate = Callable[[str, Callable[[], Awaitable[object]]], None]
"""The name of a request, and the request."""

_Answer = TypeVar("_Answer")


async def no_hook(_: str) -> None:
    """Nothing happens at any step."""


def failing(step: str, error: Callable[[], StrandlineError], times: int = 1) -> Hook:
    """Raises at the first `times` passages of a step."""
    left = times

    async def hook(name: str) -> None:
        nonlocal left
        if name == step and left > 0:
            left -= 1
            raise error()

    return hook


STEPS = {
    "list_page": "list",
    "list_folders": "list folders",
    "start_multipart": "start {kind}",
    "put_part": "put part of {kind}",
    "complete_multipart": "complete {kind}",
    "abort_multipart": "abort {kind}",
    "list_uploads": "list uploads of {kind}",
    "uploads_below": "list uploads",
    "versions": "versions of {kind}",
}


class HookedStore(StoreWrapper):
    """Steps are named for the call and the kind of object: `before put .indexes`."""

    def __init__(self, store: ObjectStore, hook: Hook) -> None:
        super().__init__(store)
        self._hook = hook
        self._dead = False
        self._on_late: OnLate | None = None

    def die(self, on_late: OnLate | None) -> None:
        """The process is gone; requests that wait at a hook were on their way: `on_late`'s now."""
        self._dead, self._on_late = True, on_late

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        self._check_alive()
        await self._hook(f"before {_name(call)}")
        self._check_alive()
        async for piece in read(self._store, call.start):
            yield piece

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:
        self._check_alive()
        name = _name(call)
        try:
            await self._hook(f"before {name}")
        except asyncio.CancelledError:
            if self._on_late is not None:
                self._on_late(name, lambda: send(self._store))
            raise
        self._check_alive()
        answer = await send(self._store)
        await self._hook(f"after {name}")
        return answer

    def _check_alive(self) -> None:
        """A process that is gone sends nothing, not even while it is being taken down."""
        if self._dead:
            raise asyncio.CancelledError


def _name(call: PortCall) -> str:
    kind = _kind(call.key)
    if call.operation == "delete_many":
        return f"delete {'probe' if kind == 'probe' else 'objects'}"
    return STEPS.get(call.operation, call.operation + " {kind}").format(kind=kind)


def _kind(key: str) -> str:
    name = key.rpartition("/")[2]
    if name.startswith("clock-probe"):
        return "probe"
    if name == "cluster.json":
        return "marker"
    return name[name.find(".") :] if "." in name else name
