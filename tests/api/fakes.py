"""A small metadata manager and remote log manager for the routes, and requests to them."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from api.http.api_limits import ApiLimits
from api.http.context import ApiContext, LogControl, NodeIdentity
from api.http.gate import Gate
from api.http.route_table import RouteTable
from api.http.tokens import BROKER, Role, TokenBook
from kafka_formats.errors import InternalError, NotFound, RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.log_levels import LogLevels
from rlm.control.why_not import WhyNot
from rlm.copy.claim_outlook import ClaimOutlook, NoOutlook
from rlm.copy.lag import Lag
from rlm.copy.partition_status import CopyUnderWay, LastError, PartitionStatus
from rlm.copy.partition_status import Role as NodeRole
from rlm.data_plane.read_request import RecordsEnd, RecordsRequest, WaitingRead
from rlm.fetch.follower_start import FollowerFetchAnswer, FollowerFetchQuery, FollowerPlan
from rlm.fetch.leader_transition import (
    LeaderTransitionAnswer,
    LeaderTransitionQuery,
    answer_leader_transition,
)
from rlm.fetch.list_offsets import OffsetAnswer
from rlm.format.custom_metadata import CustomMetadata
from rlm.format.manifest import IndexType
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import ScrubResults
from rlm.quota.flow_control import FlowControl
from rlm.quota.flow_limits import FlowLimits
from rlmm.apply.claim_forecast import ClaimForecast
from rlmm.apply.outcome import ACCEPTED, Outcome, Verdict
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.manager.segment_history import HistoryEntry
from rlmm.metadata_log import LogDescription, ReplicaState
from rlmm.partition_state import Claim, LostOffsets, Mode, PartitionState, Totals
from rlmm.rows.queries import (
    ListPosition,
    MetPartition,
    SegmentAnswer,
    ServedSegment,
    list_position,
)
from rlmm.rows.served_ranges import ServedRange
from rlmm.segment import (
    Incarnation,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from tests.api.fake_ambient import counted_uuids, no_pause
from tests.api.fake_audit import FakeAudit
from tests.api.fake_damage import NothingDamaged
from tests.api.fake_erasures import FakeErasures
from tests.api.fake_nodes import FakeNodes
from tests.api.fake_policies import TOPIC_ID as TOPIC_ID
from tests.api.fake_policies import FakePolicies
from tests.api.fake_quorum import FakeQuorum
from tests.api.fake_repairs import FakeCollector, FakeRepairs
from tests.api.fake_retention import FakeRetention
from tests.api.fake_settings import FakeDisks, FakeSettings, in_force
from tests.api.fake_stream import FakeStream as FakeStream
from tests.api.fake_trash import FakeTrash
from tests.api.fake_work import FakeWork

TIP = TopicIdPartition("payments", TOPIC_ID, 0)
WRITER = Incarnation(1, Uuid(b"d" * 16), 3)
LINEAGE = (EpochEntry(0, 0), EpochEntry(2, 150))
BASE = "/v1/topics/payments/partitions/0"
TOKENS = {"reader": Role.READ, "operator": Role.OPERATE, "boss": Role.ADMIN}


def segment_uuid(number: int) -> Uuid:
    """The id of the segment `number` of the fake partition."""
    return Uuid(b"segment" + number.to_bytes(9, "big"))


def make_segment(
    number: int, state: SegmentState = SegmentState.COPY_SEGMENT_FINISHED
) -> RemoteLogSegmentMetadata:
    """Segment `number` holds the hundred offsets from number * 100 on."""
    start = number * 100
    custom = CustomMetadata("main", 1000, 0xE3069283, 200, 2, 300, 3).encode()
    return RemoteLogSegmentMetadata(
        segment_id=RemoteLogSegmentId(TIP, segment_uuid(number)),
        start_offset=start,
        end_offset=start + 99,
        broker_id=1,
        max_timestamp_ms=1_000_000 + start,
        event_timestamp_ms=2_000_000 + start,
        leader_epochs=((0, start),) if number == 0 else ((2, start),),
        size_bytes=1000,
        custom_metadata=custom if state is SegmentState.COPY_SEGMENT_FINISHED else None,
        state=state,
        token=7,
        writer=WRITER,
        upload_deadline_ms=3_000_000,
        finished_at=20 + number,
    )


@dataclass
class FakeMetadata(FakeNodes, FakePolicies, FakeSettings, FakeTrash, RemoteLogMetadataManager):
    """Answers from plain attributes; `ready` and `error` are for the unhappy ways."""

    segments: list[RemoteLogSegmentMetadata] = field(
        default_factory=lambda: [make_segment(number) for number in range(3)]
    )
    ready: bool = True
    error: Exception | None = None
    refusal: Exception | None = None
    waited_for: list[int] = field(default_factory=list)
    finalised: list[int] = field(default_factory=lambda: [1])
    older: tuple[TopicIdPartition, ...] = ()  # partitions of an older topic of the name

    def partitions(self) -> Iterator[TopicIdPartition]:
        return iter((TIP,))

    async def wait_for_offset(self, offset: int, *, deadline_s: float) -> None:
        self.waited_for.append(offset)
        if self.never_applies:
            await asyncio.Event().wait()
        if offset > self.applied_offset:
            raise RetryLater(f"metadata offset {offset} is not applied here yet")

    def remote_log_segment_metadata(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None:
        for segment in self.segments:
            holds = segment.start_offset <= offset <= segment.end_offset
            if holds and leader_epoch == segment.leader_epochs[0][0]:
                return SegmentAnswer(segment, segment.end_offset)
        return None

    def next_segment_with_txn_index(
        self, tip: TopicIdPartition, leader_epoch: int, offset: int, /
    ) -> SegmentAnswer | None:
        return SegmentAnswer(self.segments[-1], self.segments[-1].end_offset)

    def list_remote_log_segments(
        self,
        tip: TopicIdPartition,
        leader_epoch: int | None = None,
        *,
        after: ListPosition | None = None,
    ) -> Iterator[RemoteLogSegmentMetadata]:
        return (
            segment
            for segment in self.segments
            if (leader_epoch is None or leader_epoch in dict(segment.leader_epochs))
            and (after is None or list_position(segment, leader_epoch) > after)
        )

    def is_ready(self, tip: TopicIdPartition) -> bool:
        return self.ready

    async def put_remote_partition_delete_metadata(
        self, metadata: object, *, deadline_s: float = 0
    ) -> int:
        if self.refusal is not None:
            raise self.refusal
        return self.applied_offset

    async def skip_offsets(self, record: object, *, deadline_s: float = 0, **_: object) -> int:
        return await self.put_remote_partition_delete_metadata(record)

    undo_partition_delete = reset_claim = skip_offsets
    set_partition_mode = record_gaps_allowed = skip_offsets

    def partition_state(self, tip: TopicIdPartition) -> PartitionState | None:
        if tip != TIP:
            return None
        return PartitionState(
            partition=TIP,
            mode=Mode.SIDECAR,
            claim=Claim(7, 2, WRITER, 1, 1_000),
            lineage=LINEAGE,
            log_start_offset=0,
            highest_copied=(299, 2),
            next_offset=300,
            lost_ranges=(LostOffsets(10, 12, "retention"),),
            delete_state=None,
            segment_count=3,
            size_bytes=3000,
            expiry=self.expiry,
        )

    def find_partition(self, topic: str, partition: int) -> TopicIdPartition | None:
        if self.error is not None:
            raise self.error
        return TIP if (topic, partition) == ("payments", 0) else None

    def met_partitions(self, topic: str) -> Iterator[MetPartition]:
        met = (*(MetPartition(each, 1) for each in self.older), MetPartition(TIP, 5))
        return iter(met if topic == TIP.topic else ())

    def served_segments(
        self, of: PartitionState, first: int, last: int, /
    ) -> Iterator[ServedSegment]:
        for each in self.segments:
            low, high = max(first, each.start_offset), min(last, each.end_offset)
            if low <= high:
                yield ServedRange(low, high, each.segment_id.id), each

    def segment(
        self, tip: TopicIdPartition, segment_uuid: Uuid, /
    ) -> RemoteLogSegmentMetadata | None:
        found = (each for each in self.segments if each.segment_id.id == segment_uuid)
        return next(found, None)

    def totals(self) -> Totals:
        return Totals(copy_started=1, copy_finished=3, size_bytes=3000, partitions=1)

    def digest(self) -> bytes:
        return bytes(16)

    def feature_level(self) -> int:
        return max(self.finalised)

    async def finalise_feature_level(self, level: int, *, deadline_s: float = 0) -> int:
        self.finalised.append(level)
        return 77

    async def segment_history(
        self, segment_id: RemoteLogSegmentId, *, limit: int
    ) -> tuple[HistoryEntry, ...]:
        if segment_id.id != segment_uuid(0):
            return ()
        added = replace(make_segment(0), state=SegmentState.COPY_SEGMENT_STARTED)
        finished = RemoteLogSegmentMetadataUpdate(
            segment_id, 1, 2_000_001, None, SegmentState.COPY_SEGMENT_FINISHED, 7, WRITER
        )
        return (HistoryEntry(8, 1, 500, added), HistoryEntry(20, 1, 600, finished))[:limit]

    def describe(self) -> LogDescription:
        voters = (
            ReplicaState(1, str(WRITER.directory_id), 42, 5, 6, "node-1:9"),
            ReplicaState(2, str(WRITER.directory_id), 40, 7, 3, "node-2:9"),
            ReplicaState(3, str(WRITER.directory_id), -1, -1, -1),
        )
        return LogDescription("cluster", 1, self.leader_id, 4, 42, 0, 42, voters, ())

    def snapshot_age_ms(self) -> int | None:
        return 2_500


def make_status(tip: TopicIdPartition = TIP) -> PartitionStatus:
    """A partition that this node leads and has copied up to offset 299."""
    return PartitionStatus(
        partition=tip,
        role=NodeRole.LEADER,
        mode=Mode.SIDECAR,
        delete_state=None,
        leader_epoch=2,
        claim_token=7,
        claimed_by_node=1,
        local_log_start_offset=100,
        active_base_offset=400,
        high_watermark=450,
        last_stable_offset=440,
        log_start_offset=0,
        highest_copied_offset=299,
        highest_copied_epoch=2,
        next_offset=300,
        lag=Lag(1000, 1, 5000),
        local_bytes=4_000,
        remote_segments=3,
        remote_bytes=3000,
        trash_bytes=500,
        lost_ranges=(LostOffsets(10, 12, "retention"),),
        why_not_copying=WhyNot.BACK_OFF,
        why_not_text="the store throttles; next attempt in 2 s",
        retry_at_ms=9_000,
        blocked=None,
        last_error=LastError("retry_later", "throttled", 7_000),
        copying=None,
        metadata_offset=41,
    )


def copying_status(tip: TopicIdPartition = TIP) -> PartitionStatus:
    """The same while a copy runs, with a corrupt segment behind it."""
    copy = CopyUnderWay(RemoteLogSegmentId(tip, segment_uuid(3)), 300, 399, 10, 1000)
    return replace(
        make_status(tip), copying=copy, why_not_copying=None, why_not_text="", blocked="corrupt"
    )


@dataclass
class FakeRemoteLog(FakeWork, NothingDamaged, FakeDisks):
    """Answers from attributes; keeps what it was asked."""

    stream: FakeStream = field(default_factory=lambda: FakeStream([b"first", b"second"]))
    known: list[PartitionStatus] = field(default_factory=lambda: [make_status()])
    asked: list[object] = field(default_factory=list)

    def status(self, partition: TopicIdPartition, /) -> PartitionStatus:
        for status in self.known:
            if status.partition == partition:
                return status
        raise NotFound(f"{partition} is unknown")

    def partitions(self) -> Sequence[TopicIdPartition]:
        return [status.partition for status in self.known]

    def claim_outlook(self, partition: TopicIdPartition, /) -> ClaimOutlook | NoOutlook:
        return NoOutlook("its broker does not lead the partition")

    def leader_transition(self, query: LeaderTransitionQuery, /) -> LeaderTransitionAnswer:
        self.asked.append(query)
        state = FakeMetadata().partition_state(query.partition)
        left_over = make_segment(3, SegmentState.COPY_SEGMENT_STARTED)
        assert state is not None
        after = replace(state, lineage=(state.lineage[0], *query.checkpoint))
        forecast = ClaimForecast(ACCEPTED, after, None)
        if query.leader_epoch < 2:
            forecast = ClaimForecast(Outcome(Verdict.FENCED, "it is over"), None, None)
        return answer_leader_transition(query, state, forecast, (left_over,), metadata_offset=41)

    async def follower_fetch(self, query: FollowerFetchQuery, /) -> FollowerFetchAnswer:
        self.asked.append(query)
        return FollowerFetchAnswer(
            partition=query.partition,
            plan=FollowerPlan.BUILD_FROM_TIER,
            error_code=109,
            fetch_offset=300,
            log_start_offset=0,
            leader_local_log_start_offset=250,
            leader_epochs=LINEAGE,
            segment=make_segment(2),
            valid_until=299,
            producer_snapshot_exact=True,
            metadata_offset=41,
        )

    async def offsets(self, partition: TopicIdPartition, timestamp: int, /) -> OffsetAnswer:
        self.asked.append(timestamp)
        return OffsetAnswer(partition, -1, 299, 2, 41)

    def open_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AsyncIterator[bytes]:
        self.asked.append((segment_uuid, start, end))
        return self.stream.read()

    def waiting_log(
        self, segment_uuid: Uuid, start: int = 0, end: int | None = None, /
    ) -> AbstractAsyncContextManager[WaitingRead]:
        raise InternalError("the segments of this fake are too short to be sent past the server")

    def open_index(self, segment_uuid: Uuid, index: IndexType, /) -> AsyncIterator[bytes]:
        self.asked.append((segment_uuid, index))
        return self.stream.read()

    def records(
        self,
        partition: TopicIdPartition,
        request: RecordsRequest,
        on_end: Callable[[RecordsEnd], None] | None = None,
        /,
    ) -> AsyncIterator[bytes]:
        self.asked.append(request)
        if on_end is not None:
            on_end(RecordsEnd(17, 3, 99, at_end=False, lost=((8, 9),), undecided_records=2))
        return self.stream.read()


@dataclass
class FakeNode:
    """A context over the fakes, an application of it, and requests to that."""

    context: ApiContext
    manager: FakeMetadata
    rlm: FakeRemoteLog
    quorum: FakeQuorum

    def app(self) -> ASGIApp:
        """The application for this context."""
        return app_over(self.context)

    def client(
        self,
        *,
        token: str | None = None,
        address: str = "127.0.0.1",
        base_url: str = "http://127.0.0.1:9480",
        app: ASGIApp | None = None,
    ) -> httpx.AsyncClient:
        """Requests from `address`."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(app or self.app(), client=(address, 4711))
        return httpx.AsyncClient(transport=transport, base_url=base_url, headers=headers)


def app_over(context: ApiContext) -> ASGIApp:
    """The application for a context. Routes are built once for all: that takes long."""
    app, inner, routes = shared_routes()
    gate = Gate(inner, context, routes)

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await gate({**scope, "app": app}, receive, send)

    return run


@functools.cache
def shared_routes() -> tuple[FastAPI, ASGIApp, RouteTable]:
    """An application behind the gate, from which it takes its context."""
    app = create_app(_context(FakeMetadata(), FakeRemoteLog()))
    layer: Any = app.build_middleware_stack()
    while not isinstance(layer, Gate):
        layer = layer.app
    return app, layer.inner, RouteTable(app.routes)


def openapi() -> dict[str, Any]:
    """The document of an application."""
    app, _, _ = shared_routes()
    return deepcopy(app.openapi())


def _context(
    manager: FakeMetadata, rlm: FakeRemoteLog, quorum: FakeQuorum | None = None
) -> ApiContext:
    uuids = counted_uuids()
    three_parts: Any = rlm
    return ApiContext(
        manager=manager,
        rlm=three_parts,
        answers=three_parts,
        reads=three_parts,
        quorum=quorum or FakeQuorum(),
        audit=FakeAudit(),
        collector=FakeCollector(),
        erasures=FakeErasures(),
        repairs=FakeRepairs(),
        retention=FakeRetention(),
        switches=KillSwitches(None, now_ms=lambda: 1_000),
        settings=in_force(manager),
        flow=FlowControl(FlowLimits(), part_bytes=2**20, workers=1, monotonic=lambda: 0.0),
        log=LogControl("text", LogLevels()),
        scrubs=ScrubResults(None),
        identity=NodeIdentity("cluster", "kafka", 1, "0.1.0"),
        tokens=TokenBook(),
        monotonic=lambda: 0.0,
        now_ms=lambda: 1_000,
        store_names=("main", "second"),
        default_store="main",
        sleep=no_pause,
        new_uuid=lambda: next(uuids),
    )


def make_node(
    *,
    anonymous_role: Role | None = Role.ADMIN,
    tokens: TokenBook | None = None,
    limits: ApiLimits | None = None,
    not_ready: Sequence[str] = (),
) -> FakeNode:
    """A node that lets everybody on this machine do everything, unless told otherwise."""
    manager, rlm, quorum = FakeMetadata(), FakeRemoteLog(), FakeQuorum()
    context = replace(
        _context(manager, rlm, quorum),
        tokens=tokens or TokenBook(),
        anonymous_role=anonymous_role,
        limits=limits or ApiLimits(),
        not_ready=lambda: not_ready,
    )
    return FakeNode(context, manager, rlm, quorum)


def write_tokens(path: Path) -> TokenBook:
    """A token file with one token a role; each token is its holder's name and `-token`."""
    path.write_text(
        "".join(
            f"{name} {role} {sha256(f'{name}-token'.encode()).hexdigest()}\n"
            for name, role in [*((n, r.name.lower()) for n, r in TOKENS.items()), (BROKER, BROKER)]
        )
    )
    return TokenBook(path)
