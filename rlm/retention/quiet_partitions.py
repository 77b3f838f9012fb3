"""Remembers the partitions whose next passes of retention would change nothing, so that they are
not planned again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import PartitionState, TopicPolicy


class PlanInputs(NamedTuple):
    """The inputs of a plan besides the time."""

    token: int
    log_start_offset: int
    lineage: object
    segment_count: int
    size_bytes: int
    policy: TopicPolicy
    expiry_offset: int

    @classmethod
    def of(cls, state: PartitionState, token: int, policy: TopicPolicy) -> PlanInputs:
        return cls(
            token, state.log_start_offset, state.lineage, state.segment_count, state.size_bytes,
            policy, state.expiry.offset,
        )  # fmt: skip


@dataclass(slots=True)
class QuietPartitions:
    """The partitions, with the inputs of their last plan and the Unix time (ms) from which on a
    pass may have something to do (None: with these inputs never).
    """

    _known: dict[TopicIdPartition, tuple[PlanInputs, int | None]] = field(default_factory=dict)

    def __contains__(self, tip: TopicIdPartition) -> bool:
        return tip in self._known

    def keep(self, tips: Collection[TopicIdPartition]) -> None:
        """Forget all other partitions."""
        self._known = {tip: known for tip, known in self._known.items() if tip in tips}

    def note(self, tip: TopicIdPartition, inputs: PlanInputs, due_ms: int | None) -> None:
        """Remember that the plan of these inputs changes nothing before `due_ms`."""
        self._known[tip] = (inputs, due_ms)

    def forget(self, tip: TopicIdPartition) -> None:
        """The partition is to be planned at the next pass."""
        self._known.pop(tip, None)

    def has(self, tip: TopicIdPartition, inputs: PlanInputs, now_ms: int) -> bool:
        """True if a plan of these inputs would change nothing now."""
        known, due_ms = self._known.get(tip, (None, None))
        return known == inputs and (due_ms is None or now_ms < due_ms)
