"""Acts at once when a setting of the cluster changes, by the metadata log as it is applied here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rlm.control.node_problem import ProblemLog
from rlm.control.surroundings import Ambient
from rlmm.manager.manager import RemoteLogMetadataManager

logger = logging.getLogger(__name__)

ACTING = "acting on a changed setting of the cluster"
ROUND_S = 600.0
"""A round ends then even if nothing changed, and shows that the loop lives."""


@dataclass(slots=True)
class SettingsFollower:
    """One per node. `act` is called at each change, and may raise: the regular looks follow."""

    metadata: RemoteLogMetadataManager
    ambient: Ambient
    act: Callable[[], Awaitable[None]]
    _problem_log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))

    async def run(self) -> None:
        """Follow until cancelled."""
        known = self.metadata.cluster_settings()
        while True:
            try:
                async with asyncio.timeout(ROUND_S):
                    known = await self.metadata.other_cluster_settings(known)
            except TimeoutError:
                pass
            else:
                await self._act()
            await self.ambient.sleep(0)

    async def _act(self) -> None:
        try:
            await self.act()
            self._problem_log.works(ACTING)
        except Exception as error:  # noqa: BLE001 - told, and the loop has to live on
            self._problem_log.failed(ACTING, error)
