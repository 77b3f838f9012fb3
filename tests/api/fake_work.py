"""The work under way of a remote log, and its problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rlm.control.node_problem import NodeProblem
from rlm.copy.partition_status import CopyUnderWay, PartitionStatus
from rlm.delete.clean_up_tasks import PendingCleanUp
from rlm.local_log.log_dir import LogDirProblem


@dataclass
class FakeWork:
    """Copies of the `known` partitions, `removals`, and `troubles` of the node."""

    known: list[PartitionStatus] = field(default_factory=list)
    removals: list[PendingCleanUp] = field(default_factory=list)
    troubles: list[NodeProblem] = field(default_factory=list)

    def copies_under_way(self) -> tuple[CopyUnderWay, ...]:
        return tuple(each.copying for each in self.known if each.copying is not None)

    def removals_under_way(self) -> tuple[PendingCleanUp, ...]:
        return tuple(self.removals)

    def problems(self) -> Sequence[LogDirProblem]:
        return ()

    def node_problems(self) -> Sequence[NodeProblem]:
        return self.troubles
