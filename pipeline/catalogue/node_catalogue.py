"""The catalogue of a node: the segments in its metadata, requested over HTTP.

The node decides which segment serves which offsets, by the rule that its own reads follow.
"""

from __future__ import annotations

import base64
import binascii
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.node_client import NodeClient
from pipeline.catalogue.store_options import STORE_OPTION
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment, within
from rlm.data_plane.kept_objects import kept_objects
from rlm.format.custom_metadata import CustomMetadata
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig

TOPICS_PER_PAGE = 1_000
WHOLE_PARTITIONS_ONE_BY_ONE = 4
"""Whole partitions of a topic that are read one by one before the rest is read at once."""


class NodeCatalogue:
    """Asks one node. Segments are as fresh as its view; a topic's partitions and their bounds are
    kept until `refresh`.

    `stores` are the stores that segments may name. A segment whose custom metadata is not ours was
    copied by a different RemoteStorageManager, and is read from `default_store`.
    """

    def __init__(
        self, client: NodeClient, stores: Mapping[str, StoreConfig], default_store: str
    ) -> None:
        self.stores = stores
        self._client = client
        self._default_store = default_store
        self._known: dict[str, dict[TopicIdPartition, PartitionBounds]] = {}
        self._asked: Counter[tuple[str, Uuid]] = Counter()
        self._whole_topics: dict[
            tuple[str, Uuid], Mapping[TopicIdPartition, Sequence[TieredSegment]]
        ] = {}

    @property
    def tells_deletions(self) -> bool:
        """Always: a node knows partitions all of whose segments expired."""
        return True

    def topics(self) -> Sequence[str]:
        """Names of all topics with tiered segments, ascending."""
        pages = self._client.pages("/v1/topics", "topics", limit=TOPICS_PER_PAGE)
        return [str(each["topic"]) for each in pages if each["remote_segments"] > 0]

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        """The partitions of the newest topic of that name, ascending."""
        return list(self._coverage(topic))

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        """The readable offsets of a partition, as of the first question since `refresh`."""
        try:
            return self._coverage(partition.topic)[partition]
        except KeyError:
            raise NotFound(f"{partition} has no tiered segment") from None

    def _coverage(self, topic: str) -> Mapping[TopicIdPartition, PartitionBounds]:
        if topic not in self._known:
            check_topic_name(topic)
            answer = self._client.get(f"/v1/topics/{topic}/coverage")
            topic_id = Uuid.parse(answer["topic_id"])
            self._known[topic] = {
                TopicIdPartition(topic, topic_id, each["partition"]): PartitionBounds(
                    each["earliest_offset"], each["latest_offset"]
                )
                for each in answer["partitions"]
            }
        return self._known[topic]

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        """The readable segments that hold offsets of the range, as the node answers now. After some
        whole partitions of a topic, the rest of them comes from one answer, as of one moment, until
        `refresh`.
        """
        topic = (partition.topic, partition.topic_id)
        if topic not in self._whole_topics and self._is_whole(partition, first_offset):
            self._asked[topic] += 1
            if self._asked[topic] > WHOLE_PARTITIONS_ONE_BY_ONE:
                self._whole_topics[topic] = self._read_topic(*topic)
        if topic in self._whole_topics:
            return within(self._whole_topics[topic][partition], first_offset, last_offset)
        path = f"/v1/topics/{partition.topic}/partitions/{partition.partition}/coverage"
        lines = self._client.lines(
            path,
            topic_id=str(partition.topic_id),
            first_offset=first_offset,
            last_offset=last_offset,
        )
        with kept_objects():
            segments = [self._segment(partition, line, path) for line in lines]
        self._check_stores(segments)
        return segments

    def _is_whole(self, partition: TopicIdPartition, first_offset: int) -> bool:
        known = self._known.get(partition.topic, {}).get(partition)
        return known is not None and first_offset <= known.earliest

    def _read_topic(
        self, topic: str, topic_id: Uuid
    ) -> Mapping[TopicIdPartition, Sequence[TieredSegment]]:
        path = f"/v1/topics/{topic}/coverage/segments"
        found: defaultdict[TopicIdPartition, list[TieredSegment]] = defaultdict(list)
        partitions: dict[int, TopicIdPartition] = {}
        with kept_objects():
            for line in self._client.lines(path, topic_id=str(topic_id)):
                number = line.get("partition", -1)
                partition = partitions.get(number)
                if partition is None:
                    partition = partitions[number] = TopicIdPartition(topic, topic_id, number)
                found[partition].append(self._segment(partition, line, path))
        for segments in found.values():
            self._check_stores(segments)
        return found

    def _check_stores(self, segments: Sequence[TieredSegment]) -> None:
        for name in {segment.store for segment in segments} - self.stores.keys():
            raise InvalidRequest(
                f"segments of {segments[0].partition} are in the store {name!r}, whose address the "
                "node does not give: set this option to it",
                field=f"{STORE_OPTION}.{name}",
            )

    def _segment(
        self, partition: TopicIdPartition, line: Mapping[str, Any], path: str
    ) -> TieredSegment:
        try:
            objects = _objects(line["custom_metadata"])
            return TieredSegment(
                segment_id=RemoteLogSegmentId(partition, _uuid(line["segment_id"])),
                store=self._default_store if objects is None else objects.store,
                start_offset=line["start_offset"],
                end_offset=line["end_offset"],
                first_offset=line["first_offset"],
                last_offset=line["last_offset"],
                max_timestamp_ms=line["max_timestamp_ms"],
                log_bytes=line["size_bytes"],
                txn_index_empty=line["txn_index_empty"],
                leader_epochs=tuple(
                    EpochEntry(each["epoch"], each["start_offset"])
                    for each in line["leader_epochs"]
                ),
                objects=objects,
            )
        except (KeyError, TypeError, ValueError, StrandlineError) as error:
            raise CorruptData(
                f"a line that does not come from a node of this version: {error}",
                source=path,
                position=0,
            ) from None

    def prepare(self, partitions: Sequence[TopicIdPartition]) -> None:
        """Does nothing: `segments` decides by itself when to read the whole topic."""

    def refresh(self) -> None:
        """Forgets all answers, so that everything is asked for anew."""
        self._known.clear()
        self._whole_topics.clear()
        self._asked.clear()

    def close(self) -> None:
        """Close the connection to the node."""
        self._client.close()


def _uuid(text: str) -> Uuid:
    """`Uuid.parse` in a tenth of the time, for ids written by a node; ValueError."""
    return Uuid(binascii.a2b_base64(text.replace("-", "+").replace("_", "/") + "=="))


def _objects(custom_metadata: str | None) -> CustomMetadata | None:
    """Our custom metadata; None if a different RemoteStorageManager wrote it."""
    if custom_metadata is None:
        return None
    try:
        return CustomMetadata.decode(base64.b64decode(custom_metadata, validate=True))
    except (CorruptData, binascii.Error):
        return None
