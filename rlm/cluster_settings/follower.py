"""Acts at once when a setting of the cluster changes, by the metadata log as it is applied here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kafka_formats.errors import StrandlineError
from rlm.control.node_problem import ProblemLog
from rlm.control.surroundings import Ambient
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.rows.cluster_settings import SettingRow

logger = logging.getLogger(__name__)

LOOKING = "looking for changed settings of the cluster"
ACTING = "acting on a changed setting of the cluster"
RETRY_S = 1.0
ROUND_S = 600.0
"""The longest round: it ends then even if nothing changed, and shows that the loop lives."""


@dataclass(slots=True)
class SettingsFollower:
    """The task that follows the settings, one per node. `act` is called at each change since this
    was made, and may raise: the regular looks follow. Those that begin with the settings as they
    are then are made with it.
    """

    metadata: RemoteLogMetadataManager
    ambient: Ambient
    act: Callable[[], Awaitable[None]]
    _problem_log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))
    _known: tuple[SettingRow, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._known = self.metadata.cluster_settings()

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                async with asyncio.timeout(ROUND_S):
                    self._known = await self.metadata.other_cluster_settings(self._known)
            except TimeoutError:
                pass
            except StrandlineError as error:  # as while a snapshot replaces the view
                self._problem_log.failed(LOOKING, error)
                await self.ambient.sleep(RETRY_S)
            else:
                self._problem_log.works(LOOKING)
                await self._act()
            await self.ambient.sleep(0)

    async def _act(self) -> None:
        try:
            await self.act()
            self._problem_log.works(ACTING)
        except Exception as error:  # noqa: BLE001 - reported; the loop must continue
            self._problem_log.failed(ACTING, error)
