"""Proposals become batches as Kafka would write them, and come back as they were."""

from __future__ import annotations

from kafka_formats.record_batch import parse_header
from rlmm.log.committed import committed_group, encode_proposals
from rlmm.log.log_directory import EncodedBatch, StoredBatch
from rlmm.log.recent_groups import RecentGroups
from rlmm.metadata_log import CommittedGroup, CommittedRecord, Proposal


def stored(batch: EncodedBatch) -> StoredBatch:
    header = parse_header(batch.data, source="log", position=0)
    return StoredBatch(header, batch.data, "log", 0)


def test_data_records_share_a_batch_and_control_records_do_not() -> None:
    proposals = [Proposal(None, b"a"), Proposal(None, b"b"), Proposal(1000, b"c")]
    proposals += [Proposal(1001, b"d"), Proposal(None, b"e")]
    batches = encode_proposals(proposals, base_offset=10, epoch=3, timestamp_ms=7)
    assert [(batch.base_offset, batch.last_offset) for batch in batches] == [
        (10, 11),
        (12, 12),
        (13, 13),
        (14, 14),
    ]
    assert [stored(batch).header.is_control for batch in batches] == [False, True, True, False]
    group = committed_group([stored(batch) for batch in batches], 10)
    assert group == CommittedGroup(
        tuple(
            CommittedRecord(10 + index, 3, 7, proposal.control_type, proposal.value)
            for index, proposal in enumerate(proposals)
        ),
        15,
        3,
    )


def test_the_logs_own_records_are_left_out_but_count() -> None:
    batches = encode_proposals(
        [Proposal(2, b"leader change"), Proposal(1000, b"x"), Proposal(5, b"version")],
        base_offset=0,
        epoch=1,
        timestamp_ms=7,
    )
    group = committed_group([stored(batch) for batch in batches], 0)
    assert [record.offset for record in group.records] == [1]
    assert group.end_offset == 3


def records(start: int, end: int) -> tuple[CommittedRecord, ...]:
    return tuple(CommittedRecord(offset, 1, 5, None, bytes(10)) for offset in range(start, end))


def test_recent_groups_are_found_by_offset_and_bounded_by_bytes() -> None:
    recent = RecentGroups(bytes_max=100)
    assert recent.group_at(0) is None
    for start in range(0, 40, 4):
        recent.add(start, CommittedGroup(records(start, start + 4), start + 4, 1))
    assert recent.group_at(0) is None
    assert recent.group_at(36) == CommittedGroup(records(36, 40), 40, 1)
    assert recent.group_at(38) == CommittedGroup(records(38, 40), 40, 1)
    assert recent.group_at(40) is None
    kept = [offset for offset in range(40) if recent.group_at(offset)]
    assert kept == list(range(32, 40))


def test_a_group_of_the_logs_own_records_only_still_leads_on() -> None:
    recent = RecentGroups(bytes_max=100)
    recent.add(0, CommittedGroup((), 3, 1))
    assert recent.group_at(1) == CommittedGroup((), 3, 1)
