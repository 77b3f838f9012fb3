"""A worker's side of the node's limits: it asks the supervisor before limited bytes move."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from rlm.quota.flow_limits import Flow, Pace, Paces

AskForBytes = Callable[[Flow, str | None, int], Awaitable[None]]
"""Takes direction, topic (None: no topic) and size; returns when these bytes may move."""


class WorkerPace:
    """The limits in a worker. Without limits it sends no request to the supervisor."""

    def __init__(self, paces: Paces, ask: AskForBytes) -> None:
        self._paces = paces
        self._ask = ask
        self._lanes: dict[str | None, _Lane] = {}

    def change(self, paces: Paces) -> None:
        """Change the limits, also for callers that wait for a lane."""
        self._paces = paces
        for topic, lane in tuple(self._lanes.items()):
            pace = paces.node.get(Flow.COPY) if topic is None else paces.topics.get(
                (Flow.COPY, topic)
            )  # fmt: skip
            lane.change(None if pace is None else pace.sends_max)
            if pace is None:
                del self._lanes[topic]

    def piece_bytes(self, flow: Flow, topic: str | None) -> int | None:
        """The bytes to ask for at once; None if they are not limited."""
        return min((pace.quantum_bytes for _, pace in self._of(flow, topic)), default=None)

    async def take(self, flow: Flow, topic: str | None, size: int) -> None:
        """Return when `size` bytes may move."""
        left = size
        while left > 0:
            piece_bytes = self.piece_bytes(flow, topic)
            if piece_bytes is None:
                return
            asked = min(left, piece_bytes)
            await self._ask(flow, topic, asked)
            left -= asked

    @asynccontextmanager
    async def sending(self, topic: str | None) -> AsyncIterator[None]:
        """Wrap a request with a body: only as many run at once as the limit can feed in time."""
        async with AsyncExitStack() as lanes:
            for name, pace in self._of(Flow.COPY, topic):
                lane = self._lanes.setdefault(name, _Lane(pace.sends_max))
                await lane.enter()
                lanes.callback(lane.leave)
            yield

    def _of(self, flow: Flow, topic: str | None) -> list[tuple[str | None, Pace]]:
        """The limits on a topic's bytes: its own, then the node's."""
        found: list[tuple[str | None, Pace]] = []
        if topic is not None and (pace := self._paces.topics.get((flow, topic))) is not None:
            found.append((topic, pace))
        if (pace := self._paces.node.get(flow)) is not None:
            found.append((None, pace))
        return found


class _Lane:
    """A semaphore whose width may change; None: unlimited. Entered in the order of the calls."""

    def __init__(self, width: int | None) -> None:
        self._width = width
        self._inside = 0
        self._line = asyncio.Lock()
        self._changed = asyncio.Event()

    def change(self, width: int | None) -> None:
        self._width = width
        self._changed.set()

    async def enter(self) -> None:
        async with self._line:
            while self._width is not None and self._inside >= self._width:
                self._changed.clear()
                await self._changed.wait()
            self._inside += 1

    def leave(self) -> None:
        self._inside -= 1
        self._changed.set()


class GrantBook:
    """The requests to the supervisor that are not answered yet."""

    def __init__(
        self,
        send: Callable[[int, Flow, str | None, int], None],
        take_back: Callable[[int], None],
    ) -> None:
        """`send` sends a request, by its number, to the supervisor; `take_back` withdraws it."""
        self._send = send
        self._take_back = take_back
        self._last = 0
        self._open: dict[int, asyncio.Future[None]] = {}

    async def ask(self, flow: Flow, topic: str | None, size: int) -> None:
        """Ask, and wait for the answer. A cancelled caller withdraws its request, so that later
        ones do not wait for bytes that will not move.
        """
        self._last += 1
        number = self._last
        self._open[number] = asyncio.get_running_loop().create_future()
        try:
            self._send(number, flow, topic, size)
            await self._open[number]
        except asyncio.CancelledError:
            self._take_back(number)
            raise
        finally:
            del self._open[number]

    def answered(self, number: int) -> None:
        """Take the supervisor's answer; its caller may be gone."""
        waiting = self._open.get(number)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)
