"""The catalogue of a bucket alone, from its manifests, with no service running."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from itertools import chain
from typing import TypeVar

from kafka_formats.errors import NotFound, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.manifest_reading import OpenBucket, listed_of, partitions_of
from pipeline.catalogue.partition_chain import (
    FoundSegment,
    PartitionChain,
    newest_topic,
    partition_chain,
)
from pipeline.catalogue.snapshot_segments import segments_in_snapshot
from pipeline.catalogue.tiered_segment import (
    DamagedSegment,
    NoSegment,
    PartitionBounds,
    TieredSegment,
    within,
)
from pipeline.stores.opened_store import opened
from rlm.data_plane.kept_objects import kept_objects
from rlm.reconcile.adoption_plan import StoredSegment
from rlmm.segment import OFFSET_MAX
from rsm_backends.store_config import StoreConfig

Progress = Callable[[int, int], None]
"""Called with (manifests read, manifests found), on a thread of the catalogue."""

OnDamage = Callable[[DamagedSegment], None]
"""Called on a thread of the catalogue, again after each refresh."""

DEADLINE_S = 3_600.0
READ_AT_ONCE = 512
"""Manifests read and held at once; each has up to 0.1 MB where segments are large."""

Answer = TypeVar("Answer")
log = logging.getLogger(__name__)


class ManifestCatalogue:
    """Lists the stores, reads the manifests of the partitions asked for, and remembers them.

    `deadline_s` bounds each question. CorruptData names the manifest that cannot be read, or whose
    `.log` is missing: its content is not guessed. With `on_damage` such segments go there instead,
    and the answers come from the rest. Not for several threads at once.
    """

    def __init__(
        self,
        stores: Mapping[str, StoreConfig],
        *,
        progress: Progress | None = None,
        on_damage: OnDamage | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.stores = stores
        self._progress = progress
        self._on_damage = on_damage
        self._deadline_s = deadline_s
        self._topics: list[str] | None = None
        self._partitions: dict[str, list[TopicIdPartition]] = {}
        self._inner: defaultdict[str, dict[str, list[str]]] = defaultdict(dict)
        self._chains: dict[TopicIdPartition, PartitionChain] = {}
        self._read: dict[TopicIdPartition, dict[Uuid, FoundSegment]] = {}

    @property
    def tells_deletions(self) -> bool:
        """Never: a bucket has nothing of an expired topic either."""
        return False

    def topics(self) -> Sequence[str]:
        """Names of all topics that have a folder, ascending."""
        if self._topics is None:

            async def ask(buckets: Mapping[str, OpenBucket]) -> list[str]:
                found = await asyncio.gather(*(each.topics() for each in buckets.values()))
                return sorted(set().union(*found))

            self._topics = self._answer(ask)
        return self._topics

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        """The topic's partitions. If several topics have had the name: of the one copied last."""
        check_topic_name(topic)
        if topic not in self._partitions:
            found = self._answer(lambda buckets: self._newest(buckets, topic))
            if not found:
                raise NotFound(
                    f"topic {topic} has no segment in {self._places()}; is the prefix right?"
                )
            self._partitions[topic] = found
        return self._partitions[topic]

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        """The first offset of any segment, and the offset after the last served one. Segments in
        doubt count for the first, too: no segment serves their offsets, so these are lost.
        """
        return self._chain(partition)[1]

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        """The readable segments that hold offsets of the range, cut to it."""
        return within(self._chain(partition)[0], first_offset, last_offset)

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Read the manifests of all of these at once."""
        wanted = [each for each in partitions if each not in self._chains]
        if wanted:
            self._answer(lambda buckets: self._load(buckets, wanted))

    def refresh(self) -> None:
        """Makes the next question list the stores anew. Manifests never change and are not read
        again.
        """
        self._topics = None
        self._partitions.clear()
        self._inner.clear()
        self._chains.clear()

    def close(self) -> None:
        """Does nothing: no connection stays open between two questions."""

    def _places(self) -> str:
        return ", ".join(
            f"{each.name} ({each.bucket or each.path}, prefix {each.prefix!r})"
            for each in self.stores.values()
        )

    def _chain(
        self, partition: TopicIdPartition
    ) -> tuple[Sequence[TieredSegment], PartitionBounds]:
        self.prepare([partition])
        chain = self._chains[partition]
        if chain.bounds is None:
            raise NoSegment(f"{partition} has no readable segment in {self._places()}")
        return chain.segments, chain.bounds

    async def _newest(
        self, buckets: Mapping[str, OpenBucket], topic: str
    ) -> list[TopicIdPartition]:
        found = await partitions_of(buckets.values(), topic)
        by_topic: defaultdict[Uuid, list[TopicIdPartition]] = defaultdict(list)
        for partition in found:
            by_topic[partition.topic_id].append(partition)
        if len(by_topic) > 1:
            await self._load(buckets, sorted(found))
            latest = {
                topic_id: max(
                    each.row.event_timestamp_ms
                    for partition in partitions
                    for each in self._read[partition].values()
                )
                for topic_id, partitions in by_topic.items()
                if any(self._read[partition] for partition in partitions)
            }
            if latest:
                return sorted(by_topic[newest_topic(latest)])
        return sorted(found)

    async def _load(
        self, buckets: Mapping[str, OpenBucket], partitions: Sequence[TopicIdPartition]
    ) -> None:
        listed = await listed_of(buckets, partitions)
        known = sum(map(len, listed.values()))
        self._keep(listed)
        if self._on_damage is None:
            await self._read_snapshots(buckets, listed)
        new = list(chain.from_iterable(self._unread(listed)))
        told = known - len(new)
        self._tell(told, known)
        for at in range(0, len(new), READ_AT_ONCE):
            group = new[at : at + READ_AT_ONCE]
            for found in await _read_all(buckets, group):
                if isinstance(found, FoundSegment):
                    segment_id = found.row.segment_id
                    self._read[segment_id.partition][segment_id.id] = found
                elif self._on_damage is None:
                    raise found.error
                else:
                    self._on_damage(found)
            told += len(group)
            self._tell(told, known)
        await self._chain_up(buckets, listed)

    async def _chain_up(
        self, buckets: Mapping[str, OpenBucket], listed: Iterable[TopicIdPartition]
    ) -> None:
        for partition in listed:
            served = partition_chain(self._read[partition].values())
            self._chains[partition] = served
            for doubtful in sorted(served.in_doubt):
                log.warning(
                    "segment %s of %s is not read: other segments name a different leader as the "
                    "writer of its offsets, which count as lost",
                    doubtful,
                    partition,
                )
        if self._on_damage is not None:
            for each in await self._lost_manifests(buckets):
                self._on_damage(each)

    async def _lost_manifests(self, buckets: Mapping[str, OpenBucket]) -> list[DamagedSegment]:
        """Segments without a manifest between others, at offsets that no other segment has. Above
        the last segment they may be copied just now, below the first one deleted.
        """
        asked = [
            bucket.without_manifest(each)
            for bucket in buckets.values()
            for each in bucket.lacking_manifest
            if self._is_in_hole(each)
        ]
        found = await asyncio.gather(*asked)
        return [each for each in found if each is not None]

    def _is_in_hole(self, stored: StoredSegment) -> bool:
        served = self._chains[stored.segment_id.partition].segments
        at = stored.start_offset
        if not served or not served[0].first_offset < at < served[-1].last_offset:
            return False
        return not within(served, at, at)

    def _keep(self, listed: Mapping[TopicIdPartition, Sequence[StoredSegment]]) -> None:
        """Forgets segments that were read and are no longer in a store."""
        for partition, stored in listed.items():
            before = self._read.get(partition, {})
            there = (each.segment_id.id for each in stored)
            self._read[partition] = {id_: before[id_] for id_ in there if id_ in before}

    async def _read_snapshots(
        self,
        buckets: Mapping[str, OpenBucket],
        listed: Mapping[TopicIdPartition, Sequence[StoredSegment]],
    ) -> None:
        """Takes segments not read yet from the stores' metadata snapshots, as far as these have
        them.
        """
        by_store: defaultdict[str, list[StoredSegment]] = defaultdict(list)
        for each in chain.from_iterable(self._unread(listed)):
            by_store[each.store].append(each)
        for name, of_store in by_store.items():
            bucket = buckets[name]
            told = await segments_in_snapshot(bucket.store, bucket.config, of_store)
            for id_, found in told.items():
                self._read[found.row.segment_id.partition][id_] = found

    def _unread(
        self, listed: Mapping[TopicIdPartition, Sequence[StoredSegment]]
    ) -> Iterator[list[StoredSegment]]:
        for partition, stored in listed.items():
            kept = self._read[partition]
            yield [each for each in stored if each.segment_id.id not in kept]

    def _tell(self, read: int, known: int) -> None:
        if self._progress is not None:
            self._progress(read, known)

    def _answer(self, ask: Callable[[Mapping[str, OpenBucket]], Awaitable[Answer]]) -> Answer:
        """Runs `ask` on its own event loop in a thread, since the caller may be in a loop already.
        A caller interrupted by Ctrl-C does not wait for the rest.
        """

        async def run() -> Answer:
            try:
                async with asyncio.timeout(self._deadline_s), AsyncExitStack() as stack:
                    return await ask(await self._opened(stack))
            except TimeoutError:
                raise RetryLater(
                    f"reading {self._places()} did not end within {self._deadline_s:g} s"
                ) from None

        loop = asyncio.new_event_loop()
        answer = loop.create_task(run())
        with (
            kept_objects(),
            ThreadPoolExecutor(1, thread_name_prefix="strandline-catalogue") as thread,
        ):
            running = thread.submit(_run_until_complete, loop, answer)
            try:
                return running.result()
            finally:
                if not running.done():
                    loop.call_soon_threadsafe(answer.cancel)

    async def _opened(self, stack: AsyncExitStack) -> dict[str, OpenBucket]:
        buckets = {}
        for config in self.stores.values():
            store = await stack.enter_async_context(opened(config))
            bucket = OpenBucket(config, store, inner=self._inner[config.name])
            stack.callback(bucket.close)
            buckets[config.name] = bucket
        return buckets


def _run_until_complete(loop: asyncio.AbstractEventLoop, answer: asyncio.Task[Answer]) -> Answer:
    """Runs `answer` to its end, then cancels requests that are left after one of a group failed."""
    with asyncio.Runner(loop_factory=lambda: loop):
        return loop.run_until_complete(answer)


async def _read_all(
    buckets: Mapping[str, OpenBucket], group: Iterable[StoredSegment]
) -> list[FoundSegment | DamagedSegment]:
    by_store: defaultdict[str, list[StoredSegment]] = defaultdict(list)
    for each in group:
        by_store[each.store].append(each)
    read = await asyncio.gather(*(buckets[name].read(part) for name, part in by_store.items()))
    return list(chain.from_iterable(read))
