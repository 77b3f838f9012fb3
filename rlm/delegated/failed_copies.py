"""Remembers which of the broker's copies failed by what is in the segment, and tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_formats.errors import Conflict, CorruptData, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind, after_failure, failure_kind
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.segment_proposals import back_off_policy
from rlm.control.surroundings import Surroundings

FAILED_MAX = 1_000
"""Partitions whose failed copies are remembered."""
TOLD_ON_MS = 300_000
"""A broker that still leads tries again within half a minute: later it leads no more."""
FAILURES_TOLD = 3
"""A source that moves is another one at the next attempt; damage stays what it is."""


@dataclass(slots=True)
class FailedCopies:
    """One per node: by partition, the segment that failed last. It is not begun again before its
    back-off is over, since each attempt of the broker would leave a row and a tombstone.
    """

    around: Surroundings
    _failed: dict[TopicIdPartition, tuple[int, BackOff]] = field(default_factory=dict)

    def check_may_begin(self, tip: TopicIdPartition, start: int) -> None:
        """RetryLater if this segment failed a moment ago."""
        failed_start, failed = self._failed.get(tip, (-1, NO_BACK_OFF))
        if failed_start == start and failed.waits_at(self._now_ms()):
            raise RetryLater(
                f"the segment at {start} of {tip} failed and is tried later: {failed.text}"
            )

    def failed(self, tip: TopicIdPartition, start: int, error: Exception) -> None:
        """Take the failure of a copy."""
        before_start, before = self._failed.pop(tip, (-1, NO_BACK_OFF))
        if not isinstance(error, Conflict | CorruptData):
            return  # the store or the queue: the broker's own pace is enough
        if len(self._failed) >= FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        failed = after_failure(
            before if before_start == start else NO_BACK_OFF, failure_kind(error), str(error),
            policy=back_off_policy(self.around.limits), now_ms=self._now_ms(),
            fraction=self.around.ambient.random_fraction(),
        )  # fmt: skip
        self._failed[tip] = start, failed

    def succeeded(self, tip: TopicIdPartition) -> None:
        """Forget what failed of the partition."""
        self._failed.pop(tip, None)

    def problems(self) -> tuple[NodeProblem, ...]:
        """One for all partitions that the broker can't copy on, with one of them as an example."""
        end_ms = self._now_ms() - TOLD_ON_MS
        stuck = [
            (tip, start, failed)
            for tip, (start, failed) in self._failed.items()
            if failed.until_ms > end_ms
            and (failed.kind is FailureKind.CORRUPT or failed.failures >= FAILURES_TOLD)
        ]
        if not stuck:
            return ()
        tip, start, failed = stuck[0]
        number = "1 partition is" if len(stuck) == 1 else f"{len(stuck)} partitions are"
        text = (
            f"{number} not copied for the broker: {tip.topic}-{tip.partition}: the segment at "
            f"{start}: {failed.text}. Let a replica lead whose files are whole; where gaps are "
            "legal, or nobody has what is missing, `strandline partitions allow-gaps` lets it be "
            "copied as it is"
        )
        return (NodeProblem(ProblemArea.PLUGIN, "copy_failed", text),)

    def _now_ms(self) -> int:
        return self.around.ambient.now_ms()
