"""Remembers the broker's copies that failed because of the segment, and reports them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kafka_formats.errors import Conflict, CorruptData, InvalidRequest, Refused, RetryLater
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.backoff import NO_BACK_OFF, BackOff, FailureKind, after_failure, failure_kind
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.segment_proposals import back_off_policy
from rlm.control.surroundings import Surroundings

FAILED_MAX = 1_000
"""The most partitions whose failed copies are remembered."""
TOLD_ON_MS = 300_000
"""The time (ms) for which a failed copy is reported: a broker that still leads tries again within
half a minute, so after this time it no longer leads.
"""
FAILURES_TOLD = 3
"""The number of failures from which on a copy is reported: a Conflict, as of a file that changed,
may be over at the next attempt. Damage is reported at once.
"""


@dataclass(frozen=True, slots=True)
class FailedCopy:
    """The segment of a partition that failed last; `start`: its start offset. `unseen`: this node
    could not get at its files; otherwise their content was the reason.
    """

    start: int = -1
    back_off: BackOff = NO_BACK_OFF
    unseen: bool = False


@dataclass(slots=True)
class FailedCopies:
    """The failed copies of a node's broker: for each partition the segment that failed last. It may
    not begin again before its back-off is over, since each attempt of the broker would leave a row
    and a tombstone.
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
        """Record the failure of a copy."""
        if isinstance(error, Conflict | CorruptData):
            self._note(tip, start, error, failure_kind(error))
        else:  # the store or the queue: the broker's own pace is enough
            self._failed.pop(tip, None)

    def unseen(self, tip: TopicIdPartition, start: int, error: InvalidRequest | Refused) -> None:
        """Record the failure of a copy whose files this node can't get at. The next attempt names
        the same path, so it is delayed as for damage.
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
        """Forget the failed segment of the partition."""
        self._failed.pop(tip, None)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problems: one for all partitions whose segments can't be copied, and one for those
        whose files this node can't get at, each with one partition as an example.
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
                "Let a replica lead whose files are whole; where gaps are legal, or no "
                "replica has the missing records, copy it as it is with `strandline partitions "
                "allow-gaps`",
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
