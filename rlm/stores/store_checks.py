"""Compares this node's clock with the store's, and then reads the cluster markers again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from rlm.control.node_problem import ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.stores.clock_check import ClockCheck
from rlm.stores.marker_claims import StoreClaims

logger = logging.getLogger(__name__)

COMPARING_CLOCKS = "comparing the clocks"
REMEMBERING = "keeping the time for the next start"


@dataclass(frozen=True, slots=True)
class StoreChecks:
    """The checks of a node's stores, one per node."""

    claims: StoreClaims
    clock: ClockCheck
    around: Surroundings
    _log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))

    async def start(self, *, may_be_away: bool = False) -> None:
        """Claim the stores as `StoreClaims.start`, then compare the clocks."""
        await self.claims.start(may_be_away=may_be_away)
        await self._check()

    async def run(self) -> None:
        """Check the stores, apart from the scans: a store that does not answer must not delay
        them.
        """
        while True:
            await self.around.ambient.sleep(self.around.limits.scan_interval_s)
            try:
                await self._check()
                self._log.works(COMPARING_CLOCKS)
            except Exception as error:  # noqa: BLE001 - reported and logged below
                self.clock.is_unknown(f"the clocks could not be compared: {error}")
                self._log.failed(COMPARING_CLOCKS, error)
            await self._remember()

    async def _check(self) -> None:
        # At the first comparison the markers were read a moment ago.
        if await self.clock.compare_if_due():
            await self.claims.look_again()

    async def _remember(self) -> None:
        """Store the time. A failure is only logged: it makes the next hold longer, not shorter."""
        try:
            await self.clock.remember()
            self._log.works(REMEMBERING)
        except Exception as error:  # noqa: BLE001 - logged
            self._log.failed(REMEMBERING, error)
