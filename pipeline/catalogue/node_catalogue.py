"""The catalogue of a node: what its metadata says is tiered, asked over HTTP.

The node decides which segment serves which offsets, by the rule that its own reads follow.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_formats.errors import CorruptData, InvalidRequest, NotFound, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.log_names import check_topic_name
from pipeline.catalogue.node_client import NodeClient
from pipeline.catalogue.store_options import STORE_OPTION
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from rlm.custom_metadata import CustomMetadata
from rlmm.segment import OFFSET_MAX, RemoteLogSegmentId, TopicIdPartition
from rsm_backends.store_config import StoreConfig

TOPICS_PER_PAGE = 1_000


class NodeCatalogue:
    """Asks one node. Segments are as fresh as its view; what is known of a topic's partitions and
    their bounds is kept until `refresh`.

    `stores` are those that segments may name. A segment whose custom metadata is not ours was
    copied by another RemoteStorageManager, and is looked for in `default_store`.
    """

    def __init__(
        self, client: NodeClient, stores: Mapping[str, StoreConfig], default_store: str
    ) -> None:
        self.stores = stores
        self._client = client
        self._default_store = default_store
        self._known: dict[str, dict[TopicIdPartition, PartitionBounds]] = {}

    def topics(self) -> Sequence[str]:
        """Names of all topics with tiered segments, ascending."""
        pages = self._client.pages("/v1/topics", "topics", limit=TOPICS_PER_PAGE)
        return [str(each["topic"]) for each in pages if each["remote_segments"] > 0]

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        """The partitions of the newest topic of that name, ascending."""
        return list(self._coverage(topic))

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        """What can be read of a partition, as at the first question since `refresh`."""
        try:
            return self._coverage(partition.topic)[partition]
        except KeyError:
            raise NotFound(f"nothing of {partition} is tiered") from None

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
        """The readable segments that hold offsets of the range, as the node answers now."""
        path = f"/v1/topics/{partition.topic}/partitions/{partition.partition}/coverage"
        lines = self._client.lines(
            path,
            topic_id=str(partition.topic_id),
            first_offset=first_offset,
            last_offset=last_offset,
        )
        segments = [self._segment(partition, line, path) for line in lines]
        for name in {segment.store for segment in segments} - self.stores.keys():
            raise InvalidRequest(
                f"segments of {partition} are in the store {name!r}, and the node does not say "
                "where that is: do",
                field=f"{STORE_OPTION}.{name}",
            )
        return segments

    def _segment(
        self, partition: TopicIdPartition, line: Mapping[str, Any], path: str
    ) -> TieredSegment:
        try:
            objects = _objects(line["custom_metadata"])
            return TieredSegment(
                segment_id=RemoteLogSegmentId(partition, Uuid.parse(line["segment_id"])),
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
                f"a line that no node of this version sends: {error}", source=path, position=0
            ) from None

    def refresh(self) -> None:
        """Partitions and bounds are asked for anew."""
        self._known.clear()

    def close(self) -> None:
        """Close the connection to the node."""
        self._client.close()


def _objects(custom_metadata: str | None) -> CustomMetadata | None:
    """None for what another RemoteStorageManager wrote."""
    if custom_metadata is None:
        return None
    try:
        return CustomMetadata.decode(base64.b64decode(custom_metadata, validate=True))
    except (CorruptData, binascii.Error):
        return None
