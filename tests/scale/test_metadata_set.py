"""The benchmarks' metadata set is what apply makes of its records, no more and no less."""

from __future__ import annotations

from bench.metadata_set import FIRST_MS, MetadataSet
from rlmm.apply.apply import Verdict, apply
from rlmm.metadata_log import CommittedRecord
from rlmm.records.records import encode
from rlmm.rows.rows import MemoryRows


def test_rows_written_directly_equal_the_rows_that_apply_makes() -> None:
    small = MetadataSet(partitions=3, segments_each=8)
    applied = MemoryRows()
    for number in range(small.partitions):
        for offset, record in small.records(number):
            proposal = encode(record)
            committed = CommittedRecord(offset, 1, FIRST_MS, proposal.control_type, proposal.value)
            outcome = apply(applied, committed)
            assert outcome.outcome.verdict is Verdict.ACCEPTED, outcome.outcome
            applied.write(outcome.writes)
    direct = MemoryRows()
    for number in range(small.partitions):
        direct.write(small.writes(number, 8))
    direct.write(small.closing_writes(8))
    assert direct.items() == applied.items()
