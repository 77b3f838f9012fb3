"""What clients that do not log in get of a listener's memory, all together."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from rlmm.wire import frames
from rlmm.wire.authorisation import Authorisation
from rlmm.wire.frames import Api
from rlmm.wire.server_connection import ListenerLimits
from tests.rlmm.wire.test_listener import VIEW, Served, ask, read_frame
from tests.rlmm.wire.wire_network import TOPIC_ID, Wire


async def test_clients_that_ask_for_much_and_take_nothing_have_one_bound() -> None:
    bound = 6 << 20
    limits = ListenerLimits(anonymous_answer_bytes_max=bound)
    served = Served(replace(Wire(), authorisation=Authorisation(), listener_limits=limits))
    await served.start()
    share, held, asked = served.listener.share, [0], 0

    async def read_committed(from_offset: int, bytes_max: int) -> bytes:
        assert from_offset == 2
        held.append(bound - share.free_bytes)
        return bytes(bytes_max)

    served.server.read_committed = read_committed  # type: ignore[method-assign]
    partition = {"partition": 0, "fetch_offset": 2, "partition_max_bytes": 1 << 20}
    topics = [{"topic_id": TOPIC_ID, "partitions": [partition]}]
    body = {"max_wait": 0, "max_bytes": 1 << 20, "topics": topics}
    clients = [await served.connect() for _ in range(20)]
    for _, writer in clients:
        for number in range(4):
            writer.write(frames.encode_request(Api.FETCH, 16, number, body))
            asked += 1
    # Another one is answered meanwhile, with nothing where there is no room.
    for _ in range(20):
        await ask(served, Api.FETCH, 16, body)
    assert max(held) <= bound
    assert share.held_bytes <= bound + (64 << 10)
    assert 1 < len(held) < asked
    assert served.listener._ticker is not None
    served.listener._ticker.cancel()
    served.listener._tick()
    assert f"quorum.anonymous_answer_bytes_max is {bound}" in served.troubles[-1]
    for reader, writer in clients:
        answers = [await read_frame(reader) for _ in range(4)]
        assert [int.from_bytes(answer[:4]) for answer in answers] == [0, 1, 2, 3]
        writer.close()
    await served.close()


async def test_where_many_consumers_wait_for_records_a_further_one_is_answered_at_once() -> None:
    """Each looks twenty times a second, and thousands would keep the leader's loop busy."""
    limits = ListenerLimits(consumer_waits_max=2)
    served = Served(replace(Wire(), authorisation=Authorisation(), listener_limits=limits))
    await served.start()
    partition = {"partition": 0, "fetch_offset": VIEW.high_watermark, "partition_max_bytes": 99}
    topics = [{"topic_id": TOPIC_ID, "partitions": [partition]}]
    body = {"max_wait": 5_000, "max_bytes": 99, "topics": topics}
    patient, writer = await served.connect()
    writer.write(frames.encode_request(Api.FETCH, 16, 1, body) * 2)
    while served.listener._answers._reads.waiting < 2:
        await asyncio.sleep(0)
    answer = await ask(served, Api.FETCH, 16, body)
    assert answer["responses"][0]["partitions"][0]["error_code"] == 0
    assert served.listener._answers._reads.waiting == 2
    writer.close()
    await patient.read()
    await served.close()
