"""Every record of the metadata log: what it is, its bytes, and back.

Kafka's own three are framed records (`rlmm/records/segment_records.py`), ours are control records
(`rlmm/records/control_records.py`). This is the one door to both.
"""

from __future__ import annotations

from rlmm.metadata_log import Proposal
from rlmm.records.control_encoding import decode_control, encode_control
from rlmm.records.control_records import (
    ClaimReset,
    ControlRecordType,
    FeatureLevel,
    GapsAllowed,
    LogStart,
    LostRange,
    NodeContested,
    NodeRegistration,
    OffsetsSkipped,
    PartitionAdopted,
    PartitionClaim,
    PartitionDeleteUndo,
    PartitionModeChange,
    Reconciled,
    SegmentMissing,
    TimePassed,
    TopicPolicyChange,
)
from rlmm.records.fixed_layout import decode_usual, decode_usual_update, encode_segment_row
from rlmm.records.segment_records import decode_segment_record, encode_segment_record
from rlmm.segment import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemotePartitionDeleteMetadata,
)

__all__ = [
    "ClaimReset",
    "ControlRecordType",
    "FeatureLevel",
    "GapsAllowed",
    "LogStart",
    "LostRange",
    "MetadataRecord",
    "NodeContested",
    "NodeRegistration",
    "OffsetsSkipped",
    "PartitionAdopted",
    "PartitionClaim",
    "PartitionDeleteUndo",
    "PartitionModeChange",
    "Reconciled",
    "SegmentMissing",
    "TimePassed",
    "TopicPolicyChange",
    "decode",
    "encode",
]

MetadataRecord = (
    RemoteLogSegmentMetadata
    | RemoteLogSegmentMetadataUpdate
    | RemotePartitionDeleteMetadata
    | PartitionClaim
    | LogStart
    | LostRange
    | PartitionModeChange
    | TopicPolicyChange
    | ClaimReset
    | PartitionDeleteUndo
    | FeatureLevel
    | PartitionAdopted
    | SegmentMissing
    | Reconciled
    | GapsAllowed
    | OffsetsSkipped
    | NodeRegistration
    | NodeContested
    | TimePassed
)


def encode(record: MetadataRecord) -> Proposal:
    """What is proposed to the log. A number that does not fit its field is an InvalidRequest."""
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
    """The record of a log entry; CorruptData, and nothing else, for anything malformed. Its source
    names the metadata offset, where that is given.
    """
    if control_type is None:
        usual = decode_usual(value) or decode_usual_update(value)
        if usual is not None:
            return usual
    if offset is not None:
        source = f"{source} {offset}"
    if control_type is None:
        return decode_segment_record(value, source=source)
    return decode_control(control_type, value, source=source)
