"""Records, once per partition, that Kafka's log cleaner may have worked in it.

A different node may later tier a topic that is compacted now. A moved replica has no checkpoint of
the cleaner, and segments from which it removed whole batches need not show that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field

from kafka_formats.errors import OutcomeUnknown, RetryLater, StrandlineError
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import WhyNot
from rlm.copy.partition_work import PartitionWork
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.records.control_records import GapsAllowed

logger = logging.getLogger(__name__)

RECORDS_AT_ONCE_MAX = 32
POLICY_SEEN = "its topic had cleanup.policy=compact"
CHECKPOINT_SEEN = "the broker's cleaner-offset-checkpoint names it"


def recorder(
    metadata: RemoteLogMetadataManager, deadline_s: float
) -> Callable[[TopicIdPartition, str], Awaitable[None]]:
    """Return the function that records that gaps are legal in a partition from now on, and why."""

    async def record(partition: TopicIdPartition, why: str) -> None:
        await metadata.record_gaps_allowed(GapsAllowed(partition, why), deadline_s=deadline_s)

    return record


@dataclass(slots=True)
class CompactionSeen:
    """Proposes one round of records at a time; a later scan repeats failed ones. `_settled`:
    partitions that need no record any more, or whose record was refused; bounded by the log
    directories.
    """

    metadata: RemoteLogMetadataManager
    deadline_s: float
    _settled: set[TopicIdPartition] = field(default_factory=set)
    _task: asyncio.Task[None] | None = None

    def after_look(self, works: Iterable[PartitionWork]) -> None:
        """Start to record the compaction that the scan found; returns at once."""
        if self._task is not None and not self._task.done():
            return
        found: list[GapsAllowed] = []
        for work in works:
            why = _why(work)
            if why is None or work.partition in self._settled:
                continue
            state = self.metadata.partition_state(work.partition)
            if state is not None and state.gaps_allowed:
                self._settled.add(work.partition)
            else:
                found.append(GapsAllowed(work.partition, why))
            if len(found) == RECORDS_AT_ONCE_MAX:
                break
        if found:
            self._task = asyncio.create_task(self._record(found), name="record compaction")

    async def close(self) -> None:
        """Cancel the current round."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _record(self, found: list[GapsAllowed]) -> None:
        for record in found:
            try:
                await self.metadata.record_gaps_allowed(record, deadline_s=self.deadline_s)
            except (RetryLater, OutcomeUnknown):
                return  # no quorum leader now: a later scan finds it again
            except StrandlineError as error:
                logger.info("%s: %s is not recorded: %s", record.partition, record.why, error)
            self._settled.add(record.partition)


def _why(work: PartitionWork) -> str | None:
    if work.left_out is not None and work.left_out.why is WhyNot.COMPACTED:
        return POLICY_SEEN
    included = work.left_out is None
    return CHECKPOINT_SEEN if included and work.local is not None and work.local.cleaned else None
