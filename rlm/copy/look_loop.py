"""Scans the log directories in a loop, and starts a drive for each partition found."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.copy.work_table import WorkTable

logger = logging.getLogger(__name__)

LOOKING = "looking at the log directories"
LONG_LOOK_S = 15.0


class LookLoop:
    """The scan loop, one per node. `error`: the reason why the last scan failed as a whole; None if
    it did not.
    """

    def __init__(self, table: WorkTable, around: Surroundings) -> None:
        self._table = table
        self._around = around
        self._began_s: float | None = None
        self._problem_log = ProblemLog(logger)
        self.error: str | None = None

    async def look(self) -> None:
        """Scan once. Raises the scan's error if it fails as a whole."""
        self._began_s = self._around.ambient.monotonic()
        try:
            await self._table.scan(cancel_lost=True)
        finally:
            self._began_s = None
        await self._table.drive_all(back_offs_max=1)

    async def look_at(self, partitions: Collection[TopicIdPartition]) -> None:
        """Look at some announced partitions, and drive them. Raises as the scan does, when it fails
        as a whole.
        """
        self._table.drive(await self._table.look_at(partitions), back_offs_max=1)

    async def run(self) -> None:
        """Scan for as long as the node runs."""
        while True:
            await self.look_and_tell()
            await self._around.ambient.sleep(self._around.limits.scan_interval_s)

    async def look_and_tell(self) -> None:
        """Scan once; a failure is reported as a problem. A missing directory may come back."""
        try:
            await self.look()
            self.error = None
            self._problem_log.works(LOOKING)
        except Exception as error:  # noqa: BLE001 - reported and logged
            self.error = str(error) or type(error).__name__
            self._problem_log.failed(LOOKING, error)

    def trouble(self) -> str | None:
        """The reason why the log directories may have changed unseen; None if they were read.

        A hanging disk is reported long before the scan's deadline.
        """
        if self.error is not None or self._began_s is None:
            return self.error
        if self._around.ambient.monotonic() - self._began_s < LONG_LOOK_S:
            return None
        return (
            f"a look at them has lasted for more than {LONG_LOOK_S:g} s: check whether a disk hangs"
        )

    def problems(self) -> Iterator[NodeProblem]:
        """The trouble as a problem of the node."""
        trouble = self.trouble()
        if trouble is not None:
            yield NodeProblem(ProblemArea.LOG_DIRS, None, trouble)
