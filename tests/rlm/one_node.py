"""A node of the tests: the real metadata log and view on disk, a memory store, a pool that copies
in this process, and hooks at every step to fail, to hang, or to pull the plug.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import InternalError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import segment_file_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.pool_port import PoolPort
from rlm.control.run_events import CopyEvent, OnEvent
from rlm.control.surroundings import CopyLimits, Identity, Surroundings
from rlm.copy.hold import Hold, HoldLimits
from rlm.copy.mending import Mender, MendLimits, ReplicasPort
from rlm.copy.scanner import BrokerPort
from rlm.data_plane.aiven_reader import KeyFiles
from rlm.data_plane.copy_job import CopyJob, CopyProgress, CopyResult, OnProgress
from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.object_check import check_objects
from rlm.data_plane.read_request import (
    BatchesRequest,
    HeldBatches,
    IndexRequest,
    LogRequest,
    RecordsEnd,
    RecordsRequest,
    SegmentResolver,
    TieredSegment,
    WaitingRead,
)
from rlm.data_plane.repair_jobs import CheckJob, CheckResult, GatherJob, GatherResult
from rlm.data_plane.segment_gathering import gather
from rlm.data_plane.segment_survey import SurveyJob, survey
from rlm.delegated.spool import Spool, SpoolLimits
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import ProducerSnapshotOrigin
from rlm.format.object_keys import segment_keys
from rlm.leadership.topic_filter import TopicFilter
from rlm.local_log.damage import Survey
from rlm.local_log.hold_dirs import hold_directories
from rlm.node_files.clock_file import ClockFile
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import ScrubResults
from rlm.repair.repairs import RepairLimits, Repairs
from rlm.service import RemoteLogManager
from rlm.stores.tier_store import TierStore, TierStores
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.manager.metadata_limits import MetadataLimits
from rlmm.manager.tombstones import KnownSegments
from rlmm.segment import Incarnation, PartitionDeleteState, RemoteLogSegmentMetadata, SegmentState
from rlmm.view.view import View
from rsm_backends.memory import MemoryStore
from rsm_backends.store import ObjectInfo, ObjectStore, UploadedPart
from strandline.node.remote_log import Given, RemoteLogParts, build
from tests.rlm.hooked_store import Hook, HookedStore, OnLate, no_hook
from tests.rlm.planner_facts import DIRECTORY
from tests.rlm.telling_broker import TellingBroker
from tests.rlm.virtual_time import virtual_ambient
from tests.rlmm.quorum.sole_voter import open_sole_voter

LIMITS = CopyLimits(once_clean_up_wait_s=5.0, upload_deadline_s=300.0)
CLEANED_UP_AFTER_S = LIMITS.upload_deadline_s + LIMITS.upload_margin_s + 60.0
"""By then a node that goes on running has removed what an attempt left."""

NOBODY_IS_SILENT = MetadataLimits(node_silence_max_s=1e9)
"""Who lives is asked once a minute then, not each other second while hours pass."""

PREFIX = "tier/"
ALL_TOPICS = TopicFilter(("*",))

__all__ = [
    "CLEANED_UP_AFTER_S",
    "LIMITS",
    "PREFIX",
    "Bucket",
    "Hook",
    "Node",
    "Steps",
    "World",
    "new_world",
    "no_hook",
]


class Steps:
    """Counts steps; at number (or the first of a name) `stop_at` no step goes on any more."""

    def __init__(self, stop_at: int | str = -1) -> None:
        self.count = 0
        self.names: list[str] = []
        self.stopped = asyncio.Event()
        self._stop_at = stop_at

    def stop_at(self, number: int) -> None:
        """The step with this number is the last one."""
        self._stop_at = number

    async def __call__(self, name: str) -> None:
        self.names.append(name)
        self.count += 1
        if self._stop_at in (self.count, name):
            self._stop_at = -1
            self.stopped.set()
        if self.stopped.is_set():
            await asyncio.Event().wait()


class HookedMetadata:
    """The real manager with a hook before and after every write."""

    WRITES = frozenset(
        {
            "add_remote_log_segment_metadata",
            "update_remote_log_segment_metadata",
            "claim_partition",
            "record_log_start",
            "record_lost_range",
            "put_remote_partition_delete_metadata",
        }
    )

    def __init__(self, manager: RemoteLogMetadataManager, hook: Hook) -> None:
        self._manager = manager
        self._hook = hook
        self.proposed: list[Any] = []
        self.accepted: list[tuple[int, Any]] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._manager, name)
        if name not in self.WRITES:
            return found

        async def write(record: Any, *, deadline_s: float) -> Any:
            self.proposed.append(record)
            state = getattr(record, "state", None)
            step = name
            if isinstance(state, SegmentState | PartitionDeleteState):
                step = state.name
            await self._hook(f"before {step}")
            result = await found(record, deadline_s=deadline_s)
            self.accepted.append((getattr(result, "token", result), record))
            await self._hook(f"after {step}")
            return result

        return write


class Bucket(MemoryStore):
    """A memory store that outlives the nodes, knows its unfinished uploads, and is audited: objects
    go only after DELETE_SEGMENT_STARTED (delete_order).
    """

    def __init__(self, now_ms: Callable[[], int], *, versioned: bool = False) -> None:
        super().__init__(lambda: now_ms() + self.clock_offset_ms, versioned=versioned)
        self.clock_offset_ms = 0
        self.unfinished_uploads: set[str] = set()
        self.metadata: RemoteLogMetadataManager | None = None
        self.violations: list[str] = []

    async def delete_many(self, keys: Sequence[str]) -> None:
        for row in _rows(self.metadata):
            if row.state is not SegmentState.DELETE_SEGMENT_STARTED:
                alive = set(segment_keys(PREFIX, row.segment_id, row.start_offset).all())
                self.violations += [f"{row.state.name}: {key}" for key in alive.intersection(keys)]
        await super().delete_many(keys)

    async def delete_version(self, key: str, version_id: str) -> None:
        for row in _rows(self.metadata):
            if key in segment_keys(PREFIX, row.segment_id, row.start_offset).all():
                self.violations.append(f"a version, {row.state.name}: {key}")
        await super().delete_version(key, version_id)

    async def start_multipart(self, key: str) -> str:
        upload_id = await super().start_multipart(key)
        self.unfinished_uploads.add(upload_id)
        return upload_id

    async def complete_multipart(
        self,
        key: str,
        upload_id: str,
        parts: Sequence[UploadedPart],
        *,
        crc32c: int,
        create_only: bool = False,
    ) -> ObjectInfo:
        info = await super().complete_multipart(
            key, upload_id, parts, crc32c=crc32c, create_only=create_only
        )
        self.unfinished_uploads.discard(upload_id)
        return info

    async def abort_multipart(self, key: str, upload_id: str) -> None:
        await super().abort_multipart(key, upload_id)
        self.unfinished_uploads.discard(upload_id)

    async def damage(self, key: str) -> None:
        """Turn a byte of an object, as no honest store does."""
        data = bytearray(b"".join([piece async for piece in self.get(key)]))
        data[len(data) // 2] ^= 0xFF
        await self.put(key, bytes(data), crc32c=crc32c(data))


@dataclass(slots=True)
class LocalPool:
    """Copies in this process, object by object, with a hook before each and at the end."""

    store: ObjectStore
    hook: Hook = no_hook
    jobs: list[CopyJob] = field(default_factory=list)

    async def copy(self, job: CopyJob, on_progress: OnProgress | None = None) -> CopyResult:
        self.jobs.append(job)
        await self.hook("before upload")
        log = (job.directory / segment_file_name(job.start_offset, ".log")).read_bytes()
        keys = segment_keys(job.prefix, job.segment_id, job.start_offset)
        upload_id = await self.store.start_multipart(keys.log)
        part = await self.store.put_part(keys.log, upload_id, 1, log, crc32c=crc32c(log))
        await self.hook("before complete .log")
        await self.store.complete_multipart(keys.log, upload_id, [part], crc32c=crc32c(log))
        if on_progress is not None:
            on_progress(CopyProgress(len(log), len(log)))
        await self.hook("before put .indexes")
        await self.store.put(keys.indexes, b"indexes", crc32c=crc32c(b"indexes"))
        await self.hook("before put .rsm-manifest")
        await self.store.put(keys.manifest, b"{}", crc32c=crc32c(b"{}"), create_only=True)
        await self.hook("after upload")
        custom = CustomMetadata(
            job.store, len(log), crc32c(log), 7, crc32c(b"indexes"), 2, crc32c(b"{}")
        )
        return CopyResult(
            custom, len(log), job.max_timestamp_ms, True,
            ProducerSnapshotOrigin.ABSENT,
        )  # fmt: skip

    async def check(self, job: CheckJob) -> CheckResult:
        return await check_objects(job, self.store)

    async def gather(self, job: GatherJob) -> GatherResult:
        return await gather(job, self.store)

    async def survey(self, job: SurveyJob) -> Survey:
        return survey(job)

    async def read_log(self, request: LogRequest) -> AsyncIterator[bytes]:
        segment = request.segment
        assert isinstance(segment, TieredSegment)
        keys = segment_keys(segment.prefix, segment.segment_id, segment.start_offset)
        async for piece in self.store.get(keys.log, start=request.start, end=request.end):
            yield piece

    def waiting_log(self, request: LogRequest) -> AbstractAsyncContextManager[WaitingRead]:
        raise InternalError(f"{request} is not held in this test")

    def waiting_batches(
        self, request: BatchesRequest, resolver: SegmentResolver
    ) -> AbstractAsyncContextManager[HeldBatches]:
        raise InternalError(f"{request} is not held in this test")

    def read_index(self, request: IndexRequest) -> AsyncIterator[bytes]:
        raise InternalError(f"{request} is not read in this test")

    def read_records(
        self,
        request: RecordsRequest,
        resolver: SegmentResolver,
        on_end: Callable[[RecordsEnd], None] | None = None,
    ) -> AsyncIterator[bytes]:
        raise InternalError(f"{request} is not read in this test")


@dataclass(slots=True)
class Node:
    """One life of the node, and what may be asked of it."""

    parts: RemoteLogParts
    remote_log: RemoteLogManager
    metadata: RemoteLogMetadataManager
    store: Bucket
    pool: LocalPool
    events: list[CopyEvent]
    proposed: list[Any]
    accepted: list[tuple[int, Any]]
    hold: Hold | None
    repairs: Repairs
    known: KnownSegments | None = None

    def rows(self, partition: TopicIdPartition) -> list[tuple[int, int, str]]:
        """(start, end, state) of all rows."""
        return [
            (row.start_offset, row.end_offset, row.state.name)
            for row in self.metadata.list_remote_log_segments(partition)
        ]

    def finished(self, partition: TopicIdPartition) -> list[tuple[int, int]]:
        """(start, end) of the finished ones."""
        name = SegmentState.COPY_SEGMENT_FINISHED.name
        return [(start, end) for start, end, state in self.rows(partition) if state == name]

    async def keys(self) -> set[str]:
        """Every key in the bucket."""
        return {each.key for each in (await self.store.list_page("")).objects}

    async def expected_keys(self) -> set[str]:
        """What metadata says the bucket holds."""
        expected = {f"{PREFIX}_strandline/cluster.json"}
        for row in _rows(self.metadata):
            expected |= set(segment_keys(PREFIX, row.segment_id, row.start_offset).all())
        return expected

    async def assert_quiesced(self) -> None:
        """quiesced_bucket_equals_metadata, delete_order, and nobody has left-overs."""
        for partition in self.metadata.partitions():
            assert self.metadata.left_overs(partition) == ()
        assert self.store.violations == []
        assert await self.keys() == await self.expected_keys()
        assert self.store.unfinished_uploads == set()


@dataclass(slots=True)
class World:
    """What outlives a node's crash: its data directory, the bucket, the broker's directory."""

    path: Path
    log_dirs: tuple[Path, ...]
    store: Bucket
    boots: int = 0
    cluster_id: str = "strandline-cluster"
    kafka_cluster_id: str | None = None
    store_name: str = "main"
    scrubs: ScrubResults = field(default_factory=lambda: ScrubResults(None))
    replicas: ReplicasPort | None = None
    mend_limits: MendLimits = field(default_factory=MendLimits)
    aiven_keys: KeyFiles = field(default_factory=dict)
    spool: SpoolLimits = field(default_factory=lambda: SpoolLimits(Path(), free_bytes_min=0))
    clock: ClockFile = field(default_factory=lambda: ClockFile(None))
    set_ms: int = 0
    addresses: list[str] = field(default_factory=list)
    """Where the broker listens, by each announcement of its plug-in."""

    def set_clocks(self, by_ms: int) -> None:
        """Set the clocks of node and store ahead of the right time, together."""
        self.set_ms = self.store.clock_offset_ms = by_ms

    @asynccontextmanager
    async def boot(
        self,
        *,
        hook: Hook = no_hook,
        data_plane: bool = False,
        broker: BrokerPort | None = None,
        limits: CopyLimits = LIMITS,
        hold: HoldLimits | None = None,
        topics: TopicFilter = ALL_TOPICS,
        node_id: int = 1,
        directory_id: Uuid = DIRECTORY,
        on_late: OnLate | None = None,
        ahead_ms: int = 0,
    ) -> AsyncIterator[Node]:
        """The next incarnation. Leaving it takes the process away, whatever it was doing.

        With `data_plane` segments are verified, copied and read as a worker does it. `on_late` is
        given the requests that were on their way when the process went. `ahead_ms`: how far the
        clock is off that the metadata log's leader writes by.
        """
        self.boots += 1
        ambient = virtual_ambient(self.boots * 1_000)
        incarnation = Incarnation(node_id, directory_id, self.boots)
        view = View.open(self.path / "view")
        log = await open_sole_voter(
            self.path / "log",
            node_id=1,
            directory_id=DIRECTORY,
            view_flushed_end=view.flushed_offset + 1,
            now_ms=lambda: ambient.now_ms() + ahead_ms,
            sleep=ambient.sleep,
            on_failure=_fail,
        )
        manager = await RemoteLogMetadataManager.start(
            log, view, incarnation=incarnation, now_ms=ambient.now_ms, monotonic=ambient.monotonic,
            limits=NOBODY_IS_SILENT,
        )  # fmt: skip
        self.store.metadata = manager
        node, store = self.node(
            manager, incarnation, hook=hook, data_plane=data_plane, broker=broker, limits=limits,
            hold=hold, topics=topics,
        )  # fmt: skip
        node.known = KnownSegments(log, manager, view)
        try:
            yield node
        finally:
            store.die(on_late)
            await _pull_the_plug(node.remote_log)
            self.store.metadata = None
            await manager.close()
            await log.close()
            view.close()

    def node(
        self,
        manager: RemoteLogMetadataManager,
        incarnation: Incarnation,
        *,
        hook: Hook = no_hook,
        data_plane: bool = False,
        broker: BrokerPort | None = None,
        limits: CopyLimits = LIMITS,
        hold: HoldLimits | None = None,
        topics: TopicFilter = ALL_TOPICS,
    ) -> tuple[Node, HookedStore]:
        """A node's remote log manager on a metadata log that others may use as well."""
        virtual = virtual_ambient(self.boots * 1_000 + incarnation.node_id * 100)
        ambient = replace(virtual, now_ms=lambda: virtual.now_ms() + self.set_ms)
        name = self.store_name
        store = HookedStore(self.store, hook)
        pool = LocalPool(self.store, hook)
        hooked = HookedMetadata(manager, hook)
        events: list[CopyEvent] = []
        plane: PoolPort = pool
        if data_plane:
            plane = DataPlane({name: store}, now_ms=ambient.now_ms, aiven_keys=self.aiven_keys)
        holder = None if hold is None else self._hold(manager, hold, events.append)
        identity = Identity(self.cluster_id, self.kafka_cluster_id, incarnation)
        given = Given(
            metadata=cast(RemoteLogMetadataManager, hooked),
            pool=plane,
            stores=TierStores({name: TierStore(name, store, PREFIX)}, name),
            around=Surroundings(identity, limits, ambient),
            log_dirs=self.log_dirs,
            broker=broker,
            topics=topics,
            switches=KillSwitches(None, now_ms=ambient.now_ms),
            clock=self.clock,
            mender=Mender(plane, self.replicas, self.path / "mending", self.mend_limits),
            hold=holder,
            on_event=events.append,
            spool=Spool(replace(self.spool, directory=self.path / "spool"), ambient.monotonic),
            unseen_disk=broker if isinstance(broker, TellingBroker) else None,
            on_address=self.addresses.append,
        )
        parts = build(given)
        repairs = parts.new_repairs(
            RepairLimits(self.path / "repair", free_bytes_min=0), self.scrubs, self.replicas
        )
        remote_log = parts.remote_log([repairs.loop])
        return Node(
            parts, remote_log, manager, self.store, pool, events, hooked.proposed,
            hooked.accepted, holder, repairs,
        ), store  # fmt: skip

    def _hold(self, manager: RemoteLogMetadataManager, limits: HoldLimits, told: OnEvent) -> Hold:
        path = self.path / "hold"
        path.mkdir(exist_ok=True)
        directories = hold_directories([path], self.log_dirs, own_name="cluster-1")
        breathe = functools.partial(asyncio.sleep, 0)
        return Hold(directories, manager, limits, breathe=breathe, on_event=told)


def new_world(tmp_path: Path, log_dirs: tuple[Path, ...], *, versioned: bool = False) -> World:
    """Formatted and empty. `versioned`: the bucket keeps what is replaced and deleted."""
    (tmp_path / "log").mkdir(exist_ok=True)
    ambient = virtual_ambient()
    return World(tmp_path, log_dirs, Bucket(ambient.now_ms, versioned=versioned))


def _rows(manager: RemoteLogMetadataManager | None) -> Iterator[RemoteLogSegmentMetadata]:
    if manager is not None:
        for partition in manager.partitions():
            yield from manager.list_remote_log_segments(partition)


async def _pull_the_plug(remote_log: RemoteLogManager) -> None:
    """A SIGKILL: what the remote log manager was doing ends where it is."""
    names = (
        *(loop.name for loop in remote_log.loops),
        *("claim stores", "erase", "drive ", "clean up ", "record compaction", "repair segments"),
    )
    tasks = [
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and task.get_name().startswith(names)
    ]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _fail(message: str) -> None:
    raise AssertionError(message)
