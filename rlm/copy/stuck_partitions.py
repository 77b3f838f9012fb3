"""Counts partitions that make no progress, by reason, for the node's problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from kafka_formats.kafka_uuid import Uuid
from rlm.control.backoff import FailureKind
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.reasons import WHY_NOT, told_after_s
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.partition_work import PartitionWork
from rlm.leadership.leadership import NotLeading
from rlm.local_log.log_dir import LogDirProblem

_Name = tuple[str, int, Uuid | None]
"""Topic, partition, and the topic's id if known."""

WHILE_TRYING = frozenset({WhyNot.BACK_OFF, WhyNot.BLOCKED, WhyNot.WAITING_FOR_SLOT})
"""Reasons of a partition between a failed copy and the next successful one; it may be copying
too.
"""


def standing_reason(work: PartitionWork) -> Wait:
    """The reason over several attempts: a failure remains the reason during the next attempt."""
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


class TablePort(Protocol):
    """The part used here of `rlm.copy.work_table.WorkTable`."""

    def works(self) -> Iterable[PartitionWork]:
        """All partitions of this node."""

    def unread(self) -> Iterable[LogDirProblem]:
        """Problems that keep other partitions from being known."""


@dataclass(slots=True)
class StuckPartitions:
    """Remembers since when each partition makes no progress."""

    monotonic: Callable[[], float]
    table: TablePort
    _since: dict[_Name, tuple[WhyNot, float]] = field(default_factory=dict)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problems, one per reason, with the first partition as an example."""
        now_s = self.monotonic()
        since: dict[_Name, tuple[WhyNot, float]] = {}
        told: dict[WhyNot, list[tuple[_Name, str]]] = {}
        for name, reason in self._reasons():
            after_s = told_after_s(reason.why)
            if after_s is None:
                continue
            why, began_s = self._since.get(name, (reason.why, now_s))
            began_s = began_s if why is reason.why else now_s
            since[name] = (reason.why, began_s)
            if now_s - began_s >= after_s:
                told.setdefault(reason.why, []).append((name, reason.text))
        self._since = since
        return tuple(_problem(why, told[why]) for why in sorted(told))

    def _reasons(self) -> Iterator[tuple[_Name, Wait]]:
        for work in self.table.works():
            tip = work.partition
            yield (tip.topic, tip.partition, tip.topic_id), standing_reason(work)
        for each in self.table.unread():
            if each.topic is not None and each.partition is not None:
                name = (each.topic, each.partition, None)
                yield name, Wait(WhyNot.UNUSABLE_DIRECTORY, each.message)


def _problem(why: WhyNot, of: list[tuple[_Name, str]]) -> NodeProblem:
    (topic, partition, _), text = min(of, key=lambda each: each[0][:2])
    count = "1 partition is" if len(of) == 1 else f"{len(of)} partitions are"
    example = "" if len(of) == 1 else "for example "
    return NodeProblem(
        ProblemArea.PARTITIONS,
        why.value,
        f"{count} not copied ({WHY_NOT[why].says}): {example}{topic}-{partition}: {text}",
    )
