"""Encodes and decodes every record of the metadata log.

Kafka's own three are framed records (`rlmm/records/segment_records.py`), Strandline's are control
records (`rlmm/records/control_records.py`).
"""

from __future__ import annotations

from rlmm.metadata_log import Proposal
from rlmm.records.control_encoding import decode_control, encode_control
from rlmm.records.control_records import ControlRecord
from rlmm.records.fixed_layout import decode_usual, decode_usual_update, encode_segment_row
from rlmm.records.segment_records import decode_segment_record, encode_segment_record
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

MetadataRecord = (
    RemoteLogSegmentMetadata
    | RemoteLogSegmentMetadataUpdate
    | RemotePartitionDeleteMetadata
    | ControlRecord
)


def encode(record: MetadataRecord) -> Proposal:
    """The proposal for the log. InvalidRequest: a number does not fit its field."""
    if isinstance(record, RemoteLogSegmentMetadata):
        return Proposal(None, encode_segment_row(record))
    if isinstance(record, RemoteLogSegmentMetadataUpdate | RemotePartitionDeleteMetadata):
        return Proposal(None, encode_segment_record(record))
    type_, value = encode_control(record)
    return Proposal(int(type_), value)


def decode(
    control_type: int | None,
    value: bytes,
    *,
    source: str = "metadata record",
    offset: int | None = None,
) -> MetadataRecord:
    """Decode the record of a log entry. Raises only CorruptData, for malformed bytes."""
    if control_type is None:
        usual = decode_usual(value) or decode_usual_update(value)
        if usual is not None:
            return usual
    if offset is not None:
        source = f"{source} {offset}"
    if control_type is None:
        return decode_segment_record(value, source=source)
    return decode_control(control_type, value, source=source)
