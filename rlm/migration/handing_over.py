"""Transfers the quorum's leadership to a node beside a broker, which a move needs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kafka_formats.errors import StrandlineError
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import LogDescription

logger = logging.getLogger(__name__)

HAND_OVER_DEADLINE_S = 5.0
"""Deadline of the election of the node that carries the move out next, in seconds."""
HEARD_WITHIN_MS = 5_000
"""Time without a fetch after which a voter is not tried: during a transfer to an absent voter no
record is appended.
"""


@dataclass(slots=True)
class HandingOver:
    """Hands the leadership over; one per node. `transfer` makes the node with that id the quorum's
    leader.
    """

    metadata: RemoteLogMetadataManager
    node_id: int
    transfer: Callable[[int], Awaitable[None]]
    _told: dict[int, str] = field(default_factory=dict, init=False)

    def leads(self) -> bool:
        """True on the quorum leader's node, once its view is up to date."""
        return self.metadata.describe().leader_id == self.node_id and self.metadata.is_caught_up()

    async def beside_broker(self, since: int) -> bool:
        """Try to transfer the leadership to a present voter whose broker, which has the voter's id,
        acknowledged the frozen phase that began at `since`, or a later one. True if such a voter
        leads now. After False a third node may have won the election; it hands over itself if it
        can't go on.
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
                "node %d leads the metadata quorum now and carries the move out, since this node's "
                "broker does not answer, or it has no broker",
                node_id,
            )
            return True
        return False

    def _tell_refused(self, node_id: int, why: str) -> None:
        """Log a refusal once per reason, since the transfer is tried again and again."""
        if self._told.get(node_id) != why:
            self._told[node_id] = why
            logger.warning("node %d can't carry the move out for this node: %s", node_id, why)


def _present(told: LogDescription) -> set[int]:
    """The voters that fetched from this leader within HEARD_WITHIN_MS."""
    now_ms = max((each.last_fetch_ms for each in told.voters), default=-1)
    return {
        each.node_id
        for each in told.voters
        if each.last_fetch_ms >= 0 and now_ms - each.last_fetch_ms <= HEARD_WITHIN_MS
    }
