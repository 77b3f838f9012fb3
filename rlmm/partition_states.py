"""States of partitions as they were last asked for, each until the next record about it."""

from __future__ import annotations

from rlmm import queries
from rlmm.partition_state import PartitionState
from rlmm.rows import RowReader
from rlmm.segment import TopicIdPartition


class PartitionStates:
    """Asking again costs nothing while nothing changed: an idle node asks of every partition at
    each look at its disks. One event loop's; not for threads.

    Invariant: whoever commits records to the rows calls `forget` for each partition that they are
    about before anybody asks again. A partition's state depends on records about it alone.
    """

    def __init__(self, rows: RowReader, *, kept_max: int) -> None:
        self._rows = rows
        self._kept_max = kept_max
        self._states: dict[TopicIdPartition, PartitionState] = {}

    def state(self, partition: TopicIdPartition) -> PartitionState | None:
        """`queries.partition_state`."""
        known = self._states.get(partition)
        if known is not None:
            return known
        state = queries.partition_state(self._rows, partition)
        if state is not None:
            if len(self._states) >= self._kept_max:
                del self._states[next(iter(self._states))]
            self._states[partition] = state
        return state

    def forget(self, partition: TopicIdPartition) -> None:
        """A record about the partition was applied."""
        self._states.pop(partition, None)
