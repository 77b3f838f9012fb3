"""Decides if only the broker can delete a segment's objects. Pure.

After a move from Kafka's own metadata topic the broker may still copy by another
RemoteStorageManager than ours, which alone knows its objects: then the deletion ends when the
broker says so, as in Kafka, and a row that nobody ends stays. Else a row would be forgotten whose
objects are still there.
"""

from __future__ import annotations

from kafka_formats.errors import CorruptData, Refused
from rlm.format.aiven_metadata import metadata_of
from rlm.format.custom_metadata import CustomMetadata
from rlmm.segment import RemoteLogSegmentMetadata

BY_BROKER = (
    "another RemoteStorageManager than Strandline's copied it, and only that can delete its "
    "objects: its deletion ends when its broker says so"
)


def is_the_brokers(row: RemoteLogSegmentMetadata, *, moved: bool, serves_storage: bool) -> bool:
    """True if the node must not end the deletion of this row by itself.

    `moved`: the cluster moved here from Kafka's own metadata topic, or is about to. Where it did
    not, objects without our custom metadata lie where a node finds them (adopted ones).
    `serves_storage`: the broker has asked this process for the bytes of segments: its
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
