"""How a bucket is listed for a catalogue: what is found, and by how many requests."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue import bucket_folders, manifest_reading
from pipeline.catalogue.manifest_reading import OpenBucket
from rlm.format.object_keys import ObjectSuffix, parse_segment_key, segment_keys
from rlm.reconcile.adoption_plan import StoredSegment, add_listed
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.memory import MemoryStore
from rsm_backends.store import FolderPage, ListPage
from rsm_backends.store_config import StoreConfig
from tests.rsm_backends.stores import clock_ms

PREFIX = "t/"
IDS = [Uuid(bytes([number]) * 16) for number in range(1, 3)]


class Bucket(MemoryStore):
    """Tells of itself what it was asked, and how many keys that brought."""

    def __init__(self, page_keys: int = 1000, chance: random.Random | None = None) -> None:
        super().__init__(clock_ms())
        self.lists: list[tuple[str, int]] = []
        self.folder_lists: list[str] = []
        self._page_keys = page_keys
        self._chance = chance

    async def list_page(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> ListPage:
        if self._chance is not None:
            return await self._disordered(prefix, int(cursor or "0"))
        page = await super().list_page(prefix, cursor=cursor, limit=min(limit, self._page_keys))
        self.lists.append((prefix, len(page.objects)))
        return page

    async def _disordered(self, prefix: str, at: int) -> ListPage:
        """A store that lists in no order, some of it twice, and more than it was asked for."""
        assert self._chance is not None
        objects = list((await super().list_page("")).objects)
        random.Random(prefix).shuffle(objects)
        asked = [each for each in objects if each.key.startswith(prefix)]
        end = at + self._page_keys
        more = self._chance.sample(objects, self._chance.randrange(min(3, len(objects) + 1)))
        return ListPage((*asked[at:end], *more), str(end) if end < len(asked) else None)

    async def list_folders(
        self, prefix: str, *, cursor: str | None = None, limit: int = 1000
    ) -> FolderPage:
        self.folder_lists.append(prefix)
        return await super().list_folders(prefix, cursor=cursor, limit=min(limit, self._page_keys))

    def opened(self) -> OpenBucket:
        return OpenBucket(StoreConfig(name="main", kind="memory", prefix=PREFIX), self)


async def put(store: MemoryStore, key: str, size: int = 1) -> None:
    await store.put(key, bytes(size), crc32c=crc32c(bytes(size)))


async def put_segments(
    store: MemoryStore, partition: TopicIdPartition, numbers: Sequence[int]
) -> None:
    for number in numbers:
        id_ = RemoteLogSegmentId(partition, Uuid(number.to_bytes(16, "big")))
        for size, key in enumerate(segment_keys(PREFIX, id_, number).all()):
            await put(store, key, size)


async def put_topic(store: MemoryStore, partitions: int, segments: int) -> list[TopicIdPartition]:
    found = [TopicIdPartition("orders", IDS[0], number) for number in range(partitions)]
    for each in found:
        await put_segments(store, each, range(segments))
    return found


async def naively(
    store: MemoryStore, partitions: Sequence[TopicIdPartition]
) -> dict[TopicIdPartition, list[StoredSegment]]:
    """Each key read by itself, of the whole bucket."""
    found: dict[RemoteLogSegmentId, StoredSegment] = {}
    for each in (await MemoryStore.list_page(store, "")).objects:
        if (key := parse_segment_key(PREFIX, each.key)) is not None:
            add_listed(found, key, each.size, "main")
    return {
        partition: [
            each
            for each in found.values()
            if each.segment_id.partition == partition and ObjectSuffix.MANIFEST in each.sizes
        ]
        for partition in partitions
    }


PARTITIONS = st.builds(
    TopicIdPartition,
    st.sampled_from(("orders", "orders-1", "o")),
    st.sampled_from(IDS),
    st.sampled_from((0, 1, 2, 10, 11, 12, 19, 100, 2**31 - 1)),
)
KEYS = st.builds(
    lambda partition, id_, start, suffix: (
        segment_keys(
            PREFIX, RemoteLogSegmentId(partition, Uuid(bytes([id_]) * 16)), start
        ).log.removesuffix("log")
        + suffix
    ),
    PARTITIONS,
    st.integers(0, 2),
    st.sampled_from((0, 7, 7, 7)),
    st.sampled_from(("log", "indexes", "rsm-manifest", "rsm-manifest", "bak", "x.log")),
)
FOREIGN = st.builds(
    lambda partition, name: f"{PREFIX}{partition.topic}-{partition.topic_id}/{name}",
    PARTITIONS,
    st.sampled_from(
        ("1", "1x/a.log", "01/a", "1/2/3.log", "-1/a", "99999999999/a", "2.log", "é/a")
    ),
) | st.sampled_from(("a", f"{PREFIX}a", f"{PREFIX}orders-/1/a", f"{PREFIX}_strandline/x/y", "t-/a"))


@given(
    st.lists(KEYS, max_size=60),
    st.lists(FOREIGN, max_size=8),
    st.integers(1, 12),
    st.booleans(),
    st.none() | st.randoms(use_true_random=False),
)
async def test_it_finds_what_a_list_of_every_key_tells(
    keys: list[str],
    foreign: list[str],
    page_keys: int,
    looked_into: bool,
    chance: random.Random | None,
) -> None:
    if chance is not None:  # of one id with two offsets the first that is listed counts
        keys = [key for key in keys if "0000000007-" in key]
    store = Bucket(page_keys, chance)
    for size, key in enumerate((*keys, *foreign)):
        await put(store, key, size % 7)
    bucket = store.opened()
    topics = ("o", "orders", "orders-1")
    there = sorted([each for topic in topics for each in await bucket.partitions(topic)])
    parsed = [one for key in keys if (one := parse_segment_key(PREFIX, key)) is not None]
    assert {each.segment_id.partition for each in parsed} <= set(there)
    assert await bucket.topics() == {each.topic for each in there} | {
        topic
        for topic in topics
        if any(f"{PREFIX}{topic}-{id_}/" in key for key in foreign for id_ in IDS)
    }
    wanted = there[:: 1 + len(keys) % 2]
    expected = await naively(store, wanted)
    found = await (bucket if looked_into else store.opened()).listed(wanted)
    assert found.keys() == expected.keys()
    for partition in wanted:
        assert _sorted(found[partition]) == _sorted(expected[partition])


def _sorted(segments: list[StoredSegment]) -> list[StoredSegment]:
    return sorted(segments, key=lambda each: (each.segment_id.id, each.start_offset))


async def test_a_whole_topic_is_listed_by_few_requests() -> None:
    store = Bucket()
    await put_topic(store, 100, 3)
    bucket = store.opened()
    partitions = await bucket.partitions("orders")
    assert len(partitions) == 100
    assert store.folder_lists == [f"{PREFIX}orders-", f"{PREFIX}orders-{IDS[0]}/"]
    listed = await bucket.listed(partitions)
    assert Counter(map(len, listed.values())) == {3: 100}
    assert len(store.lists) == 10
    assert sum(keys for _, keys in store.lists) == 900, "no key comes twice"


async def test_few_partitions_of_a_topic_bring_no_others() -> None:
    store = Bucket()
    partitions = await put_topic(store, 40, 3)
    bucket = store.opened()
    await bucket.partitions("orders")
    wanted = [each for each in partitions if each.partition in (1, 12, 13, 39)]
    assert list(await bucket.listed(wanted)) == wanted
    folder = f"{PREFIX}orders-{IDS[0]}/"
    assert sorted(store.lists) == [(f"{folder}{number}/", 9) for number in (1, 12, 13, 39)]


async def test_long_partitions_are_listed_apart() -> None:
    """Pages of one list come one after the other; those of several at the same time."""
    store = Bucket(page_keys=10)
    partitions = await put_topic(store, 5, 8)
    bucket = store.opened()
    await bucket.partitions("orders")
    listed = await bucket.listed(partitions)
    assert Counter(map(len, listed.values())) == {8: 5}
    folder = f"{PREFIX}orders-{IDS[0]}/"
    assert Counter(prefix for prefix, _ in store.lists) == {
        folder: 1, **{f"{folder}{number}/": 3 for number in range(5)}
    }  # fmt: skip


async def test_what_came_after_the_folders_were_looked_into_is_not_asked_for() -> None:
    store = Bucket()
    partitions = await put_topic(store, 3, 1)
    bucket = store.opened()
    await bucket.partitions("orders")
    await put_segments(store, replace(partitions[0], partition=7), range(2))
    assert list(await bucket.listed(partitions)) == partitions


async def test_a_store_that_knows_no_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless(MemoryStore):
        async def list_page(
            self, prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> ListPage:
            return ListPage((), "again")

        async def list_folders(
            self, prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> FolderPage:
            return FolderPage((), "again")

    monkeypatch.setattr(bucket_folders, "PAGES_MAX", 5)
    monkeypatch.setattr(manifest_reading, "PAGES_MAX", 5)
    bucket = OpenBucket(StoreConfig(name="main", kind="memory", prefix=PREFIX), Endless(clock_ms()))
    with pytest.raises(
        RetryLater, match="the list of folders below 't/' does not end after 5 pages"
    ):
        await bucket.topics()
    with pytest.raises(RetryLater, match=r"the list of .* does not end after 5 pages"):
        await bucket.listed([TopicIdPartition("orders", IDS[0], 0)])


async def test_folders_that_were_not_asked_for_are_left_out() -> None:
    class Lying(MemoryStore):
        async def list_folders(
            self, prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> FolderPage:
            told = ("0/", f"{prefix}1/", f"{prefix}2/3/", f"{prefix}4", f"{prefix}1/", "")
            return FolderPage(told, None)

    assert await bucket_folders.folder_names(Lying(clock_ms()), "t/orders-x/") == ["1"]
