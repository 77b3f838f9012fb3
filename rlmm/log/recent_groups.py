"""The newest committed records in memory, so that a reader at the tail never touches the disk."""

from __future__ import annotations

from collections import deque

from rlmm.metadata_log import CommittedGroup


class RecentGroups:
    """A bounded run of neighbouring groups, the newest last."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._groups: deque[tuple[int, int, CommittedGroup]] = deque()

    def add(self, start_offset: int, group: CommittedGroup) -> None:
        """`group` starts where the one before ended."""
        size = sum(len(record.value) for record in group.records)
        self._groups.append((start_offset, size, group))
        self._bytes += size
        while self._bytes > self._bytes_max and len(self._groups) > 1:
            self._bytes -= self._groups.popleft()[1]

    def group_at(self, offset: int) -> CommittedGroup | None:
        """What follows from `offset` on; None if that is not in memory (any more)."""
        for start, _, group in reversed(self._groups):
            if start <= offset:
                return group if start == offset else _tail(group, offset)
        return None


def _tail(group: CommittedGroup, offset: int) -> CommittedGroup | None:
    if offset >= group.end_offset:
        return None
    records = tuple(record for record in group.records if record.offset >= offset)
    return CommittedGroup(records, group.end_offset, group.end_epoch)
