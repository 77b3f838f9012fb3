"""Lets another node lead the metadata quorum: one beside a broker, which a move needs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kafka_formats.errors import StrandlineError
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import LogDescription

logger = logging.getLogger(__name__)

HAND_OVER_DEADLINE_S = 5.0
"""The deadline of an election that makes another node carry the move out."""
HEARD_WITHIN_MS = 5_000
"""A voter that has not fetched the log for longer is away: no record is appended while it would be
waited for.
"""


@dataclass(slots=True)
class HandingOver:
    """Hands the lead over, one per node. `transfer` lets the node with that id lead the quorum."""

    metadata: RemoteLogMetadataManager
    node_id: int
    transfer: Callable[[int], Awaitable[None]]
    _told: dict[int, str] = field(default_factory=dict, init=False)

    def leads(self) -> bool:
        """True on the quorum leader's node, once its view is up to date."""
        return self.metadata.describe().leader_id == self.node_id and self.metadata.is_caught_up()

    async def beside_broker(self, since: int) -> bool:
        """Try the voters that are there, each beside a broker that acknowledged the frozen phase
        which began at `since`, or a later one; its id is the broker's. True: it leads. False: none
        does; another node may have won the election, and has to hand over itself if it can't go on.
        """
        able = self.metadata.migration_brokers(since) & _present(self.metadata.describe())
        for node_id in sorted(able - {self.node_id}):
            try:
                await self.transfer(node_id)
            except StrandlineError as error:
                self._tell_refused(node_id, str(error))
                if not self.leads():
                    return False
                continue
            self._told.clear()
            logger.warning(
                "node %d leads the metadata quorum now, to carry the move out: this node's broker "
                "is silent, or it has none",
                node_id,
            )
            return True
        return False

    def _tell_refused(self, node_id: int, why: str) -> None:
        """Log a refusal, once for each reason: the move is offered again and again."""
        if self._told.get(node_id) != why:
            self._told[node_id] = why
            logger.warning("node %d can't carry the move out instead: %s", node_id, why)


def _present(told: LogDescription) -> set[int]:
    """The voters that fetched from this leader lately; its own last fetch is now."""
    now_ms = max((each.last_fetch_ms for each in told.voters), default=-1)
    return {
        each.node_id
        for each in told.voters
        if each.last_fetch_ms >= 0 and now_ms - each.last_fetch_ms <= HEARD_WITHIN_MS
    }
