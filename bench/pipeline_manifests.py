"""Planning over a bucket alone, in a driver's memory, no node running.

`python -m bench.pipeline_manifests [SEGMENTS] [folder|minio]` (100,000, in 1,000 partitions of 10
topics; a folder in memory): each segment has its three objects, a manifest as a copy of 64 MiB
writes it, and a `.log` that is as long and holds nothing (in MinIO: short ones). Three rounds each:
the first measure has the manifests alone and reads every one; the second finds a metadata snapshot
of all but one segment of a partition, as a node uploads it; the third asks again after `refresh`,
as a stream does at each trigger. The fourth is a query's whole plan, with the snapshot: from
`subscribePattern` to tasks, for which each partition's last producer snapshot is read, too.
"""

from __future__ import annotations

import asyncio
import io
import resource
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

from botocore.session import get_session

from bench.metadata_set import CLUSTER_ID, INCARNATION, VOTER
from bench.table import Measure, write_table
from kafka_formats import producer_snapshot
from kafka_formats.crc32c import crc32c
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from pipeline.source.batch_reader import BatchReader
from pipeline.source.task_partition import TaskPartition
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
from rlm.format.object_keys import ObjectSuffix, segment_keys
from rlm.reconcile.adoption_plan import StoredSegment, WholeSegment, told_whole
from rlm.stores.snapshot_plan import snapshot_key
from rlmm.log.disk import OsDisk
from rlmm.log.snapshot_files import SnapshotWriter
from rlmm.metadata_log import SnapshotId
from rlmm.records.fixed_layout import encode_segment_row
from rlmm.rows.coverage import cover
from rlmm.rows.keys import segment_key
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.rows.snapshot_rows import to_proposals
from rlmm.segment import RemoteLogSegmentId, SegmentState
from rsm_backends.store_config import StoreConfig
from tests.real.minio import MinioServer

PARTITIONS = 1_000
PARTITIONS_PER_TOPIC = 100
ROUNDS = 3
OFFSETS_PER_SEGMENT = 10_000
CHUNK_BYTES = 256 << 10
FOLDER_LOG_BYTES = 64 << 20
MINIO_LOG_BYTES = 100
INDEXES = producer_snapshot.encode([])
"""All that a plan reads of `.indexes`."""
PREFIX = "tier/"
MEMORY = Path("/dev/shm")
DRIVER_MAX_MIB = 1_024
PLANNING_MAX_S = 5.0


def manifests(segments: int, log_bytes: int) -> Iterator[tuple[RemoteLogSegmentId, int, bytes]]:
    """Segment, start offset, manifest."""
    each = segments // PARTITIONS
    for number in range(PARTITIONS):
        topic, partition = divmod(number, PARTITIONS_PER_TOPIC)
        topic_id = Uuid((topic + 1).to_bytes(16, "big"))
        tip = TopicIdPartition(f"topic-{topic}", topic_id, partition)
        for at in range(each):
            id_ = RemoteLogSegmentId(tip, Uuid((number * each + at + 1).to_bytes(16, "big")))
            start = at * OFFSETS_PER_SEGMENT
            manifest = Manifest(
                segment_id=id_, start_offset=start, end_offset=start + OFFSETS_PER_SEGMENT - 1,
                max_timestamp_ms=start, broker_id=1, event_timestamp_ms=start,
                leader_epochs=(EpochEntry(0, start),), txn_index_empty=True, log_bytes=log_bytes,
                indexes={
                    index: IndexRange(0, len(INDEXES) * (index is IndexType.PRODUCER_SNAPSHOT))
                    for index in IndexType
                    if index is not IndexType.TRANSACTION
                },
                checksums=ObjectChecksums(
                    checksums(log_bytes), INDEXES_CHECKSUMS, ProducerSnapshotOrigin.COPIED
                ),
            )  # fmt: skip
            yield id_, start, manifest.encode()


def checksums(size: int) -> ChunkChecksums:
    """The checksums of an object of this size; what they are is not looked at."""
    return ChunkChecksums(size, 7, tuple(range(1, 1 + -(-size // CHUNK_BYTES))))


INDEXES_CHECKSUMS = ChunkChecksums(len(INDEXES), crc32c(INDEXES), (crc32c(INDEXES),))


def write_folder(folder: Path, segments: int) -> StoreConfig:
    """Files with holes: in memory they take no room."""
    for id_, start, manifest in manifests(segments, FOLDER_LOG_BYTES):
        keys = segment_keys(PREFIX, id_, start)
        (folder / keys.manifest).parent.mkdir(parents=True, exist_ok=True)
        (folder / keys.manifest).write_bytes(manifest)
        (folder / keys.indexes).write_bytes(INDEXES)
        with (folder / keys.log).open("wb") as file:
            file.truncate(FOLDER_LOG_BYTES)
    return StoreConfig(name="main", kind="filesystem", path=folder, prefix=PREFIX)


def write_minio(store: StoreConfig, segments: int) -> StoreConfig:
    """Write the manifests by archives that MinIO takes apart itself: a request for each object
    takes minutes.
    """
    client: Any = get_session().create_client(
        "s3", region_name=store.region, endpoint_url=store.endpoint_url,
        aws_access_key_id=store.access_key_id, aws_secret_access_key=store.secret_access_key,
    )  # fmt: skip
    client.meta.events.register("before-sign.s3.PutObject", _take_apart)
    archive, buffer = _new_archive()
    for number, (id_, start, manifest) in enumerate(manifests(segments, MINIO_LOG_BYTES), 1):
        keys = segment_keys(PREFIX, id_, start)
        for key, data in (
            (keys.manifest, manifest),
            (keys.log, bytes(MINIO_LOG_BYTES)),
            (keys.indexes, INDEXES),
        ):
            info = tarfile.TarInfo(key)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        if number % 10_000 == 0 or number == segments:
            archive.close()
            client.put_object(Bucket=store.bucket, Key="archive.tar", Body=buffer.getvalue())
            archive, buffer = _new_archive()
    return StoreConfig(
        name="main", kind="s3", bucket=store.bucket, prefix=PREFIX,
        endpoint_url=store.endpoint_url, access_key_id=store.access_key_id,
        secret_access_key=store.secret_access_key, addressing_style="path",
    )  # fmt: skip


def _new_archive() -> tuple[tarfile.TarFile, io.BytesIO]:
    buffer = io.BytesIO()
    return tarfile.open(fileobj=buffer, mode="w"), buffer


def _take_apart(request: Any, **_: object) -> None:
    request.headers["X-Amz-Meta-Snowball-Auto-Extract"] = "true"


def upload_snapshot(config: StoreConfig, home: Path, segments: int, log_bytes: int) -> int:
    """The rows of all finished segments but the last of each partition; how many bytes."""
    each = segments // PARTITIONS
    rows: list[tuple[bytes, bytes]] = []
    for number, (id_, start, manifest) in enumerate(manifests(segments, log_bytes)):
        if number % each == each - 1:
            continue
        sizes = (len(manifest), len(INDEXES), log_bytes)
        suffixes = (ObjectSuffix.MANIFEST, ObjectSuffix.INDEXES, ObjectSuffix.LOG)
        stored = StoredSegment(id_, start, "main", dict(zip(suffixes, sizes, strict=True)))
        whole = told_whole(stored, parse_manifest(manifest, source=""), manifest, None)
        assert isinstance(whole, WholeSegment), whole
        row = replace(
            whole.row, state=SegmentState.COPY_SEGMENT_FINISHED, token=1, writer=INCARNATION,
            upload_deadline_ms=1, custom_metadata=whole.custom_metadata.encode(),
            finished_at=number,
        )  # fmt: skip
        overlay = OverlayRows(MemoryRows())
        overlay.put(segment_key(id_.id), encode_segment_row(row))
        cover(overlay, row)
        rows += ((key, value) for key, value in overlay.writes() if value is not None)
    snapshot = SnapshotId(len(rows), 1)
    writer = SnapshotWriter(
        OsDisk(), home, snapshot, last_contained_timestamp_ms=1, voters=(VOTER,)
    )  # fmt: skip
    writer.add(to_proposals(sorted(rows)))
    data = writer.finish().read_bytes()

    async def upload() -> None:
        async with opened(config) as store:
            key = snapshot_key(config.prefix, str(CLUSTER_ID), snapshot)
            await store.put(key, data, crc32c=crc32c(data))

    asyncio.run(upload())
    return len(data)


def uploaded_apart(config: StoreConfig, home: Path, segments: int, log_bytes: int) -> int:
    """Upload in a process of its own: the driver's memory is measured."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(upload_snapshot, config, home, segments, log_bytes).result()


def plan(catalogue: ManifestCatalogue) -> int:
    """Plan; return the number of segments."""
    partitions = [each for topic in catalogue.topics() for each in catalogue.partitions(topic)]
    catalogue.prepare(partitions)
    return sum(len(catalogue.segments(each)) for each in partitions)


def query(config: StoreConfig) -> int:
    """Plan a query for everything committed; return its tasks' number of segments."""
    options = {"subscribePattern": ".*"}
    if config.kind == "s3":
        assert config.access_key_id is not None
        assert config.secret_access_key is not None
        assert config.endpoint_url is not None
        options |= {
            "strandline.store": f"s3://{config.bucket}/{config.prefix}",
            "strandline.s3.endpoint": config.endpoint_url,
            "strandline.s3.path-style": "true",
            "strandline.s3.access.key": config.access_key_id,
            "strandline.s3.secret.key": config.secret_access_key,
        }
    else:
        options["strandline.store"] = f"file://{config.path}?prefix={config.prefix}"
    tasks = BatchReader(options).partitions()
    return sum(len(task.slices) for task in tasks if isinstance(task, TaskPartition))


def asked_again(config: StoreConfig) -> Callable[[], int]:
    """`plan` by one that has planned before."""
    catalogue = ManifestCatalogue({"main": config})
    plan(catalogue)

    def again() -> int:
        catalogue.refresh()
        return plan(catalogue)

    return again


def rounds(what: str, planned: Callable[[], int], segments: int) -> list[Measure]:
    """Wall and CPU of some rounds, each of which has to find all `segments`."""
    took, cpu = [], []
    for _ in range(ROUNDS):
        begun, cpu_begun = perf_counter(), process_time()
        assert planned() == segments
        took.append(perf_counter() - begun)
        cpu.append(process_time() - cpu_begun)
    held = median(took) < PLANNING_MAX_S
    return [
        Measure(what, "s", took, f"< {PLANNING_MAX_S:g} s", held),
        Measure("the same, driver's CPU", "s", cpu),
    ]


def main() -> None:
    given = [*sys.argv[1:], *("100000", "folder")[len(sys.argv) - 1 :]]
    segments = int(given[0]) // PARTITIONS * PARTITIONS
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=MEMORY)))
        if given[1] == "minio":
            server = stack.enter_context(MinioServer(home / "minio"))
            config = write_minio(server.store_config, segments)
        else:
            config = write_folder(home / "tier", segments)
        print(f"{segments:,} segments are written", file=sys.stderr, flush=True)
        before_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

        def anew() -> int:
            return plan(ManifestCatalogue({"main": config}))

        measures = rounds("by manifests alone", anew, segments)
        log_bytes = MINIO_LOG_BYTES if given[1] == "minio" else FOLDER_LOG_BYTES
        snapshot_bytes = uploaded_apart(config, home, segments, log_bytes)
        measures += rounds("with a snapshot", anew, segments)
        measures += rounds("again after refresh", asked_again(config), segments)
        measures += rounds("a query, to its tasks", partial(query, config), segments)
        driver_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shutil.rmtree(home / "tier", ignore_errors=True)
    write_table(
        f"Planning from a bucket alone, {given[1]}",
        [
            *measures,
            Measure("snapshot", "MiB", [snapshot_bytes / (1 << 20)]),
            Measure("driver's memory before", "MiB", [before_mib]),
            Measure(
                "driver's memory, the most, without Spark", "MiB", [driver_mib],
                f"< {DRIVER_MAX_MIB}", driver_mib < DRIVER_MAX_MIB,
            ),
        ],
        packages=("aiobotocore", "botocore"),
        notes=(f"{segments:,} segments in {PARTITIONS:,} partitions",),
    )  # fmt: skip


if __name__ == "__main__":
    main()
