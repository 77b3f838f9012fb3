"""Only the default store is needed to run; what lies in another waits until that one is there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InvalidRequest, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.format.object_keys import cluster_marker_key
from rlm.stores.cluster_marker import ClusterMarker, follow_takeover, read_marker, take_over
from rlm.stores.marker_claims import NOT_CHECKED, StoreClaims
from rlm.stores.snapshot_plan import snapshot_key
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import SnapshotId
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ListPage
from tests.rlm.planner_facts import DIRECTORY
from tests.rlm.virtual_time import run_virtually, virtual_ambient

IDENTITY = Identity("ours", None, Incarnation(1, DIRECTORY, 1))
LIMITS = CopyLimits()
logger = logging.getLogger(__name__)


class Away(MemoryStore):
    """A store that may be out of reach: it fails, or says nothing at all."""

    def __init__(self) -> None:
        super().__init__(lambda: 0)
        self.trouble: Exception | None = None
        self.silent = False
        self.asked = 0

    async def get(
        self, key: str, *, start: int = 0, end: int | None = None
    ) -> AsyncIterator[bytes]:
        self.asked += 1
        if self.silent:
            await asyncio.Event().wait()
        if self.trouble is not None:
            raise self.trouble
        async for piece in super().get(key, start=start, end=end):
            yield piece


class Unlisted(Away):
    """A store whose keys may not be listed with these credentials."""

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        raise Refused(f"ListBucket is denied for {prefix}")


def claims_of(
    main: Away, old: Away, identity: Identity = IDENTITY, history: History | None = None
) -> StoreClaims:
    stores = TierStores(
        {"old": TierStore("old", old, "a/"), "main": TierStore("main", main, "b/")}, "main"
    )
    around = Surroundings(identity, LIMITS, virtual_ambient())
    return StoreClaims(stores, around, history)


def test_a_node_starts_without_the_other_store_and_takes_it_when_it_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:

    async def main() -> None:
        stores = Away(), Away()
        claims = claims_of(*stores)
        stores[1].trouble = RetryLater("connection refused")
        await claims.start()
        claims.check("main")
        with pytest.raises(RetryLater, match=r"'old'.*connection refused"):
            claims.check("old")
        assert claims.problems() == (NodeProblem(ProblemArea.STORE, "old", "connection refused"),)
        await asyncio.sleep(10 * LIMITS.store_retry_s)
        stores[1].trouble = None
        await asyncio.sleep(2 * LIMITS.store_retry_s)
        claims.check("old")
        assert claims.problems() == ()
        assert (await stores[1].head(cluster_marker_key("a/"))).size > 0
        await claims.close()

    run_virtually(main)


def test_a_store_is_taken_a_moment_after_a_short_outage_and_seldom_asked_in_a_long_one() -> None:
    async def main() -> None:
        stores = Away(), Away()
        claims = claims_of(*stores)
        stores[0].trouble = RetryLater("connection refused")
        await claims.start(may_be_away=True)
        await asyncio.sleep(2)
        stores[0].trouble = None
        await asyncio.sleep(3)
        claims.check("main")

        # The default store is not lost by looks; the other one is, and comes back likewise.
        stores[1].trouble = RetryLater("connection refused")
        await claims.look_again()
        with pytest.raises(RetryLater, match="'old'"):
            claims.check("old")
        stores[1].trouble = None
        await asyncio.sleep(3)
        claims.check("old")

        stores[1].trouble = RetryLater("connection refused")
        await claims.look_again()
        before = stores[1].asked
        await asyncio.sleep(20 * LIMITS.store_retry_s)
        assert stores[1].asked - before < 20 + 10
        await claims.close()

    run_virtually(main)


def test_without_the_default_store_nothing_starts() -> None:
    async def main() -> None:
        stores = Away(), Away()
        stores[0].trouble = Refused("wrong credentials")
        claims = claims_of(*stores)
        with pytest.raises(Refused, match="wrong credentials"):
            await claims.start()
        await claims.close()

    run_virtually(main)


def test_a_node_that_is_started_again_while_the_default_store_is_down_waits_for_it() -> None:
    async def main() -> None:
        stores = Away(), Away()
        stores[0].trouble = RetryLater("connection refused")
        claims = claims_of(*stores)
        with pytest.raises(RetryLater, match="connection refused"):
            await claims.start()  # who runs once has nothing to wait for
        await claims.start(may_be_away=True)
        claims.check("old")
        with pytest.raises(RetryLater, match=r"'main'.*connection refused"):
            claims.check("main")
        assert [each.name for each in claims.problems()] == ["main"]
        stores[0].trouble = None
        await asyncio.sleep(2 * LIMITS.store_retry_s)
        claims.check("main")
        assert claims.problems() == ()
        await claims.close()

    run_virtually(main)


@dataclass
class History(RemoteLogMetadataManager):
    """Of a metadata log that knows these partitions, and no row of theirs."""

    known: tuple[TopicIdPartition, ...] = ()
    applied: int = 99
    behind: int = 0
    """Records that a barrier brings."""
    leader: bool = True

    def is_caught_up(self) -> bool:
        return True

    @property
    def applied_offset(self) -> int:
        return self.applied

    async def catch_up(self, *, deadline_s: float = 0.0) -> None:
        if not self.leader:
            raise RetryLater("no leader")
        self.applied += self.behind

    def partitions(self) -> Iterator[TopicIdPartition]:
        return iter(self.known)

    def list_remote_log_segments(
        self,
        tip: TopicIdPartition,
        leader_epoch: int | None = None,
        *,
        after: object = None,
    ) -> Iterator[RemoteLogSegmentMetadata]:
        assert (tip in self.known, leader_epoch) == (True, None)
        return iter(())


def test_a_bucket_that_went_stops_no_node_whose_metadata_is_in_use() -> None:
    async def main() -> None:
        tip = TopicIdPartition("orders", Uuid(b"a topic's own id"), 0)
        missing = InvalidRequest("bucket 'b' does not exist", field="bucket")
        new, used = (claims_of(Away(), Away(), history=History(known)) for known in ((), (tip,)))
        for claims in (new, used):
            claims.stores.default.store.trouble = missing  # type: ignore[attr-defined]  # Away
        with pytest.raises(InvalidRequest, match="does not exist"):
            await new.start(may_be_away=True)
        await used.start(may_be_away=True)
        assert [each.name for each in used.problems()] == ["main"]
        with pytest.raises(RetryLater, match=r"'main'.*does not exist"):
            used.check("main")
        await used.close()

    run_virtually(main)


def test_a_prefix_with_another_clusters_snapshots_is_not_new_though_its_marker_is_gone() -> None:
    """To take it would shut the nodes of a living cluster out for good."""

    async def main() -> None:
        stores = Away(), Away()
        for cluster in ("theirs", IDENTITY.cluster_id):
            key = snapshot_key("b/", cluster, SnapshotId(50, 3))
            await stores[0].put(key, b"rows", crc32c=crc32c(b"rows"))
        claims = claims_of(*stores, history=History())
        await claims.start(may_be_away=True)
        with pytest.raises(RetryLater, match=r"snapshots of the Strandline cluster theirs"):
            claims.check("main")
        assert await read_marker(TierStore("main", stores[0], "b/")) is None
        await stores[0].delete_many([snapshot_key("b/", "theirs", SnapshotId(50, 3))])
        await asyncio.sleep(2 * LIMITS.store_retry_s)
        claims.check("main")
        await claims.close()

    run_virtually(main)


def test_a_store_that_may_not_be_listed_is_taken_as_before() -> None:
    """The upload of snapshots tells of it, and works on when it may."""

    async def main() -> None:
        stores = Unlisted(), Away()
        claims = claims_of(*stores, history=History())
        await claims.start()
        claims.check("main")
        await claims.close()

    run_virtually(main)


def test_a_metadata_log_that_was_set_back_to_a_backup_starts_no_node() -> None:
    """What was copied since would be recorded as lost, and a copy that the log knows half would be
    removed, though it ended since.
    """

    async def main() -> None:
        stores = Away(), Away()
        claims = claims_of(*stores, history=History())
        for end in (50, 101):
            key = snapshot_key("b/", IDENTITY.cluster_id, SnapshotId(end, 3))
            await stores[0].put(key, b"rows", crc32c=crc32c(b"rows"))
        with pytest.raises(Refused, match=r"ends at offset 100.*ended at 101.*--from-snapshot"):
            await claims.start(may_be_away=True)
        await claims.close()

        lagging = claims_of(*stores, history=History(behind=1))
        await lagging.start()
        assert lagging.problems() == ()
        await lagging.close()

    run_virtually(main)


def test_without_a_quorum_leader_nobody_knows_if_the_log_was_set_back_and_the_store_waits() -> None:
    async def main() -> None:
        stores, history, told = (Away(), Away()), History(leader=False), list[str]()
        key = snapshot_key("b/", IDENTITY.cluster_id, SnapshotId(101, 3))
        await stores[0].put(key, b"rows", crc32c=crc32c(b"rows"))
        claims = claims_of(*stores, history=history)
        claims.on_shut_out = told.append
        await claims.start(may_be_away=True)
        with pytest.raises(RetryLater, match="no leader"):
            claims.check("main")
        history.leader = True
        await asyncio.sleep(2 * LIMITS.store_retry_s)
        assert told, "the node has to stop"
        with pytest.raises(RetryLater, match="set back"):
            claims.check("main")
        await claims.close()

    run_virtually(main)


def test_a_silent_store_delays_the_start_by_little_and_is_told_as_unknown() -> None:
    async def main() -> None:
        stores = Away(), Away()
        stores[1].silent = True
        claims = claims_of(*stores)
        async with asyncio.timeout(LIMITS.store_deadline_s / 2):
            await claims.start()
        assert [each.text for each in claims.problems()] == [NOT_CHECKED]
        with pytest.raises(RetryLater, match="has not been read"):
            claims.check("old")
        await claims.close()

    run_virtually(main)


def test_another_clusters_store_is_a_problem_and_stays_as_it_is() -> None:
    async def main() -> None:
        stores = Away(), Away()
        theirs = claims_of(Away(), stores[1], Identity("theirs", None, IDENTITY.incarnation))
        await theirs.start()
        await theirs.close()
        claims = claims_of(*stores)
        await claims.start()
        (problem,) = claims.problems()
        assert "belongs to the Strandline cluster theirs" in problem.text
        with pytest.raises(RetryLater, match="theirs"):
            claims.check("old")
        await claims.close()

    run_virtually(main)


@pytest.mark.parametrize("first", ["lost", "lost before"])
def test_a_store_that_was_not_named_when_its_cluster_was_taken_over_follows_on_request(
    first: str,
) -> None:
    """Else it would be another cluster's for ever: nothing is formatted a second time."""

    async def main() -> None:
        stores = Away(), Away()
        theirs = claims_of(*stores, Identity(first, "kafka", IDENTITY.incarnation))
        await theirs.start()
        await theirs.close()
        default = TierStore("main", stores[0], "b/")
        before = await read_marker(default)
        assert before is not None
        for cluster in ("lost", "ours") if first == "lost before" else ("ours",):
            after = before.successor(cluster, "kafka", began_with="a snapshot")
            await take_over(default, before, after, deadline_s=5)
            before = after
        claims, old = claims_of(*stores), TierStore("old", stores[1], "a/")
        await claims.start()
        # The other cluster may live on, as beside a drill on a copy of its default store.
        (problem,) = claims.problems()
        assert f"belongs to the Strandline cluster {first}" in problem.text
        assert "`strandline reconcile --take-over old`" in problem.text
        await theirs.confirm(old)
        tiers = claims.stores.default_first
        await follow_takeover(old, tiers, IDENTITY, deadline_s=5, confirmed=True)
        await asyncio.sleep(2 * LIMITS.store_retry_s)
        assert claims.problems() == ()
        claims.check("old")
        followed = await read_marker(old)
        assert followed == ClusterMarker("ours", "kafka", (first,), "old", "a snapshot")
        with pytest.raises(Refused, match=f"took this prefix over from {first}"):
            await theirs.confirm(TierStore("old", stores[1], "a/"))
        await claims.close()

    run_virtually(main)


def test_a_store_follows_the_one_that_was_taken_over_though_another_is_the_default_since() -> None:
    """And by two nodes at once: the slower one finds it done."""

    async def main() -> None:
        new, main, old = Away(), Away(), Away()
        lost = claims_of(main, old, Identity("lost", None, IDENTITY.incarnation))
        await lost.start()
        await lost.close()
        tiers = {
            "new": TierStore("new", new, ""),
            "main": TierStore("main", main, "b/"),
            "old": TierStore("old", old, "a/"),
        }
        before = await read_marker(tiers["main"])
        assert before is not None
        after = before.successor("ours", None, began_with="a snapshot")
        await take_over(tiers["main"], before, after, deadline_s=5)
        around = Surroundings(IDENTITY, LIMITS, virtual_ambient())
        nodes = [StoreClaims(TierStores(tiers, "new"), around) for _ in range(2)]
        asked = [
            follow_takeover(tiers["old"], tiers.values(), IDENTITY, deadline_s=5, confirmed=True)
            for _ in nodes
        ]
        await asyncio.gather(*asked)
        await asyncio.gather(*(each.start() for each in nodes))
        for claims in nodes:
            assert claims.problems() == ()
            claims.check("old")
            await claims.close()
        followed = await read_marker(tiers["old"])
        assert followed == ClusterMarker("ours", None, ("lost",), "old", "a snapshot")

    run_virtually(main)


def test_a_store_that_is_lost_later_is_missing_until_it_is_back() -> None:
    async def main() -> None:
        stores = Away(), Away()
        claims = claims_of(*stores)

        await claims.start()
        stores[1].trouble = RetryLater("connection refused")
        await claims.look_again()
        assert [each.name for each in claims.problems()] == ["old"]
        stores[0].trouble = RetryLater("no route")
        with pytest.raises(RetryLater, match="no route"):
            await claims.look_again()
        stores[1].trouble = None
        await asyncio.sleep(2 * LIMITS.store_retry_s)
        assert claims.problems() == ()
        await claims.close()

    run_virtually(main)
