"""Facts for COPY_SEGMENT_STARTED, found without reading the segment."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.batch_scan import scan
from kafka_formats.errors import Conflict, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from rlm.local_log.log_dir import LocalSegment, find_partitions
from rlm.local_log.segment_facts import segment_epochs, segment_facts
from tests.rlm.broker_files import CAPTURED, FIRST_TIMESTAMP_MS, ReplicaWriter, write_log_dir
from tests.rlm.tier import only_partition

LINEAGE = (EpochEntry(0, 0), EpochEntry(3, 150), EpochEntry(5, 400))


def sealed(tmp_path: Path) -> tuple[ReplicaWriter, LocalSegment]:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(10)
    replica.roll()
    return replica, only_partition(tmp_path).segments[0]


def test_captured_segments_have_the_facts_of_their_batches() -> None:
    for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions:
        for segment in partition.segments[:-1]:
            facts = segment_facts(segment, partition.leader_epochs)
            data = segment.log_path.read_bytes()
            headers = [batch.header for batch in scan(data, source="captured")]
            assert facts.size_bytes == len(data)
            assert facts.max_timestamp_ms == max(header.max_timestamp for header in headers)
            index = segment.log_path.with_suffix(".txnindex")
            assert facts.txn_index_empty == (not index.exists())


def test_epochs_are_cut_to_the_segment_and_begin_at_its_base() -> None:
    assert segment_epochs(LINEAGE, 100, 200) == (EpochEntry(0, 100), EpochEntry(3, 150))
    assert segment_epochs(LINEAGE, 200, 300) == (EpochEntry(3, 200),)
    cut = (EpochEntry(3, 170), EpochEntry(5, 400))
    assert segment_epochs(cut, 100, 300) == (EpochEntry(3, 100),)


def test_epochs_begin_at_the_log_start_inside_the_segment(tmp_path: Path) -> None:
    """DeleteRecords: below it the lineage may still have what an earlier leader did not copy."""
    _, segment = sealed(tmp_path)
    lineage = (EpochEntry(7, 0), EpochEntry(8, 6))
    cut = replace(segment, first_known_offset=6)
    assert segment_facts(cut, lineage).leader_epochs == (EpochEntry(8, 6),)
    assert segment_facts(segment, lineage).leader_epochs == lineage


def test_a_lineage_that_says_nothing_of_the_segment_is_an_invalid_request() -> None:
    for lineage in ((), (EpochEntry(3, 200),)):
        with pytest.raises(InvalidRequest, match="leader_epochs"):
            segment_epochs(lineage, 100, 200)


def test_the_active_segment_is_never_described(tmp_path: Path) -> None:
    ReplicaWriter(write_log_dir(tmp_path)).flush()
    with pytest.raises(InvalidRequest, match="active"):
        segment_facts(only_partition(tmp_path).segments[0], LINEAGE)


def test_a_preallocated_time_index_is_read_to_its_last_entry(tmp_path: Path) -> None:
    _, segment = sealed(tmp_path)
    index = segment.log_path.with_suffix(".timeindex")
    index.write_bytes(index.read_bytes() + bytes(12 * 50))
    assert segment_facts(segment, LINEAGE).max_timestamp_ms == FIRST_TIMESTAMP_MS + 9


@pytest.mark.parametrize("content", [None, b"", b"\xff" * 7, b"\xff" * 12])
def test_without_a_usable_time_index_the_modification_time_counts(
    tmp_path: Path, content: bytes | None
) -> None:
    _, segment = sealed(tmp_path)
    index = segment.log_path.with_suffix(".timeindex")
    if content is None:
        index.unlink()
    else:
        index.write_bytes(content)
    os.utime(segment.log_path, ns=(0, 1_234_567_890_000_000))
    assert segment_facts(segment, LINEAGE).max_timestamp_ms == 1_234_567_890


def test_a_removed_segment_is_a_conflict(tmp_path: Path) -> None:
    _, segment = sealed(tmp_path)
    segment.log_path.unlink()
    with pytest.raises(Conflict) as caught:
        segment_facts(segment, LINEAGE)
    assert caught.value.reason == "SOURCE_CHANGED"


def test_an_empty_transaction_index_counts_as_none(tmp_path: Path) -> None:
    _, segment = sealed(tmp_path)
    index = segment.log_path.with_suffix(".txnindex")
    index.write_bytes(b"")
    assert segment_facts(segment, LINEAGE).txn_index_empty
    index.write_bytes(bytes(34))
    assert not segment_facts(segment, LINEAGE).txn_index_empty
