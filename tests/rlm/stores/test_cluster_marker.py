"""One prefix, one cluster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.crc32c import crc32c as checksum
from kafka_formats.errors import AlreadyExists, Conflict, CorruptData, Refused, RetryLater
from rlm.control.surroundings import Identity
from rlm.stores.cluster_marker import (
    ClusterMarker,
    check_marker,
    claim_prefix,
    confirm_prefix,
    read_marker,
    take_over,
)
from rlm.stores.tier_store import TierStore
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
        b'{"version": 1, "clusterId": "a", "predecessorClusterIds": "b"}',
        b'{"version": 1, "clusterId": "a", "predecessorClusterIds": [5]}',
        b'{"version": 1, "clusterId": "a", "store": 5}',
        b'{"version": 1, "clusterId": "a", "store": "two\\nlines"}',
        b'{"version": 1, "clusterId": "a", "predecessorClusterIds": ["two\\nlines"]}',
        b'{"version": 1, "clusterId": "a", "beganWith": 5}',
        b'{"version": 1, "clusterId": "a", "beganWith": "two\\nlines"}',
        b'{"version": 1, "clusterId": "a", "predecessorClusterIds": [' + b'"b",' * 100 + b'"b"]}',
    ],
)
async def test_damage_is_never_taken_for_an_empty_prefix(data: bytes) -> None:
    here = tier()
    await here.store.put(KEY, data, crc32c=crc32c(data))
    with pytest.raises(CorruptData, match="the next start or format makes it anew"):
        await claim_prefix(here, IDENTITY, deadline_s=5)
    await here.store.delete_many([KEY])
    await claim_prefix(here, IDENTITY, deadline_s=5)


def test_markers_are_read_back_as_written() -> None:
    for marker in (
        ClusterMarker("a", "k"),
        ClusterMarker("a", None),
        ClusterMarker("c", "k", ("b", "a")),
        ClusterMarker("a", "k", store="main"),
        ClusterMarker("c", "k", ("b", "a"), "main", "63-1.checkpoint, CRC32C 1a2b3c4d"),
    ):
        assert ClusterMarker.decode(marker.encode(), source="x") == marker
        check_marker(marker, ClusterMarker(marker.cluster_id, "k"), where="x")


async def test_a_successor_shuts_the_nodes_of_the_cluster_before_out() -> None:
    here = tier()
    await claim_prefix(here, IDENTITY, deadline_s=5)
    await confirm_prefix(here, IDENTITY, deadline_s=5)
    before = await read_marker(here)
    assert before is not None
    after = before.successor("cluster-b", "kafka-a", began_with="a snapshot")
    await take_over(here, before, after, deadline_s=5)
    for check in (claim_prefix, confirm_prefix):
        with pytest.raises(Refused, match="cluster-b took this prefix over from cluster-a"):
            await check(here, IDENTITY, deadline_s=5)
        await check(here, replace(IDENTITY, cluster_id="cluster-b"), deadline_s=5)
    third = after.successor("cluster-c", "kafka-a", began_with="a snapshot")
    assert third.predecessors == ("cluster-b", "cluster-a")


async def test_of_two_successors_one_comes_too_late() -> None:
    here = tier()
    await claim_prefix(here, IDENTITY, deadline_s=5)
    before = await read_marker(here)
    assert before is not None
    first = before.successor("cluster-b", "kafka-a", began_with="a snapshot")
    await take_over(here, before, first, deadline_s=5)
    with pytest.raises(Conflict, match="changed meanwhile"):
        await take_over(
            here,
            before,
            before.successor("cluster-c", "kafka-a", began_with="a snapshot"),
            deadline_s=5,
        )
    assert await read_marker(here) == first


async def test_a_successor_between_the_look_and_the_replacement_wins() -> None:
    class Raced(MemoryStore):
        """The other successor's marker is written right before ours."""

        async def replace(self, key: str, data: bytes, *, crc32c: int, etag: str) -> ObjectInfo:
            rival = ClusterMarker("cluster-c", None, ("cluster-a",)).encode()
            await self.put(key, rival, crc32c=checksum(rival))
            return await super().replace(key, data, crc32c=crc32c, etag=etag)

    here = tier(Raced(lambda: NOW_MS))
    await claim_prefix(here, IDENTITY, deadline_s=5)
    before = await read_marker(here)
    assert before is not None
    with pytest.raises(Conflict):
        await take_over(
            here, before, before.successor("cluster-b", None, began_with="a snapshot"), deadline_s=5
        )
    found = await read_marker(here)
    assert found is not None
    assert found.cluster_id == "cluster-c"


async def test_a_marker_that_went_is_no_permission_to_delete() -> None:
    with pytest.raises(Refused, match="is gone"):
        await confirm_prefix(tier(), IDENTITY, deadline_s=5)


async def test_another_store_of_the_same_cluster_is_not_taken_for_this_one() -> None:
    here = tier()
    await claim_prefix(here, IDENTITY, deadline_s=5)
    exchanged = replace(here, name="archive")
    told: list[str] = []
    with pytest.raises(RetryLater, match="exchanged"):
        await claim_prefix(exchanged, IDENTITY, deadline_s=5)
    with pytest.raises(RetryLater, match=rf"store '{here.name}'"):
        await confirm_prefix(exchanged, IDENTITY, deadline_s=5, on_shut_out=told.append)
    assert told == []  # it may be put right while the node runs
    before = await read_marker(here)
    assert before is not None
    assert before.successor("cluster-b", None, began_with="a snapshot").store == here.name
