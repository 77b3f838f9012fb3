"""Applies the node's limits. Only the supervisor has the buckets; its workers ask it for each
quantum of bytes before they move it. So the sum over all workers keeps to the limits at any moment,
and a change applies at once. Without a limit no worker asks.

Requests are served in the order in which they came, in small quanta, so that parallel streams share
a limit evenly. Bytes pass their topic's limit before the node's, so that a slow topic does not
delay other topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rlm.quota.byte_rate import ByteRate
from rlm.quota.flow_limits import Flow, FlowLimits, Paces, least_rate, paces

OnPaces = Callable[[Paces], None]


class FlowControl:
    """The node's limits and their buckets, one per node; belongs to its event loop."""

    def __init__(
        self, limits: FlowLimits, *, part_bytes: int, workers: int, monotonic: Callable[[], float]
    ) -> None:
        """Raise InvalidRequest for limits that cannot be kept."""
        self._part_bytes = part_bytes
        self._workers = workers
        self._monotonic = monotonic
        self.own = self.limits = FlowLimits()
        self._over: Callable[[FlowLimits], FlowLimits] = lambda own: own
        self._node = {flow: _Valve(monotonic) for flow in Flow}
        self._topics: dict[tuple[Flow, str], _Valve] = {}
        self._listeners: list[OnPaces] = []
        self._waited_s = dict.fromkeys(Flow, 0.0)
        self._waiting = dict.fromkeys(Flow, 0)
        self.revision = -1
        self.change(limits)

    def change(self, limits: FlowLimits) -> None:
        """Change the node's own limits, also for callers already waiting. InvalidRequest: the
        limits are unchanged.
        """
        self.check(limits)
        self.own = limits
        self._change(self.kept(self._over(self.own)))

    def check(self, limits: FlowLimits) -> None:
        """Raise InvalidRequest for a limit that this node could not keep."""
        limits.check(part_bytes=self._part_bytes, workers=self._workers)

    def hold_over(self, over: Callable[[FlowLimits], FlowLimits]) -> None:
        """Compute the limits in force from the node's own by `over` from now on. A limit that is
        too low is raised to the lowest that can be kept. Called once the metadata is open: the
        workers start before that.
        """
        self._over = over
        self.refresh()

    def refresh(self) -> None:
        """Apply the limits that `over` returns now."""
        limits = self.kept(self._over(self.own))
        if limits != self.limits:
            self._change(limits)

    def kept(self, limits: FlowLimits) -> FlowLimits:
        """`limits` as this node applies them: a limit that is too low is raised."""
        return limits.kept(part_bytes=self._part_bytes, workers=self._workers)

    def _change(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.revision += 1  # changes since the start; a change may name the one that it replaces
        for flow, valve in self._node.items():
            valve.change(limits.node.of(flow))
        wanted = {(flow, topic): rates.of(flow) for topic, rates in limits.topics.items()
                  for flow in Flow}  # fmt: skip
        for key in self._topics.keys() - wanted.keys():
            self._topics.pop(key).change(None)  # callers that wait for it go on
        for key, rate in wanted.items():
            if rate is not None and key not in self._topics:
                self._topics[key] = _Valve(self._monotonic)
            if key in self._topics:
                self._topics[key].change(rate)
        for tell in self._listeners:
            tell(self.paces())

    def paces(self) -> Paces:
        return paces(self.limits, part_bytes=self._part_bytes, workers=self._workers)

    def tell(self, listener: OnPaces) -> None:
        """Call `listener` at every change."""
        self._listeners.append(listener)

    async def take(self, flow: Flow, topic: str | None, size: int) -> None:
        """Return when `size` bytes may move. The caller's deadline bounds the wait."""
        began_s = self._monotonic()
        self._waiting[flow] += 1
        try:
            if topic is not None and (flow, topic) in self._topics:
                await self._topics[flow, topic].take(size)
            await self._node[flow].take(size)
        finally:
            self._waiting[flow] -= 1
            self._waited_s[flow] += self._monotonic() - began_s

    def waited_s(self, flow: Flow) -> float:
        """Seconds that callers have waited so far, in total (Kafka's throttle time)."""
        return self._waited_s[flow]

    def waiting(self, flow: Flow) -> int:
        """The number of callers waiting now."""
        return self._waiting[flow]

    def slack_s(self, flow: Flow, topic: str, size_bytes: int) -> float:
        """Seconds that the limits may add to moving `size_bytes`; 0 without a limit."""
        rate = least_rate(self.limits, flow, topic)
        return 0.0 if rate is None else size_bytes / rate


class _Valve:
    """One bucket, and the queue before it."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._rate: ByteRate | None = None
        self._line = asyncio.Lock()  # acquired in the order of the calls
        self._changed = asyncio.Event()

    def change(self, bytes_per_s: int | None) -> None:
        now_s = self._monotonic()
        if bytes_per_s is None:
            self._rate = None
        elif self._rate is None:
            self._rate = ByteRate(bytes_per_s, now_s)
        else:
            self._rate.change(bytes_per_s, now_s)
        self._changed.set()

    async def take(self, size: int) -> None:
        async with self._line:
            while self._rate is not None:
                wait_s = self._rate.wait_s(size, self._monotonic())
                if wait_s == 0:
                    self._rate.take(size, self._monotonic())
                    return
                self._changed.clear()
                try:
                    async with asyncio.timeout(wait_s):
                        await self._changed.wait()
                except TimeoutError:
                    continue
