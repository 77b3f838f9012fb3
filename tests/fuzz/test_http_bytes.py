"""Mutated requests as bytes on a connection: answered or cut off, never an error of the node's."""

from __future__ import annotations

import asyncio
import random
import re

from api.http.api_limits import ApiLimits
from tests.api.fakes import BASE, segment_uuid
from tests.api.test_server import connection, get, running
from tests.fuzz.mutation import Mutator

INPUTS = 1_500
PARALLEL = 25
LIMITS = ApiLimits(
    header_deadline_s=0.2, body_deadline_s=0.2, idle_deadline_s=0.2, shutdown_deadline_s=1
)
_BODY = b'{"retention_ms":5,"retention_bytes":null,"copy_paused":true,"delete_paused":false}'
SEEDS = [
    get(),
    get(f"{BASE}/segments/{segment_uuid(0)}/log?topic_id=x").replace(
        b"\r\n\r\n", b"\r\nRange: bytes=0-9\r\nAccept: */*\r\nAuthorization: Bearer x\r\n\r\n"
    ),
    get(f"{BASE}/segments?limit=1&cursor=a%2Fb") + get("/metrics"),
    b"PUT /v1/topics/payments/policy HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
    b"application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY),
    b"PUT /v1/topics/payments/policy HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked"
    b"\r\nExpect: 100-continue\r\n\r\n%x\r\n%s\r\n0\r\nX: y\r\n\r\n" % (len(_BODY), _BODY),
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    b"HEAD http://localhost/healthz HTTP/1.0\r\n\r\n",
]
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) ")


async def test_no_bytes_on_a_connection_make_the_node_fail() -> None:
    mutator = Mutator(SEEDS)
    statuses: set[int] = set()
    async with running(LIMITS) as (_, server):

        async def send(number: int) -> None:
            data = mutator.make(random.Random(f"http {number}"))
            async with connection(server) as raw:
                try:
                    await raw.send(data)
                    raw.writer.write_eof()
                    answer = await raw.rest()
                except ConnectionError:
                    return  # cut off
            found = [int(status) for status in _STATUS.findall(answer)]
            assert all(status < 500 for status in found), (data.hex(), answer)
            assert not answer or answer.startswith(b"HTTP/1.1 "), (data.hex(), answer)
            statuses.update(found)

        for first in range(0, INPUTS, PARALLEL):
            await asyncio.gather(*map(send, range(first, first + PARALLEL)))
        async with connection(server) as raw:
            await raw.send(get())
            assert (await raw.reader.readline()).split()[1] == b"200"
        while server.connections > 1:
            await asyncio.sleep(0.001)
    assert statuses >= {200, 400, 404}
