"""`<prefix>_strandline/cluster.json`: whose prefix this is. Written once, create-only.

Two clusters that write under one prefix would each take the other's objects for garbage, so a node
refuses to start when the marker names another cluster.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import AlreadyExists, CorruptData, NotFound, Refused, RetryLater
from rlm.limits import Identity
from rlm.object_keys import cluster_marker_key
from rlm.tier_store import TierStore

VERSION = 1
MARKER_BYTES_MAX = 64 * 1024
ID_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class ClusterMarker:
    """What the marker says. `kafka_cluster_id` None when the first writer did not know it."""

    cluster_id: str
    kafka_cluster_id: str | None

    def encode(self) -> bytes:
        """The object's bytes."""
        fields = {
            "version": VERSION,
            "clusterId": self.cluster_id,
            "kafkaClusterId": self.kafka_cluster_id,
        }
        return json.dumps(fields, indent=2).encode() + b"\n"

    @classmethod
    def decode(cls, data: bytes, *, source: str) -> ClusterMarker:
        """CorruptData for anything that `encode` does not write."""
        try:
            fields = json.loads(data)
        except (ValueError, RecursionError):
            raise CorruptData("not JSON", source=source, position=0) from None
        if not isinstance(fields, dict) or fields.get("version") != VERSION:
            raise CorruptData(
                f"not a cluster marker of version {VERSION}", source=source, position=0
            )
        cluster_id, kafka_id = fields.get("clusterId"), fields.get("kafkaClusterId")
        if not isinstance(cluster_id, str) or not isinstance(kafka_id, str | None):
            raise CorruptData("clusterId or kafkaClusterId is no text", source=source, position=0)
        if not all(_is_id(each) for each in (cluster_id, kafka_id) if each is not None):
            raise CorruptData("clusterId or kafkaClusterId is no id", source=source, position=0)
        return cls(cluster_id, kafka_id)


def _is_id(text: str) -> bool:
    """Whether it can be shown: ids stand in messages and logs."""
    return len(text) <= ID_CHARACTERS_MAX and text.isprintable()


async def claim_prefix(tier: TierStore, identity: Identity, *, deadline_s: float) -> None:
    """Write the marker, or check the one that is there.

    Refused when it is another cluster's; NotFound for a missing bucket, Refused for one that takes
    no writes, RetryLater as the store raises them, or when it does not answer in time.
    """
    try:
        async with asyncio.timeout(deadline_s):
            await _claim(tier, identity)
    except TimeoutError:
        raise RetryLater(
            f"the store {tier.name!r} did not answer within {deadline_s:g} s while its cluster "
            "marker was looked at: check its endpoint and the network"
        ) from None


async def _claim(tier: TierStore, identity: Identity) -> None:
    key = cluster_marker_key(tier.prefix)
    ours = ClusterMarker(identity.cluster_id, identity.kafka_cluster_id)
    found = await _read(tier, key)
    if found is None:
        data = ours.encode()
        try:
            await tier.store.put(key, data, crc32c=crc32c(data), create_only=True)
        except AlreadyExists:
            # Another node was faster, or an earlier try of this put was: what it says decides.
            found = await _read(tier, key)
        else:
            return
    where = f"{key} in the store {tier.name!r}"
    if found is None:
        raise RetryLater(f"{where} is said to be there and cannot be found: start the node again")
    check_marker(found, ours, where=where)


def check_marker(found: ClusterMarker, ours: ClusterMarker, *, where: str) -> None:
    """Refused unless both are one cluster's. An unknown Kafka cluster id fits any."""
    if found.cluster_id != ours.cluster_id:
        raise Refused(
            f"{where} belongs to the Strandline cluster {found.cluster_id}, this node to "
            f"{ours.cluster_id}: give this cluster a prefix of its own ([stores.NAME] prefix)"
        )
    known = (found.kafka_cluster_id, ours.kafka_cluster_id)
    if None not in known and found.kafka_cluster_id != ours.kafka_cluster_id:
        raise Refused(
            f"{where} was written for the Kafka cluster {found.kafka_cluster_id}, this node "
            f"serves {ours.kafka_cluster_id}: one Strandline cluster serves one Kafka cluster"
        )


async def _read(tier: TierStore, key: str) -> ClusterMarker | None:
    data = bytearray()
    try:
        async for piece in tier.store.get(key, end=MARKER_BYTES_MAX):
            data += piece
    except NotFound:
        return None
    return ClusterMarker.decode(bytes(data), source=f"{tier.name}:{key}")
