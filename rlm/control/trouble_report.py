"""All that is wrong with a node, gathered from its parts: for its status, and for its log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from rlm.control.node_problem import NodeProblem, StandingProblems, by_key
from rlm.control.surroundings import Surroundings
from rlm.local_log.log_dir import LogDirProblem

logger = logging.getLogger(__name__)

Source = Callable[[], Iterable[NodeProblem]]


class TroubleReport:
    """Asks each source anew. Of two that speak of the same thing the first is believed."""

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
        """What is wrong now; empty when nothing is."""
        found: dict[tuple[str, str | None], NodeProblem] = {}
        for source in self._sources:
            for problem in source():
                found.setdefault((problem.area.value, problem.name), problem)
        return tuple(found.values())

    async def run(self) -> None:
        """Tell the log, for as long as the node runs."""
        while True:
            try:
                self.tell()
            except Exception:
                logger.exception("what is wrong with the node could not be gathered")
            await self._around.ambient.sleep(self._around.limits.scan_interval_s)

    def tell(self) -> None:
        """One line for what is new, for what stands for long, and for what is over."""
        # Those of one partition stand in its status.
        of_directories = (each for each in self._log_dir_problems() if each.topic is None)
        self._standing.tell(
            by_key(self.problems())
            | {f"problem at {each.path}": each.message for each in of_directories}
        )
