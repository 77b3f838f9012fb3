"""Proposals of this node on their way to the leader, in groups: to a different node one group at a
time, to this node's own core one group per turn of the event loop.

A group that was certainly not appended returns to the front of the queue; one whose outcome is
unknown ends as OutcomeUnknown, and its proposers read the row by its id.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field

from kafka_formats.errors import InvalidRequest, OutcomeUnknown, RetryLater, StrandlineError
from rlmm.log.log_limits import LogLimits
from rlmm.metadata_log import Proposal


@dataclass(slots=True, eq=False)
class QueuedProposal:
    """One caller's consecutive records and their deadline `end_s` (monotonic). `taken`: they may
    already have been sent.
    """

    proposals: tuple[Proposal, ...]
    size_bytes: int
    end_s: float
    done: asyncio.Future[int]
    taken: bool = False


@dataclass(slots=True, eq=False)
class Group:
    """Proposals sent together; they end as `committed`, `failed` or put back. `leaving`: sent to a
    different node, so that the outcome is unknown without an answer.
    """

    members: list[QueuedProposal] = field(default_factory=list)
    leaving: bool = False

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        return tuple(each for member in self.members for each in member.proposals)

    @property
    def end_s(self) -> float:
        """The time when the last waiting caller gives up. There is at least one."""
        return max(member.end_s for member in self.members)

    def committed(self, base_offset: int) -> None:
        offset = base_offset
        for member in self.members:
            if not member.done.done():
                member.done.set_result(offset)
            offset += len(member.proposals)

    def failed(self, error: StrandlineError) -> None:
        for member in self.members:
            _fail(member.done, error)


class ProposalQueue:
    """The queue of a node's proposals, on one event loop; not for threads."""

    def __init__(self, limits: LogLimits) -> None:
        self._limits = limits
        self._queue: deque[QueuedProposal] = deque()
        self._bytes = 0
        self._closed: str | None = None

    def __bool__(self) -> bool:
        return bool(self._queue)

    def add(self, proposals: tuple[Proposal, ...], *, end_s: float) -> QueuedProposal:
        """Put proposals into the queue. InvalidRequest: there are none, or they are too large.
        RetryLater: the queue is full, or closed.
        """
        if not proposals:
            raise InvalidRequest("nothing to append", field="proposals")
        if self._closed is not None:
            raise RetryLater(self._closed)
        size = sum(len(proposal.value) for proposal in proposals)
        if size > self._limits.proposal_bytes_max:
            raise InvalidRequest(
                f"{size} bytes in one proposal: send at most {self._limits.proposal_bytes_max}",
                field="proposals",
            )
        if self._queue and self._bytes + size > self._limits.queue_bytes_max:
            raise RetryLater("the metadata log's queue is full", retry_after_ms=100)
        waiting = QueuedProposal(proposals, size, end_s, asyncio.get_running_loop().create_future())
        self._queue.append(waiting)
        self._bytes += size
        return waiting

    def take(self) -> Group:
        """Take consecutive proposals up to the size of one group, without callers that gave up."""
        group = Group()
        size = 0
        while self._queue:
            first = self._queue[0]
            if group.members and size + first.size_bytes > self._limits.group_bytes_max:
                break
            self._queue.popleft()
            self._bytes -= first.size_bytes
            if first.done.done():
                continue
            first.taken = True
            size += first.size_bytes
            group.members.append(first)
        return group

    def put_back(self, group: Group) -> None:
        """Put a group that was not appended back to the front of the queue."""
        if self._closed is not None:
            group.failed(RetryLater(self._closed))
            return
        for member in reversed(group.members):
            if member.done.done():
                continue  # its caller gave up meanwhile
            member.taken = False
            self._queue.appendleft(member)
            self._bytes += member.size_bytes

    def give_up(self, waiting: QueuedProposal, deadline_s: float) -> None:
        """Fail a proposal after its deadline: RetryLater if it was certainly not appended, else
        OutcomeUnknown.
        """
        if waiting.taken:
            _fail(
                waiting.done,
                OutcomeUnknown(
                    f"the metadata log did not commit within {deadline_s:g} s: read the row by its "
                    "id before deciding anything"
                ),
            )
        else:
            _fail(
                waiting.done,
                RetryLater(
                    f"no leader of the metadata quorum took the record within {deadline_s:g} s; "
                    "nothing was appended"
                ),
            )

    def leave(self, waiting: QueuedProposal) -> None:
        """Drop a proposal whose caller gave up; that frees its bytes in the queue even without a
        leader.
        """
        if waiting.taken:
            return
        with suppress(ValueError):  # the queue was closed
            self._queue.remove(waiting)
            self._bytes -= waiting.size_bytes

    def close(self, message: str) -> None:
        """Refuse queued and new proposals; none of them was appended."""
        self._closed = message
        while self._queue:
            _fail(self._queue.popleft().done, RetryLater(message))
        self._bytes = 0


def _fail(done: asyncio.Future[int], error: StrandlineError) -> None:
    if not done.done():
        done.set_exception(error)
        # Mark the exception as retrieved: no caller may be left, and asyncio would log it.
        done.exception()
