"""Reads segments from the newest metadata snapshot in the bucket instead of from their manifests.

A manifest never changes, and the row of a finished segment has its content, with the lengths and
checksums of all three objects. So a row is as good as its manifest, however old the snapshot is, if
the listing shows the segment in the bucket, complete and with these very lengths. All other
segments, and those in another layout, are left to their manifests.

A row differs from a manifest in two fields: its time is the end of the copy, not the beginning, and
its store has the node's name.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from kafka_formats.errors import CorruptData, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from pipeline.catalogue.partition_chain import FoundSegment
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import ObjectSuffix, snapshots_prefix
from rlm.reconcile.adoption_plan import StoredSegment
from rlm.stores.snapshot_plan import is_snapshot_key
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import read_snapshot
from rlmm.records.fixed_layout import decode_usual
from rlmm.records.segment_records import SEGMENT_FRONT
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from rsm_backends.store import ObjectInfo, ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import closing_stream

MANIFESTS_MIN = 500
"""Fewer manifests than this are read without looking for a snapshot."""
BYTES_A_MANIFEST = 16 * 1024
"""Bytes of a snapshot that are read in the time that one manifest takes."""
SNAPSHOT_BYTES_MAX = 4 << 30
"""Largest snapshot that is read: a driver needs this room for temporary files."""
SNAPSHOTS_LISTED_MAX = 1_000

log = logging.getLogger(__name__)


async def segments_in_snapshot(
    store: ObjectStore, config: StoreConfig, listed: Iterable[StoredSegment]
) -> dict[Uuid, FoundSegment]:
    """The segments of `listed`, all in this store, that its newest snapshot has, by segment id.

    Empty if the store has no snapshot, if `listed` is too short to be worth it, or if the snapshot
    cannot be read, which is logged: the manifests give the same answers.
    """
    wanted = {each.segment_id.id: each for each in listed if each.is_complete}
    if len(wanted) < MANIFESTS_MIN:
        return {}
    try:
        newest = await _newest(store, config.prefix)
        size_max = min(len(wanted) * BYTES_A_MANIFEST, SNAPSHOT_BYTES_MAX)
        if newest is None or newest.size > size_max:
            return {}
        with NamedTemporaryFile(prefix="strandline-", suffix=".checkpoint") as file:
            async with closing_stream(store.get(newest.key, end=newest.size)) as stream:
                async for piece in stream:
                    file.write(piece)
            file.flush()
            try:
                return await asyncio.to_thread(_rows, Path(file.name), wanted, config.name)
            except CorruptData:
                log.warning(
                    "the metadata snapshot %s:%s is damaged: the manifests are read one by one "
                    "instead. A node uploads a new one within the hour",
                    config.name,
                    newest.key,
                )
    except (StrandlineError, OSError) as error:
        log.warning("the manifests of %s are read one by one: %s", config.name, error)
    return {}


async def _newest(store: ObjectStore, prefix: str) -> ObjectInfo | None:
    """The snapshot uploaded last, from any cluster."""
    page = await store.list_page(snapshots_prefix(prefix), limit=SNAPSHOTS_LISTED_MAX)
    snapshots = [each for each in page.objects if is_snapshot_key(prefix, each.key)]
    return max(snapshots, key=lambda each: (each.last_modified_ms or 0, each.key), default=None)


def _rows(path: Path, wanted: Mapping[Uuid, StoredSegment], store: str) -> dict[Uuid, FoundSegment]:
    """The wanted segments of a snapshot. Raises before returning any if a part of it is damaged."""
    found = {}
    for control_type, value in read_snapshot(OsDisk(), path):
        if control_type is not None or not value.startswith(SEGMENT_FRONT):
            continue
        row = decode_usual(value)
        stored = None if row is None else wanted.get(row.segment_id.id)
        if row is not None and stored is not None:
            told = _told(row, stored, store)
            if told is not None:
                found[stored.segment_id.id] = told
    return found


def _told(row: RemoteLogSegmentMetadata, stored: StoredSegment, store: str) -> FoundSegment | None:
    """The segment, if its row is finished, written by us, and matches the objects as listed."""
    if (
        row.state is not SegmentState.COPY_SEGMENT_FINISHED
        or row.custom_metadata is None
        or not row.leader_epochs
        or row.start_offset != stored.start_offset
        or row.segment_id != stored.segment_id
    ):
        return None
    try:
        custom = CustomMetadata.decode(row.custom_metadata)
    except CorruptData:
        return None
    sizes = stored.sizes
    if (
        sizes[ObjectSuffix.LOG] != custom.log_bytes
        or sizes[ObjectSuffix.INDEXES] != custom.indexes_bytes
        or sizes[ObjectSuffix.MANIFEST] != custom.manifest_bytes
    ):
        return None
    return FoundSegment(
        row, store, custom if custom.store == store else replace(custom, store=store)
    )
