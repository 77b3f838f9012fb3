"""The difference between this node's clock and a store's, measured by writing a probe object.

A log start recorded or a deletion made by a wrong clock cannot be taken back, so both wait while
the clocks differ by more than a bound, or while the difference is unknown. Between comparisons the
monotonic clock shows if the wall clock was set. If the store's clock was set together with it, only
deletes wait (`clock_hold`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import StrandlineError
from rlm.control.surroundings import Surroundings
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.clock_hold import ClockHold
from rlm.stores.tier_store import TierStore

NOT_CHECKED = "the clocks of this node and the store have not been compared yet"

STORE_RESOLUTION_MS = 1_000
"""The resolution of a store's clock: S3 keeps whole seconds."""

_PROBE = b"strandline clock probe\n"

REMEMBER_INTERVAL_S = 60.0


class ClockMemory(Protocol):
    """Keeps the trusted time over a restart. `remembered_ms` None: no time was stored before."""

    @property
    def remembered_ms(self) -> int | None: ...

    async def remember(self, trusted_ms: int) -> None: ...


class ClockCheck:
    """Compares this node's clock with the store's at intervals, and watches it in between."""

    def __init__(
        self,
        tier: TierStore,
        around: Surroundings,
        confirm_prefix: Callable[[TierStore], Awaitable[None]],
        memory: ClockMemory,
    ) -> None:
        """`confirm_prefix` raises unless the prefix belongs to this cluster: no probe is written
        to a different cluster's prefix.
        """
        self._confirm_prefix = confirm_prefix
        self._tier = tier
        self._around = around
        self._memory = memory
        self._remembered_at: float | None = None
        self._difference_max_ms = round(around.limits.clock_difference_max_s * 1000)
        hold_max_ms = round(around.limits.clock_hold_s * 1000)
        self._hold = ClockHold(self._difference_max_ms, hold_max_ms, memory.remembered_ms)
        self._found: str | None = NOT_CHECKED
        self._compared_at: float | None = None
        self._apart_ms = 0

    def trouble(self) -> str | None:
        """The reason why this clock may not be used for decisions now; None if it may."""
        if self._found is not None:
            return self._found
        set_ms = self._wall_apart_ms() - self._apart_ms
        if abs(set_ms) <= self._difference_max_ms:
            return None
        return (
            f"this node's clock was set by {set_ms / 1000:.0f} s since it was compared with that "
            f"of the store {self._tier.name!r}; they are compared again soon"
        )

    def set_ahead(self) -> str | None:
        """The reason why deletes wait now although the clocks agree; None if they may go on."""
        return self._hold.text(self._monotonic_ms())

    def is_unknown(self, why: str) -> None:
        """Record the reason why the clocks could not be compared."""
        self._found = why

    async def compare_if_due(self) -> bool:
        """Compare the clocks if that is due. True if they were compared, but not for the first
        time.
        """
        now, last = self._around.ambient.monotonic(), self._compared_at
        interval_s = self._around.limits.clock_check_interval_s
        if self.trouble() is None and last is not None and now - last < interval_s:
            return False
        self._compared_at = now
        apart_ms = self._wall_apart_ms()
        found = await self._compare()
        # Taken before the comparison: a clock set during it counts as set since.
        self._apart_ms = apart_ms
        if found is None:
            self._hold.agreed(apart_ms, self._monotonic_ms())
        self._found = found
        return last is not None

    async def remember(self) -> None:
        """Store the trusted time for the next process, at intervals. RetryLater: not stored."""
        now, last = self._around.ambient.monotonic(), self._remembered_at
        trusted_ms = self._hold.trusted_ms(self._monotonic_ms())
        due = last is None or now - last >= REMEMBER_INTERVAL_S
        if trusted_ms is not None and due:
            self._remembered_at = now
            await self._memory.remember(trusted_ms)

    async def _compare(self) -> str | None:
        try:
            await self._confirm_prefix(self._tier)
        except StrandlineError as error:
            return f"the clock of the store {self._tier.name!r} is not known: {error}"
        return await clock_trouble(
            self._tier,
            self._around.identity.incarnation.node_id,
            self._around.ambient.now_ms,
            self._difference_max_ms,
            deadline_s=self._around.limits.store_deadline_s,
        )

    def _wall_apart_ms(self) -> int:
        """Wall clock minus monotonic clock: it changes only when the wall clock is set."""
        return self._around.ambient.now_ms() - self._monotonic_ms()

    def _monotonic_ms(self) -> int:
        return round(self._around.ambient.monotonic() * 1000)


async def clock_trouble(
    tier: TierStore,
    node_id: int,
    now_ms: Callable[[], int],
    difference_max_ms: int,
    *,
    deadline_s: float,
) -> str | None:
    """A sentence if the clocks differ by more than the bound or cannot be compared, else None.

    `difference_max_ms` is the bound; `deadline_s` limits writing, reading and deleting the probe.
    """
    key = f"{cluster_marker_key(tier.prefix).rpartition('/')[0]}/clock-probe-{node_id}"
    try:
        async with asyncio.timeout(deadline_s):
            before_ms = now_ms()
            await tier.store.put(key, _PROBE, crc32c=crc32c(_PROBE))
            after_ms = now_ms()
            info = await tier.store.head(key)
            await tier.store.delete_many([key])
    except TimeoutError:
        return f"the clock of the store {tier.name!r} is not known: no answer in {deadline_s:g} s"
    except StrandlineError as error:
        return f"the clock of the store {tier.name!r} is not known: {error}"
    return compare_clocks(tier.name, before_ms, after_ms, info.last_modified_ms, difference_max_ms)


def compare_clocks(
    name: str, before_ms: int, after_ms: int, store_ms: int | None, difference_max_ms: int
) -> str | None:
    """Compare the store's time with [before, after]; None if it lies within that, give or take the
    bound, else a sentence.
    """
    if store_ms is None:
        return f"the store {name!r} does not report when an object was written"
    early_ms = before_ms - (store_ms + STORE_RESOLUTION_MS)
    late_ms = store_ms - after_ms
    difference_ms = max(early_ms, late_ms, 0)
    if difference_ms <= difference_max_ms:
        return None
    return (
        f"this node's clock and that of the store {name!r} differ by {difference_ms / 1000:.0f} s "
        f"(at most {difference_max_ms / 1000:.0f} s are allowed): set the node's clock (NTP)"
    )
