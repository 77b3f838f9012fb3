"""World time in milliseconds, a schedule of callbacks, and clocks of hosts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass


class Schedule:
    """Callbacks in order of time; equal times in order of arrival."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now_ms + max(delay_ms, 0), self._count, call))

    def run_next(self) -> bool:
        """Run the next callback; False if there is none."""
        if not self._heap:
            return False
        self.now_ms, _, call = heapq.heappop(self._heap)
        call()
        return True


@dataclass(slots=True)
class HostClock:
    """A monotonic clock that may jump ahead and runs at `rate_permille` of world time."""

    offset_ms: int = 0
    rate_permille: int = 1000

    def at(self, world_ms: int) -> int:
        return self.offset_ms + world_ms * self.rate_permille // 1000

    def world_delay(self, deadline_ms: int, world_ms: int) -> int:
        """World milliseconds until this clock shows `deadline_ms`."""
        left = deadline_ms - self.at(world_ms)
        return max(0, -(-left * 1000 // self.rate_permille))

    def set_rate(self, rate_permille: int, world_ms: int) -> None:
        """Change the speed without turning the clock back."""
        shown = self.at(world_ms)
        self.rate_permille = rate_permille
        self.offset_ms = shown - world_ms * rate_permille // 1000
