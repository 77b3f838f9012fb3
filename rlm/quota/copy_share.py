"""How a worker's copies and reads share it while reads queue behind copies. Pure: no clock, no I/O.

A read queues when its bytes wait for the supervisor to take them, which it does at once whatever
the clients do: so they wait for a core, and copies take cores. A reader that waits for a far store,
or for a slow client, is none: holding copies back would not help it. While reads queue, copies go
by a deficit, as in deficit round robin: a byte sent is a byte of debt, bytes read and time pay it
off, and the next part is sent once nothing is owed.
"""

from __future__ import annotations

import math

COPIED_PER_READ = 0.4
"""Bytes copied for each byte read: a byte costs more to verify and store than to read."""

COPY_BYTES_PER_S_MIN = 32 * 1024 * 1024
"""What copies get in any case, however slow the reads are."""

DEBT_BYTES_MAX = 64 * 1024 * 1024
"""What one large part may cost those behind it."""

QUEUEING_SHARE = 0.25
"""Reads queue if one did for this share of the time, of late."""

LATE_S = 0.1
"""How long ago "of late" is: the time constant of an exponential mean."""


class CopyShare:
    """Of one worker. All times are monotonic seconds and never go back."""

    def __init__(self, now_s: float) -> None:
        self._now_s = now_s
        self._waiting = 0
        self._queued = 0.0
        self._debt_bytes = 0.0

    @property
    def queueing(self) -> bool:
        """Whether reads queue, so that copies are held to their share."""
        return self._queued >= QUEUEING_SHARE

    def read_waits(self, now_s: float) -> None:
        """Bytes of a read wait to be taken; `read_goes_on` ends it."""
        self._pass(now_s)
        self._waiting += 1

    def read_goes_on(self, size: int, now_s: float) -> None:
        """`size` bytes were taken, 0 if the read was given up."""
        self._pass(now_s)
        self._waiting -= 1
        self._pay(size * COPIED_PER_READ)

    def wait_s(self, now_s: float) -> float:
        """0: the next part may be sent. Else when to ask again, or sooner, after a read."""
        self._pass(now_s)
        return self._debt_bytes / COPY_BYTES_PER_S_MIN

    def sent(self, size: int, now_s: float) -> None:
        """A part of so many bytes begins to be sent, whether it might or not."""
        self._pass(now_s)
        if self.queueing:
            self._debt_bytes = min(self._debt_bytes + size, DEBT_BYTES_MAX)

    def _pass(self, now_s: float) -> None:
        passed_s = now_s - self._now_s
        self._now_s = now_s
        now = 1.0 if self._waiting else 0.0
        self._queued = now + (self._queued - now) * math.exp(-passed_s / LATE_S)
        if self.queueing:
            self._pay(passed_s * COPY_BYTES_PER_S_MIN)
        else:
            self._debt_bytes = 0.0

    def _pay(self, size: float) -> None:
        self._debt_bytes = max(0.0, self._debt_bytes - size)
