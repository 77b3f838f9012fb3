"""Checks the metadata topic of a running cluster before a move; changes nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kafka_formats.errors import StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.broker_view import BrokerView
from rlm.migration.import_plan import import_problems
from rlm.migration.settings_check import checked_settings
from rlm.migration.topic_checks import TOPIC, Check, PartitionRead, check_import, check_reads
from rlm.migration.topic_reader import TopicReader
from rlm.migration.topic_replay import TopicReplay, digest
from rlmm.segment import PartitionDeleteState, SegmentState

Progress = Callable[[int, int, int, int], None]
"""A callback with the number of the partition in order, the count of partitions, the records of
this partition that were read, and those that it has.
"""


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """One partition by the topic's records. `digest`: see `topic_replay.digest`. `bytes` are those
    of finished segments' `.log` files. `deleting` is the state of its deletion, None if none began.
    """

    partition: TopicIdPartition
    metadata_partition: int
    segments: dict[SegmentState, int]
    bytes: int
    highest_epoch: int
    digest: str
    deleting: PartitionDeleteState | None


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of the check of the topic."""

    checks: Sequence[Check]
    reads: Sequence[PartitionRead]
    partitions: Sequence[PartitionSummary]

    @property
    def ok(self) -> bool:
        """True if every check is ok."""
        return all(check.ok for check in self.checks)


async def examine_topic(view: BrokerView, progress: Progress) -> Examination:
    """Read the whole topic and check it. An error is a check that is not `ok`."""
    try:
        await view.check()
    except StrandlineError as error:
        return Examination([Check("broker", False, str(error))], (), ())
    checks = [Check("broker", True, "it is this node's own")]
    try:
        checks.append(await checked_settings(view))
        reader = await TopicReader.open(view)
    except StrandlineError as error:
        return Examination([*checks, Check(f"topic {TOPIC}", False, str(error))], (), ())
    reads, found, refused = [], [], []
    try:
        for place, partition in enumerate(reader.partitions):

            def told(read: int, of: int, place: int = place) -> None:
                progress(place, len(reader.partitions), read, of)

            replay, read = await reader.read(partition, told)
            reads.append(read)
            found += summaries(partition, replay)
            for tip, cache in replay.caches.items():
                refused += await asyncio.to_thread(import_problems, tip, cache)
    finally:
        await reader.close()
    checks += [*check_reads(reads), check_import(refused)]
    return Examination(checks, reads, found)


def summaries(metadata_partition: int, replay: TopicReplay) -> list[PartitionSummary]:
    """The summaries of the partitions in one partition of the topic that are not deleted, by
    name.
    """
    found = []
    for tip, cache in replay.caches.items():
        rows = cache.rows.values()
        found.append(
            PartitionSummary(
                tip,
                metadata_partition,
                dict(Counter(row.state for row in rows)),
                sum(
                    row.size_bytes
                    for row in rows
                    if row.state is SegmentState.COPY_SEGMENT_FINISHED
                ),
                max(cache.epochs, default=-1),
                digest(cache),
                replay.deletions.get(tip),
            )
        )
    return sorted(found, key=lambda each: (each.partition.topic, each.partition.partition))
