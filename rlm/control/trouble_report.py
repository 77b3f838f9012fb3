"""Gathers all problems of a node from its parts, for its status and its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from rlm.control.node_problem import NodeProblem, StandingProblems, by_key
from rlm.control.surroundings import Surroundings
from rlm.local_log.log_dir import LogDirProblem

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[NodeProblem]]


class TroubleReport:
    """Asks each source again. Of two problems with one subject the first is believed."""

    def __init__(
        self,
        around: Surroundings,
        sources: Sequence[Source],
        log_dir_problems: Callable[[], Iterable[LogDirProblem]],
    ) -> None:
        self._around = around
        self._sources = sources
        self._log_dir_problems = log_dir_problems
        self._standing = StandingProblems(logger, around.ambient.monotonic)

    def problems(self) -> tuple[NodeProblem, ...]:
        """All present problems."""
        found: dict[tuple[str, str | None], NodeProblem] = {}
        for source in self._sources:
            for problem in source():
                found.setdefault((problem.area.value, problem.name), problem)
        return tuple(found.values())

    async def run(self) -> None:
        """Log the problems, for as long as the node runs."""
        while True:
            try:
                self.tell()
            except Exception:
                logger.exception("the node's problems could not be gathered; it is tried again")
            await self._around.ambient.sleep(self._around.limits.scan_interval_s)

    def tell(self) -> None:
        """Log new problems, long standing ones, and ends."""
        # Problems of one partition are in its status.
        of_directories = (each for each in self._log_dir_problems() if each.topic is None)
        self._standing.tell(
            by_key(self.problems())
            | {f"problem at {each.path}": each.message for each in of_directories}
        )
