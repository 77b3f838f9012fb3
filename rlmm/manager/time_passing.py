"""The task that measures the passing time for the log (`rlmm/apply/purge.py`).

Every node measures, by its monotonic clock, the time since it applied the last TimePassed. The
quorum's leader proposes the record, but only while something waits for time: marked partitions,
tombstones. An idle cluster writes no records.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kafka_formats.errors import StrandlineError
from rlmm.apply.purge import TIME_STEP_MS_MAX
from rlmm.records.control_records import TimePassed
from rlmm.rows.reads import read_measured_time
from rlmm.rows.rows import RowReader

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 60.0


class TimePassing:
    """The task that measures time, one per node. `leads` is true while it leads the quorum."""

    def __init__(
        self,
        rows: RowReader,
        monotonic: Callable[[], float],
        leads: Callable[[], bool],
        propose: Callable[[TimePassed], Awaitable[int]],
    ) -> None:
        self._rows = rows
        self._monotonic = monotonic
        self._leads = leads
        self._propose = propose
        self._since: tuple[int, float] | None = None

    async def run(self) -> None:
        """Run as long as the node; after a failure the next round tries again."""
        while True:
            try:
                await self.look()
            except StrandlineError as error:
                log.info("the time that passed is not recorded yet: %s", error)
            await pause(LOOK_INTERVAL_S)

    async def look(self) -> None:
        """Begin to measure from the last record on, or record the measured time."""
        now_s = self._monotonic()
        measured_ms, offset, until_ms = read_measured_time(self._rows)
        if self._since is None or self._since[0] != offset:
            self._since = (offset, now_s)
            return
        passed_ms = int((now_s - self._since[1]) * 1000)
        if passed_ms < TIME_STEP_MS_MAX or measured_ms >= until_ms or not self._leads():
            return
        await self._propose(TimePassed(offset, passed_ms))


async def pause(seconds: float) -> None:
    """Sleep for this long on the running event loop."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.Event().wait()
