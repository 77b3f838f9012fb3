"""A store whose segment bytes move no faster than the node's limits allow.

Uploads over a connection are delayed inside the request's body; those to a file system are charged
after the call. Reads are delayed by taking the next piece later: the connection fills up and the
store waits.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TypeVar

from rlm.format.object_keys import parse_segment_key
from rlm.quota.copy_turns import CopyTurns
from rlm.quota.flow_limits import Flow
from rlm.quota.worker_pace import WorkerPace
from rsm_backends.body_pace import BodyPace, pacing
from rsm_backends.store import ObjectStore
from rsm_backends.store_wrapper import PortCall, Read, Send, StoreWrapper
from rsm_backends.streams import closing_stream

_Answer = TypeVar("_Answer")


class PacedStore(StoreWrapper):
    """Wraps a worker's store. Requests without a body or a stream pass undelayed."""

    def __init__(
        self, store: ObjectStore, prefix: str, pace: WorkerPace, turns: CopyTurns | None = None
    ) -> None:
        """`prefix` starts every key, before the topic. `turns` delay uploads; None: no delay."""
        super().__init__(store)
        self._turns = turns
        self._prefix = prefix
        self._pace = pace

    async def _answer(self, call: PortCall, send: Send[_Answer]) -> _Answer:
        if call.body_bytes is None:
            return await send(self._store)
        topic = self._topic(call.key)
        if self._turns is not None:
            await self._turns.before(call.body_bytes)
        piece_bytes = self._pace.piece_bytes(Flow.COPY, topic)
        if piece_bytes is None:
            return await send(self._store)
        body = BodyPace(lambda piece: self._pace.take(Flow.COPY, topic, piece), piece_bytes)
        async with self._pace.sending(topic):
            with pacing(body):
                answer = await send(self._store)
            await self._pace.take(Flow.COPY, topic, max(0, call.body_bytes - body.asked_bytes))
        return answer

    async def _stream(self, call: PortCall, read: Read) -> AsyncIterator[bytes]:
        topic = self._topic(call.key)
        async with closing_stream(read(self._store, call.start)) as pieces:
            async for piece in pieces:
                await self._pace.take(Flow.READ, topic, len(piece))
                yield piece

    def _topic(self, key: str) -> str | None:
        parsed = parse_segment_key(self._prefix, key)
        return None if parsed is None else parsed.segment_id.partition.topic
