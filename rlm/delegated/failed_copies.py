"""Remembers which of the broker's copies failed by what is in the segment, and tells of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_formats.errors import Conflict, CorruptData, InvalidRequest, Refused, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind, after_failure, failure_kind
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.segment_proposals import back_off_policy
from rlm.control.surroundings import Surroundings

FAILED_MAX = 1_000
"""Partitions whose failed copies are remembered."""
TOLD_ON_MS = 300_000
"""The time for which a failed copy is told: a broker that still leads tries again within half a
minute, and later it leads no more.
"""
FAILURES_TOLD = 3
"""The failures from which on a copy is told: a source that moves is another one at the next
attempt; damage stays what it is.
"""


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """The segment of a partition that failed last. `unseen`: by the files' place, not by what is
    in them.
    """

    start: int = -1
    back_off: BackOff = NO_BACK_OFF
    unseen: bool = False


@dataclass(slots=True)
class FailedCopies:
    """The failed copies of a node's broker: by partition, the segment that failed last. It is not
    begun again before its back-off is over, since each attempt of the broker would leave a row and
    a tombstone.
    """

    around: Surroundings
    _failed: dict[TopicIdPartition, FailedCopy] = field(default_factory=dict)

    def check_may_begin(self, tip: TopicIdPartition, start: int) -> None:
        """Raise RetryLater if this segment failed a moment ago."""
        failed = self._failed.get(tip, FailedCopy())
        if failed.start == start and failed.back_off.waits_at(self._now_ms()):
            raise RetryLater(
                f"the segment at {start} of {tip} failed and is tried later: {failed.back_off.text}"
            )

    def failed(self, tip: TopicIdPartition, start: int, error: Exception) -> None:
        """Take the failure of a copy."""
        if isinstance(error, Conflict | CorruptData):
            self._note(tip, start, error, failure_kind(error))
        else:  # the store or the queue: the broker's own pace is enough
            self._failed.pop(tip, None)

    def unseen(self, tip: TopicIdPartition, start: int, error: InvalidRequest | Refused) -> None:
        """Take the failure of a copy whose files this node cannot get at: the next attempt has the
        same path, so it is repeated as slowly as damage.
        """
        self._note(tip, start, error, FailureKind.CORRUPT)

    def _note(self, tip: TopicIdPartition, start: int, error: Exception, kind: FailureKind) -> None:
        before = self._failed.pop(tip, FailedCopy())
        if len(self._failed) >= FAILED_MAX:
            del self._failed[next(iter(self._failed))]
        back_off = after_failure(
            before.back_off if before.start == start else NO_BACK_OFF, kind, str(error),
            policy=back_off_policy(self.around.limits), now_ms=self._now_ms(),
            fraction=self.around.ambient.random_fraction(),
        )  # fmt: skip
        self._failed[tip] = FailedCopy(start, back_off, isinstance(error, InvalidRequest | Refused))

    def succeeded(self, tip: TopicIdPartition) -> None:
        """Forget what failed of the partition."""
        self._failed.pop(tip, None)

    def problems(self) -> tuple[NodeProblem, ...]:
        """One for all partitions that the broker can't copy on, and one for those whose files this
        node cannot get at, each with one of them as an example.
        """
        end_ms = self._now_ms() - TOLD_ON_MS
        stuck = [
            (tip, failed)
            for tip, failed in self._failed.items()
            if failed.back_off.until_ms > end_ms
            and (
                failed.back_off.kind is FailureKind.CORRUPT
                or failed.back_off.failures >= FAILURES_TOLD
            )
        ]
        told = (
            (
                "copy_failed",
                [each for each in stuck if not each[1].unseen],
                "Let a replica lead whose files are whole; where gaps are legal, or nobody has "
                "what is missing, `strandline partitions allow-gaps` lets it be copied as it is",
            ),
            (
                "paths",
                [each for each in stuck if each[1].unseen],
                "Let this node see the broker's log directories under the paths that the broker "
                "has, with the right to read them, and name those in kafka.log_dirs; or empty "
                "kafka.log_dirs: then the broker sends the files",
            ),
        )
        return tuple(
            NodeProblem(ProblemArea.PLUGIN, name, _text(failures, what_to_do))
            for name, failures, what_to_do in told
            if failures
        )

    def _now_ms(self) -> int:
        return self.around.ambient.now_ms()


def _text(failures: list[tuple[TopicIdPartition, FailedCopy]], what_to_do: str) -> str:
    tip, failed = failures[0]
    number = "1 partition is" if len(failures) == 1 else f"{len(failures)} partitions are"
    return (
        f"{number} not copied for the broker: {tip.topic}-{tip.partition}: the segment at "
        f"{failed.start}: {failed.back_off.text}. {what_to_do}"
    )
