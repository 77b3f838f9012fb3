"""Snapshots in the store: whole, newest first, never at the node's cost."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.crc32c import crc32c as crc32c_of
from kafka_formats.errors import AlreadyExists, CorruptData, Refused, RetryLater
from rlm.control.node_problem import ProblemArea
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.stores.snapshot_plan import snapshot_key
from rlm.stores.snapshot_upload import SnapshotUploader, SnapshotUploadLimits
from rlm.stores.tier_store import TierStore
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import SnapshotWriter, snapshot_file_name
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_log import LogDescription, Proposal, SnapshotId
from rlmm.partition_state import Totals
from rsm_backends.memory import MemoryStore
from rsm_backends.store import PART_BYTES_MIN, ListPage, ObjectInfo, ObjectStore
from rsm_backends.streams import read_all
from tests.rlm.planner_facts import ME
from tests.rlm.virtual_time import run_virtually, virtual_ambient

IDENTITY = Identity("cluster-a", "kafka-a", ME)
HOUR_S = 3_600.0
DEFAULT_LIMITS = SnapshotUploadLimits()


@dataclass
class Metadata(RemoteLogMetadataManager):
    """A leader whose snapshots have one row, repeated."""

    directory: Path
    leader_id: int = ME.node_id
    applied_end: int = 10
    taken: list[int] = field(default_factory=list)
    fails: bool = False
    unheard: int = 0
    """Records that a barrier brings."""

    def describe(self) -> LogDescription:
        end = self.applied_end
        return LogDescription("cluster-a", ME.node_id, self.leader_id, 1, end, 0, end, (), ())

    def totals(self) -> Totals:
        return Totals(copy_finished=1)

    async def catch_up(self, *, deadline_s: float = 0.0) -> None:
        self.applied_end += self.unheard

    async def take_snapshot(self) -> SnapshotId:
        if self.fails:
            raise RetryLater("the disk is full")
        snapshot = SnapshotId(self.applied_end, 1)
        self.write(snapshot, b"rows up to %d" % self.applied_end)
        self.taken.append(self.applied_end)
        return snapshot

    def write(self, snapshot: SnapshotId, row: bytes, times: int = 1) -> bytes:
        writer = SnapshotWriter(
            OsDisk(), self.directory, snapshot, last_contained_timestamp_ms=0, voters=()
        )
        writer.add([Proposal(None, row)] * times)
        return writer.finish().read_bytes()


class Confirming:
    """The marker, as the service looks at it."""

    def __init__(self) -> None:
        self.shut_out = False
        self.asked = 0

    async def __call__(self, _tier: TierStore) -> None:
        self.asked += 1
        if self.shut_out:
            raise Refused("another cluster took this prefix over")


def uploader(
    metadata: Metadata,
    store: ObjectStore,
    *,
    confirm: Confirming | None = None,
    limits: SnapshotUploadLimits = DEFAULT_LIMITS,
) -> SnapshotUploader:
    return SnapshotUploader(
        metadata,
        metadata.directory,
        TierStore("main", store, "p/"),
        around=Surroundings(IDENTITY, CopyLimits(), virtual_ambient()),
        confirm_prefix=confirm or Confirming(),
        limits=limits,
    )


async def ends(store: ObjectStore) -> list[int]:
    page = await store.list_page("p/_strandline/snapshots/cluster-a/")
    return [int(each.key.rpartition("/")[2][:20]) for each in page.objects]


def key(end: int) -> str:
    return snapshot_key("p/", "cluster-a", SnapshotId(end, 1))


def new_store() -> MemoryStore:
    return MemoryStore(virtual_ambient().now_ms)


def test_a_snapshot_goes_up_every_hour_and_after_each_new_one(tmp_path: Path) -> None:
    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path)
        snapshots = uploader(metadata, store)
        snapshots.start()
        await asyncio.sleep(1)
        assert metadata.taken == [10]
        assert b"rows up to 10" in await read_all(store, key(10))

        metadata.applied_end = 20
        await asyncio.sleep(HOUR_S / 2)
        assert await ends(store) == [10]
        metadata.write(SnapshotId(15, 1), b"taken for the log's own sake")
        await asyncio.sleep(120)
        assert await ends(store) == [10, 15]
        await asyncio.sleep(HOUR_S)
        assert await ends(store) == [10, 15, 20]
        assert metadata.taken == [10, 20]
        await snapshots.close()
        metadata.applied_end = 30
        await asyncio.sleep(2 * HOUR_S)
        assert metadata.taken == [10, 20]

    run_virtually(main)


def test_a_log_that_was_set_back_below_the_stores_newest_snapshot_is_told(tmp_path: Path) -> None:
    """Else nothing goes up, without a word, and the latest is what this cluster gave up."""

    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path)
        await store.put(key(50), b"rows", crc32c=crc32c_of(b"rows"))
        snapshots = uploader(metadata, store)
        snapshots.start()
        await asyncio.sleep(2 * HOUR_S)
        (problem,) = snapshots.problems()
        assert f"{key(50)} ends above this cluster's log" in problem.text
        assert await ends(store) == [50]
        metadata.unheard = 40
        await asyncio.sleep(120)
        assert snapshots.problems() == ()
        await snapshots.close()

    run_virtually(main)


def test_the_newest_stay(tmp_path: Path) -> None:
    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path)
        other = snapshot_key("p/", "cluster-before", SnapshotId(1, 1))
        await store.put(other, b"x", crc32c=crc32c(b"x"))
        snapshots = uploader(metadata, store, limits=SnapshotUploadLimits(kept=3))
        for end in (10, 20, 30, 40, 50):
            metadata.write(SnapshotId(end, 1), b"%d" % end)
            await snapshots.run_once()
        assert await ends(store) == [30, 40, 50]
        assert (await store.head(other)).size == 1

    run_virtually(main)


def test_a_large_snapshot_goes_up_in_parts_and_is_the_same_bytes(tmp_path: Path) -> None:
    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path, applied_end=5)
        row = bytes(range(251)) * 100
        data = metadata.write(SnapshotId(10, 1), row, 2 * PART_BYTES_MIN // len(row) + 3)
        await uploader(metadata, store).run_once()
        assert await read_all(store, key(10)) == data

    run_virtually(main)


def test_who_does_not_lead_asks_the_store_nothing(tmp_path: Path) -> None:
    class Untouched(MemoryStore):
        async def list_page(
            self, prefix: str, *, cursor: str | None = None, limit: int = 1000
        ) -> ListPage:
            raise AssertionError("a follower listed the store")

    async def main() -> None:
        metadata = Metadata(tmp_path, leader_id=ME.node_id + 1)
        metadata.write(SnapshotId(10, 1), b"x")
        await uploader(metadata, Untouched(virtual_ambient().now_ms)).run_once()
        assert metadata.taken == []

    run_virtually(main)


def test_equal_offsets_are_equal_bytes_so_what_is_there_counts_as_uploaded(tmp_path: Path) -> None:
    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path)
        snapshots = uploader(metadata, store)
        await snapshots.run_once()
        data = metadata.write(SnapshotId(20, 1), b"rows")
        await store.put(key(20), data, crc32c=crc32c(data))  # by the leader before
        await snapshots.run_once()
        assert await ends(store) == [10, 20]

    run_virtually(main)


def test_a_prefix_that_another_cluster_took_over_gets_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        store, metadata, confirm = new_store(), Metadata(tmp_path), Confirming()
        confirm.shut_out = True
        with pytest.raises(Refused):
            await uploader(metadata, store, confirm=confirm).run_once()
        assert await ends(store) == []

    run_virtually(main)


def test_a_failed_upload_is_reported_and_made_good_later(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path, fails=True)
        snapshots = uploader(metadata, store)
        snapshots.start()
        await asyncio.sleep(10 * 60)
        (problem,) = snapshots.problems()
        assert (problem.area, problem.name) == (ProblemArea.SNAPSHOTS, None)
        assert "is not in the store 'main': the disk is full" in problem.text
        metadata.fails = False
        await asyncio.sleep(2 * 60)
        assert snapshots.problems() == ()
        assert await ends(store) == [10]
        await snapshots.close()

    run_virtually(main)


def test_a_damaged_snapshot_is_not_uploaded_and_displaces_no_whole_one(tmp_path: Path) -> None:
    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path)
        snapshots = uploader(metadata, store, limits=SnapshotUploadLimits(kept=1))
        await snapshots.run_once()
        metadata.write(SnapshotId(20, 1), b"rows")
        path = tmp_path / snapshot_file_name(SnapshotId(20, 1))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptData, match=path.name):
            await snapshots.run_once()
        assert await ends(store) == [10]
        metadata.write(SnapshotId(30, 1), b"rows")
        await snapshots.run_once()
        assert await ends(store) == [30]

    run_virtually(main)


def test_a_store_that_never_answers_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    class Silent(MemoryStore):
        async def put(
            self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
        ) -> ObjectInfo:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    async def main() -> None:
        metadata = Metadata(tmp_path)
        snapshots = uploader(metadata, Silent(virtual_ambient().now_ms))
        with pytest.raises(RetryLater, match="took longer than 900 s"):
            await snapshots.run_once()

    run_virtually(main)


def test_a_snapshot_that_was_removed_meanwhile_is_no_disaster(tmp_path: Path) -> None:
    class Removing(Confirming):
        async def __call__(self, tier: TierStore) -> None:
            await super().__call__(tier)
            for path in tmp_path.iterdir():
                path.unlink()

    async def main() -> None:
        store, metadata = new_store(), Metadata(tmp_path)
        with pytest.raises(RetryLater, match="was removed meanwhile"):
            await uploader(metadata, store, confirm=Removing()).run_once()
        assert await ends(store) == []

    run_virtually(main)


def test_identities_differ_by_cluster_so_snapshots_never_meet() -> None:
    other = replace(IDENTITY, cluster_id="cluster-b")
    keys = {snapshot_key("p/", each.cluster_id, SnapshotId(1, 1)) for each in (IDENTITY, other)}
    assert len(keys) == 2


class Cutting(MemoryStore):
    """Cuts what it says it stored, as long as `cuts`; the put that is repeated finds it."""

    cuts = True

    async def put(
        self, key: str, data: bytes, *, crc32c: int, create_only: bool = False
    ) -> ObjectInfo:
        if self.cuts and key.endswith(".checkpoint"):
            await super().put(key, data[:-1], crc32c=crc32c_of(data[:-1]))
            raise AlreadyExists(key)
        return await super().put(key, data, crc32c=crc32c, create_only=create_only)


def test_a_snapshot_that_the_store_cut_does_not_count_as_uploaded(tmp_path: Path) -> None:
    """The older ones would go, and the newest be damaged when nothing else is left."""

    async def main() -> None:
        store, metadata = Cutting(virtual_ambient().now_ms), Metadata(tmp_path)
        snapshots = uploader(metadata, store)
        for _ in range(2):
            with pytest.raises(RetryLater, match="removed, and is uploaded anew"):
                await snapshots.run_once()
            assert await ends(store) == []
        store.cuts = False
        await snapshots.run_once()
        assert b"rows up to 10" in await read_all(store, key(10))

    run_virtually(main)
