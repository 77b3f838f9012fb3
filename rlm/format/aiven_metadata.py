"""The custom metadata of a row that Aiven's plug-in wrote: empty, or the fields of its setting
`custom.metadata.fields.include`, as Kafka's tagged fields:

    0  REMOTE_SIZE    varlong: bytes of the three objects
    1  OBJECT_PREFIX  compact string: the prefix of their keys when they were written
    2  OBJECT_KEY     compact string: the rest of their keys, without the suffix
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import CorruptData, Refused
from kafka_formats.primitives import Reader
from kafka_formats.varints import MalformedError, read_varlong
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import segment_keys
from rlmm.segment import RemoteLogSegmentMetadata

_REMOTE_SIZE, _OBJECT_PREFIX, _OBJECT_KEY = 0, 1, 2
_SHOWN_BYTES = 16


@dataclass(frozen=True, slots=True)
class AivenMetadata:
    """The fields; None for each that was not included."""

    remote_bytes: int | None = None
    object_prefix: str | None = None
    object_key: str | None = None

    @classmethod
    def decode(cls, data: bytes) -> AivenMetadata:
        """Decode the plug-in's bytes; CorruptData for anything else."""
        if not data:
            return cls()
        reader = Reader(data, "custom metadata")
        fields = dict(reader.tagged_fields())
        reader.expect_end()
        if unknown := fields.keys() - {_REMOTE_SIZE, _OBJECT_PREFIX, _OBJECT_KEY}:
            raise reader.corrupt(f"the field {min(unknown)} is unknown")
        return cls(
            _size(fields.get(_REMOTE_SIZE)),
            _text(fields.get(_OBJECT_PREFIX)),
            _text(fields.get(_OBJECT_KEY)),
        )


def _size(data: bytes | None) -> int | None:
    if data is None:
        return None
    try:
        size, end = read_varlong(data, 0)
    except MalformedError as error:
        raise CorruptData(str(error), source="custom metadata") from None
    if end != len(data) or size < 0:
        raise CorruptData("REMOTE_SIZE is not a size", source="custom metadata")
    return size


def _text(data: bytes | None) -> str | None:
    if data is None:
        return None
    reader = Reader(data, "custom metadata")
    text = reader.string()
    reader.expect_end()
    return text


def object_prefix_of(data: bytes | None) -> str | None:
    """The prefix of a segment's keys by its custom metadata; None if Aiven's plug-in recorded no
    prefix, or did not write the metadata.
    """
    if data is None or CustomMetadata.is_ours(data):
        return None
    try:
        return AivenMetadata.decode(data).object_prefix
    except CorruptData:
        return None


def metadata_of(row: RemoteLogSegmentMetadata) -> CustomMetadata | AivenMetadata:
    """The custom metadata of a finished row. CorruptData if it is Strandline's and damaged; Refused
    if it is neither Strandline's nor Aiven's, or names keys that Aiven's plug-in would not give
    this segment.
    """
    data = row.custom_metadata
    if data is None:
        return AivenMetadata()
    if CustomMetadata.is_ours(data):
        return CustomMetadata.decode(data)
    try:
        found = AivenMetadata.decode(data)
    except CorruptData:
        raise Refused(
            f"segment {row.segment_id} has custom metadata that neither Strandline nor Aiven's "
            f"plug-in wrote ({len(data)} bytes, {data[:_SHOWN_BYTES].hex()}...): only the "
            "RemoteStorageManager that copied it can read it"
        ) from None
    key = segment_keys("", row.segment_id, row.start_offset).stem.removesuffix(".")
    if found.object_key not in (None, key):
        raise Refused(
            f"segment {row.segment_id} has the key {found.object_key[:200]!r} in its custom "
            f"metadata, but Aiven's plug-in would give it {key!r}: only the "
            "RemoteStorageManager that copied it can read it"
        )
    return found
