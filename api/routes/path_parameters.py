"""Dependencies that find the partition or segment of a path, or answer 404.

All are coroutines: FastAPI runs plain functions in a thread, but the metadata may only be used on
the event loop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Query, Request

from api.http.admission import Context, context_in
from api.http.context import ApiContext
from api.http.validation import PartitionNumber, SegmentIdText, TopicName, parse_uuid
from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.segment import RemoteLogSegmentMetadata

TopicIdParameter = Annotated[
    str | None,
    Query(max_length=100, description="Topic id; default: the newest topic of this name."),
]


async def checked_topic(topic: TopicName) -> str:
    """A legal topic name, or InvalidRequest."""
    check_topic_name(topic)
    return topic


CheckedTopic = Annotated[str, Depends(checked_topic)]


async def found_partition(
    request: Request,
    topic: TopicName,
    partition: PartitionNumber,
    topic_id: TopicIdParameter = None,
) -> TopicIdPartition:
    """The partition that the path names, from the metadata or from a log directory."""
    context = context_in(request)
    check_topic_name(topic)
    if topic_id is not None:
        tip = TopicIdPartition(topic, parse_uuid(topic_id, "topic_id"), partition)
        if context.manager.partition_state(tip) is not None:
            return tip
    else:
        found = context.manager.find_partition(topic, partition)
        if found is not None:
            return found
    return _found_on_disk(context, topic, partition, topic_id)


def _found_on_disk(
    context: ApiContext, topic: str, partition: int, topic_id: str | None
) -> TopicIdPartition:
    """Find the partition in a log directory of this node. Without a topic id only the newest topic
    of the name matches.
    """
    older: set[Uuid] = set()
    if topic_id is None:
        older = {met.partition.topic_id for met in context.manager.met_partitions(topic)}
        older.discard(context.manager.newest_topic_id(topic))
    for tip in context.rlm.partitions():
        if (tip.topic, tip.partition) != (topic, partition) or tip.topic_id in older:
            continue
        if topic_id in (None, str(tip.topic_id)):
            return tip
    incarnation = "" if topic_id is None else f" with topic id {topic_id}"
    raise NotFound(
        f"partition {topic}-{partition}{incarnation} is neither in the metadata nor in this "
        "node's log directories"
        + ("; an older topic of the name may have it: give its topic_id" if older else "")
    )


FoundPartition = Annotated[TopicIdPartition, Depends(found_partition)]


async def parsed_segment_id(segment_id: SegmentIdText) -> Uuid:
    """A segment id, or InvalidRequest."""
    return parse_uuid(segment_id, "segment_id")


ParsedSegmentId = Annotated[Uuid, Depends(parsed_segment_id)]


@dataclass(frozen=True, slots=True)
class PathSegment:
    """The segment that the path names."""

    metadata: RemoteLogSegmentMetadata

    @property
    def uuid(self) -> Uuid:
        """The segment's id."""
        return self.metadata.segment_id.id


async def found_segment(
    context: Context, partition: FoundPartition, segment_id: ParsedSegmentId
) -> PathSegment:
    """The segment of that partition, or NotFound."""
    metadata = context.manager.segment(partition, segment_id)
    if metadata is None:
        raise NotFound(f"{partition} has no segment {segment_id}")
    return PathSegment(metadata)


FoundSegment = Annotated[PathSegment, Depends(found_segment)]
