"""Partitions that do not go on, counted by reason: what the node says of them as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from rlm.backoff import FailureKind
from rlm.copy_plan import Wait, WhyNot
from rlm.leadership import NotLeading
from rlm.node_problem import NodeProblem, ProblemArea
from rlm.partition_work import PartitionWork
from rlm.reasons import WHY_NOT, told_after_s
from rlmm.segment import TopicIdPartition

WHILE_TRYING = frozenset({WhyNot.BACK_OFF, WhyNot.BLOCKED, WhyNot.WAITING_FOR_SLOT})
"""A partition whose last copy failed is in one of these, or is copying, until one works."""


def standing_reason(work: PartitionWork) -> Wait:
    """Why it does not go on, seen over its attempts: the next one is no end of the trouble."""
    kept_away = work.left_out or work.unusable
    if kept_away is not None:
        return kept_away
    if isinstance(work.word, NotLeading):
        return work.wait
    back_off = work.back_off if work.back_off.failures else work.trouble
    trying = work.copying is not None or work.wait.why in WHILE_TRYING
    if not back_off.failures or not trying:
        return work.wait
    why = WhyNot.BLOCKED if back_off.kind is FailureKind.CORRUPT else WhyNot.BACK_OFF
    return Wait(why, back_off.text, back_off.until_ms)


@dataclass(slots=True)
class StuckPartitions:
    """Remembers since when each stands still; forgets it once it does not."""

    monotonic: Callable[[], float]
    works: Callable[[], Iterable[PartitionWork]]
    _since: dict[TopicIdPartition, tuple[WhyNot, float]] = field(default_factory=dict)

    def problems(self) -> tuple[NodeProblem, ...]:
        """One a reason, with the partition that came first as an example."""
        now_s = self.monotonic()
        since: dict[TopicIdPartition, tuple[WhyNot, float]] = {}
        told: dict[WhyNot, list[tuple[TopicIdPartition, str]]] = {}
        for work in self.works():
            reason = standing_reason(work)
            after_s = told_after_s(reason.why)
            if after_s is None:
                continue
            why, began_s = self._since.get(work.partition, (reason.why, now_s))
            began_s = began_s if why is reason.why else now_s
            since[work.partition] = (reason.why, began_s)
            if now_s - began_s >= after_s:
                told.setdefault(reason.why, []).append((work.partition, reason.text))
        self._since = since
        return tuple(_problem(why, told[why]) for why in sorted(told))


def _problem(why: WhyNot, of: list[tuple[TopicIdPartition, str]]) -> NodeProblem:
    tip, text = min(of, key=lambda each: (each[0].topic, each[0].partition))
    count = "1 partition is" if len(of) == 1 else f"{len(of)} partitions are"
    example = "" if len(of) == 1 else "for example "
    return NodeProblem(
        ProblemArea.PARTITIONS,
        why.value,
        f"{count} not copied ({WHY_NOT[why].says}): {example}{tip.topic}-{tip.partition}: {text}",
    )
