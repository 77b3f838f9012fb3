"""The hold of deletes after the clocks of node and store were set ahead together. Pure.

A store on the node's machine, or one that follows the same wrong time server, agrees with the node
before and after such a change: only the monotonic clock shows that less time has passed. What is
deleted by a wrong time cannot be recovered, so deletes wait for as long as the clock was set ahead:
an error of a minute, which would delete records a minute early, leaves a minute to correct it. The
wait has a bound, since a machine that was suspended looks the same, and so does a node that was
down.
"""

from __future__ import annotations

RESTART_MS_MAX = 600_000
"""The longest time that a node may be down without a hold: enough for an upgrade or a reboot."""


class ClockHold:
    """The state of the hold. `remembered_ms`: the trusted time when an earlier process last stored
    it; None if none did.

    "Apart" is wall clock minus monotonic clock: it changes only when the wall clock is set.
    """

    def __init__(self, difference_max_ms: int, hold_max_ms: int, remembered_ms: int | None) -> None:
        self._difference_max_ms = difference_max_ms
        self._hold_max_ms = hold_max_ms
        self._remembered_ms = remembered_ms
        self._trusted_ms: int | None = None
        self._restart_ms = 0
        """The time that the restart is assumed to have taken."""
        self._ahead: tuple[int, int] | None = None
        """The difference that is not trusted yet, and the monotonic time since when."""

    def agreed(self, apart_ms: int, monotonic_ms: int) -> None:
        """Record that the clocks of node and store agree. `apart_ms`: wall clock minus monotonic
        clock.
        """
        if self._trusted_ms is None:
            self._trusted_ms = self._at_start(apart_ms, monotonic_ms)
        if apart_ms - self._trusted_ms <= self._difference_max_ms:
            # Never raised: several small clock changes would add up to a large one.
            self._trust(min(self._trusted_ms, apart_ms))
        elif self._ahead is None or apart_ms - self._ahead[0] > self._difference_max_ms:
            self._ahead = apart_ms, monotonic_ms
        else:
            self._ahead = min(apart_ms, self._ahead[0]), self._ahead[1]
        if self._ahead is not None and self._left_ms(self._ahead, monotonic_ms) <= 0:
            self._trust(self._ahead[0])

    def _trust(self, apart_ms: int) -> None:
        self._trusted_ms, self._ahead, self._restart_ms = apart_ms, None, 0

    def trusted_ms(self, monotonic_ms: int) -> int | None:
        """The time by the clock as it was before it was set ahead; None before the first agreement.
        The next process starts from it, so restarts, however many, add nothing to it.
        """
        if self._trusted_ms is None:
            return None
        return self._trusted_ms - self._restart_ms + monotonic_ms

    def text(self, monotonic_ms: int) -> str | None:
        """The reason why nothing is deleted now; None if deletes may go on."""
        ahead = self._ahead
        left_ms = 0 if ahead is None else self._left_ms(ahead, monotonic_ms)
        if ahead is None or left_ms <= 0:
            return None
        return (
            f"this node's clock, and the store's with it, is {self._by_ms(ahead) / 1000:.0f} s "
            "ahead of the time that passed on this node: both clocks were set, or the machine was "
            "suspended, or the node was down. If the time is wrong, correct it, which ends this at "
            f"once; else deletes go on in {left_ms / 1000:.0f} s (`retention.clock_hold_s` at most)"
        )

    def _at_start(self, apart_ms: int, monotonic_ms: int) -> int:
        if self._remembered_ms is None:
            return apart_ms
        remembered_ms = self._remembered_ms - monotonic_ms
        if apart_ms - remembered_ms > RESTART_MS_MAX:
            self._restart_ms = RESTART_MS_MAX
        return min(apart_ms, remembered_ms + RESTART_MS_MAX)

    def _by_ms(self, ahead: tuple[int, int]) -> int:
        assert self._trusted_ms is not None, "a difference is ahead only of a trusted one"
        return ahead[0] - self._trusted_ms

    def _left_ms(self, ahead: tuple[int, int], monotonic_ms: int) -> int:
        return ahead[1] + min(self._by_ms(ahead), self._hold_max_ms) - monotonic_ms
