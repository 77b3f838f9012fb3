"""The catalogue of a bucket alone: what its manifests say, with no service running."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kafka_formats.errors import InternalError
from pipeline.catalogue.tiered_segment import PartitionBounds, TieredSegment
from rlmm.segment import OFFSET_MAX, TopicIdPartition
from rsm_backends.store_config import StoreConfig

Progress = Callable[[int, int], None]
"""Called with (manifests read, manifests known of), on the thread that asked."""

DEADLINE_S = 3_600.0


class ManifestCatalogue:
    """Lists the stores and reads the manifests of what is asked for, and remembers them.

    `deadline_s` bounds each question. CorruptData names the manifest that cannot be read, or whose
    `.log` is missing: what it says is not guessed.
    """

    def __init__(
        self,
        stores: Mapping[str, StoreConfig],
        *,
        progress: Progress | None = None,
        deadline_s: float = DEADLINE_S,
    ) -> None:
        self.stores = stores
        self._progress = progress
        self._deadline_s = deadline_s

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
        """The stores are listed anew when they are asked for next; manifests never change."""

    def close(self) -> None:
        """Nothing stays open between two questions."""
