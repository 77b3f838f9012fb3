"""What a listener finds in this node: `QuorumServer` over the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kafka_formats.errors import InvalidRequest
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.framing import frame_produced
from rlmm.quorum.ports import Answer, ListenerView, ProduceAnswer
from rlmm.raft.actions import ProposalFailed
from rlmm.raft.events import Propose
from rlmm.raft.messages import Error, Request


class DriverServer:
    """See `ports.QuorumServer`. `now_ms` stamps what other nodes propose."""

    def __init__(self, driver: QuorumDriver, *, now_ms: Callable[[], int]) -> None:
        self._driver = driver
        self._now_ms = now_ms

    async def answer(self, request: Request) -> Answer:
        return await self._driver.answer(request)

    async def produce(self, records: bytes) -> ProduceAnswer:
        try:
            batches = frame_produced(records, timestamp_ms=self._now_ms())
        except InvalidRequest:
            return ProduceAnswer(Error.INVALID_REQUEST)
        produced = _Produced()
        self._driver.feed(Propose(produced, batches))
        return await produced.answer

    async def read_committed(self, from_offset: int, bytes_max: int) -> bytes:
        return await self._driver.read_bytes(from_offset, bytes_max)

    def view(self) -> ListenerView:
        driver = self._driver
        return ListenerView(
            leader_id=driver.core.leader_id,
            leader_epoch=driver.core.epoch,
            log_start_offset=driver.log_start_offset,
            high_watermark=driver.apply_to,
            nodes=driver.nodes(),
        )


class _Produced:
    """A peer's batches in the core."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[ProduceAnswer] = asyncio.get_running_loop().create_future()

    def committed(self, base_offset: int) -> None:
        if not self.answer.done():
            self.answer.set_result(ProduceAnswer(Error.NONE, base_offset))

    def failed(self, failure: ProposalFailed) -> None:
        if not self.answer.done():
            self.answer.set_result(
                ProduceAnswer(failure.error, appended=failure.appended, leader_id=failure.leader_id)
            )
