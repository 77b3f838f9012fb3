"""What a listener finds in this node: `QuorumServer` over the driver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafka_formats.errors import InvalidRequest
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.framing import frame_produced
from rlmm.quorum.ports import Answer, ListenerView, ProduceAnswer
from rlmm.raft.actions import ProposalFailed
from rlmm.raft.events import Propose, ProposedBatch
from rlmm.raft.messages import Error, Request

GROUP_BYTES_MAX = 1024 * 1024
"""What is larger is proposed alone: refused for its size, it refuses no other."""


class DriverServer:
    """See `ports.QuorumServer`. `now_ms` stamps what other nodes propose.

    What arrives in one turn of the event loop is proposed together, so that it goes to the disk and
    to the followers together too.
    """

    def __init__(self, driver: QuorumDriver, *, now_ms: Callable[[], int]) -> None:
        self._driver = driver
        self._now_ms = now_ms
        self._group = _Produced()

    async def answer(self, request: Request) -> Answer:
        return await self._driver.answer(request)

    async def produce(self, records: bytes) -> ProduceAnswer:
        try:
            batches = frame_produced(records, timestamp_ms=self._now_ms())
        except InvalidRequest:
            return ProduceAnswer(Error.INVALID_REQUEST)
        if self._group.size_bytes + len(records) > GROUP_BYTES_MAX:
            self._propose()
        if not self._group.waiting:
            asyncio.get_running_loop().call_soon(self._propose)
        return await self._group.add(batches, len(records))

    def _propose(self) -> None:
        group = self._group
        if group.waiting:
            self._group = _Produced()
            self._driver.feed(Propose(group, tuple(group.batches)))

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
    """Peers' batches in the core, in the order in which they came."""

    def __init__(self) -> None:
        self.batches: list[ProposedBatch] = []
        self.size_bytes = 0
        self.waiting: list[tuple[asyncio.Future[ProduceAnswer], int]] = []

    def add(
        self, batches: Sequence[ProposedBatch], size_bytes: int
    ) -> asyncio.Future[ProduceAnswer]:
        """One request's batches; what became of them."""
        self.batches += batches
        self.size_bytes += size_bytes
        answer: asyncio.Future[ProduceAnswer] = asyncio.get_running_loop().create_future()
        self.waiting.append((answer, sum(batch.record_count for batch in batches)))
        return answer

    def committed(self, base_offset: int) -> None:
        for answer, record_count in self.waiting:
            if not answer.done():
                answer.set_result(ProduceAnswer(Error.NONE, base_offset))
            base_offset += record_count

    def failed(self, failure: ProposalFailed) -> None:
        answered = ProduceAnswer(
            failure.error, appended=failure.appended, leader_id=failure.leader_id
        )
        for answer, _ in self.waiting:
            if not answer.done():
                answer.set_result(answered)
