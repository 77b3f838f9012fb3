"""The position of a stream, as its checkpoint keeps it, and the end of its next batch. Pure.

A checkpoint has the form of Spark's Kafka source, `{"orders": {"0": 23, "1": 45}}`, and beside the
partitions of a topic its id, so that a topic that was deleted and created anew is not taken for the
old one. Spark compares the JSON as text, so the order is always the same. Source: Spark's
KafkaSourceOffset and KafkaMicroBatchStream.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_formats.errors import InvalidRequest, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.source.offsets import Bounds
from rlmm.segment import OFFSET_MAX

if TYPE_CHECKING:
    from pipeline.source.tier_view import PartitionView

TOPIC_ID = "topicId"

Offsets = Mapping[TopicIdPartition, int]
"""The next offset of each partition."""


@dataclass(frozen=True, slots=True)
class Position:
    """One partition in a checkpoint. `topic_id` None: written by Kafka's own source."""

    topic_id: Uuid | None
    offset: int


def to_json(offsets: Offsets) -> dict[str, dict[str, Any]]:
    """The offsets in the form of the checkpoint."""
    found: dict[str, dict[str, Any]] = {}
    for partition in sorted(offsets):
        topic = found.setdefault(partition.topic, {TOPIC_ID: str(partition.topic_id)})
        topic[str(partition.partition)] = offsets[partition]
    return found


def parse(checkpoint: object) -> dict[tuple[str, int], Position]:
    """The positions in a checkpoint; InvalidRequest if a different source wrote it."""
    positions = {}
    try:
        assert isinstance(checkpoint, dict)
        for topic, partitions in checkpoint.items():
            topic_id = Uuid.parse(partitions[TOPIC_ID]) if TOPIC_ID in partitions else None
            for name, offset in partitions.items():
                if name != TOPIC_ID:
                    assert type(offset) is int
                    assert 0 <= offset <= OFFSET_MAX
                    positions[topic, int(name)] = Position(topic_id, offset)
    except (AssertionError, ValueError, TypeError, AttributeError, InvalidRequest):
        raise InvalidRequest(
            f"the checkpoint holds {str(checkpoint)[:80]!r}, which are not offsets of this data "
            "source: start the query with a new checkpointLocation",
            field="checkpointLocation",
        ) from None
    return positions


def starts(
    checkpoint: Mapping[tuple[str, int], Position], bounds: Bounds
) -> dict[TopicIdPartition, int]:
    """The offset to continue from in each existing partition. A new one, or one of a topic created
    anew, is read from its first offset on.
    """
    found = {}
    for partition, within in bounds.items():
        position = checkpoint.get((partition.topic, partition.partition))
        if position is None:
            found[partition] = within.earliest
        elif position.topic_id in (None, partition.topic_id):
            found[partition] = position.offset
        else:
            found[partition] = within.earliest
    return found


def created_anew(
    before: Mapping[tuple[str, int], Position], there: Mapping[tuple[str, int], Position]
) -> list[str]:
    """Texts that name the partitions of `before` that are of a different topic now."""
    anew = []
    for (topic, number), position in sorted(before.items()):
        now = there.get((topic, number))
        ids = (position.topic_id, None if now is None else now.topic_id)
        if None not in ids and ids[0] != ids[1]:
            anew.append(
                f"{topic}-{number}: the topic was deleted and created anew ({ids[0]} is now "
                f"{ids[1]}); offsets from {position.offset} on are gone"
            )
    return anew


def joined(seen: Offsets, latest: Offsets) -> dict[TopicIdPartition, int]:
    """The ends known by now: the answer of a node that lags must not lead back to offsets already
    read, nor may a partition that reappears be read twice. A topic made anew replaces the old one.
    """
    topic_ids = {partition.topic: partition.topic_id for partition in latest}
    found = {one: max(end, seen.get(one, 0)) for one, end in latest.items()}
    for one, end in seen.items():
        if topic_ids.get(one.topic, one.topic_id) == one.topic_id:
            found.setdefault(one, end)
    return found


def check_reached(partition: TopicIdPartition, begin: int, end: int, view: PartitionView) -> None:
    """Raise RetryLater if the tier does not reach a planned batch's `begin` or `end` (exclusive).

    The end came from the tier, or from its broker, so a tier that ends earlier lags. If that
    counted as loss, Spark would commit offsets that were never read. InvalidRequest for an end from
    a node that lagged, which Spark 4.1 asked after a restart: it would be the next batch's start,
    which would read records again, and Spark repeats the batch until somebody removes it.
    """
    name = f"{partition.topic}-{partition.partition}"
    if end < begin <= view.tier_end:
        raise InvalidRequest(
            f"{name}: the stream has read to offset {begin}, but its next batch was planned to end "
            f"at {end}, by a node that lagged. In the checkpoint's folder offsets, remove the "
            "file with the highest number, if the folder commits has none of that name, and start "
            "the query again: nothing is lost or read twice",
            field="checkpointLocation",
        )
    if end < begin:
        raise RetryLater(
            f"{name}: the stream has read to offset {begin}, but the log of the node asked now "
            f"ends at {end}: the node lags; try again later"
        )
    if end <= max(begin, view.bounds.latest):
        return
    planned = f"{name}: the batch was planned to read offsets {begin} to {end - 1}"
    if view.tier_end < end:
        raise RetryLater(
            f"{planned}, but the log of the node or bucket asked now ends before {view.tier_end}: "
            "it lags, or is a different tier. Wait until it has them, or name a different one in "
            "strandline.url or strandline.store. If they will never come, start the query with a "
            "new checkpointLocation"
        )
    if view.segments and view.segments[-1].last_offset >= view.bounds.latest:
        raise RetryLater(
            f"{planned}, but the outcome of a transaction open at {view.bounds.latest} is not "
            "tiered yet: wait until more is tiered, or set the isolation that the batch was "
            "planned with"
        )


def limited(start: Offsets, latest: Offsets, limit: int) -> dict[TopicIdPartition, int]:
    """Ends with about `limit` offsets in all, divided in proportion to each partition's backlog;
    as in Spark's Kafka source, at least one offset for each partition with a backlog.
    """
    behind = {partition: end - start[partition] for partition, end in latest.items()}
    total = sum(size for size in behind.values() if size > 0)
    ends = {}
    for partition, size in behind.items():
        if size <= 0 or total <= limit:
            ends[partition] = max(latest[partition], start[partition])
            continue
        share = limit * size / total
        share = math.ceil(share) if share < 1 else math.floor(share)
        ends[partition] = start[partition] + min(share, size)
    return ends


def count(start: Offsets, latest: Offsets) -> int:
    """Number of offsets to read."""
    return sum(max(end - start[partition], 0) for partition, end in latest.items())
