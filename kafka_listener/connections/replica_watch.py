"""Keeps in mind which read replicas live: who is registered in the metadata log, and fetches it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kafka_formats.errors import RetryLater
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import Replica
from rlmm.quorum.silences import Silences
from rlmm.records.node_facts import ReadAddress
from rlmm.rows.nodes import RegisteredNode

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


@dataclass(slots=True)
class ReplicaWatch:
    """One per node. `registered` gives the nodes that the metadata log names, as the same tuple
    until one of them changes; `ask` asks the quorum's leader (RetryLater: it can't be asked, and
    everybody stays what they were).
    """

    replicas: LiveReplicas
    registered: Callable[[], tuple[RegisteredNode, ...]]
    ask: Callable[[], Awaitable[Silences]]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    _told: tuple[Replica, ...] = field(init=False)
    _seen: tuple[RegisteredNode, ...] | None = None

    def __post_init__(self) -> None:
        self._told = self.replicas.nodes.replicas

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await self.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Look once."""
        nodes = self.registered()
        if nodes is not self._seen:
            self._seen = nodes
            self.replicas.registered(
                replica_at(each.node_id, each.facts.read) for each in nodes if each.facts.read
            )
        try:
            told = await self.ask()
        except RetryLater as error:
            log.debug("read replicas stay as they were: %s", error)
        else:
            self.replicas.heard(told.leader_epoch, told.silent_ms, self.monotonic())
        self._log_changes()

    def _log_changes(self) -> None:
        now = self.replicas.nodes.replicas
        for gone in set(self._told) - set(now):
            log.warning("%s is told to clients no more: it is silent or gone", _name(gone))
        for new in set(now) - set(self._told):
            log.info("%s is told to clients", _name(new))
        self._told = now


def replica_at(node_id: int, at: ReadAddress) -> Replica:
    """The replica that a node is by what it registered with."""
    return Replica(node_id, at.host, at.port, at.zone)


def _name(replica: Replica) -> str:
    zone = f" in zone {replica.zone}" if replica.zone else ""
    return f"read replica {replica.node_id} at {replica.host}:{replica.port}{zone}"
