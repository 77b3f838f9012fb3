"""Times to offsets, over segments as a broker wrote them and as a node tiered them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.read import open_stores
from pipeline.read.open_stores import OpenStores
from pipeline.read.segment_slice import ReadSettings
from pipeline.source.tier_view import TierView
from rlm.data_plane.read_request import Isolation
from rsm_backends.blocking_reads import BlockingObject, BlockingStore, open_blocking
from tests.pipeline.restore.captured_tier import CapturedTier, tier_captured
from tests.pipeline.source.captured_rows import consumed

TOPICS = ("orders", "payments", "events", "profiles")


@pytest.fixture(scope="module")
def tier(tmp_path_factory: pytest.TempPathFactory) -> CapturedTier:
    folder = tmp_path_factory.mktemp("times") / "store"
    return asyncio.run(tier_captured(folder, *TOPICS))


def times(partition: TopicIdPartition) -> list[tuple[int, int]]:
    """(offset, timestamp) of every record, as a consumer read them."""
    records = consumed(partition.topic, partition.partition, committed=False)
    return [(record.offset, record.timestamp_ms) for record in records]


@pytest.mark.parametrize("topic", TOPICS)
def test_a_time_means_the_first_offset_that_is_as_young(tier: CapturedTier, topic: str) -> None:
    view = TierView(tier, ReadSettings())
    partitions = tier.partitions(topic)
    views = view.partitions(dict.fromkeys(partitions, 0))
    checked = 0
    for partition in partitions:
        latest = views[partition].bounds.latest
        records = [one for one in times(partition) if one[0] < latest]
        there = sorted({time for _, time in records})
        asked = {there[0] - 1, *there[:: max(1, len(there) // 12)], there[-1], there[-1] + 1}
        for time_ms in sorted(asked | {there[len(there) // 2] + 1}):
            first = next((offset for offset, time in records if time >= time_ms), None)
            assert view.first_offsets({partition: time_ms}, views) == {partition: first}
            checked += 1
    assert checked > 4
    every = view.first_offsets(dict.fromkeys(partitions, 0), views)
    assert every == {partition: times(partition)[0][0] for partition in partitions}
    assert set(view.first_offsets(dict.fromkeys(partitions, 2**63 - 1), views).values()) == {None}


def test_committed_readers_end_where_the_tier_decides(tier: CapturedTier) -> None:
    """A transaction is open at the end of either partition: its marker is not tiered, or never
    came.
    """
    wanted = dict.fromkeys(tier.partitions("payments"), 0)
    committed = TierView(tier, ReadSettings()).partitions(wanted)
    assert [view.bounds.latest for view in committed.values()] == [252, 336]
    uncommitted = ReadSettings(isolation=Isolation.READ_UNCOMMITTED)
    all_tiered = TierView(tier, uncommitted).partitions(wanted)
    assert [view.bounds.latest for view in all_tiered.values()] == [267, 341]


class CountedStores:
    """How many stores were opened and closed; `gone` is a key that none of them has."""

    def __init__(self, open_blocking: Callable[..., BlockingStore]) -> None:
        self._open_blocking = open_blocking
        self.gone = ""
        self.opened = self.closed = 0

    def __call__(self, *given: Any, **named: Any) -> BlockingStore:
        self.opened += 1
        return CountedStore(self, self._open_blocking(*given, **named))


class CountedStore:
    def __init__(self, count: CountedStores, store: BlockingStore) -> None:
        self._count, self._store = count, store

    def open(self, key: str, *, in_order_to: int | None = None) -> BlockingObject:
        if key == self._count.gone:
            raise NotFound(key)
        return self._store.open(key, in_order_to=in_order_to)

    def close(self) -> None:
        self._count.closed += 1
        self._store.close()


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> CountedStores:
    stores = CountedStores(open_blocking)
    monkeypatch.setattr(open_stores, "open_blocking", stores)
    return stores


def test_one_look_at_all_partitions_opens_each_store_once(
    tier: CapturedTier, counted: CountedStores
) -> None:
    """A client of S3 takes some 15 ms of CPU to make: a thousand of them more than all else."""
    view = TierView(tier, ReadSettings())
    wanted = dict.fromkeys((each for topic in TOPICS for each in tier.partitions(topic)), 0)
    views = view.partitions(wanted)
    assert len(views) > 4
    assert (counted.opened, counted.closed) == (1, 1)
    view.first_offsets(wanted, views)
    assert (counted.opened, counted.closed) == (2, 2)
    # What is tiered never changes: a stream that asks again needs no store.
    assert view.partitions(wanted) == views
    assert (counted.opened, counted.closed) == (2, 2)


def test_stores_are_closed_where_a_look_up_fails(
    tier: CapturedTier, counted: CountedStores
) -> None:
    wanted = dict.fromkeys((each for topic in TOPICS for each in tier.partitions(topic)), 0)
    last = tier.segments(next(iter(wanted)))[-1]
    counted.gone = last.keys(tier.stores[last.store].prefix).manifest
    with pytest.raises(NotFound, match="rsm-manifest"):
        TierView(tier, ReadSettings()).partitions(wanted)
    assert (counted.opened, counted.closed) == (1, 1)


def test_threads_that_ask_at_once_share_one_store(
    tier: CapturedTier, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Barrier(2)

    def slowly(*given: Any, **named: Any) -> BlockingStore:
        with suppress(BrokenBarrierError):  # the second to come would open one, too
            both.wait(0.1)
        return open_blocking(*given, **named)

    monkeypatch.setattr(open_stores, "open_blocking", slowly)
    segment = tier.segments(tier.partitions("orders")[0])[0]
    with OpenStores(tier.stores, readers=2) as stores, ThreadPoolExecutor(2) as pool:
        first, second = pool.map(stores.of, [segment, segment])
    assert first is second
