"""Garbage goes, nothing else does: whatever a listing holds, and whatever happens meanwhile."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Conflict, NotFound, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction, AuditLine
from rlm.control.node_problem import ProblemArea
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.delete.delete_due import delete_due_ms
from rlm.format.object_keys import cluster_marker_key, segment_keys
from rlm.reconcile.collection_plan import IN_THE_LOG, ObjectClass, objects_allowed
from rlm.reconcile.collector import (
    Collection,
    CollectionRequest,
    CollectionState,
    Collector,
    CollectorLimits,
)
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.segment import RemoteLogSegmentId, RemoteLogSegmentMetadata, SegmentState
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ListPage
from tests.api.fakes import make_segment
from tests.rlm.planner_facts import ME
from tests.rlm.virtual_time import START_MS, run_virtually, virtual_ambient

PREFIX = "tier/"
MARKER = cluster_marker_key(PREFIX)
ORDERS = TopicIdPartition("orders", Uuid(b"orders-topic-id-"), 0)
FINISHED = SegmentState.COPY_SEGMENT_FINISHED
DELETING = SegmentState.DELETE_SEGMENT_STARTED
LIMITS = CopyLimits()
ALL = 10**6


def row(number: int, state: SegmentState) -> RemoteLogSegmentMetadata:
    """Deleting ones are due at the test's first moment."""
    base = make_segment(number, state)
    return replace(
        base,
        segment_id=replace(base.segment_id, partition=ORDERS),
        event_timestamp_ms=START_MS
        - round((LIMITS.delete_delay_s + 2 * LIMITS.mark_deadline_s) * 1000),
    )


def keys_of(segment: RemoteLogSegmentMetadata) -> tuple[str, ...]:
    return segment_keys(PREFIX, segment.segment_id, segment.start_offset).all()


@dataclass
class Metadata:
    """A view that is behind what is committed until a barrier."""

    rows: dict[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    deleted: set[RemoteLogSegmentId] = field(default_factory=set)
    seen_rows: dict[Uuid, RemoteLogSegmentMetadata] = field(default_factory=dict)
    seen_deleted: set[RemoteLogSegmentId] = field(default_factory=set)
    leader: bool = True

    async def barrier(self, *, deadline_s: float) -> None:
        if not self.leader:
            raise RetryLater("no leader")
        self.seen_rows, self.seen_deleted = dict(self.rows), set(self.deleted)

    def find_segment(self, segment_uuid: Uuid) -> RemoteLogSegmentMetadata | None:
        return self.seen_rows.get(segment_uuid)

    def is_deleted(self, segment_id: RemoteLogSegmentId) -> bool:
        return segment_id in self.seen_deleted

    def put(self, segment: RemoteLogSegmentMetadata) -> None:
        self.rows[segment.segment_id.id] = segment

    def bury(self, segment: RemoteLogSegmentMetadata) -> None:
        self.rows.pop(segment.segment_id.id, None)
        self.deleted.add(segment.segment_id)


class Bucket(MemoryStore):
    """Pages of a few objects; `on_page` runs once one is listed."""

    page_objects = 7

    def __init__(self) -> None:
        super().__init__(lambda: START_MS)
        self.on_page: Callable[[], Awaitable[None]] | None = None
        self.longest_page = 0

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        page = await super().list_page(prefix, cursor=cursor, limit=self.page_objects)
        self.longest_page = max(self.longest_page, len(page.objects))
        if self.on_page is not None:
            await self.on_page()
        return page

    async def add(self, *keys: str) -> None:
        for key in keys:
            await self.put(key, b"x", crc32c=crc32c(b"x"))

    async def keys(self) -> set[str]:
        return {info.key for info in (await super().list_page("", limit=1000)).objects}


@dataclass
class World:
    """A bucket, the metadata about it, and a collector."""

    metadata: Metadata = field(default_factory=Metadata)
    bucket: Bucket = field(default_factory=Bucket)
    audit: list[AuditLine] = field(default_factory=list)
    held: dict[str, str] = field(default_factory=dict)
    confirmed: int = 0
    refused: bool = False
    disk_full: bool = False

    def __post_init__(self) -> None:
        self.collector = Collector(
            self.metadata,
            TierStores({"main": TierStore("main", self.bucket, PREFIX)}, "main"),
            Surroundings(Identity("cluster", None, ME), LIMITS, virtual_ambient()),
            held_back=lambda topic: self.held.get(topic),
            confirm_prefix=self._confirm,
            keep_audit=self._keep,
            limits=CollectorLimits(),
        )

    async def _confirm(self, tier: TierStore) -> None:
        self.confirmed += 1
        if self.refused:
            raise Refused("another cluster's")

    async def _keep(self, line: AuditLine) -> None:
        if self.disk_full:
            raise RetryLater("the disk is full")
        self.audit.append(line)

    async def collect(self, *, apply: bool = True, accept: int = ALL) -> Collection:
        job = self.collector.start(CollectionRequest(apply, accept), "boss")
        await self.end()
        assert job is self.collector.collection(job.id)
        return job

    async def end(self) -> None:
        task = self.collector._task
        assert task is not None
        await task


def virtually(test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(World())

    run_virtually(main)


def foreign_key(rng: random.Random) -> str:
    """What others write, some of it nearly as we do."""
    number = rng.randrange(1_000, 9_999)
    stranger = row(number, FINISHED)
    known_id = row(0, FINISHED)  # always in the log
    choices: Sequence[str] = (
        f"{PREFIX}{number}",
        f"{PREFIX}orders/{number}.log",
        rng.choice(keys_of(stranger)),
        rng.choice(keys_of(stranger)) + ".bak",
        rng.choice(keys_of(replace(known_id, start_offset=number))),
        rng.choice(keys_of(stranger)).replace("/0/", "/00/"),
        f"{PREFIX}_strandlinE/{number}",
    )
    return rng.choice(choices)


@pytest.mark.parametrize("seed", range(40))
def test_what_goes_is_exactly_what_the_log_deleted(seed: int) -> None:
    """foreign_is_untouched and quiesced_bucket_equals_metadata, whatever the listing."""

    async def test(world: World) -> None:
        rng = random.Random(seed)
        stay, go = {MARKER}, set[str]()
        world.metadata.put(row(0, FINISHED))
        stay.update(keys_of(row(0, FINISHED)))
        for number in range(1, rng.randrange(2, 30)):
            state = rng.choice([*list(SegmentState)])
            segment = row(number, state)
            some = {key for key in keys_of(segment) if rng.random() < 0.7}
            if state is SegmentState.DELETE_SEGMENT_FINISHED:
                world.metadata.bury(segment)
                go |= some
                continue
            if state is DELETING and rng.random() < 0.5:
                segment = replace(segment, event_timestamp_ms=START_MS)  # readers may be at it
                stay |= some
            else:
                (go if state is DELETING else stay).update(some)
            world.metadata.put(segment)
        foreign = {foreign_key(rng) for _ in range(rng.randrange(20))} - go
        await world.bucket.add(*stay, *go, *foreign)
        looked = await world.collect(apply=False)
        assert await world.bucket.keys() == stay | go | foreign
        job = await world.collect()
        assert job.state is CollectionState.FINISHED, job.text
        assert await world.bucket.keys() == stay | foreign
        assert job.deleted.objects == len(go) == looked.found[ObjectClass.ORPHAN].objects
        assert looked.listed == len(stay | go | foreign)
        told = {line.segment_id for line in world.audit if line.segment_id is not None}
        assert told == {segment_id.id for segment_id in _ids(world, go)}
        again = await world.collect()
        assert again.deleted.objects == 0

    virtually(test)


def _ids(world: World, keys: set[str]) -> set[RemoteLogSegmentId]:
    known = {each.segment_id for each in world.metadata.rows.values()} | world.metadata.deleted
    return {each for each in known if any(str(each.id) in key for key in keys)}


def test_a_late_put_of_a_zombie_is_collected_once_its_delete_is_finished() -> None:
    async def test(world: World) -> None:
        zombies = row(5, DELETING)
        world.metadata.bury(zombies)
        await world.bucket.add(keys_of(zombies)[2])
        upload = await world.bucket.start_multipart(keys_of(zombies)[2])
        assert (await world.collect()).deleted.objects == 1
        assert await world.bucket.keys() == set()
        assert upload not in await world.bucket.list_uploads(keys_of(zombies)[2])
        assert [line.action for line in world.audit] == [
            AuditAction.ORPHAN_DELETED, AuditAction.COLLECTION,
        ]  # fmt: skip

    virtually(test)


@pytest.mark.parametrize("barrier", [True, False], ids=["as it is", "planted: no barrier"])
def test_a_copy_that_begins_while_the_store_is_listed_is_not_foreign(barrier: bool) -> None:
    """The view is behind until a barrier, so looking without one misses the copy."""

    async def test(world: World) -> None:
        copied = row(3, SegmentState.COPY_SEGMENT_STARTED)
        world.metadata.put(copied)
        await world.bucket.add(*keys_of(copied))
        if not barrier:

            async def none(*, deadline_s: float) -> None:
                pass

            world.metadata.barrier = none  # type: ignore[method-assign]  # the planted bug
        job = await world.collect()
        assert (job.found[ObjectClass.COPY_PENDING].objects == 3) is barrier
        assert (job.found[ObjectClass.FOREIGN].objects == 0) is barrier
        assert await world.bucket.keys() == set(keys_of(copied))

    virtually(test)


def test_what_happens_between_the_listing_and_the_look_is_seen() -> None:
    """A look before the listing would call the finished copy foreign, the deleted one live."""

    async def test(world: World) -> None:
        finishing, going = row(1, SegmentState.COPY_SEGMENT_STARTED), row(2, FINISHED)
        world.metadata.put(finishing)
        world.metadata.put(going)
        await world.bucket.add(*keys_of(finishing), *keys_of(going))

        async def meanwhile() -> None:
            world.metadata.put(replace(finishing, state=FINISHED))
            world.metadata.bury(going)

        world.bucket.on_page = meanwhile
        job = await world.collect()
        assert job.found[ObjectClass.LIVE].objects == 3
        assert await world.bucket.keys() == set(keys_of(finishing))

    virtually(test)


def test_more_than_a_small_part_stops_the_pass_until_its_number_is_accepted() -> None:
    async def test(world: World) -> None:
        for number in range(100):
            segment = row(number, FINISHED)
            if number < 3:
                world.metadata.bury(segment)
            else:
                world.metadata.put(segment)
            await world.bucket.add(*keys_of(segment))
        stopped = await world.collect(accept=0)
        assert stopped.state is CollectionState.STOPPED
        assert "--accept-objects 9" in stopped.text
        (problem,) = world.collector.problems()
        assert (problem.area, problem.name) == (ProblemArea.DELETION, "collection")
        assert stopped.text in problem.text
        assert (stopped.deleted.objects, len(await world.bucket.keys())) == (0, 300)
        assert [line.action for line in world.audit] == [AuditAction.COLLECTION]
        assert (await world.collect(accept=8)).state is CollectionState.STOPPED
        assert (await world.collect(accept=9)).deleted.objects == 9

    virtually(test)


def test_what_becomes_garbage_after_the_count_is_under_the_brake_too() -> None:
    async def test(world: World) -> None:
        for number in range(10):
            world.metadata.put(row(number, FINISHED))
            await world.bucket.add(*keys_of(row(number, FINISHED)))
        pages = 0

        async def after_the_count() -> None:
            nonlocal pages
            pages += 1
            if pages == 6:
                for number in range(10):
                    world.metadata.bury(row(number, FINISHED))

        world.bucket.on_page = after_the_count
        job = await world.collect(accept=5)
        assert job.state is CollectionState.STOPPED
        assert job.deleted.objects <= 5

    virtually(test)


def test_a_topic_whose_deletes_are_paused_keeps_its_orphans() -> None:
    async def test(world: World) -> None:
        world.metadata.bury(row(1, DELETING))
        await world.bucket.add(*keys_of(row(1, DELETING)))
        world.held["orders"] = "paused by its policy"
        job = await world.collect()
        assert (job.deleted.objects, job.held_back) == (0, {"paused by its policy": 3})
        assert "3 orphans stay" in job.text
        world.held[""] = "the clocks differ"
        with pytest.raises(Refused, match="clocks"):
            world.collector.start(CollectionRequest(apply=True), "boss")
        assert (await world.collect(apply=False)).found[ObjectClass.ORPHAN].objects == 3

    virtually(test)


@pytest.mark.parametrize("trouble", ["refused", "disk_full"])
def test_another_clusters_prefix_or_no_audit_deletes_nothing(trouble: str) -> None:
    async def test(world: World) -> None:
        world.metadata.bury(row(1, DELETING))
        await world.bucket.add(*keys_of(row(1, DELETING)))
        setattr(world, trouble, True)
        job = await world.collect()
        assert job.state is CollectionState.FAILED
        assert job.text in ("another cluster's", "the disk is full")
        assert len(await world.bucket.keys()) == 3

    virtually(test)


def test_without_a_leader_nothing_is_judged() -> None:
    async def test(world: World) -> None:
        await world.bucket.add(*keys_of(row(1, DELETING)))
        world.metadata.leader = False
        job = await world.collect()
        assert (job.state, job.text, job.listed) == (CollectionState.FAILED, "no leader", 0)

    virtually(test)


def test_one_pass_runs_at_a_time_and_the_last_is_remembered() -> None:
    async def test(world: World) -> None:
        first = world.collector.start(CollectionRequest(), "boss")
        with pytest.raises(Conflict, match=str(first.id)):
            world.collector.start(CollectionRequest(), "boss")
        await world.end()
        second = await world.collect()
        with pytest.raises(NotFound):
            world.collector.collection(first.id)
        assert world.collector.collection(second.id) is second
        running = world.collector.start(CollectionRequest(), "boss")
        await world.collector.close()
        assert running.state is CollectionState.FAILED

    virtually(test)


def test_memory_is_bounded_by_a_page() -> None:
    async def test(world: World) -> None:
        keys = [key for number in range(30) for key in keys_of(row(number, DELETING))]
        for number in range(30):
            world.metadata.bury(row(number, DELETING))
        await world.bucket.add(*keys)
        batches: list[int] = []
        delete_many = world.bucket.delete_many

        async def counted(keys: Sequence[str]) -> None:
            batches.append(len(keys))
            await delete_many(keys)

        world.bucket.delete_many = counted  # type: ignore[method-assign]  # only counts
        assert (await world.collect()).deleted.objects == 90
        assert max(batches) <= Bucket.page_objects
        assert world.confirmed == len(batches)

    virtually(test)


@pytest.mark.parametrize(
    ("in_the_log", "accepted", "allowed"), [(0, 0, 0), (99, 0, 0), (1_000, 0, 10), (1_000, 11, 11)]
)
def test_one_percent_may_go_or_what_was_accepted(
    in_the_log: int, accepted: int, allowed: int
) -> None:
    assert objects_allowed(in_the_log, 1.0, accepted) == allowed


def test_attempts_wait_for_their_upload_deadline() -> None:
    attempt = replace(row(1, DELETING), finished_at=-1, upload_deadline_ms=START_MS)
    assert delete_due_ms(attempt, LIMITS) == START_MS + LIMITS.upload_margin_s * 1000
    assert ObjectClass.FOREIGN not in IN_THE_LOG
