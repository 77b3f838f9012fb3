"""Segments that a metadata snapshot in the bucket tells, so that nobody reads their manifests."""

from __future__ import annotations

import errno
import logging
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import CorruptData, Refused
from kafka_formats.kafka_uuid import Uuid
from pipeline.catalogue import snapshot_segments
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from pipeline.catalogue.tiered_segment import DamagedSegment
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.object_keys import SegmentKeys, parse_segment_key
from rlm.reconcile.adoption_plan import StoredSegment, WholeSegment, whole_segment
from rlm.stores.snapshot_plan import snapshot_key
from rlmm.log.disk import OsDisk
from rlmm.log.quorum_records import Voter
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import SnapshotId
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows.keys import TOTALS_KEY, segment_key
from rlmm.rows.snapshot_rows import to_proposals
from rlmm.segment import Incarnation, RemoteLogSegmentMetadata, SegmentState
from rsm_backends.store import ObjectInfo, ObjectStore
from tests.pipeline.catalogue.test_manifest_catalogue import (
    ORDERS,
    PREFIX,
    catalogue,
    put,
    ranges,
)

NODE = Uuid(b"node-directory-1")
WRITER = Incarnation(1, NODE, 1)
FINISHED_LATER_MS = 50_000


@pytest.fixture(autouse=True)
def worth_it_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_segments, "MANIFESTS_MIN", 1)


def finished(root: Path, keys: SegmentKeys, *, store: str = "main") -> RemoteLogSegmentMetadata:
    """The row that a node keeps of a segment in the folder."""
    parsed = parse_segment_key(PREFIX, keys.manifest)
    assert parsed is not None
    sizes = {
        key.suffix: (root / name).stat().st_size
        for name in keys.all()
        if (key := parse_segment_key(PREFIX, name)) is not None
    }
    stored = StoredSegment(parsed.segment_id, parsed.start_offset, store, sizes)
    whole = whole_segment(stored, (root / keys.manifest).read_bytes(), None)
    assert isinstance(whole, WholeSegment), whole
    return replace(
        whole.row,
        state=SegmentState.COPY_SEGMENT_FINISHED,
        event_timestamp_ms=FINISHED_LATER_MS,
        custom_metadata=whole.custom_metadata.encode(),
        token=1,
        writer=WRITER,
        upload_deadline_ms=1,
        finished_at=7,
    )


def upload(
    root: Path, rows: Sequence[RemoteLogSegmentMetadata], *, end: int = 100, cluster: str = "one"
) -> Path:
    """As a node does: the snapshot's file, among other rows."""
    folder = root / "written"
    folder.mkdir(exist_ok=True)
    snapshot = SnapshotId(end, 3)
    writer = SnapshotWriter(
        OsDisk(), folder, snapshot, last_contained_timestamp_ms=1, voters=(Voter(1, NODE),)
    )
    segments = [(segment_key(row.segment_id.id), encode_segment_row(row)) for row in rows]
    writer.add(to_proposals(sorted([(TOTALS_KEY, b"totals"), *segments])))
    path = root / snapshot_key(PREFIX, cluster, snapshot)
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(writer.finish(), path)
    return path


def spoil(root: Path, keys: SegmentKeys) -> None:
    """Whoever reads this manifest fails; a listing sees no difference."""
    path = root / keys.manifest
    path.write_bytes(b"!" * path.stat().st_size)


def test_what_a_snapshot_tells_is_what_the_manifests_tell(tmp_path: Path) -> None:
    two = replace(ORDERS, partition=2)
    segments = [
        put(tmp_path, 1, 0, 9),
        put(tmp_path, 2, 10, 29, epochs=((0, 10), (2, 15))),
        put(tmp_path, 3, 20, 24, epochs=((2, 20),)),
        put(tmp_path, 4, 5, 7, partition=two),
    ]
    by_manifest = catalogue(tmp_path)
    expected = [by_manifest.segments(each) for each in (ORDERS, two)]
    upload(tmp_path, [finished(tmp_path, keys) for keys in segments])
    for keys in segments:
        spoil(tmp_path, keys)
    found = catalogue(tmp_path)
    found.prepare([ORDERS, two])
    assert [found.segments(each) for each in (ORDERS, two)] == expected


def test_what_came_after_the_snapshot_is_read_of_its_manifest(tmp_path: Path) -> None:
    first = put(tmp_path, 1, 0, 9)
    upload(tmp_path, [finished(tmp_path, first)])
    spoil(tmp_path, first)
    told: list[tuple[int, int]] = []
    found = ManifestCatalogue(catalogue(tmp_path).stores, progress=lambda *each: told.append(each))
    put(tmp_path, 2, 10, 19)
    assert ranges(found) == [[0, 9, 1], [10, 19, 2]]
    assert told == [(1, 2), (2, 2)]
    put(tmp_path, 3, 20, 29)
    found.refresh()
    assert ranges(found) == [[0, 9, 1], [10, 19, 2], [20, 29, 3]]


def test_the_newest_snapshot_is_read_of_whichever_cluster(tmp_path: Path) -> None:
    keys = put(tmp_path, 1, 0, 9)
    stale = upload(tmp_path, [], end=900, cluster="before")
    newest = upload(tmp_path, [finished(tmp_path, keys)], end=100, cluster="now")
    os.utime(stale, (1_000, 1_000))
    os.utime(newest, (2_000, 2_000))
    other = newest.with_name("notes.txt")
    other.write_bytes(b"somebody else's")
    spoil(tmp_path, keys)
    assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]
    os.utime(stale, (3_000, 3_000))
    with pytest.raises(CorruptData, match=keys.manifest):
        ranges(catalogue(tmp_path))


def test_the_store_has_the_name_that_readers_give_it(tmp_path: Path) -> None:
    keys = put(tmp_path, 1, 0, 9)
    expected = catalogue(tmp_path).segments(ORDERS)
    upload(tmp_path, [finished(tmp_path, keys, store="the-node's")])
    spoil(tmp_path, keys)
    assert catalogue(tmp_path).segments(ORDERS) == expected


def other_length(row: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    assert row.custom_metadata is not None
    custom = CustomMetadata.decode(row.custom_metadata)
    return replace(row, custom_metadata=replace(custom, log_bytes=custom.log_bytes + 1).encode())


def other_partition(row: RemoteLogSegmentMetadata) -> RemoteLogSegmentMetadata:
    partition = replace(ORDERS, partition=7)
    return replace(row, segment_id=replace(row.segment_id, partition=partition))


LEFT_TO_THE_MANIFEST: dict[str, Callable[[RemoteLogSegmentMetadata], RemoteLogSegmentMetadata]] = {
    "another length": other_length,
    "another partition": other_partition,
    "another start": lambda row: replace(row, start_offset=1),
    "a copy under way": lambda row: replace(row, state=SegmentState.COPY_SEGMENT_STARTED),
    "a delete under way": lambda row: replace(row, state=SegmentState.DELETE_SEGMENT_STARTED),
    "no leader epoch": lambda row: replace(row, leader_epochs=()),
    "nothing of its objects": lambda row: replace(row, custom_metadata=None),
    "custom metadata of another manager": lambda row: replace(row, custom_metadata=b"theirs"),
    "fields that are not known": lambda row: replace(row, unknown_tags=((9, b"new"),)),
}


@pytest.mark.parametrize("what", LEFT_TO_THE_MANIFEST)
def test_whatever_is_not_just_so_is_left_to_the_manifest(tmp_path: Path, what: str) -> None:
    keys = put(tmp_path, 1, 0, 9)
    row = finished(tmp_path, keys)
    upload(tmp_path, [replace(LEFT_TO_THE_MANIFEST[what](row), end_offset=5_000)])
    assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]


@pytest.mark.parametrize("missing", ["log", "indexes"])
def test_a_segment_that_is_not_whole_is_told_as_ever(tmp_path: Path, missing: str) -> None:
    keys = put(tmp_path, 1, 0, 9)
    upload(tmp_path, [finished(tmp_path, keys)])
    (tmp_path / getattr(keys, missing)).unlink()
    with pytest.raises(CorruptData, match=rf"\.{missing} is not in the store"):
        ranges(catalogue(tmp_path))


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_instead_of_a_damaged_snapshot_the_manifests_are_read(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    keys = put(tmp_path, 1, 0, 9)
    path = upload(tmp_path, [replace(finished(tmp_path, keys), end_offset=5_000)])
    data = bytearray(path.read_bytes())
    match damage:
        case "cut":
            del data[-20:]
        case "changed":
            data[len(data) - 30] ^= 1
        case "empty":
            data.clear()
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]
    assert f"main:{path.relative_to(tmp_path)} is damaged" in caplog.text


def test_no_more_is_read_of_a_snapshot_than_the_listing_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def smaller(store: ObjectStore, prefix: str) -> ObjectInfo | None:
        found = await newest(store, prefix)
        return None if found is None else found._replace(size=found.size - 1)

    path = upload(tmp_path, [finished(tmp_path, put(tmp_path, 1, 0, 9))])
    newest = snapshot_segments._newest
    monkeypatch.setattr(snapshot_segments, "_newest", smaller)
    with caplog.at_level(logging.WARNING):
        assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]
    assert f"main:{path.relative_to(tmp_path)} is damaged" in caplog.text


@pytest.mark.parametrize("bound", ["MANIFESTS_MIN", "BYTES_A_MANIFEST"])
def test_for_too_few_manifests_no_snapshot_is_read(
    tmp_path: Path, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = put(tmp_path, 1, 0, 9)
    size = upload(tmp_path, [finished(tmp_path, keys)]).stat().st_size
    enough = 1 if bound == "MANIFESTS_MIN" else size
    spoil(tmp_path, keys)
    monkeypatch.setattr(snapshot_segments, bound, enough)
    assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]
    monkeypatch.setattr(snapshot_segments, bound, enough + (1 if bound == "MANIFESTS_MIN" else -1))
    with pytest.raises(CorruptData, match=keys.manifest):
        ranges(catalogue(tmp_path))


def test_who_looks_for_damage_has_every_manifest_read(tmp_path: Path) -> None:
    keys = put(tmp_path, 1, 0, 9)
    put(tmp_path, 2, 10, 19)
    upload(tmp_path, [finished(tmp_path, keys)])
    spoil(tmp_path, keys)
    told: list[DamagedSegment] = []
    assert ranges(catalogue(tmp_path, told.append)) == [[10, 19, 2]]
    assert [each.key for each in told] == [keys.manifest]


NOT_READ = {
    "_newest": Refused("no permission to list t/_strandline/snapshots/"),
    "NamedTemporaryFile": OSError(errno.ENOSPC, "No space left on device"),
}


@pytest.mark.parametrize("step", NOT_READ)
def test_where_no_snapshot_can_be_read_the_manifests_are(
    tmp_path: Path, step: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise NOT_READ[step]

    upload(tmp_path, [finished(tmp_path, put(tmp_path, 1, 0, 9))])
    monkeypatch.setattr(snapshot_segments, step, fails)
    with caplog.at_level(logging.WARNING):
        assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]
    assert f"the manifests of main are read one by one: {NOT_READ[step]}" in caplog.text
