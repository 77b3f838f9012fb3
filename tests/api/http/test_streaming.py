"""Streams: whatever ends one closes the read behind it, and no part is taken for the whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Message

from api.http.api_limits import ApiLimits
from api.http.streaming import close_iterator, open_stream
from kafka_formats.errors import CorruptData, RetryLater, StrandlineError
from tests.api.fakes import BASE, FakeNode, FakeStream, make_node, segment_uuid
from tests.api.http.test_gate import http_scope

RECORDS = f"{BASE}/records"
QUERY = b"offset=0"


class Client:
    """The other end of one request, by hand."""

    def __init__(self, *, takes: int | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        self.gone = asyncio.Event()
        self.got_chunk = asyncio.Event()
        self._takes = takes
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._takes is not None and len(self.messages) >= self._takes:
            await asyncio.Event().wait()
        self.messages.append(dict(message))
        if message["type"] == "http.response.body":
            self.got_chunk.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages[1:])

    @property
    def ended(self) -> bool:
        return self.messages[-1].get("more_body") is False


class SlowClient(Client):
    """Lets time pass before it takes a chunk; without any left, as asyncio's timer says it."""

    def __init__(self, passes: Callable[[], None]) -> None:
        super().__init__()
        self.taken = 0
        self._passes = passes

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(0)  # where a deadline that is over strikes
            await asyncio.sleep(0)
            self._passes()
            self.taken += 1
        await super().send(message)


async def run(node: FakeNode, client: Client, cut: list[bool] | None = None) -> None:
    """One request for records, until the application returns."""
    extensions = {} if cut is None else {"strandline.abort": lambda: cut.append(True)}
    scope = http_scope(RECORDS, query_string=QUERY, extensions=extensions)
    await node.app()(scope, client.receive, client.send)


async def test_a_stream_ends_with_its_iterator() -> None:
    node, client = make_node(), Client()
    await run(node, client)
    assert (client.body, client.ended) == (b"firstsecond", True)
    assert node.rlm.stream.closed


async def test_a_stream_without_a_single_byte_is_an_empty_answer() -> None:
    node, client = make_node(), Client()
    node.rlm.stream = FakeStream([])
    await run(node, client)
    assert (client.messages[0]["status"], client.body, client.ended) == (200, b"", True)


async def test_a_client_that_goes_away_stops_the_read() -> None:
    node, client = make_node(), Client()
    node.rlm.stream = FakeStream([b"first"], hangs=True)
    running = asyncio.create_task(run(node, client))
    await client.got_chunk.wait()
    open_before = not node.rlm.stream.closed
    client.gone.set()
    await running
    assert open_before
    assert node.rlm.stream.closed
    assert not client.ended


async def test_a_cancelled_server_stops_the_read() -> None:
    node, client = make_node(), Client()
    node.rlm.stream = FakeStream([b"first"], hangs=True)
    running = asyncio.create_task(run(node, client))
    await client.got_chunk.wait()
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()
    assert node.rlm.stream.closed


async def test_a_client_that_stops_taking_bytes_is_cut_off_and_the_read_stops() -> None:
    node, client = make_node(limits=ApiLimits(chunk_deadline_s=0.01)), Client(takes=2)
    cuts: list[bool] = []
    await run(node, client, cuts)
    assert cuts == [True]
    assert node.rlm.stream.closed
    assert not client.ended


async def test_a_client_that_takes_a_chunk_now_and_then_is_cut_off_as_well() -> None:
    """Each send is within its deadline; the whole is slower than the least rate and its grace."""
    now_s = 0.0
    limits = ApiLimits(chunk_deadline_s=10, stream_bytes_per_s_min=100)
    node, client = make_node(limits=limits), SlowClient(lambda: moved(9.0))
    node = replace(node, context=replace(node.context, monotonic=lambda: now_s))
    node.rlm.stream = FakeStream([b"x" * 100] * 50)

    def moved(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    cuts: list[bool] = []
    await run(node, client, cuts)
    assert cuts == [True]
    assert node.rlm.stream.closed
    assert client.taken == 2  # 10 s of grace and 2 for its bytes are less than two waits of 9


async def test_a_client_at_the_least_rate_gets_all() -> None:
    now_s = 0.0
    limits = ApiLimits(chunk_deadline_s=10, stream_bytes_per_s_min=100)

    def moved() -> None:
        nonlocal now_s
        now_s += 1.0

    node, client = make_node(limits=limits), SlowClient(moved)
    node = replace(node, context=replace(node.context, monotonic=lambda: now_s))
    node.rlm.stream = FakeStream([b"x" * 100] * 50)
    await run(node, client)
    assert client.ended
    assert len(client.body) == 5_000


async def test_an_error_before_the_first_byte_has_its_own_status() -> None:
    node, client = make_node(), Client()
    node.rlm.stream = FakeStream([CorruptData("crc", source="a.log", position=0)])
    await run(node, client)
    assert client.messages[0]["status"] == 502
    assert node.rlm.stream.closed


@pytest.mark.parametrize("before", [[], [b"first"]])
async def test_damage_that_a_reader_meets_is_counted_and_logged(
    before: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    node = make_node()
    node.rlm.stream = FakeStream([*before, CorruptData("crc", source="a.log", position=7)])
    await run(node, Client(), [])
    registry = node.context.metrics.registry
    assert registry.get_sample_value("strandline_corrupt_reads_total") == 1
    assert "gets no bytes, as they are damaged: a.log at byte 7: crc" in caplog.text


@pytest.mark.parametrize(
    "error", [CorruptData("crc", source="a.log", position=0), RuntimeError("boom")]
)
async def test_an_error_in_the_middle_breaks_the_answer_off(error: Exception) -> None:
    node, client = make_node(), Client()
    cuts: list[bool] = []
    node.rlm.stream = FakeStream([b"first", error])
    await run(node, client, cuts)
    assert cuts == [True]
    assert (client.body, client.ended) == (b"first", False)
    assert node.rlm.stream.closed


async def test_a_server_that_cannot_cut_a_connection_hears_of_the_broken_answer() -> None:
    node, client = make_node(), Client()
    node.rlm.stream = FakeStream([b"first", RuntimeError("boom")])
    with pytest.raises(ConnectionAbortedError):
        await run(node, client)
    assert not client.ended


async def test_a_read_that_yields_nothing_in_time_is_retry_later_or_breaks_off() -> None:
    node = make_node(limits=ApiLimits(chunk_deadline_s=0.01))
    for items, status in (([], 503), ([b"first"], 200)):
        client, cuts = Client(), list[bool]()
        node.rlm.stream = FakeStream(items, hangs=True)
        await run(node, client, cuts)
        assert client.messages[0]["status"] == status
        assert cuts == ([] if status == 503 else [True])
        assert node.rlm.stream.closed


async def test_head_reads_nothing() -> None:
    node = make_node()
    async with node.client() as client:
        for path in (f"{RECORDS}?offset=0", f"{BASE}/segments/{segment_uuid(0)}/log"):
            answer = await client.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
        assert answer.headers["content-length"] == "1000"
    assert node.rlm.stream.asked == 0


async def test_an_iterator_that_does_not_close_holds_nobody_up() -> None:
    told: list[str] = []

    class Stuck(AsyncIterator[bytes]):
        async def __anext__(self) -> bytes:
            raise StopAsyncIteration

        async def aclose(self) -> None:
            told.append("asked to close")
            try:
                await asyncio.Event().wait()
            finally:
                told.append("given up")

    await close_iterator(Stuck(), 0.01)
    assert told == ["asked to close", "given up"]


async def test_an_iterator_that_cannot_be_closed_is_left_alone() -> None:
    class Plain(AsyncIterator[bytes]):
        async def __anext__(self) -> bytes:
            raise RetryLater("not now")

    with pytest.raises(StrandlineError):
        await open_stream({}, Plain(), ApiLimits(), media_type="x/y")
