"""Sends consumers of a different zone to the read replica there (KIP-392).

A replica that sends a consumer away does not see how it fares. If the nearer replica can't be
reached, or answers OFFSET_OUT_OF_RANGE, the consumer comes back and requests the same offset:
Java's consumer then forgets the nearer replica, and resets its offset by this replica's answer
alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_formats.topic_id_partition import TopicIdPartition
from kafka_listener.access.rights import fetch_error
from kafka_listener.connections.client import Client, SentAway
from kafka_listener.connections.log_ends import PARTITIONS_MAX, LogEnds
from kafka_listener.connections.shares import Turns
from kafka_listener.connections.topic_rights import TopicRights
from kafka_listener.live_replicas import LiveReplicas
from kafka_listener.protocol import fetch
from kafka_listener.protocol.codec import ClientRequest
from kafka_listener.protocol.fetch import Wanted, Where
from kafka_listener.reading.read_port import TierReads
from kafka_listener.virtual_nodes import VirtualNode
from rlmm.wire.schema import Values

COMES_BACK_S = 60.0
"""The time within which a consumer that requests the same offset again counts as one that came
back: a connection to an unreachable host fails after up to 30 s
(`socket.connection.setup.timeout.max.ms`).
"""
STAYS_S = 60.0
"""The time for which a consumer that came back is answered here."""

Found = dict[TopicIdPartition, tuple[Wanted, VirtualNode]]


@dataclass(frozen=True, slots=True)
class NearerReplica:
    """Chooses the replica of a client's zone."""

    tier: TierReads
    ends: LogEnds
    rights: TopicRights
    replicas: LiveReplicas
    turns: Turns

    async def answers(
        self, client: Client, request: ClientRequest, wanted: Sequence[Wanted]
    ) -> dict[Where, Values]:
        """Answers that send the client to a replica in its own zone. Empty if this replica is near
        enough, or has to answer one of the partitions itself: it does not know the partition, the
        client may not read it or came back from it, or the offset is out of range.
        """
        zone, broker_id = request.body.get("rack_id"), client.broker_id
        if not zone or broker_id is None or not self.replicas.nodes.has_nearer(zone):
            return {}
        found: Found = {}

        async def look(some: Sequence[Wanted]) -> None:
            nearer = await self._nearer(client, zone, broker_id, some)
            told = await self.ends.of(client, list(nearer))
            for tip, (each, node) in nearer.items():
                broker = told[tip]
                if not isinstance(broker, int) and self.tier.is_in_log(tip, each.offset, broker):
                    found[tip] = each, node

        await self.turns.in_slices(wanted, look)
        if len(found) < len(wanted):
            return {}
        self._note(client, found)
        return {each.where: fetch.nearer_answer(each, n.node_id) for each, n in found.values()}

    async def _nearer(
        self, client: Client, zone: str, broker_id: int, some: Sequence[Wanted]
    ) -> Found:
        ids = await self.ends.resolve(client, some)
        rights = await self.rights.of(client, {tip.topic for tip in ids.values()})
        found: Found = {}
        for each in some:
            tip = ids.get((each.topic, each.partition))
            if tip is None or fetch_error(rights.get(tip.topic)):
                continue  # it has to be answered here
            node = self.replicas.nodes.nearer(zone, tip.topic_id, each.partition, broker_id)
            if node is not None and not self._stays(client, tip, each.offset):
                found[tip] = each, node
        return found

    def _stays(self, client: Client, tip: TopicIdPartition, offset: int) -> bool:
        sent, now = client.sent_away.get(tip), self.ends.monotonic()
        if sent is None:
            return False
        if now < sent.stays_until_s:
            return True
        came_back = sent.offset == offset and now - sent.at <= COMES_BACK_S
        if came_back:
            client.sent_away[tip] = replace(sent, stays_until_s=now + STAYS_S)
        return came_back

    def _note(self, client: Client, found: Found) -> None:
        now = self.ends.monotonic()
        for tip, (each, _) in found.items():
            client.sent_away.pop(tip, None)
            client.sent_away[tip] = SentAway(each.offset, now)
        while len(client.sent_away) > PARTITIONS_MAX:
            client.sent_away.pop(next(iter(client.sent_away)))
