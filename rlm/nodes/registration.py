"""Registers this process's node id in the metadata log before its first claim, records when the
process ends, and stops it if a different living process has the id. `rlmm/apply/nodes.py` has the
rules.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from kafka_formats.errors import Fenced, StrandlineError
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.records.control_records import NodeContested, NodeRegistration, NodeStopped
from rlmm.rows.feature_level import REJOINING_LEVEL
from rlmm.rows.nodes import Liveness, RegisteredNode
from rlmm.segment import Incarnation

logger = logging.getLogger(__name__)

REGISTERING = "registering this node"
AGAIN_S = 5.0
"""The pause before a registration is tried again: an election at the node's start makes it fail,
and the other nodes do not know this node before it succeeds, however rare the scans are.
"""
LONG_S = 30.0
"""The time after which a failing registration is a problem of the node."""
SAY_STOPPED_S = 1.0
"""The longest time that a node which ends waits for a quorum that may be gone too."""


@dataclass(slots=True)
class NodeRegistrar:
    """Registers this node, one per node. `on_shut_out` is called once, with the reason, if this
    process has to stop.
    """

    metadata: RemoteLogMetadataManager
    around: Surroundings
    on_shut_out: Callable[[str], None]
    _registered: bool = False
    _shut_out: bool = False
    _left_out: bool = False
    _failed: str | None = None
    _fails_from_s: float = 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _problem_log: ProblemLog = field(default_factory=lambda: ProblemLog(logger))

    async def ensure(self) -> None:
        """Return once the registration is applied here. Fenced: a later process of this directory
        registered, so this process has to stop. RetryLater and OutcomeUnknown are raised on.
        """
        async with self._lock:
            if self._registered:
                return
            await self._register()
            self._registered = True

    async def _register(self) -> None:
        identity = self.around.identity
        try:
            await self.metadata.record_node(
                NodeRegistration(identity.incarnation, identity.facts),
                deadline_s=self.around.limits.propose_deadline_s,
            )
        except Fenced as error:
            self._stop(str(error))
            raise

    async def run(self) -> None:
        """Register and check the registration, until cancelled or shut out."""
        pause_s = self.around.limits.scan_interval_s
        while not self._shut_out:
            try:
                await self.ensure()
                await self.look()
                self._problem_log.works(REGISTERING)
                self._failed = None
            except StrandlineError as error:
                self._problem_log.failed(REGISTERING, error)
                if self._failed is None:
                    self._fails_from_s = self.around.ambient.monotonic()
                self._failed = str(error)
            failed = self._failed is not None
            await self.around.ambient.sleep(min(pause_s, AGAIN_S) if failed else pause_s)

    def problems(self) -> Iterator[NodeProblem]:
        """A registration that has failed for LONG_S; a node that was removed from the list."""
        node_id = self.around.identity.incarnation.node_id
        if self._left_out:
            yield NodeProblem(
                ProblemArea.NODES,
                str(node_id),
                f"node {node_id} was removed from the list of nodes, but lives: the other nodes "
                "send it no requests, and views of the cluster omit it. Restart it: it registers "
                "again",
            )
        if self._failed is None:
            return
        if self.around.ambient.monotonic() - self._fails_from_s >= LONG_S:
            so = (
                "was removed from the list of nodes, but lives: the other nodes send it no "
                "requests, and views of the cluster omit it"
                if self._registered  # else the registration itself fails; nothing else can
                else "is not registered, so that the other nodes hand no request on to it, and it "
                "claims no partition"
            )
            yield NodeProblem(
                ProblemArea.NODES,
                str(node_id),
                f"node {node_id} {so}. It tries to register every few seconds; the last error: "
                f"{self._failed}",
            )

    async def close(self) -> None:
        """Record that this process ends; if that fails, the other nodes notice its silence."""
        mine = self.around.identity.incarnation
        node = self.metadata.registered_node(mine.node_id)
        if node is None or not self._registered or self._shut_out:
            return
        if self.metadata.describe().leader_id < 0:
            return
        try:
            await self.metadata.record_node(
                NodeStopped(mine, node.boot_offset), deadline_s=SAY_STOPPED_S
            )
        except StrandlineError as error:
            logger.info("the end of this node could not be recorded: %s", error)

    async def look(self) -> None:
        """Stop if, by the records applied here, the node id is a different process's; register
        again if this node was removed from the list of nodes.
        """
        mine = self.around.identity.incarnation
        node = self.metadata.registered_node(mine.node_id)
        if node is None:
            return
        if node.directory_id != mine.directory_id:
            try:
                await self.metadata.record_node(
                    NodeContested(mine, node.boot_offset),
                    deadline_s=self.around.limits.propose_deadline_s,
                )
            except StrandlineError as error:
                logger.warning("the other process may not learn of this one: %s", error)
            self._stop(_replaced(mine, node))
        elif node.contested:
            self._stop(_contested(mine, node))
        else:
            await self._rejoin(node)

    async def _rejoin(self, node: RegisteredNode) -> None:
        """Register again if the node was removed from the list while this process was cut off."""
        removed = node.liveness is Liveness.REMOVED
        self._left_out = removed and self.metadata.feature_level() < REJOINING_LEVEL
        if not removed or self._left_out:
            return
        await self._register()
        logger.warning(
            "node %d had been removed from the list of nodes while this process was cut off: it "
            "registered again", node.node_id,
        )  # fmt: skip

    def _stop(self, text: str) -> None:
        if not self._shut_out:
            self._shut_out = True
            self.on_shut_out(text)


_WHAT_TO_DO = (
    "Both write nothing more. End one of them for good, or format it with a node id of its own; "
    "then start the other"
)


def _replaced(mine: Incarnation, node: RegisteredNode) -> str:
    return (
        f"another process has node id {mine.node_id}: with directory {node.directory_id} it "
        f"registered at metadata offset {node.boot_offset}, while this one, with directory "
        f"{mine.directory_id}, lives. {_WHAT_TO_DO}"
    )


def _contested(mine: Incarnation, node: RegisteredNode) -> str:
    others = ", ".join(str(directory) for directory, _ in node.past)
    return (
        f"another process has node id {mine.node_id}: one that registered before this one, with "
        f"directory {others}, still lives; this one, with directory {mine.directory_id}, "
        f"registered at metadata offset {node.boot_offset}. {_WHAT_TO_DO}"
    )
