"""The catalogue of a bucket alone, over a folder with real manifests."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import CorruptData, NotFound, Refused, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue import manifest_catalogue
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue, OnDamage
from pipeline.catalogue.manifest_reading import OpenBucket
from pipeline.catalogue.open_catalogue import open_catalogue
from pipeline.catalogue.partition_chain import FoundSegment
from pipeline.catalogue.tiered_segment import DamagedSegment, PartitionBounds
from pipeline.stores.opened_store import opened
from rlm.format.manifest import (
    ChunkChecksums,
    IndexRange,
    IndexType,
    Manifest,
    ObjectChecksums,
    ProducerSnapshotOrigin,
    parse_manifest,
)
from rlm.format.object_keys import SegmentKeys, segment_keys
from rlm.reconcile.adoption_plan import StoredSegment
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.store_config import StoreConfig
from tests.rlm.format.test_manifest import AIVEN

TOPIC = Uuid(b"orders-topic-id!")
ORDERS = TopicIdPartition("orders", TOPIC, 0)
LOG, INDEXES = b"the log", b"the indexes"
PREFIX = "t/"


def put(
    root: Path,
    number: int,
    start: int,
    end: int,
    *,
    partition: TopicIdPartition = ORDERS,
    epochs: Sequence[tuple[int, int]] = (),
    at_ms: int | None = None,
) -> SegmentKeys:
    """Write the three objects of a segment as a node would."""
    id_ = RemoteLogSegmentId(partition, Uuid(number.to_bytes(16, "big")))
    manifest = Manifest(
        segment_id=id_,
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=1_000 + end,
        broker_id=1,
        event_timestamp_ms=number if at_ms is None else at_ms,
        leader_epochs=tuple(EpochEntry(*each) for each in epochs or ((0, start),)),
        txn_index_empty=True,
        log_bytes=len(LOG),
        indexes={
            index: IndexRange(0, 0) for index in IndexType if index is not IndexType.TRANSACTION
        },
        checksums=ObjectChecksums(_sums(LOG), _sums(INDEXES), ProducerSnapshotOrigin.COPIED),
    )
    keys = segment_keys(PREFIX, id_, start)
    for key, data in zip(keys.all(), (manifest.encode(), INDEXES, LOG), strict=True):
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return keys


def _sums(data: bytes) -> ChunkChecksums:
    return ChunkChecksums(len(data), crc32c(data), (crc32c(data),))


def catalogue(root: Path, on_damage: OnDamage | None = None, **more: Path) -> ManifestCatalogue:
    roots = {"main": root, **more}
    return ManifestCatalogue(
        {
            name: StoreConfig(name=name, kind="filesystem", path=path, prefix=PREFIX)
            for name, path in roots.items()
        },
        on_damage=on_damage,
    )


def ranges(found: ManifestCatalogue, partition: TopicIdPartition = ORDERS) -> list[list[int]]:
    return [
        [each.first_offset, each.last_offset, int.from_bytes(each.segment_id.id, "big")]
        for each in found.segments(partition)
    ]


def test_topics_and_partitions_are_found_by_their_folders(tmp_path: Path) -> None:
    for number in (0, 2, 10):
        put(tmp_path, 1 + number, 0, 9, partition=replace(ORDERS, partition=number))
    put(tmp_path, 50, 0, 9, partition=replace(ORDERS, topic="orders-eu"))
    (tmp_path / PREFIX / "_strandline").mkdir()
    (tmp_path / PREFIX / "_strandline" / "cluster.json").write_bytes(b"{}")
    (tmp_path / PREFIX / "stray").write_bytes(b"")
    found = catalogue(tmp_path)
    assert found.topics() == ["orders", "orders-eu"]
    assert [each.partition for each in found.partitions("orders")] == [0, 2, 10]
    assert len(found.partitions("orders-eu")) == 1
    with pytest.raises(NotFound, match="topic payments has no segment in main"):
        found.partitions("payments")


def test_topics_with_the_longest_names_are_found_like_others(tmp_path: Path) -> None:
    """Beside one whose folder is what the first part of theirs is called."""
    names = ["o" * 77, "o" * 77 + f"-{TOPIC}" + "o" * 149, "o" * 232, "o" * 233, "o" * 249]
    for number, name in enumerate(names):
        put(tmp_path, 1 + number, 0, 9, partition=replace(ORDERS, topic=name))
    found = catalogue(tmp_path)
    assert found.topics() == sorted(names)
    for number, name in enumerate(names):
        (partition,) = found.partitions(name)
        assert partition == replace(ORDERS, topic=name)
        assert ranges(found, partition) == [[0, 9, 1 + number]]


def test_segments_are_what_their_manifests_say(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 9)
    put(tmp_path, 2, 10, 29, epochs=((0, 10), (2, 15)))
    put(tmp_path, 3, 20, 24, epochs=((2, 20),))
    found = catalogue(tmp_path)
    assert found.bounds(ORDERS) == PartitionBounds(0, 30)
    assert ranges(found) == [[0, 9, 1], [10, 29, 2]]
    second = found.segments(ORDERS, 12, 13)[0]
    assert (second.first_offset, second.last_offset) == (12, 13)
    assert second.leader_epochs == ((0, 10), (2, 15))
    assert second.objects is not None
    assert (second.store, second.objects.log_crc32c) == ("main", crc32c(LOG))
    manifest = (tmp_path / second.keys(PREFIX).manifest).read_bytes()
    assert second.objects.manifest_crc32c == crc32c(manifest)


def test_what_has_no_manifest_is_no_segment(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 9)
    (tmp_path / put(tmp_path, 2, 10, 19).manifest).unlink()
    assert ranges(catalogue(tmp_path)) == [[0, 9, 1]]


def test_a_manifest_that_is_lost_between_other_segments_is_damage(tmp_path: Path) -> None:
    """One that is not there yet, or not any more, is not; nor one whose offsets others have."""
    starts = {1: 0, 2: 10, 3: 20, 4: 30, 5: 40, 6: 42, 7: 50, 8: 60}
    ends = {6: 45}
    keys = {
        number: put(tmp_path, number, start, ends.get(number, start + 9))
        for number, start in starts.items()
    }
    for number in (1, 3, 6, 8):
        (tmp_path / keys[number].manifest).unlink()
    lost = put(tmp_path, 9, 21, 29)
    for key in (lost.manifest, lost.log):
        (tmp_path / key).unlink()
    damaged: list[DamagedSegment] = []
    found = catalogue(tmp_path, on_damage=damaged.append)
    assert ranges(found) == [[10, 19, 2], [30, 39, 4], [40, 49, 5], [50, 59, 7]]
    (only,) = damaged
    assert (only.segment_id.id, only.start_offset, only.missing) == (
        Uuid((3).to_bytes(16, "big")), 20, (keys[3].manifest,),
    )  # fmt: skip
    assert ranges(catalogue(tmp_path)) == ranges(found)


async def test_a_manifest_that_was_written_after_the_list_is_not_lost(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        keys = put(tmp_path, number, 10 * number, 10 * number + 9)
    config = StoreConfig(name="main", kind="filesystem", path=tmp_path, prefix=PREFIX)
    async with opened(config) as store:
        bucket = OpenBucket(config, store)
        id_ = RemoteLogSegmentId(ORDERS, Uuid((3).to_bytes(16, "big")))
        stored = StoredSegment(id_, 30, "main", {})
        assert await bucket.without_manifest(stored) is None
        (tmp_path / keys.manifest).unlink()
        assert await bucket.without_manifest(stored) is not None


def test_a_manifest_without_its_log_is_told_by_name(tmp_path: Path) -> None:
    keys = put(tmp_path, 1, 0, 9)
    (tmp_path / keys.log).unlink()
    with pytest.raises(CorruptData, match=rf"main:{keys.manifest} .*\.log is not in the store"):
        catalogue(tmp_path).bounds(ORDERS)


@pytest.mark.parametrize("damage", ["text", "length", "name", "epochs"])
def test_a_damaged_manifest_is_told_by_name(tmp_path: Path, damage: str) -> None:
    keys = put(tmp_path, 1, 0, 9, epochs=((3, 0), (5, 0)) if damage == "epochs" else ())
    match damage:
        case "text":
            (tmp_path / keys.manifest).write_bytes(b"{")
        case "length":
            (tmp_path / keys.log).write_bytes(LOG + b"!")
        case "name":
            other = put(tmp_path / "other", 2, 0, 9)
            shutil.copy(tmp_path / "other" / other.manifest, tmp_path / keys.manifest)
        case "epochs":
            text = (tmp_path / keys.manifest).read_bytes()
            (tmp_path / keys.manifest).write_bytes(text.replace(b'{"3":0,"5":0}', b"{}"))
    with pytest.raises(CorruptData, match=f"main:{keys.manifest}"):
        catalogue(tmp_path).segments(ORDERS)


def test_who_looks_for_damage_is_told_of_it_and_gets_the_rest(tmp_path: Path) -> None:
    cut, lacking = put(tmp_path, 1, 0, 9), put(tmp_path, 2, 10, 19)
    put(tmp_path, 3, 20, 29)
    (tmp_path / cut.manifest).write_bytes((tmp_path / cut.manifest).read_bytes()[:-5])
    for key in (lacking.log, lacking.indexes):
        (tmp_path / key).unlink()
    told: list[DamagedSegment] = []
    found = catalogue(tmp_path, told.append)
    assert ranges(found) == [[20, 29, 3]]
    assert [
        (each.start_offset, each.end_offset, each.key, each.missing)
        for each in sorted(told, key=lambda each: each.start_offset)
    ] == [
        (0, None, cut.manifest, ()),
        (10, 19, lacking.manifest, (lacking.indexes, lacking.log)),
    ]


def test_damage_in_one_of_the_topics_with_one_name_is_told_too(tmp_path: Path) -> None:
    older = replace(ORDERS, topic_id=Uuid(b"an older topic!!"))
    put(tmp_path, 1, 500, 509, partition=older)
    keys = put(tmp_path, 2, 0, 9)
    (tmp_path / keys.manifest).write_bytes(b"{")
    told: list[DamagedSegment] = []
    assert catalogue(tmp_path, told.append).partitions("orders") == [older]
    assert [each.segment_id.partition for each in told] == [ORDERS]
    with pytest.raises(CorruptData, match=f"main:{keys.manifest}"):
        catalogue(tmp_path).partitions("orders")


def test_of_topics_with_one_name_the_one_that_copied_last_is_read(tmp_path: Path) -> None:
    older = replace(ORDERS, topic_id=Uuid(b"an older topic!!"))
    put(tmp_path, 1, 500, 509, partition=older, at_ms=4_000)
    put(tmp_path, 2, 0, 9, partition=replace(older, partition=1), at_ms=9_000)
    put(tmp_path, 3, 0, 9, at_ms=10_000)
    found = catalogue(tmp_path)
    assert found.partitions("orders") == [ORDERS]
    assert ranges(found, older) == [[500, 509, 1]], "who names it reads it"


def test_segments_of_one_partition_may_be_in_several_stores(tmp_path: Path) -> None:
    put(tmp_path / "old", 1, 0, 9)
    put(tmp_path / "new", 2, 10, 19)
    put(tmp_path / "new", 1, 0, 9)
    found = catalogue(tmp_path / "new", archive=tmp_path / "old")
    assert ranges(found) == [[0, 9, 1], [10, 19, 2]]
    assert {each.store for each in found.segments(ORDERS)} == {"main"}


def test_new_segments_are_seen_after_a_refresh_and_known_manifests_not_read_again(
    tmp_path: Path,
) -> None:
    keys = put(tmp_path, 1, 0, 9)
    told: list[tuple[int, int]] = []
    configs = catalogue(tmp_path).stores
    found = ManifestCatalogue(configs, progress=lambda *each: told.append(each))
    assert ranges(found) == [[0, 9, 1]]
    put(tmp_path, 2, 10, 19)
    assert ranges(found) == [[0, 9, 1]]
    (tmp_path / keys.manifest).write_bytes(b"never read again")
    found.refresh()
    told.clear()
    assert ranges(found) == [[0, 9, 1], [10, 19, 2]]
    assert told == [(1, 2), (2, 2)]
    (tmp_path / keys.manifest).unlink()
    found.refresh()
    assert ranges(found) == [[10, 19, 2]]


def test_many_partitions_are_prepared_at_once(tmp_path: Path) -> None:
    partitions = [replace(ORDERS, partition=number) for number in range(3)]
    for number, partition in enumerate(partitions):
        put(tmp_path, number, 0, 9, partition=partition)
    found = catalogue(tmp_path)
    found.prepare(partitions)
    shutil.rmtree(tmp_path / PREFIX)
    assert [ranges(found, each) for each in partitions] == [[[0, 9, n]] for n in range(3)]


def test_manifests_of_many_partitions_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partitions = [replace(ORDERS, partition=number) for number in range(5)]
    for number, partition in enumerate(partitions):
        put(tmp_path, number, 0, 9, partition=partition)
    monkeypatch.setattr(manifest_catalogue, "READ_AT_ONCE", 3)
    read_all, groups = manifest_catalogue._read_all, []

    async def counted(
        buckets: Mapping[str, OpenBucket], group: Sequence[StoredSegment]
    ) -> list[FoundSegment | DamagedSegment]:
        groups.append(len(group))
        return await read_all(buckets, group)

    monkeypatch.setattr(manifest_catalogue, "_read_all", counted)
    told: list[tuple[int, int]] = []
    found = ManifestCatalogue(catalogue(tmp_path).stores, progress=lambda *each: told.append(each))
    found.prepare(partitions)
    assert groups == [3, 2]
    assert told == [(0, 5), (3, 5), (5, 5)]
    assert [ranges(found, each) for each in partitions] == [[[0, 9, n]] for n in range(5)]


def test_a_store_that_takes_too_long_is_told(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 9)
    found = ManifestCatalogue(catalogue(tmp_path).stores, deadline_s=0.0)
    with pytest.raises(RetryLater, match="did not end within 0 s"):
        found.topics()


async def test_it_answers_inside_a_running_loop_too(tmp_path: Path) -> None:
    put(tmp_path, 1, 0, 9)
    assert catalogue(tmp_path).topics() == ["orders"]


@pytest.mark.parametrize("name", ["plain", "compressed", "encrypted", "transactions"])
def test_buckets_of_aivens_plug_in_are_read_as_well(tmp_path: Path, name: str) -> None:
    data = (AIVEN / f"{name}.json").read_bytes()
    manifest = parse_manifest(data, source=name)
    keys = segment_keys("", manifest.segment_id, manifest.start_offset)
    transforms = manifest.transforms
    size = manifest.log_bytes if transforms is None else transforms.chunks.stored_bytes
    indexes = max(each.position + each.size for each in manifest.indexes.values())
    for key, content in zip(keys.all(), (data, bytes(indexes), bytes(size)), strict=True):
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(content)
    found = open_catalogue({"strandline.store": f"file://{tmp_path}"}, {})
    partition = found.partitions(manifest.segment_id.partition.topic)[0]
    (segment,) = found.segments(partition)
    assert (segment.start_offset, segment.end_offset) == (
        manifest.start_offset,
        manifest.end_offset,
    )
    assert (segment.log_bytes, segment.objects) == (manifest.log_bytes, None)
    assert segment.txn_index_empty == (name != "transactions")


def test_what_is_asked_beside_a_refused_request_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word about tasks that were destroyed."""
    ended: list[str] = []

    class Asked:
        def __init__(self, config: StoreConfig) -> None:
            self.name = config.name

        async def list_folders(self, *_: object, **__: object) -> None:
            if self.name == "refuses":
                raise Refused("no")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ended.append(self.name)
                raise

    @asynccontextmanager
    async def opened(config: StoreConfig) -> AsyncIterator[Asked]:
        yield Asked(config)

    monkeypatch.setattr(manifest_catalogue, "opened", opened)
    configs = {
        name: StoreConfig(name=name, kind="filesystem", path=tmp_path)
        for name in ("refuses", "waits")
    }
    with pytest.raises(Refused):
        ManifestCatalogue(configs).topics()
    assert ended == ["waits"]
    assert caplog.records == []
