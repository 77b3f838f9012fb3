"""States of partitions as they were last asked for, each until the next record about it."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_formats.topic_id_partition import TopicIdPartition
from rlmm.partition_state import PartitionState
from rlmm.rows import queries
from rlmm.view.view import View


class PartitionStates:
    """Asking again costs nothing while nothing changed: an idle node asks of every partition at
    each look at its disks. One event loop's; not for threads.

    Invariant: whoever commits records to the view calls `committed` with the partitions that they
    are about before anybody asks again; a partition's state depends on records about it alone, and
    on registrations of nodes: behind one of these it names no offset that is known (`before`).
    Where the view moved in any other way (a snapshot was installed), nothing is remembered.
    """

    def __init__(self, view: View, *, kept_max: int) -> None:
        self._view = view
        self._kept_max = kept_max
        self._true_at = view.applied_offset
        self._states: dict[TopicIdPartition, PartitionState] = {}

    def state(self, partition: TopicIdPartition) -> PartitionState | None:
        """`queries.partition_state`."""
        self._forget_unless_true()
        known = self._states.get(partition)
        if known is not None:
            return known
        state = queries.partition_state(self._view, partition)
        if state is not None:
            if len(self._states) >= self._kept_max:
                del self._states[next(iter(self._states))]
            self._states[partition] = state
        return state

    def committed(self, partitions: Iterable[TopicIdPartition], before: int) -> None:
        """Records about these partitions, all behind metadata offset `before`, were committed."""
        if self._true_at != before:
            self._states.clear()
        for partition in partitions:
            self._states.pop(partition, None)
        self._true_at = self._view.applied_offset

    def _forget_unless_true(self) -> None:
        if self._true_at != self._view.applied_offset:
            self._states.clear()
            self._true_at = self._view.applied_offset
