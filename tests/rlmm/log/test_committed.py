"""Proposals become batches as Kafka would write them, and come back as they were."""

from __future__ import annotations

from kafka_formats.record_batch import Record, encode_batch, parse_header
from rlmm.log.committed import committed_group, encode_proposals
from rlmm.log.log_directory import EncodedBatch, StoredBatch
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


def test_a_bare_record_comes_back_as_one_among_others_does() -> None:
    for append_time_ms in (None, 9):
        alone, both = (
            encode_batch(records, base_offset=3, log_append_time_ms=append_time_ms)
            for records in (
                [Record(3, 7, None, b"a" * 70)],
                [Record(3, 7, None, b"a" * 70), Record(4, 7, None, b"b")],
            )
        )
        found = [
            committed_group([stored(EncodedBatch(3, 3, -1, each))], 3).records[0]
            for each in (alone, both)
        ]
        assert found[0] == found[1]
        assert found[0].timestamp_ms == (append_time_ms or 7)
