"""Three nodes in one process, over disks that forget and a network that can be cut.

Run them on a virtual clock (`tests/rlm/virtual_time.py`): their time-outs are short, and a machine
with other work would make them elect for ever.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from kafka_formats.errors import Conflict, OutcomeUnknown, RetryLater
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.partition_state import TopicPolicy
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.actions import Role
from rlmm.records.control_records import TopicPolicyChange
from rlmm.records.records import encode
from rlmm.view.view import View
from tests.linearizability.clients import Acknowledged
from tests.linearizability.policy_register import Done, Refused, Seen
from tests.rlmm.log.crash_disk import Fate, Survivors
from tests.rlmm.metadata_node import NOW_MS, incarnation
from tests.rlmm.quorum.local_network import Network, Replica, leader_of, voters_of

NODES = (1, 2, 3)
CALL_DEADLINE_S = 0.5
DELAY_MAX_S = (0.001, 0.001, 0.004, 0.02)
POWER_CUT = "the power went"
T = TypeVar("T")


class Node:
    """An `Endpoint` over one replica's manager. Whoever waits for it when it dies hears nothing."""

    def __init__(self, home: Path, network: Network, node_id: int) -> None:
        self.replica = Replica(network, node_id, voters_of(*NODES))
        self.failures: list[str] = []
        self.running = False
        self._home = home
        self._network = network
        self._views = 0
        self._died: asyncio.Future[None]
        self._view: View
        self._manager: RemoteLogMetadataManager

    @property
    def log(self) -> QuorumLog:
        return self.replica.log

    @property
    def applied_offset(self) -> int:
        return self._manager.applied_offset

    @property
    def leads(self) -> bool:
        return self.running and self.log.driver.core.role is Role.LEADER

    async def start(self) -> None:
        self._died = asyncio.get_running_loop().create_future()
        self._view = View.open(self._home / f"view-{self.replica.node_id}-{self._views}")
        await self.replica.start()
        self._manager = await RemoteLogMetadataManager.start(
            self.log,
            self._view,
            incarnation=incarnation(),
            now_ms=lambda: NOW_MS,
            limits=MetadataLimits(),
            on_failure=self.failures.append,
        )
        self.running = True

    async def stop(self) -> None:
        """In order; the view stays for the next life."""
        self.running = False
        await self._manager.close()
        await self.replica.stop()
        self._view.close()

    async def crash(self, content: Fate, names: Fate) -> None:
        """Everything ends at once. Of what was not synced the fates say what stays; the view, which
        is made anew from the log, is lost.
        """
        self.running = False
        self._died.set_result(None)
        self._network.servers.pop(self.replica.node_id)
        self._network.isolate(self.replica.node_id, NODES)
        healthy = not self.failures and not self.replica.failures
        self.replica.disk.read_only = True  # from here on nothing more reaches it
        self.log.driver.fail(POWER_CUT)
        await self._manager.close()
        await self.replica.stop()
        self._view.close()
        self._views += 1
        self.replica.disk.power_cut(content, names)
        if healthy:
            self.failures.clear()
            self.replica.failures.clear()

    async def read(self, topic: str) -> Seen:
        return await self._alive(self._read(topic))

    async def _read(self, topic: str) -> Seen:
        end = await self.log.barrier(deadline_s=CALL_DEADLINE_S)
        await self._manager.wait_for_offset(end - 1, deadline_s=CALL_DEADLINE_S)
        return self.read_locally(topic)

    def read_locally(self, topic: str) -> Seen:
        policy = self._manager.topic_policy(topic)
        return Seen(policy.retention_ms, policy.offset)

    async def set(self, topic: str, value: int, replaces: int) -> Done | Refused:
        change = TopicPolicyChange(topic, TopicPolicy(retention_ms=value), replaces)
        try:
            return Done(await self._alive(self._set(change)))
        except Conflict:
            return Refused()

    async def _set(self, change: TopicPolicyChange) -> int:
        return await self._manager.set_topic_policy(change, deadline_s=CALL_DEADLINE_S)

    async def _alive(self, call: Coroutine[Any, Any, T]) -> T:
        """What the node answers while it lives."""
        if not self.running:
            call.close()
            raise RetryLater("connection refused")
        died = self._died
        asking = asyncio.ensure_future(call)
        asking.add_done_callback(_heard)
        waited: set[asyncio.Future[Any]] = {asking, died}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not died.done():
            return asking.result()
        asking.cancel()
        raise OutcomeUnknown("the node died")

    async def state_at(self, end: int) -> bytes:
        """The digest of the whole state at metadata offset `end`, where it must not go further."""
        await self._manager.wait_for_offset(end - 1, deadline_s=30)
        assert self._manager.applied_offset == end - 1
        return self._manager.digest()

    async def lost(self, acknowledged: list[Acknowledged]) -> list[Acknowledged]:
        """What this node's log does not hold where it was acknowledged."""
        records = await self.log.read(self.log.describe().log_start_offset, limit=1_000_000)
        values = {record.offset: record.value for record in records}
        return [each for each in acknowledged if values.get(each.offset) != _encoded(each)]


def _heard(asking: asyncio.Future[Any]) -> None:
    """An answer that nobody waits for any more is no error."""
    if not asking.cancelled():
        asking.exception()


def _encoded(each: Acknowledged) -> bytes:
    policy = TopicPolicy(retention_ms=each.value)
    return encode(TopicPolicyChange(each.topic, policy, each.replaces)).value


class Cluster:
    """All three; `whole` brings everything back. A message takes what `delays` says."""

    def __init__(self, home: Path, delays: random.Random) -> None:
        self.network = Network(delay_s=lambda: delays.choice(DELAY_MAX_S) * delays.random())
        self.nodes = [Node(home, self.network, node_id) for node_id in NODES]
        self._of_past_lives: list[str] = []

    def leader(self) -> Node | None:
        """Who believes that it leads, the newest epoch first."""
        leading = [node for node in self.nodes if node.leads]
        return max(leading, key=lambda node: node.log.driver.core.epoch, default=None)

    @property
    def failures(self) -> list[str]:
        now = [each for node in self.nodes for each in (*node.failures, *node.replica.failures)]
        return self._of_past_lives + now

    def __str__(self) -> str:
        """For people, when a run does not end."""
        lines = [f"cut {self.network.cut}"]
        for node in self.nodes:
            replica = node.log.driver.core.replica
            lines.append(
                f"node {node.replica.node_id} at {replica.now}: {replica.state}, {replica.fetch}, "
                f"under way {replica.requests}, log up to {replica.log.end_offset}, durable "
                f"{replica.log.flushed_offset}, committed {replica.high_watermark}, applied "
                f"{node.applied_offset}, failures {node.failures + node.replica.failures}"
            )
        return "\n".join(lines)

    async def whole(self) -> None:
        """Heal the network, start what is down, and wait for a leader."""
        self.network.cut.clear()
        for node in self.nodes:
            if node.running and (node.failures or node.replica.failures):
                self._of_past_lives += [*node.failures, *node.replica.failures]
                await node.crash(Survivors.ALL, Survivors.ALL)
                node.failures.clear()
                node.replica.failures.clear()
            if not node.running:
                await node.start()
        self.network.cut.clear()
        await leader_of([node.replica for node in self.nodes], deadline_s=30)

    async def close(self) -> None:
        self.network.cut.clear()
        for node in self.nodes:
            if node.running:
                await node.stop()
