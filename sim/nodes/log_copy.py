"""A copy of a node's log, written or about to be, followed from the actions of its core."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_formats.record_batch import parse_header
from rlmm.raft.messages import Batch
from sim.core.elections import overlapping

if TYPE_CHECKING:
    from rlmm.quorum.driver import QuorumDriver
    from rlmm.quorum.quorum_log import QuorumLog

ALL_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """A batch on the disk; `end_offset` is exclusive."""

    base_offset: int
    end_offset: int
    epoch: int
    data: bytes

    def __repr__(self) -> str:
        return f"[{self.base_offset}, {self.end_offset}) of epoch {self.epoch}"


@dataclass(eq=False)
class LogCopy:
    """The copy; `start_epoch` is that of the batch before the first."""

    start_offset: int = 0
    start_epoch: int = 0
    batches: list[StoredBytes] = field(default_factory=list)

    @property
    def end_offset(self) -> int:
        return self.batches[-1].end_offset if self.batches else self.start_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.start_epoch

    def read(self, log: QuorumLog) -> None:
        """Read the log that recovery left."""
        directory = log._directory
        self.start_offset = directory.log_start_offset
        position, end = self.start_offset, directory.log_end_offset
        while position < end:
            for batch in directory.read(position, end, bytes_max=ALL_BYTES):
                header = batch.header
                position = header.last_offset + 1
                self.batches.append(
                    StoredBytes(
                        header.base_offset, position, header.partition_leader_epoch, batch.data
                    )
                )
        self.start_epoch = log._core.epoch_of(self.start_offset - 1) if self.start_offset else 0

    def appended(self, driver: QuorumDriver, batches: tuple[Batch, ...]) -> None:
        """Add batches with the driver's bytes, just after it placed them."""
        data = driver.tail.bytes_at(batches[0].base_offset, batches[-1].end_offset, ALL_BYTES)
        assert data is not None
        at = 0
        for batch in batches:
            size = parse_header(data, at, source="tail", position=at).size_bytes
            placed = StoredBytes(
                batch.base_offset, batch.end_offset, batch.epoch, data[at : at + size]
            )
            self.batches.append(placed)
            at += size

    def truncate(self, end_offset: int) -> None:
        while self.batches and self.batches[-1].end_offset > end_offset:
            self.batches.pop()

    def replace(self, end_offset: int, epoch: int) -> None:
        self.batches.clear()
        self.start_offset, self.start_epoch = end_offset, epoch

    def between(self, start: int, end: int) -> list[StoredBytes]:
        """Whole batches of [start, end), found from the end, where new ones are."""
        return overlapping(self.batches, start, end)
