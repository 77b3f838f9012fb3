"""Planning over a bucket alone: every manifest read once, in a driver's memory, no node running.

`python -m bench.pipeline_manifests [SEGMENTS] [folder|minio]` (100,000, in 1,000 partitions of 10
topics; a folder in memory): each segment has its three objects, a manifest as a copy of 64 MiB
writes it, and a `.log` that is as long and holds nothing (in MinIO: short ones). The first round
knows nothing; the second asks again after `refresh`, as a stream does at each trigger.
"""

from __future__ import annotations

import io
import resource
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from botocore.session import get_session

from bench.table import Measure, write_table
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from pipeline.catalogue.manifest_catalogue import ManifestCatalogue
from rlm.copy_job import ProducerSnapshotOrigin
from rlm.manifest import ChunkChecksums, IndexRange, Manifest, ObjectChecksums
from rlm.object_keys import segment_keys
from rlm.read_request import IndexType
from rlmm.segment import RemoteLogSegmentId, TopicIdPartition
from rsm_backends.store_config import StoreConfig
from tests.real.minio import MinioServer

PARTITIONS = 1_000
PARTITIONS_PER_TOPIC = 100
OFFSETS_PER_SEGMENT = 10_000
CHUNK_BYTES = 256 << 10
FOLDER_LOG_BYTES = 64 << 20
MINIO_LOG_BYTES = 100
INDEXES_BYTES = 100
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
                    index: IndexRange(0, 0)
                    for index in IndexType
                    if index is not IndexType.TRANSACTION
                },
                checksums=ObjectChecksums(
                    checksums(log_bytes), checksums(INDEXES_BYTES), ProducerSnapshotOrigin.COPIED
                ),
            )  # fmt: skip
            yield id_, start, manifest.encode()


def checksums(size: int) -> ChunkChecksums:
    """As many as an object of this size has; what they are is not looked at."""
    return ChunkChecksums(size, 7, tuple(range(1, 1 + -(-size // CHUNK_BYTES))))


def write_folder(folder: Path, segments: int) -> StoreConfig:
    """Files with holes: in memory they take no room."""
    for id_, start, manifest in manifests(segments, FOLDER_LOG_BYTES):
        keys = segment_keys(PREFIX, id_, start)
        (folder / keys.manifest).parent.mkdir(parents=True, exist_ok=True)
        (folder / keys.manifest).write_bytes(manifest)
        for key, size in ((keys.log, FOLDER_LOG_BYTES), (keys.indexes, INDEXES_BYTES)):
            with (folder / key).open("wb") as file:
                file.truncate(size)
    return StoreConfig(name="main", kind="filesystem", path=folder, prefix=PREFIX)


def write_minio(store: StoreConfig, segments: int) -> StoreConfig:
    """By archives that MinIO takes apart itself: a request for each object takes minutes."""
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
            (keys.indexes, bytes(INDEXES_BYTES)),
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


def plan(catalogue: ManifestCatalogue) -> int:
    """How many segments there are."""
    partitions = [each for topic in catalogue.topics() for each in catalogue.partitions(topic)]
    catalogue.prepare(partitions)
    return sum(len(catalogue.segments(each)) for each in partitions)


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
        catalogue, took, cpu = ManifestCatalogue({"main": config}), [], []
        for _ in range(2):
            begun, cpu_begun = perf_counter(), process_time()
            assert plan(catalogue) == segments
            took.append(perf_counter() - begun)
            cpu.append(process_time() - cpu_begun)
            catalogue.refresh()
        driver_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        shutil.rmtree(home / "tier", ignore_errors=True)
    target = f"< {PLANNING_MAX_S:g} s"
    write_table(
        f"Planning from a bucket alone, {given[1]}",
        [
            Measure("first planning", "s", took[:1], target, took[0] < PLANNING_MAX_S),
            Measure("again after refresh", "s", took[1:]),
            Measure("driver's CPU, first and again", "s", cpu),
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
