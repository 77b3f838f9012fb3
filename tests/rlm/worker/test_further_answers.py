"""A real worker that goes on answering the client whose first request it answered."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import cast

from rlm.data_plane.data_plane import DataPlane
from rlm.data_plane.further_requests import FurtherRequests
from rlm.data_plane.read_request import (
    BatchesFound,
    BatchesRequest,
    ClientEnd,
    Isolation,
    SegmentPiece,
    SendRules,
    Sent,
)
from rlm.worker.job import Job, JobsWorker
from rlm.worker.pool import WorkerPool
from tests.rlm.broker_files import ReplicaWriter
from tests.rlm.real_workers import copied

RULES = SendRules(grace_s=60, bytes_per_s_min=1, store_deadline_s=60)
ANSWER = 300_000
BATCHES = bytes(4 << 20)
"""More than the kernel keeps of a connection."""


def asked(number: int, offset: int) -> bytes:
    """A request as of Kafka's clients: size, API key and version, correlation id, and the rest."""
    body = struct.pack(">hhi", 1, 4, number) + b"about" + struct.pack(">q", offset) + b"rest"
    return struct.pack(">i", len(body)) + body


def rules(until_s: float = math.inf) -> FurtherRequests:
    return FurtherRequests(asked(1, 0), 17, b"before", b"after", False, ANSWER, until_s)


class Scan:
    """The client's end of a connection whose first request is being answered."""

    def __init__(self, theirs: socket.socket, sending: asyncio.Task[Sent], log: bytes) -> None:
        self.theirs, self.sending, self.log = theirs, sending, log
        self.at = 0

    async def take(self, size: int) -> bytes:
        got = bytearray()
        while len(got) < size:
            got += await asyncio.get_running_loop().sock_recv(self.theirs, size - len(got))
        return bytes(got)

    async def answer(self, number: int) -> int:
        """Take a further answer, and compare it; its size."""
        (size,) = struct.unpack(">i", await self.take(4))
        body = await self.take(size)
        batches = body[14:-5]
        assert body[:14] == struct.pack(">i", number) + b"before" + struct.pack(">i", len(batches))
        assert body[-5:] == b"after"
        assert batches == self.log[self.at : self.at + len(batches)]
        self.at += len(batches)
        return len(batches)


@asynccontextmanager
async def scan(
    pool: WorkerPool, replica: ReplicaWriter, further: FurtherRequests
) -> AsyncIterator[tuple[Scan, int, socket.socket]]:
    """A scan behind its first answer, the next offset, and the worker's end of the connection."""
    pieces = await copied(pool, replica)
    log = replica.path(0, ".log").read_bytes()
    request = BatchesRequest(pieces.pieces[0], 0, 10**9, ANSWER, Isolation.READ_UNCOMMITTED)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        async with pool.waiting_batches(request, pieces) as held:
            sending = asyncio.create_task(held.send_to(ours, RULES, further))
            found = Scan(theirs, sending, log)
            size = held.found.size_bytes
            assert await found.take(size + 5) == log[:size] + b"after"
            found.at = size
            yield found, held.found.next_offset, ours


def offset_at(log: bytes, at: int) -> int:
    (offset,) = struct.unpack_from(">q", log, at)
    return int(offset)


async def test_further_requests_are_answered_until_something_else_comes(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    async with scan(pool, replica, rules()) as (client, offset, ours):
        sizes = []
        for number in (7, 8):
            client.theirs.send(asked(number, offset))
            sizes.append(await client.answer(number))
            assert 0 < sizes[-1] <= ANSWER
            offset = offset_at(client.log, client.at)
        other = asked(9, offset + 1)
        client.theirs.send(other)
        first = client.at - sum(sizes)
        assert await client.sending == Sent(ClientEnd.TOOK_ALL, first + 5, 2, sum(sizes))
        assert ours.recv(1_000) == other  # it is the supervisor's to answer


async def test_what_the_worker_can_not_answer_is_left_for_the_supervisor(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    async with scan(pool, replica, rules()) as (client, offset, ours):
        number = 1
        while client.at < len(client.log):
            number += 1
            client.theirs.send(asked(number, offset))
            await client.answer(number)
            if client.at < len(client.log):
                offset = offset_at(client.log, client.at)
        end = asked(number + 1, 150)  # the segment ends
        client.theirs.send(end)
        assert (await client.sending).further_answers == number - 1
        assert ours.recv(1_000) == end


async def test_without_another_request_in_time_the_connection_comes_back(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    async with scan(pool, replica, rules(until_s=0.0)) as (client, offset, ours):
        client.theirs.send(asked(7, offset))
        assert (await client.sending).further_answers == 0
        assert ours.recv(1_000) == asked(7, offset)


async def test_a_client_that_leaves_is_the_supervisors_to_notice(
    pool: WorkerPool, replica: ReplicaWriter
) -> None:
    async with scan(pool, replica, rules()) as (client, _, ours):
        client.theirs.close()
        assert (await client.sending).further_answers == 0
        assert ours.recv(1) == b""


class OneAnswer:
    """A worker and its data plane: each read finds the same bytes, after its seconds of `now`."""

    job_count = 1

    def __init__(self, read_s: Iterable[float] = ()) -> None:
        self.now = 0.0
        self._read_s = iter(read_s)

    def tell(self, _message: object) -> None: ...

    async def batches(self, _request: object, _resolver: object) -> tuple[BatchesFound, bytes]:
        self.now += next(self._read_s, 0.0)
        return BatchesFound(len(BATCHES), 10, (), 10, 10), BATCHES

    async def scan(self, client: socket.socket, until_s: float) -> Sent:
        job = Job(1, cast(JobsWorker, self), cast(DataPlane, self), 1)
        assert job.lend(client, RULES, rules(until_s))
        piece = cast(SegmentPiece, None)
        asked_for = BatchesRequest(piece, 0, 100, ANSWER, Isolation.READ_UNCOMMITTED)
        sent = await job.perform_waiting(asked_for, lambda: self.now)
        assert isinstance(sent, Sent)
        return sent


async def test_a_client_that_takes_its_time_over_the_first_answer_gets_no_old_one() -> None:
    """What the leader said before that answer holds for a second, however long it takes."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        plane, loop = OneAnswer(), asyncio.get_running_loop()
        sending = asyncio.create_task(plane.scan(ours, until_s=1.0))
        got = len(await loop.sock_recv(theirs, 1))
        plane.now = 10.0
        theirs.send(asked(2, 10))
        while got < len(BATCHES) + 5:
            got += len(await loop.sock_recv(theirs, 1 << 20))
        assert await sending == Sent(ClientEnd.TOOK_ALL, len(BATCHES) + 5)
        assert ours.recv(1_000) == asked(2, 10)


async def test_what_the_store_brings_too_late_is_asked_of_the_supervisor_again() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(asked(2, 10))
        plane = OneAnswer(read_s=(0.0, 10.0))
        sending = asyncio.create_task(plane.scan(ours, until_s=1.0))
        theirs.setblocking(False)
        got = 0
        while got < len(BATCHES) + 5:
            got += len(await asyncio.get_running_loop().sock_recv(theirs, 1 << 20))
        assert (await sending).further_answers == 0
        assert ours.recv(1_000) == asked(2, 10)
