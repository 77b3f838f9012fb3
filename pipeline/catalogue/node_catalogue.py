"""The catalogue of a node: what its metadata says is tiered, asked over HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_formats.errors import InternalError
from pipeline.catalogue.node_address import NodeAddress
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from rlmm.segment import OFFSET_MAX, TopicIdPartition
from rsm_backends.store_config import StoreConfig


class NodeCatalogue:
    """Asks one node; each answer is as fresh as the node's view.

    `stores` are those that segments may name; see `open_catalogue`.
    """

    def __init__(self, address: NodeAddress, stores: Mapping[str, StoreConfig]) -> None:
        self.address = address
        self.stores = stores

    def topics(self) -> Sequence[str]:
        raise InternalError("not there yet")

    def partitions(self, topic: str) -> Sequence[TopicIdPartition]:
        raise InternalError(f"not there yet: {topic}")

    def bounds(self, partition: TopicIdPartition) -> PartitionBounds:
        raise InternalError(f"not there yet: {partition}")

    def segments(
        self, partition: TopicIdPartition, first_offset: int = 0, last_offset: int = OFFSET_MAX
    ) -> Sequence[TieredSegment]:
        raise InternalError(f"not there yet: {partition} {first_offset} {last_offset}")

    def refresh(self) -> None:
        """Nothing is remembered."""

    def close(self) -> None:
        """Close the connection to the node."""
