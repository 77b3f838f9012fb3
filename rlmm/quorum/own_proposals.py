"""Brings this node's proposals to the leader: into its own core, or by a Produce to that node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kafka_formats.errors import InvalidRequest, OutcomeUnknown, RetryLater
from rlmm.log.committed import encode_proposals
from rlmm.metadata_log import Proposal
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.framing import frame
from rlmm.quorum.network_ports import PeerFailedError, Peers, ProduceAnswer
from rlmm.quorum.proposal_queue import Group, ProposalQueue
from rlmm.raft.actions import ProposalFailed, Role
from rlmm.raft.events import CommitLearned, Propose
from rlmm.raft.messages import Error

PRODUCE_DEADLINE_MS = 30_000
FORWARD_DEADLINE_MIN_MS = 1_000
"""The shortest deadline of a forwarded Produce, for callers near the end of their wait: a missing
answer also ends the connection.
"""

log = logging.getLogger(__name__)


class Proposals:
    """The proposals of this node, on one event loop; call `role_changed` after every change of role
    or leader.
    """

    def __init__(
        self,
        driver: QuorumDriver,
        peers: Peers,
        queue: ProposalQueue,
        *,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
        retry_backoff_s: float,
    ) -> None:
        self._driver = driver
        self._peers = peers
        self._queue = queue
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._sleep = sleep
        self._retry_backoff_s = retry_backoff_s
        self._pump_due = False
        self._forwarding: asyncio.Task[None] | None = None
        self._forwarded_to = (-1, -1)
        self._backing_off: asyncio.Task[None] | None = None
        self._here: set[Group] = set()
        self._none_here = asyncio.Event()
        self._none_here.set()

    async def propose(self, proposals: tuple[Proposal, ...], *, deadline_s: float) -> int:
        """The offset of the first record, once committed. Errors: `MetadataLog.propose`."""
        waiting = self._queue.add(proposals, end_s=self._monotonic() + deadline_s)
        self._pump_soon()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(deadline_s, self._queue.give_up, waiting, deadline_s)
        try:
            # Not shielded: a proposal whose caller is cancelled in the queue is dropped.
            return await waiting.done
        finally:
            timer.cancel()
            self._queue.leave(waiting)

    def role_changed(self) -> None:
        """Stop waiting for an answer of a leader that no longer leads."""
        core = self._driver.core
        if self._forwarding is not None and self._forwarded_to != (core.leader_id, core.epoch):
            self._forwarding.cancel()
        self._pump_soon()

    async def close(self, message: str, *, deadline_s: float) -> None:
        """Propose the queue if this node leads, and refuse new proposals."""
        self._pump()
        self._queue.close(message)
        try:
            async with asyncio.timeout(deadline_s):
                await self._none_here.wait()
        except TimeoutError:
            log.warning("proposals were not committed within %g s of closing", deadline_s)

    def log_failed(self, message: str) -> None:
        """Fail all proposals: this node's log stopped, and may or may not have them."""
        self._queue.close(message)
        here, self._here = self._here, set()
        for group in here:
            group.failed(OutcomeUnknown(message))
        self._none_here.set()

    async def stop(self) -> None:
        tasks = [task for task in (self._forwarding, self._backing_off) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _pump_soon(self) -> None:
        """Send the proposals of one turn of the loop together."""
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        core = self._driver.core
        while self._queue and self._backing_off is None:
            if core.role is Role.LEADER:
                self._propose_here(self._queue.take())
            elif core.leader_id >= 0 and self._forwarding is None:
                self._forwarded_to = (core.leader_id, core.epoch)
                group = self._queue.take()
                task = asyncio.create_task(self._forward(core.leader_id, group))
                self._forwarding = task
                task.add_done_callback(partial(self._forwarded, group))
            else:
                return

    def _propose_here(self, group: Group) -> None:
        if group.members:
            self._here.add(group)
            self._none_here.clear()
            batches = frame(group.proposals, timestamp_ms=self._now_ms())
            self._driver.feed(Propose(_Local(self, group), batches))

    async def _forward(self, leader_id: int, group: Group) -> None:
        group.leaving = True
        if not group.members:
            return
        encoded = encode_proposals(
            group.proposals, base_offset=0, epoch=0, timestamp_ms=self._now_ms()
        )
        records = b"".join(batch.data for batch in encoded)
        # After a lost answer the next groups wait as long as a caller waits for it.
        left_ms = int((group.end_s - self._monotonic()) * 1000)
        deadline_ms = min(max(left_ms, FORWARD_DEADLINE_MIN_MS), PRODUCE_DEADLINE_MS)
        try:
            answer = await self._peers.produce(leader_id, records, deadline_ms=deadline_ms)
        except PeerFailedError as error:
            log.info("node %d, the leader, did not answer a proposal: %s", leader_id, error)
            answer = ProduceAnswer(Error.NOT_LEADER_OR_FOLLOWER, appended=error.sent)
        if answer.error is Error.NONE:
            end_offset = answer.base_offset + len(group.proposals)
            self._driver.feed(CommitLearned(answer.leader_epoch, end_offset))
        self.answered(group, answer)

    def _forwarded(self, group: Group, task: asyncio.Task[None]) -> None:
        """End a forward. Not done in the task: one cancelled before its first step runs nothing."""
        self._forwarding = None
        if task.cancelled():
            if group.leaving:
                group.failed(_unknown("the leader changed"))
            else:
                self._queue.put_back(group)
        elif (error := task.exception()) is not None:
            log.error("forwarding a proposal failed", exc_info=error)
            group.failed(_unknown(f"an internal error: {error!r}"))
        self._pump_soon()

    def answered(self, group: Group, answer: ProduceAnswer) -> None:
        """Report the outcome of a group to its callers."""
        self._here.discard(group)
        if not self._here:
            self._none_here.set()
        if answer.error is Error.NONE:
            group.committed(answer.base_offset)
        elif answer.appended:
            group.failed(_unknown(answer.error.name))
        elif answer.error in (Error.MESSAGE_TOO_LARGE, Error.INVALID_REQUEST):
            group.failed(
                InvalidRequest(f"the leader refused it: {answer.error.name}", field="proposals")
            )
        elif answer.error is Error.THROTTLING_QUOTA_EXCEEDED:
            group.failed(RetryLater("the leader's queue is full", retry_after_ms=100))
        else:
            self._queue.put_back(group)
            if self._backing_off is None:
                self._backing_off = asyncio.create_task(self._back_off())

    async def _back_off(self) -> None:
        await self._sleep(self._retry_backoff_s)
        self._backing_off = None
        self._pump_soon()


class _Local:
    """A group that was proposed in this node's own core."""

    def __init__(self, proposals: Proposals, group: Group) -> None:
        self._proposals = proposals
        self._group = group

    def committed(self, base_offset: int, epoch: int) -> None:
        answer = ProduceAnswer(Error.NONE, base_offset, leader_epoch=epoch)
        self._proposals.answered(self._group, answer)

    def failed(self, failure: ProposalFailed) -> None:
        self._proposals.answered(
            self._group, ProduceAnswer(failure.error, appended=failure.appended)
        )


def _unknown(why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"the record may or may not be committed ({why}): read the row by its id before deciding "
        "anything"
    )
