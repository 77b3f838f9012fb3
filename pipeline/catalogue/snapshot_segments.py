"""Segments whose manifests need not be read: the newest metadata snapshot in the bucket has them.

A manifest never changes, and the row of a finished segment has what it says, with the lengths and
checksums of all three objects. So a row is as good as the manifest it was made with, however old
the snapshot is: that a segment still stands in the bucket, whole and with these very lengths, is
for the listing to say. What is not so, or in another layout, is left to its manifest.

Two things are the snapshot's own: a row has the time at which its copy ended, not began; and it
names the store as the node does.
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
from rlm.adoption_plan import StoredSegment
from rlm.custom_metadata import CustomMetadata
from rlm.object_keys import ObjectSuffix, snapshots_prefix
from rlm.snapshot_plan import is_snapshot_key
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import read_snapshot
from rlmm.row_segments import decode_usual
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from rlmm.segment_records import SEGMENT_FRONT
from rsm_backends.store import ObjectInfo, ObjectStore
from rsm_backends.store_config import StoreConfig
from rsm_backends.streams import closing_stream

MANIFESTS_MIN = 500
"""For fewer no snapshot is looked for."""
BYTES_A_MANIFEST = 16 * 1024
"""Reading so much of a snapshot takes no longer than asking a store for one manifest."""
SNAPSHOT_BYTES_MAX = 4 << 30
"""So much room for temporary files is asked of a driver at most."""
SNAPSHOTS_LISTED_MAX = 1_000

log = logging.getLogger(__name__)


async def segments_in_snapshot(
    store: ObjectStore, config: StoreConfig, listed: Iterable[StoredSegment]
) -> dict[Uuid, FoundSegment]:
    """Those of `listed`, all of this store, that its newest snapshot tells, by segment id.

    Empty where there is no snapshot, where it is not worth it for so few, and where it cannot be
    read, of which a line is logged: the manifests say the same.
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
                    "instead. A node uploads another within the hour",
                    config.name,
                    newest.key,
                )
    except (StrandlineError, OSError) as error:
        log.warning("the manifests of %s are read one by one: %s", config.name, error)
    return {}


async def _newest(store: ObjectStore, prefix: str) -> ObjectInfo | None:
    """The snapshot uploaded last, of whichever cluster."""
    page = await store.list_page(snapshots_prefix(prefix), limit=SNAPSHOTS_LISTED_MAX)
    snapshots = [each for each in page.objects if is_snapshot_key(prefix, each.key)]
    return max(snapshots, key=lambda each: (each.last_modified_ms or 0, each.key), default=None)


def _rows(path: Path, wanted: Mapping[Uuid, StoredSegment], store: str) -> dict[Uuid, FoundSegment]:
    """Rows count once all of the snapshot was read."""
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
    """The segment, if the row is one of ours and finished, about this very one as it is listed."""
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
