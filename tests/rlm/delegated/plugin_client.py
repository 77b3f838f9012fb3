"""A broker's plug-in that calls a node over HTTP, as the Java one does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.log_names import segment_file_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.delegated import wire
from rlm.delegated.wire import MEDIA_TYPE, Announcement
from rlmm.segment import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    SegmentState,
)
from sim.tier import plugin_bodies
from sim.tier.plugin_bodies import ListAnswer
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import app_over, make_node
from tests.rlm.delegated.delegating import announcement
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node
from tests.rlm.planner_facts import segment_row, uuid
from tests.rlm.virtual_time import virtual_ambient

Body = bytes | AsyncIterator[bytes]


class ToldError(Exception):
    """An error that the node answered."""

    def __init__(self, status: int, kind: str, reason: str, detail: str) -> None:
        super().__init__(f"{status} {kind} {reason} {detail}")
        self.status, self.kind, self.reason, self.detail = status, kind, reason, detail


@dataclass(slots=True)
class PluginClient:
    """Calls of one session. `applied` None: an older plug-in, which does not tell."""

    http: httpx.AsyncClient
    session: int = 1
    seq: int = 1
    applied: int | None = None

    async def call(self, name: str, body: Body, headers: dict[str, str] | None = None) -> bytes:
        """The answer's body."""
        sent = {
            "Content-Type": MEDIA_TYPE,
            "Strandline-Broker-Protocol": "1",
            "Strandline-Session": f"{uuid(self.session)};{self.seq}",
            **({} if self.applied is None else {"Strandline-Applied": str(self.applied)}),
            **(headers or {}),
        }
        answer = await self.http.post(f"/v1/broker/{name}", content=body, headers=sent)
        if answer.status_code != 200:
            got = answer.headers
            raise ToldError(
                answer.status_code, got["Strandline-Kind"], got.get("Strandline-Reason", ""),
                got["Strandline-Detail"],
            )  # fmt: skip
        assert answer.headers["content-type"] == MEDIA_TYPE
        return answer.content

    async def announce(self, *leaders: TopicIdPartition) -> None:
        await self.say(announcement(*leaders, session=self.session, seq=self.seq))

    async def say(self, said: Announcement) -> None:
        await self.call("announce", plugin_bodies.announce(said))

    async def ready(self, tip: TopicIdPartition) -> tuple[bool, str]:
        return plugin_bodies.read_ready(await self.call("ready", plugin_bodies.ready(tip)))[1:]

    async def look_up(
        self, tip: TopicIdPartition, epoch: int, offset: int, *, with_txn_index: bool = False
    ) -> RemoteLogSegmentMetadata | None:
        asked = wire.LookUp(tip, epoch, offset, with_txn_index)
        body = await self.call("lookup", plugin_bodies.look_up(asked))
        return plugin_bodies.read_found(body, tip)[1]

    async def highest(self, tip: TopicIdPartition, epoch: int) -> int | None:
        body = await self.call("highest", plugin_bodies.highest(wire.Highest(tip, epoch)))
        return plugin_bodies.read_highest(body)[1]

    async def page(
        self,
        tip: TopicIdPartition,
        epoch: int = wire.ALL_EPOCHS,
        tag: bytes | None = None,
        cursor: bytes | None = None,
    ) -> tuple[bytes | None, tuple[RemoteLogSegmentMetadata, ...] | None, bytes | None]:
        """Tag, rows (None: the same), next cursor."""
        asked = wire.ListSegments(tip, epoch, tag, cursor)
        body = await self.call("list", plugin_bodies.list_segments(asked))
        return plugin_bodies.read_page(body, tip)[1:]

    async def list_changes(self, tip: TopicIdPartition, tag: bytes | None) -> ListAnswer:
        """The list of all epochs, as a plug-in asks for it that takes changes."""
        body = plugin_bodies.list_segments(wire.ListSegments(tip, wire.ALL_EPOCHS, tag, None))
        answer = await self.call("list", body, {"Strandline-List-Changes": "1"})
        return plugin_bodies.read_list(answer, tip)

    async def add(self, row: RemoteLogSegmentMetadata) -> None:
        await self.call("add", plugin_bodies.row(row))

    async def update(
        self, row: RemoteLogSegmentMetadata, state: SegmentState, custom: bytes | None = None
    ) -> None:
        now_ms = virtual_ambient().now_ms()
        update = RemoteLogSegmentMetadataUpdate(row.segment_id, 1, now_ms, custom, state)
        await self.call("update", plugin_bodies.update(update))

    async def delete(self, row: RemoteLogSegmentMetadata) -> None:
        await self.call("delete", plugin_bodies.row(row))

    async def copy(self, files: wire.CopyFiles) -> bytes | None:
        """The custom metadata."""
        body = await self.call("copy", plugin_bodies.copy(files))
        _, custom, failure = plugin_bodies.read_copied(body)
        if failure is not None:
            raise ToldError(200, *failure)
        return custom

    async def asks_for_files(self, files: wire.CopyFiles) -> bool:
        """True if the node's answer to `copy` is that the files are to be sent."""
        body = plugin_bodies.copy(files)
        return await self.call("copy", body, {"Strandline-Copy-Files": "1"}) == wire.SEND_FILES

    async def send(self, files: wire.CopyFiles, body: Body | None = None) -> bytes:
        """The custom metadata of a segment whose files are sent."""
        content = body_of(files) if body is None else body
        answer = await self.call("copy-files", content)
        _, custom, failure = plugin_bodies.read_copied(answer.replace(wire.SEND_FILES, b"", 1))
        if failure is not None:
            raise ToldError(200, *failure)
        assert custom is not None
        return custom

    async def fetch(self, row: RemoteLogSegmentMetadata, start: int, end: int) -> bytes:
        return await self.call("fetch", plugin_bodies.fetch(wire.Fetch(row, start, end)))

    async def index(self, row: RemoteLogSegmentMetadata, number: int) -> bytes:
        return await self.call("index", plugin_bodies.fetch_index(wire.FetchIndex(row, number)))


def files_of(log: KafkaLog, row: RemoteLogSegmentMetadata) -> wire.CopyFiles:
    """A segment's files as the broker names them."""

    def path(offset: int, suffix: str) -> str:
        return str(log.directory / segment_file_name(offset, suffix))

    start = row.start_offset
    checkpoint = (log.directory / "leader-epoch-checkpoint").read_bytes()
    return wire.CopyFiles(
        row, path(start, ".log"), path(start, ".index"), path(start, ".timeindex"), "",
        path(row.end_offset + 1, ".snapshot"), checkpoint,
    )  # fmt: skip


def body_of(files: wire.CopyFiles, contents: Sequence[bytes | None] | None = None) -> bytes:
    """A segment's files as a broker sends them; `contents` instead of those on the disk."""
    found = contents_of(files) if contents is None else contents
    sizes = tuple(None if each is None else len(each) for each in found)
    data = b"".join(each for each in found if each is not None)
    head = plugin_bodies.sent_files(wire.SentFiles(files, sizes))
    return head + data + crc32c(data).to_bytes(4, "big")


def contents_of(files: wire.CopyFiles) -> list[bytes | None]:
    """The files in the order of the body."""
    beside = Path(files.log).parent
    names = ("partition.metadata", "leader-epoch-checkpoint")
    paths = [*map(Path, files.paths), *(beside / name for name in names)]
    return [path.read_bytes() if path.is_file() else None for path in paths]


def client_of(node: Node, audit: FakeAudit | None = None) -> PluginClient:
    """The plug-in beside this node's broker."""
    fake = make_node()
    context = replace(
        fake.context,
        manager=node.metadata,
        broker=node.parts.new_broker_calls(),
        audit=audit or fake.context.audit,
    )
    transport = httpx.ASGITransport(app_over(context), client=("127.0.0.1", 1))
    return PluginClient(httpx.AsyncClient(transport=transport, base_url="http://localhost"))


def segment(tip: TopicIdPartition, number: int, start: int, end: int) -> RemoteLogSegmentMetadata:
    """A segment as the broker's remote log manager adds it."""
    row = segment_row(number, start, end, segment_state=SegmentState.COPY_SEGMENT_STARTED)
    return replace(row, segment_id=RemoteLogSegmentId(tip, uuid(number)))


def of_disk(orders: KafkaLog, number: int, start: int, end: int) -> RemoteLogSegmentMetadata:
    """A row of a segment that is in the log, as the broker adds it."""
    row = segment(orders.partition, number, start, end)
    return replace(row, size_bytes=len(orders.log_bytes(start)), txn_index_empty=True)


async def refused(call: Awaitable[object]) -> ToldError:
    """What the node answers to a call that it refuses."""
    with pytest.raises(ToldError) as caught:
        await call
    return caught.value
