"""History reads what the log retains, also while the log is being cut."""

from __future__ import annotations

from kafka_formats.errors import NotFound
from rlmm.manager.segment_history import read_history
from rlmm.metadata_log import CommittedRecord, LogDescription
from rlmm.records.records import encode
from tests.rlmm.metadata_node import finished, started

SEGMENT = started(1, 7)


class CutLog:
    """A log of five records whose start moves to 3 at the first read."""

    def __init__(self) -> None:
        self.start = 0
        proposals = [encode(SEGMENT), encode(finished(SEGMENT))] * 2
        self.records = [
            CommittedRecord(offset, 1, 5, proposal.control_type, proposal.value)
            for offset, proposal in enumerate(proposals)
        ]
        # Bytes that name the segment and are no record of it.
        self.records.append(CommittedRecord(4, 1, 5, None, b"\xff" + SEGMENT.segment_id.id))

    def describe(self) -> LogDescription:
        return LogDescription("c", 1, 1, 1, 5, self.start, 5, (), ())

    async def read(self, from_offset: int, *, limit: int) -> tuple[CommittedRecord, ...]:
        if from_offset < 3:
            self.start = 3
            raise NotFound("cut")
        return tuple(record for record in self.records if record.offset >= from_offset)[:limit]


async def test_a_cut_while_reading_goes_on_at_the_new_start() -> None:
    log = CutLog()
    entries = await read_history(
        log,  # type: ignore[arg-type]  # only what history reads
        SEGMENT.segment_id,
        limit=10,
        read_records=1,
    )
    assert [entry.offset for entry in entries] == [3]
    assert entries[0].record == finished(SEGMENT)
