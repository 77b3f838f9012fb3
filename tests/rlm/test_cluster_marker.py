"""One prefix, one cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import AlreadyExists, CorruptData, Refused, RetryLater
from rlm.cluster_marker import ClusterMarker, check_marker, claim_prefix
from rlm.limits import Identity
from rlm.tier_store import TierStore
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo
from tests.rlm.planner_facts import ME, NOW_MS

IDENTITY = Identity("cluster-a", "kafka-a", ME)
KEY = "p/_strandline/cluster.json"


def tier(store: MemoryStore | None = None) -> TierStore:
    return TierStore("main", store or MemoryStore(lambda: NOW_MS), "p/")


async def test_the_first_node_writes_the_marker_and_the_next_one_reads_it() -> None:
    here = tier()
    await claim_prefix(here, IDENTITY, deadline_s=5)
    first = await here.store.head(KEY)
    await claim_prefix(here, IDENTITY, deadline_s=5)
    assert await here.store.head(KEY) == first


async def test_another_clusters_marker_is_refused_with_what_to_do() -> None:
    here = tier()
    await claim_prefix(here, IDENTITY, deadline_s=5)
    with pytest.raises(Refused, match="prefix of its own"):
        await claim_prefix(here, replace(IDENTITY, cluster_id="cluster-b"), deadline_s=5)


async def test_a_marker_for_another_kafka_cluster_is_refused() -> None:
    here = tier()
    await claim_prefix(here, IDENTITY, deadline_s=5)
    with pytest.raises(Refused, match="kafka-a"):
        await claim_prefix(here, replace(IDENTITY, kafka_cluster_id="kafka-b"), deadline_s=5)
    await claim_prefix(here, replace(IDENTITY, kafka_cluster_id=None), deadline_s=5)


async def test_a_race_for_the_first_write_is_settled_by_what_was_written() -> None:
    class Late(MemoryStore):
        """Another cluster's node writes between our look and our put."""

        async def put(
            self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
        ) -> ObjectInfo:
            await write(self, ClusterMarker("cluster-b", None).encode())
            raise AlreadyExists(key)

    async def write(store: MemoryStore, data: bytes) -> None:
        await MemoryStore.put(store, KEY, data, crc32c=crc32c(data))

    with pytest.raises(Refused, match="cluster-b"):
        await claim_prefix(tier(Late(lambda: NOW_MS)), IDENTITY, deadline_s=5)


async def test_a_marker_that_is_there_and_cannot_be_read_is_no_permission_to_write() -> None:
    class Odd(MemoryStore):
        """Says that an object exists which it does not find."""

        async def put(
            self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
        ) -> ObjectInfo:
            raise AlreadyExists(key)

    with pytest.raises(RetryLater, match=r"cluster\.json"):
        await claim_prefix(tier(Odd(lambda: NOW_MS)), IDENTITY, deadline_s=5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b"[" * 5_000,
        b'{"version": 2}',
        b'{"version": 1, "clusterId": 5}',
        b'{"version": 1, "clusterId": "two\\nlines"}',
        b'{"version": 1, "clusterId": "' + b"x" * 201 + b'"}',
    ],
)
async def test_damage_is_never_taken_for_an_empty_prefix(data: bytes) -> None:
    here = tier()
    await here.store.put(KEY, data, crc32c=crc32c(data))
    with pytest.raises(CorruptData):
        await claim_prefix(here, IDENTITY, deadline_s=5)


def test_markers_are_read_back_as_written() -> None:
    for marker in (ClusterMarker("a", "k"), ClusterMarker("a", None)):
        assert ClusterMarker.decode(marker.encode(), source="x") == marker
        check_marker(marker, ClusterMarker("a", "k"), where="x")
