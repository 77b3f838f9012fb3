"""The composition root: builds a node from its settings, part by part, and closes it again.

Order of building: data directory (lock), workers (their processes start meanwhile), view, metadata
log, metadata manager, stores, broker, remote log manager. Closing runs in reverse order, so that a
part that still runs finds the parts that it needs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

from rlm.control.audit import audit_line_of
from rlm.control.log_levels import LogLevels
from rlm.control.node_problem import NodeProblem, ProblemLog
from rlm.control.run_events import CopyEvent, OnEvent, ignore_event
from rlm.control.task_watch import Loop
from rlm.control.trouble_report import Source
from rlm.copy.hold import Hold
from rlm.copy.mending import DIRECTORY as MENDING_DIRECTORY
from rlm.copy.mending import Mender, MendLimits, ReplicasPort
from rlm.delegated.plugin import ignore_address
from rlm.delegated.spool import Spool, SpoolLimits
from rlm.leadership.topic_filter import TopicFilter
from rlm.migration.moving import Moving
from rlm.node_files.audit_log import DIRECTORY_NAME as AUDIT_DIRECTORY
from rlm.node_files.audit_log import AuditLimits, AuditLog
from rlm.node_files.clock_file import FILE_NAME as CLOCK_FILE
from rlm.node_files.clock_file import ClockFile
from rlm.node_files.kill_switches import FILE_NAME as SWITCHES_FILE
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import FILE_NAME as SCRUBS_FILE
from rlm.node_files.scrub_results import ScrubResults
from rlm.quota.flow_control import FlowControl
from rlm.reconcile.collector import CollectorLimits
from rlm.reconcile.erasure import Erasures
from rlm.repair.repairs import DIRECTORY_NAME as REPAIR_DIRECTORY
from rlm.repair.repairs import RepairLimits, Repairs
from rlm.retention.delete_records_follower import DeleteRecordsFollower
from rlm.retention.topic_absence import TopicAbsence
from rlm.service import RemoteLogManager
from rlm.stores.shared_stores import SharedStores
from rlm.stores.snapshot_upload import SnapshotUploader, SnapshotUploadLimits
from rlm.stores.store_watch import HungCalls, StoreWatch
from rlm.stores.tier_store import TierStore, TierStores
from rlm.worker.pool import WorkerPool
from rlm.worker.store_calls import NamedStoreObserver, OnStoreCall, ignore_store_call
from rlmm.data_directory.data_directory import DataDirectory, open_data_directory
from rlmm.log.recovery import PARTITION_DIRECTORY
from rlmm.manager.manager import MetadataLimits, RemoteLogMetadataManager
from rlmm.manager.tombstones import KnownSegments
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.view.view import View
from rsm_backends.measured_store import MeasuredStore
from rsm_backends.open_store import open_all
from rsm_backends.store_config import StoreConfig
from strandline.node import ambient
from strandline.node.holding import open_hold
from strandline.node.log_dir_check import check_log_dirs
from strandline.node.moving import move_loops, new_moving
from strandline.node.quorum import open_quorum_log
from strandline.node.quorum_tls import QuorumTls
from strandline.node.readiness import quorum_problems
from strandline.node.remote_log import Given, RemoteLogParts, build
from strandline.node.surroundings import flow_control, store_surroundings, surroundings
from strandline.node.workers import Shared, start_workers
from strandline.settings.kafka import ANNOUNCED
from strandline.settings.settings import KafkaSettings, QuorumSettings, Settings
from strandline.settings.store_configs import store_configs

if TYPE_CHECKING:
    from rlm.leadership.broker_view import BrokerView

logger = logging.getLogger(__name__)


class Failure:
    """The reason why a part can't go on and the node has to stop; the first reason counts."""

    def __init__(self) -> None:
        self._happened = asyncio.Event()
        self.reason: str | None = None

    def report(self, reason: str) -> None:
        """Keep the first reason, and wake the waiters."""
        if self.reason is None:
            self.reason = reason
            logger.critical("the node has to stop: %s", reason)
        self._happened.set()

    async def wait(self) -> str:
        """Wait for a failure; returns its reason."""
        await self._happened.wait()
        assert self.reason is not None
        return self.reason


@dataclass(frozen=True, slots=True)
class Node:
    """A node whose parts are built; `remote_log` and `snapshots` are not started yet."""

    settings: Settings
    directory: DataDirectory
    metadata_log: QuorumLog
    metadata: RemoteLogMetadataManager
    parts: RemoteLogParts
    remote_log: RemoteLogManager
    snapshots: SnapshotUploader
    audit: AuditLog
    erasures: Erasures
    hold: Hold | None
    flow: FlowControl
    log_levels: LogLevels
    scrubs: ScrubResults
    repairs: Repairs
    moving: Moving
    pool: WorkerPool
    failure: Failure
    quorum_tls: QuorumTls
    _building: AsyncExitStack

    @classmethod
    async def open(
        cls,
        settings: Settings,
        *,
        on_event: OnEvent = ignore_event,
        on_store_call: OnStoreCall = ignore_store_call,
        log_levels: LogLevels | None = None,
        more: Iterable[Source] = (),
    ) -> Self:
        """Build all parts; on an error, close those that were built and raise the part's own error.

        `on_event` gets each event of the control plane, `on_store_call` each call to a store;
        neither may block or raise. `log_levels` defaults to those of the settings. `more` are
        sources of problems besides the node's parts.
        """
        configs = store_configs(settings)
        async with AsyncExitStack() as building:
            failure, directory = Failure(), _open_directory(settings, building)
            flow, levels = flow_control(settings), log_levels or _levels(settings)
            shared = Shared(directory.node_id, flow, levels, on_store_call)
            starting = start_workers(settings, configs, shared, building)
            tls, log, view, metadata = await _open_metadata(settings, directory, failure, building)
            stores = await _open_stores(settings, configs, on_store_call, building)
            pool = await starting
            broker = await _open_broker(settings.kafka, directory, building)
            audit, audited = _open_audit(settings, directory, on_event, building)
            hold = open_hold(settings, directory, metadata, audited, building)
            given = Given(
                metadata=metadata,
                pool=pool,
                stores=stores,
                around=surroundings(settings, directory),
                log_dirs=settings.kafka.log_dirs,
                broker=broker,
                topics=_topic_filter(settings),
                switches=_open_switches(directory, audit),
                mender=_new_mender(settings, directory, pool, broker),
                hold=hold,
                on_event=audited,
                on_shut_out=failure.report,
                audit=audit.note,
                keep_audit=audit.keep,
                flow=flow,
                spool=await _open_spool(settings, directory, building),
            )
            parts = _build(given, settings, broker, directory.path)
            snapshots = _new_snapshots(settings, directory, parts)
            erasures = _new_erasures(settings, parts, KnownSegments(log, metadata, view))
            scrubs, repairs = _new_repairs(settings, directory, parts, broker)
            told = snapshots, audit, scrubs, pool, erasures.collector, *((hold,) if hold else ())
            quorum = partial(_quorum_problems, metadata, settings.quorum, ambient.now_ms())
            moving = new_moving(settings, parts, broker, log)
            topics = _topic_loops(settings, parts, broker, moving)
            beside = (*topics, repairs.loop, *_stores_loops(configs, parts, pool))
            remote_log = parts.remote_log(beside, (*(one.problems for one in told), quorum, *more))
            _close_after(building, parts.registrar, remote_log, snapshots, erasures, repairs)
            return cls(
                settings, directory, log, metadata, parts, remote_log, snapshots, audit, erasures,
                hold, flow, levels, scrubs, repairs, moving, pool, failure, tls, building.pop_all(),
            )  # fmt: skip

    async def close(self) -> None:
        """Close all parts, in reverse order of building."""
        await self._building.aclose()


class _Closes(Protocol):
    async def close(self) -> None: ...


def _close_after(building: AsyncExitStack, *parts: _Closes) -> None:
    """Close `parts` with `building`, the last part first."""
    for part in parts:
        building.push_async_callback(part.close)


async def _open_spool(
    settings: Settings, directory: DataDirectory, building: AsyncExitStack
) -> Spool:
    """The spool, owned by this process and without the files of an earlier one. Raises Conflict if
    a different process owns it.
    """
    where = settings.spool.dir or settings.node.data_dir
    limits = SpoolLimits(
        where / f"spool-{directory.node_id}",
        bytes_max=settings.spool.bytes_max,
        copies_max=settings.spool.copies_max,
        free_bytes_min=settings.spool.free_bytes_min,
    )
    spool = Spool(limits, ambient.monotonic)
    building.callback(spool.close)
    await asyncio.to_thread(spool.own)
    return spool


def _build(
    given: Given, settings: Settings, broker: BrokerView | None, directory: Path
) -> RemoteLogParts:
    by_topic = settings.retention.source == "topic"
    clock = ClockFile(directory / CLOCK_FILE)
    on_address: Callable[[str], None] = ignore_address
    if broker is not None and settings.kafka.broker == ANNOUNCED:
        on_address = broker.move_to
    given = replace(given, topic_retention=by_topic, unseen_disk=broker, clock=clock)
    return build(replace(given, on_address=on_address))


def _new_erasures(settings: Settings, parts: RemoteLogParts, known: KnownSegments) -> Erasures:
    """The erasures and their collector of this node's garbage, which they close."""
    percent = settings.collector.delete_max_percent
    limits = CollectorLimits(delete_max_percent=percent)
    return parts.new_erasures(parts.new_collector(known, limits))


def _stores_loops(
    configs: dict[str, StoreConfig], parts: RemoteLogParts, pool: WorkerPool
) -> Iterator[Loop]:
    """The loops that report stores that do not answer, and stores whose contents differ from those
    of the other nodes.
    """
    given, around = parts.given, parts.around
    hung = HungCalls(configs, pool.hanging_calls)
    watch = StoreWatch(given.stores, around.ambient, ProblemLog(logger), hung.texts)
    yield Loop("watch the stores", watch.run, watch.problems)
    shared = SharedStores(given.metadata, given.stores, around)
    yield Loop("look for other nodes' segments", shared.run, shared.problems)


def _topic_loops(
    settings: Settings, parts: RemoteLogParts, broker: BrokerView | None, moving: Moving
) -> Iterator[Loop]:
    """The loops that carry a move out, find records deleted in Kafka, and find deleted topics if
    topics.mark_deleted is set.
    """
    yield from move_loops(moving, parts, broker)
    if broker is None:
        return
    follower = DeleteRecordsFollower(parts.expirer, broker, parts.around.ambient)
    yield Loop("follow DeleteRecords", follower.run, follower.problems)
    if settings.topics.mark_deleted:
        given = parts.given
        absence = TopicAbsence(
            given.metadata, broker, parts.around, parts.held_back.deleting, given.audit
        )
        yield Loop("look for deleted topics", absence.run, absence.problems)


def _quorum_problems(
    metadata: RemoteLogMetadataManager, settings: QuorumSettings, up_since_ms: int
) -> tuple[NodeProblem, ...]:
    now_ms = ambient.now_ms()
    return quorum_problems(
        metadata.describe(), metadata.applied_offset, settings,
        now_ms=now_ms, up_ms=now_ms - up_since_ms,
    )  # fmt: skip


def _new_repairs(
    settings: Settings, directory: DataDirectory, parts: RemoteLogParts, broker: BrokerView | None
) -> tuple[ScrubResults, Repairs]:
    """The list of known damaged segments, and their repairs."""
    scrubs, repair = ScrubResults(directory.path / SCRUBS_FILE), settings.repair
    limits = RepairLimits(
        directory.path / REPAIR_DIRECTORY,
        automatic=repair.automatic,
        interval_s=repair.interval_s,
        per_hour_max=repair.per_hour_max,
        free_bytes_min=repair.free_bytes_min,
        replica_deadline_s=settings.copier.mend_deadline_s,
    )
    return scrubs, parts.new_repairs(limits, scrubs, _replicas(settings, broker))


def _new_mender(
    settings: Settings, directory: DataDirectory, pool: WorkerPool, broker: BrokerView | None
) -> Mender:
    limits = MendLimits(settings.copier.mend_deadline_s, settings.copier.mend_bytes_max)
    return Mender(pool, _replicas(settings, broker), directory.path / MENDING_DIRECTORY, limits)


def _replicas(settings: Settings, broker: BrokerView | None) -> ReplicasPort | None:
    """A port to the partitions' other replicas, with its own connections, which the caller closes;
    None without a broker.
    """
    if broker is None:
        return None
    from rlm.copy.replica_fetch import ReplicaFetch  # slow to import, like the broker's view

    return ReplicaFetch(broker, settings.copier.batch_bytes_max)


def _topic_filter(settings: Settings) -> TopicFilter:
    return TopicFilter(tuple(settings.topics.include), tuple(settings.topics.exclude))


def _open_switches(directory: DataDirectory, audit: AuditLog) -> KillSwitches:
    return KillSwitches(directory.path / SWITCHES_FILE, now_ms=ambient.now_ms, audit=audit.note)


@asynccontextmanager
async def opened_metadata(
    settings: Settings,
) -> AsyncIterator[tuple[DataDirectory, RemoteLogMetadataManager, TierStores]]:
    """The data directory, metadata and stores of a node that does not run; no segment is copied.

    Raises Conflict if the node runs, and the errors of the parts.
    """
    async with AsyncExitStack() as building:
        failure = Failure()
        directory = open_data_directory(settings.node.data_dir)
        building.callback(directory.close)
        *_, metadata = await _open_metadata(settings, directory, failure, building)
        stores = await _open_stores(settings, store_configs(settings), ignore_store_call, building)
        yield directory, metadata, stores


async def _open_metadata(
    settings: Settings, directory: DataDirectory, failure: Failure, building: AsyncExitStack
) -> tuple[QuorumTls, QuorumLog, View, RemoteLogMetadataManager]:
    tls = QuorumTls(settings.quorum)
    view = await asyncio.to_thread(View.open, directory.view_path)
    building.callback(view.close)
    log = await open_quorum_log(
        settings.quorum,
        directory,
        building,
        view_flushed_end=view.flushed_offset + 1,
        on_failure=failure.report,
        tls=tls,
    )
    metadata = await RemoteLogMetadataManager.start(
        log,
        view,
        incarnation=directory.incarnation,
        now_ms=ambient.now_ms,
        monotonic=ambient.monotonic,
        limits=MetadataLimits(
            view_flush_records=settings.metadata.view_flush_records,
            snapshot_records=settings.metadata.snapshot_records,
            # A leader that is cut off resigns only after the fetch timeout: with a shorter limit
            # it would report the other nodes as silent before that.
            node_silence_max_s=max(
                settings.nodes.silence_max_s, 2 * settings.quorum.fetch_timeout_ms / 1000
            ),
        ),
        on_failure=failure.report,
    )
    building.push_async_callback(metadata.close)
    return tls, log, view, metadata


async def _open_stores(
    settings: Settings,
    configs: dict[str, StoreConfig],
    on_store_call: OnStoreCall,
    building: AsyncExitStack,
) -> TierStores:
    stores = await open_all(configs, needed=(settings.default_store,), **store_surroundings())
    opened = {}
    for name, store in stores.items():
        building.push_async_callback(store.close)
        measured = MeasuredStore(
            store, NamedStoreObserver(name, on_store_call), monotonic=ambient.monotonic
        )
        opened[name] = TierStore(name, measured, configs[name].prefix)
    return TierStores(opened, settings.default_store)


def _new_snapshots(
    settings: Settings, directory: DataDirectory, parts: RemoteLogParts
) -> SnapshotUploader:
    return SnapshotUploader(
        parts.given.metadata,
        directory.metadata_path / PARTITION_DIRECTORY,
        parts.given.stores.default,
        around=parts.around,
        confirm_prefix=parts.checks.claims.confirm,
        limits=SnapshotUploadLimits(
            interval_s=settings.metadata.snapshot_upload_interval_s,
            check_interval_s=settings.metadata.snapshot_upload_check_s,
            kept=settings.metadata.snapshots_uploaded_max,
        ),
    )


def _open_directory(settings: Settings, building: AsyncExitStack) -> DataDirectory:
    directory = open_data_directory(settings.node.data_dir)
    building.callback(directory.close)
    check_log_dirs(settings.kafka.log_dirs, directory)
    return directory


def _levels(settings: Settings) -> LogLevels:
    return LogLevels(settings.log.levels.by_area())


def _open_audit(
    settings: Settings, directory: DataDirectory, on_event: OnEvent, building: AsyncExitStack
) -> tuple[AuditLog, OnEvent]:
    limits = AuditLimits(
        file_bytes_max=settings.audit.file_bytes_max, files_max=settings.audit.files_max
    )
    audit = AuditLog(directory.path / AUDIT_DIRECTORY, sleep=ambient.sleep, limits=limits)
    building.push_async_callback(audit.close)
    return audit, _audited(on_event, audit, directory.node_id)


def _audited(on_event: OnEvent, audit: AuditLog, node_id: int) -> OnEvent:
    """`on_event`, preceded by an audit line for each event that has one."""

    def handle(event: CopyEvent) -> None:
        line = audit_line_of(event, at_ms=ambient.now_ms(), by=f"node {node_id}")
        if line is not None:
            audit.note(line)
        on_event(event)

    return handle


async def _open_broker(
    kafka: KafkaSettings, directory: DataDirectory, building: AsyncExitStack
) -> BrokerView | None:
    """The view of the node's own broker, which connects at the first request; None if no broker is
    configured.
    """
    if not kafka.broker:
        return None
    # slow to import, often not needed
    from strandline.node.broker_connection import open_broker_view

    broker = open_broker_view(
        kafka, node_id=directory.node_id, kafka_cluster_id=directory.kafka_cluster_id
    )
    building.push_async_callback(broker.close)
    return broker
