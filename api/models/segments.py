"""Segments, as the metadata has them, and their history."""

from __future__ import annotations

import base64
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from api.models.base import (
    EpochStart,
    IncarnationView,
    NextCursor,
    Offset,
    OffsetOrNull,
    PartitionName,
    Wire,
    known,
    name_of,
)
from kafka_formats.errors import CorruptData
from rlm.format.custom_metadata import CustomMetadata
from rlmm.segment import RemoteLogSegmentMetadata


class SegmentStateName(StrEnum):
    """Kafka's RemoteLogSegmentState, by name."""

    COPY_SEGMENT_STARTED = "COPY_SEGMENT_STARTED"
    COPY_SEGMENT_FINISHED = "COPY_SEGMENT_FINISHED"
    DELETE_SEGMENT_STARTED = "DELETE_SEGMENT_STARTED"
    DELETE_SEGMENT_FINISHED = "DELETE_SEGMENT_FINISHED"


class StoredObjects(Wire):
    """The segment's three objects, from its custom metadata. Checksums are CRC32C, in hex."""

    store: Annotated[str, Field(description="Name of the store.", examples=["main"])]
    log_bytes: int
    log_crc32c: Annotated[str, Field(examples=["e3069283"])]
    indexes_bytes: int
    indexes_crc32c: str
    manifest_bytes: int
    manifest_crc32c: str

    @classmethod
    def of_custom(cls, custom_metadata: bytes | None) -> StoredObjects | None:
        """The objects; None for custom metadata of a different RemoteStorageManager, which only
        that one can read.
        """
        if custom_metadata is None:
            return None
        try:
            ours = CustomMetadata.decode(custom_metadata)
        except CorruptData:
            return None
        return cls(
            store=ours.store,
            log_bytes=ours.log_bytes,
            log_crc32c=f"{ours.log_crc32c:08x}",
            indexes_bytes=ours.indexes_bytes,
            indexes_crc32c=f"{ours.indexes_crc32c:08x}",
            manifest_bytes=ours.manifest_bytes,
            manifest_crc32c=f"{ours.manifest_crc32c:08x}",
        )


class SegmentView(PartitionName):
    """A remote log segment: Kafka's RemoteLogSegmentMetadata, and Strandline's own fields."""

    segment_id: Annotated[str, Field(examples=["Qv4tWmyKTtqkvgMfJ9dZ3Q"])]
    state: SegmentStateName
    start_offset: Offset
    end_offset: Annotated[int, Field(description="Inclusive.", examples=[1299])]
    leader_epochs: Annotated[
        list[EpochStart], Field(description="Epochs and their first offset in this segment.")
    ]
    size_bytes: Annotated[int, Field(description="Size of the `.log` file.", examples=[1048576])]
    max_timestamp_ms: int
    event_timestamp_ms: int
    broker_id: int
    txn_index_empty: bool
    custom_metadata: Annotated[str | None, Field(description="The stored bytes, in base64.")]
    objects: StoredObjects | None
    token: Annotated[
        int | None, Field(description="Metadata offset of the claim under which it was started.")
    ]
    writer: IncarnationView | None
    upload_deadline_ms: int | None
    finished_at_offset: Annotated[
        int | None, Field(description="Metadata offset of COPY_SEGMENT_FINISHED.")
    ]

    @classmethod
    def of_segment(cls, segment: RemoteLogSegmentMetadata) -> SegmentView:
        """The view of a row of the metadata."""
        custom = segment.custom_metadata
        return cls(
            **name_of(segment.segment_id.partition),
            segment_id=str(segment.segment_id.id),
            state=SegmentStateName(segment.state.name),
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            leader_epochs=[
                EpochStart(epoch=epoch, start_offset=start)
                for epoch, start in segment.leader_epochs
            ],
            size_bytes=segment.size_bytes,
            max_timestamp_ms=segment.max_timestamp_ms,
            event_timestamp_ms=segment.event_timestamp_ms,
            broker_id=segment.broker_id,
            txn_index_empty=segment.txn_index_empty,
            custom_metadata=None if custom is None else base64.b64encode(custom).decode("ascii"),
            objects=StoredObjects.of_custom(custom),
            token=known(segment.token),
            writer=None if segment.writer is None else IncarnationView.of(segment.writer),
            upload_deadline_ms=known(segment.upload_deadline_ms),
            finished_at_offset=known(segment.finished_at),
        )


class SegmentPage(Wire):
    """Segments by their lowest leader epoch (or the requested one), then start offset, then id."""

    segments: list[SegmentView]
    next_cursor: NextCursor


class SegmentLookup(Wire):
    """The segment that serves an offset of an epoch."""

    segment: SegmentView
    valid_until: Annotated[
        int,
        Field(
            description="Last offset (inclusive) that may be read from this segment: the segment "
            "may extend beyond the lineage, and offsets after this one must not be read.",
            examples=[1299],
        ),
    ]


class SegmentChange(Wire):
    """A committed record about a segment, as it was proposed, accepted or not."""

    metadata_offset: Offset
    metadata_epoch: int
    timestamp_ms: Annotated[int, Field(description="Batch timestamp of the record.")]
    record: Annotated[str, Field(examples=["RemoteLogSegmentMetadataUpdate"])]
    state: SegmentStateName
    broker_id: int
    event_timestamp_ms: int
    token: OffsetOrNull
    writer: IncarnationView | None


class SegmentHistory(Wire):
    """Records about one segment, oldest first, as far back as the log goes."""

    segment_id: str
    changes: list[SegmentChange]
