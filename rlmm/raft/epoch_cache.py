"""The epoch of each offset of the log (Kafka's LeaderEpochFileCache).

An entry exists only for an epoch that has a record in the log: an election without data leaves no
entry that truncation would have to find (KAFKA-10706).
"""

from __future__ import annotations

from bisect import bisect_right

from rlmm.raft.messages import EpochEnd


class EpochCache:
    """Ascending (epoch, start offset) entries above a base: the log start and the epoch before."""

    __slots__ = ("_epochs", "_starts", "base_epoch", "base_offset")

    def __init__(
        self, base_offset: int, base_epoch: int, entries: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self.base_offset = base_offset
        self.base_epoch = base_epoch
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        assert self._epochs == sorted(set(self._epochs)), f"epochs out of order: {entries}"
        assert self._starts == sorted(set(self._starts)), f"offsets out of order: {entries}"

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, else of the record before the log start."""
        return self._epochs[-1] if self._epochs else self.base_epoch

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self._epochs, self._starts, strict=True))

    def append(self, epoch: int, start_offset: int) -> None:
        """Note a batch of `epoch` at `start_offset`; the epoch never falls."""
        if self._epochs and self._epochs[-1] == epoch:
            return
        assert epoch >= self.last_epoch, f"epoch {epoch} after {self.last_epoch}"
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def epoch_of(self, offset: int) -> int:
        """The epoch of the record at `offset`, which exists or is the one before the log start."""
        at = bisect_right(self._starts, offset) - 1
        return self._epochs[at] if at >= 0 else self.base_epoch

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """The largest epoch <= `epoch` in the log, and its end (exclusive)."""
        if epoch >= self.last_epoch:
            return EpochEnd(self.last_epoch, log_end_offset)
        above = bisect_right(self._epochs, epoch)
        floor = self._epochs[above - 1] if above else min(epoch, self.base_epoch)
        # A log that is empty after a snapshot ends at its base.
        return EpochEnd(floor, self._starts[above] if self._starts else self.base_offset)

    def truncate_to(self, end_offset: int) -> None:
        """Forget every epoch that starts at or above `end_offset`, even one at the log end."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def advance_start(self, start_offset: int, log_end_offset: int) -> None:
        """Move the log's start to `start_offset`."""
        base_epoch = self.epoch_of(start_offset - 1)
        kept = [
            (epoch, max(start, start_offset))
            for (epoch, start), end in zip(
                self.entries, [*self._starts[1:], log_end_offset], strict=True
            )
            if end > start_offset
        ]
        self.base_offset, self.base_epoch = start_offset, base_epoch
        self._epochs = [epoch for epoch, _ in kept]
        self._starts = [start for _, start in kept]

    def reset(self, base_offset: int, base_epoch: int) -> None:
        """Forget all epochs: the log is empty after a snapshot."""
        self.base_offset, self.base_epoch = base_offset, base_epoch
        self._epochs, self._starts = [], []
