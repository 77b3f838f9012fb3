"""The listener's side of this node: `QuorumServer` over the driver."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from kafka_formats.errors import Conflict, InvalidRequest, OutcomeUnknown, RetryLater
from rlmm.quorum.admin import check_may_remove
from rlmm.quorum.framing import frame_produced, proposals_produced
from rlmm.quorum.network_ports import Answer, ListenerView, ProduceAnswer
from rlmm.quorum.own_proposals import PRODUCE_DEADLINE_MS
from rlmm.quorum.quorum_log import QuorumLog
from rlmm.raft.actions import ProposalFailed, Role
from rlmm.raft.events import Propose, ProposedBatch
from rlmm.raft.messages import Error, RemoveVoterRequest, Request, VoterChangeResponse

GROUP_BYTES_MAX = 1024 * 1024
"""The most bytes of requests that are proposed together. A larger request is proposed alone, so
that others are not refused because of its size.
"""

logger = logging.getLogger(__name__)


class DriverServer:
    """The implementation of `network_ports.QuorumServer`. `now_ms` stamps proposals of other nodes.

    Proposals forwarded by other nodes go straight into the core; those of one turn of the event
    loop are sent together, to the disk and to the followers. Clients' records are queued with this
    node's own proposals (`own_proposals.py`), for its own core or the leader.
    """

    def __init__(self, log: QuorumLog, *, now_ms: Callable[[], int]) -> None:
        self._log = log
        self._driver = log.driver
        self._now_ms = now_ms
        self._group = _Produced()

    async def answer(self, request: Request) -> Answer:
        if isinstance(request, RemoveVoterRequest) and (why_not := self._why_not_removed(request)):
            return Answer(VoterChangeResponse(Error.INVALID_REQUEST, why_not))
        return await self._driver.answer(request)

    def _why_not_removed(self, request: RemoveVoterRequest) -> str | None:
        """The reason why a node is needed, which also applies to Kafka's tool; None if there is
        none. The core checks all other reasons.
        """
        core = self._driver.core
        if core.role is Role.LEADER and request.voter in core.voters.keys:
            now_ms = self._driver.now_monotonic_ms()
            try:
                check_may_remove(core.describe(), request.voter.node_id, now_ms)
            except Conflict as error:
                return str(error)
        return None

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

    async def propose(self, records: bytes, *, timeout_ms: int) -> ProduceAnswer:
        """Answer a Produce. REQUEST_TIMED_OUT: may be committed. NOT_LEADER_OR_FOLLOWER: nothing
        was appended.
        """
        deadline_s = min(max(timeout_ms, 0), PRODUCE_DEADLINE_MS) / 1000
        try:
            proposals = proposals_produced(records)
            offset = await self._log.propose(proposals, deadline_s=deadline_s)
        except InvalidRequest as error:
            logger.warning("a producer's records are refused: %s", error)
            return ProduceAnswer(Error.INVALID_REQUEST)
        except OutcomeUnknown:
            return ProduceAnswer(Error.REQUEST_TIMED_OUT, appended=True)
        except RetryLater:
            leader_id = self._driver.core.leader_id
            return ProduceAnswer(Error.NOT_LEADER_OR_FOLLOWER, leader_id=leader_id)
        return ProduceAnswer(Error.NONE, offset)

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
    """Peers' batches in the core, in order of arrival."""

    def __init__(self) -> None:
        self.batches: list[ProposedBatch] = []
        self.size_bytes = 0
        self.waiting: list[tuple[asyncio.Future[ProduceAnswer], int]] = []

    def add(
        self, batches: Sequence[ProposedBatch], size_bytes: int
    ) -> asyncio.Future[ProduceAnswer]:
        """Add one request's batches; returns the future of its outcome."""
        self.batches += batches
        self.size_bytes += size_bytes
        answer: asyncio.Future[ProduceAnswer] = asyncio.get_running_loop().create_future()
        self.waiting.append((answer, sum(batch.record_count for batch in batches)))
        return answer

    def committed(self, base_offset: int, epoch: int) -> None:
        for answer, record_count in self.waiting:
            if not answer.done():
                answer.set_result(ProduceAnswer(Error.NONE, base_offset, leader_epoch=epoch))
            base_offset += record_count

    def failed(self, failure: ProposalFailed) -> None:
        answered = ProduceAnswer(
            failure.error, appended=failure.appended, leader_id=failure.leader_id
        )
        for answer, _ in self.waiting:
            if not answer.done():
                answer.set_result(answered)
