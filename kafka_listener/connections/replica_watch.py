"""Tracks the live read replicas, by the nodes registered in the metadata log."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import Replica
from rlmm.rows.nodes import RegisteredNode

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


@dataclass(slots=True)
class ReplicaWatch:
    """The task that watches the replicas; one per node. `registered` returns the nodes in the
    metadata log, as the same tuple until one of them changes.
    """

    replicas: LiveReplicas
    registered: Callable[[], tuple[RegisteredNode, ...]]
    sleep: Callable[[float], Awaitable[None]]
    _told: tuple[Replica, ...] = field(init=False)
    _seen: tuple[RegisteredNode, ...] | None = None

    def __post_init__(self) -> None:
        self._told = self.replicas.nodes.replicas

    async def run(self) -> None:
        """Look every `INTERVAL_S` until cancelled."""
        while True:
            self.look()
            await self.sleep(INTERVAL_S)

    def look(self) -> None:
        """Look once."""
        nodes = self.registered()
        if nodes is not self._seen:
            self._seen = nodes
            self.replicas.registered(nodes)
            self._log_changes()

    def _log_changes(self) -> None:
        now = self.replicas.nodes.replicas
        for gone in set(self._told) - set(now):
            log.warning(
                "clients are no longer sent to %s: it is fenced or unregistered", _name(gone)
            )
        for new in set(now) - set(self._told):
            log.info("clients are sent to %s", _name(new))
        self._told = now


def _name(replica: Replica) -> str:
    zone = f" in zone {replica.zone}" if replica.zone else ""
    return f"read replica {replica.node_id} at {replica.host}:{replica.port}{zone}"
