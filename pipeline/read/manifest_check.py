"""Compares a manifest with the catalogue's data of its segment. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kafka_formats.crc32c import Buffer, crc32c, crc32c_combine
from pipeline.catalogue.tiered_segment import TieredSegment
from rlm.format.manifest import ChunkChecksums, Manifest


def manifest_bytes_differ(segment: TieredSegment, data: Buffer) -> str | None:
    """The difference of a manifest's bytes from their record in the metadata log, or None."""
    recorded = segment.objects
    if recorded is None:
        return None
    found = crc32c(data)
    if (len(data), found) == (recorded.manifest_bytes, recorded.manifest_crc32c):
        return None
    return (
        f"{recorded.manifest_bytes} bytes with CRC32C {recorded.manifest_crc32c:08x} are recorded, "
        f"{len(data)} with {found:08x} are stored"
    )


def differences(segment: TieredSegment, manifest: Manifest) -> Iterator[str]:
    """Each field of the segment in which manifest and catalogue differ."""
    for what, ours, theirs in (
        ("id", segment.segment_id, manifest.segment_id),
        ("start offset", segment.start_offset, manifest.start_offset),
        ("end offset", segment.end_offset, manifest.end_offset),
        ("size of .log", segment.log_bytes, manifest.log_bytes),
        ("leader epochs", segment.leader_epochs, manifest.leader_epochs),
    ):
        if ours != theirs:
            yield f"the manifest has the {what} {_shown(theirs)}, the metadata {_shown(ours)}"
    if segment.max_timestamp_ms not in (-1, manifest.max_timestamp_ms):
        yield (
            f"the manifest has the largest timestamp {manifest.max_timestamp_ms}, the metadata "
            f"{segment.max_timestamp_ms}"
        )
    if segment.txn_index_empty != manifest.txn_index_empty:
        yield "manifest and metadata disagree about the existence of a transaction index"
    recorded = segment.objects
    if recorded is None:
        return
    if manifest.checksums is None:
        yield "the manifest has no checksums of ours, but the metadata has"
        return
    for name, sums, size, crc in (
        (".log", manifest.checksums.log, recorded.log_bytes, recorded.log_crc32c),
        (".indexes", manifest.checksums.indexes, recorded.indexes_bytes, recorded.indexes_crc32c),
    ):
        if (sums.size_bytes, sums.crc32c) != (size, crc):
            yield (
                f"the manifest has {sums.size_bytes} bytes with CRC32C {sums.crc32c:08x} for "
                f"{name}, the metadata {size} with {crc:08x}"
            )


def table_differs(sums: ChunkChecksums) -> str | None:
    """The difference of the chunks' combined checksums from the object's, or None."""
    combined = 0
    for number, crc in enumerate(sums.chunks):
        size = min(sums.chunk_bytes, sums.size_bytes - number * sums.chunk_bytes)
        combined = crc32c_combine(combined, crc, size)
    if combined == sums.crc32c:
        return None
    return (
        f"the chunks' checksums combine to CRC32C {combined:08x}, but the object's is "
        f"{sums.crc32c:08x}"
    )


def _shown(value: object) -> str:
    return str(value)[:200]
