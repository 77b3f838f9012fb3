"""Keeps in mind which read replicas live: who is registered in the metadata log, and fetches it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from kafka_formats.errors import RetryLater
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.virtual_nodes import Replica
from rlmm.quorum.silences import Silences

log = logging.getLogger(__name__)

INTERVAL_S = 1.0


@dataclass(slots=True)
class ReplicaWatch:
    """One per node. `registered` reads the replicas that the metadata log names; `ask` asks the
    quorum's leader (RetryLater: it can't be asked, and everybody stays what they were).
    """

    replicas: LiveReplicas
    registered: Callable[[], Iterable[Replica]]
    ask: Callable[[], Awaitable[Silences]]
    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]
    _told: tuple[Replica, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._told = self.replicas.nodes.replicas

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            await self.sleep(INTERVAL_S)

    async def look(self) -> None:
        """Look once."""
        self.replicas.registered(self.registered())
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


def _name(replica: Replica) -> str:
    zone = f" in zone {replica.zone}" if replica.zone else ""
    return f"read replica {replica.node_id} at {replica.host}:{replica.port}{zone}"
