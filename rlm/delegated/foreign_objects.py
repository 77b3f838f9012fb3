"""Decides if only the broker can delete a segment's objects. Pure.

After a move from Kafka's own metadata topic the broker may still copy with a RemoteStorageManager
other than ours, which alone can find its objects. Then a deletion ends when the broker reports it,
as in Kafka, and a row that the broker never finishes stays; otherwise a row would be removed whose
objects still exist.
"""

from __future__ import annotations

from kafka_formats.errors import CorruptData, Refused
from rlm.format.aiven_metadata import metadata_of
from rlm.format.custom_metadata import CustomMetadata
from rlmm.segment import RemoteLogSegmentMetadata

BY_BROKER = (
    "a RemoteStorageManager other than Strandline's copied it, and only that one can delete its "
    "objects: the deletion ends when the broker reports it"
)


def is_the_brokers(row: RemoteLogSegmentMetadata, *, moved: bool, serves_storage: bool) -> bool:
    """True if the node must not finish the deletion of this row by itself.

    `moved`: the cluster has moved here from Kafka's own metadata topic, or is about to. If not,
    objects without our custom metadata are adopted ones, at keys that a node finds.
    `serves_storage`: the broker has requested bytes of segments from this process: its
    RemoteStorageManager is ours now, and Aiven's objects are found by their keys.
    """
    if not moved or (row.custom_metadata and CustomMetadata.is_ours(row.custom_metadata)):
        return False
    if not serves_storage:
        return True
    try:
        metadata_of(row)
    except (Refused, CorruptData):
        return True
    return False
