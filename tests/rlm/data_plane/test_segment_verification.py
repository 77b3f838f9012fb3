"""What a segment must be: every batch held against it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import Conflict, CorruptData, InvalidRequest
from kafka_formats.leader_epoch_checkpoint import EpochEntry
from kafka_formats.record_batch import Record, encode_batch, parse_header
from rlm.data_plane.copy_job import CopyJob, UploadLimits
from rlm.data_plane.segment_source import SegmentSource
from rlm.data_plane.segment_verification import SegmentVerification, VerifiedLog
from rlm.format.manifest import CHUNK_BYTES
from rlm.local_log.gap_rule import DELETE_HORIZON, MissingBatches
from rlm.local_log.log_dir import find_partitions
from tests.rlm.broker_files import CAPTURED, FIRST_TIMESTAMP_MS, ReplicaWriter, write_log_dir
from tests.rlm.tier import copy_job, first_job, only_partition


def verify(
    job: CopyJob,
    *,
    after_open: Callable[[], None] | None = None,
    part_bytes: int = CHUNK_BYTES,
) -> tuple[VerifiedLog, bytes]:
    source = SegmentSource(job)
    try:
        if after_open is not None:
            after_open()
        verification = SegmentVerification(job, source)
        data = bytearray()
        buffer = bytearray(part_bytes)
        while (part := verification.read_part(buffer)) is not None:
            assert part.crc32c == crc32c(buffer[: part.size_bytes])
            data += buffer[: part.size_bytes]
        return verification.result(), bytes(data)
    finally:
        source.close()


@pytest.fixture
def replica(tmp_path: Path) -> ReplicaWriter:
    """One segment of two leader epochs with a gap; the epochs 0 and 2 begin at 0 and 30."""
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(10)
    replica.append(10)
    replica.skip(5)
    replica.append(5)
    replica.new_epoch(2)
    replica.append(10)
    replica.skip(3)
    replica.roll()
    return replica


def log_path(replica: ReplicaWriter) -> Path:
    return replica.path(0, ".log")


def batch_starts(log: bytes) -> list[int]:
    starts = []
    at = 0
    while at < len(log):
        starts.append(at)
        at += parse_header(log, at, source="test", position=at).size_bytes
    return starts


def test_a_right_segment_passes_with_its_checksums(replica: ReplicaWriter) -> None:
    verified, data = verify(first_job(replica.log_dir))
    assert data == log_path(replica).read_bytes()
    assert verified.checksums.size_bytes == len(data)
    assert verified.checksums.crc32c == crc32c(data)
    assert verified.checksums.chunks == (crc32c(data),)
    assert verified.indexes.max_timestamp_ms == FIRST_TIMESTAMP_MS + 39
    assert verified.producers_known


def test_every_captured_segment_passes() -> None:
    for partition in find_partitions([CAPTURED / "log-dir"], kafka_cluster_id=None).partitions:
        for segment in partition.segments[:-1]:
            _, data = verify(copy_job(partition, segment))
            assert data == segment.log_path.read_bytes()


def test_a_long_segment_has_a_checksum_for_each_chunk(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    for _ in range(5):
        replica.append(3, value_bytes=200_000)
    replica.roll()
    verified, data = verify(first_job(tmp_path))
    parts = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]
    assert len(parts) > 2
    assert verified.checksums.chunks == tuple(crc32c(part) for part in parts)


def test_an_empty_segment_passes(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.skip(5)
    replica.roll()
    verified, data = verify(first_job(tmp_path))
    assert (data, verified.checksums.chunks) == (b"", ())


def rewritten(replica: ReplicaWriter, log: bytes) -> CopyJob:
    """The job of a look right before the damage."""
    job = first_job(replica.log_dir)
    log_path(replica).write_bytes(log)
    return job


def test_any_flipped_byte_but_of_offsets_is_found_where_it_is(replica: ReplicaWriter) -> None:
    """Offsets stand outside the batch's CRC: their order and the segment's range are what holds."""
    log = log_path(replica).read_bytes()
    starts = batch_starts(log)
    for position in range(0, len(log), 5):
        if position - max(start for start in starts if start <= position) < 8:
            continue
        damaged = bytearray(log)
        damaged[position] ^= 0x10
        log_path(replica).write_bytes(log)
        with pytest.raises(CorruptData) as caught:
            verify(rewritten(replica, bytes(damaged)))
        assert caught.value.source == str(log_path(replica))
        assert caught.value.position == max(start for start in starts if start <= position)


def test_a_cut_off_batch_is_corrupt_data(replica: ReplicaWriter) -> None:
    log = log_path(replica).read_bytes()
    with pytest.raises(CorruptData, match=r"cut off|ends inside"):
        verify(rewritten(replica, log[:-5]))


@pytest.mark.parametrize("tail", [1, 11, 12, 61, 5000])
def test_zeros_behind_the_last_batch_are_corrupt_data(replica: ReplicaWriter, tail: int) -> None:
    log = log_path(replica).read_bytes()
    with pytest.raises(CorruptData) as caught:
        verify(rewritten(replica, log + bytes(tail)))
    assert caught.value.position == len(log)


def test_offsets_must_ascend(replica: ReplicaWriter) -> None:
    log = log_path(replica).read_bytes()
    second = batch_starts(log)[1]
    with pytest.raises(CorruptData, match="offsets 0 to 9") as caught:
        verify(rewritten(replica, log[:second] + log))
    assert caught.value.position == second


def test_offsets_must_not_reach_the_next_segment(replica: ReplicaWriter) -> None:
    beyond = encode_batch(
        [Record(offset, 0, None, None) for offset in (42, 43)],
        base_offset=42,
        partition_leader_epoch=2,
    )
    log = log_path(replica).read_bytes()
    with pytest.raises(CorruptData, match="42 to 43"):
        verify(rewritten(replica, log + beyond))


def test_offsets_must_not_lie_below_the_base(replica: ReplicaWriter) -> None:
    replica.append(4)
    replica.roll()
    early = encode_batch([Record(42, 0, None, None)], base_offset=42, partition_leader_epoch=2)
    replica.path(43, ".log").write_bytes(early)
    partition = only_partition(replica.log_dir)
    with pytest.raises(CorruptData, match="offsets 42 to 42"):
        verify(copy_job(partition, partition.segments[1]))


def test_the_old_message_format_is_refused_clearly(replica: ReplicaWriter) -> None:
    log = bytearray(log_path(replica).read_bytes())
    log[16] = 1
    with pytest.raises(CorruptData, match="magic 1"):
        verify(rewritten(replica, bytes(log)))


@pytest.mark.parametrize("epoch", [-1, 1, 3])
def test_a_batch_of_another_leader_is_corrupt_data(replica: ReplicaWriter, epoch: int) -> None:
    log = bytearray(log_path(replica).read_bytes())
    start = batch_starts(bytes(log))[3]
    log[start + 12 : start + 16] = epoch.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptData, match=f"epoch {epoch}, but the lineage has 2") as caught:
        verify(rewritten(replica, bytes(log)))
    assert caught.value.position == start


def test_a_batch_over_the_border_of_two_epochs_is_corrupt_data(replica: ReplicaWriter) -> None:
    job = first_job(replica.log_dir)
    replica.epochs = [EpochEntry(0, 0), EpochEntry(2, 33)]
    replica._write_checkpoint()
    with pytest.raises(CorruptData, match="leader epoch"):
        verify(replace(job, leader_epochs=tuple(replica.epochs)))


def test_a_batch_of_an_epoch_that_is_over_is_corrupt_data(replica: ReplicaWriter) -> None:
    """The batches 10 to 19 and 25 to 29 are of epoch 0, whose leader was followed at 20."""
    job = first_job(replica.log_dir)
    replica.epochs = [EpochEntry(0, 0), EpochEntry(1, 20), EpochEntry(2, 30)]
    replica._write_checkpoint()
    with pytest.raises(CorruptData, match="offset 25 has leader epoch 0, but the lineage has 1"):
        verify(replace(job, leader_epochs=tuple(replica.epochs)))


def test_a_batch_that_the_cleaner_wrote_shows_it(replica: ReplicaWriter) -> None:
    verified, _ = verify(first_job(replica.log_dir))
    assert (verified.cleaned, verified.thinned) == (False, True)
    log = bytearray(log_path(replica).read_bytes())
    end = parse_header(bytes(log), 0, source="test", position=0).size_bytes
    log[22] |= DELETE_HORIZON
    log[17:21] = crc32c(bytes(log[21:end])).to_bytes(4, "big")
    verified, _ = verify(rewritten(replica, bytes(log)))
    assert (verified.cleaned, verified.thinned) == (True, True)


def test_a_gap_is_told_by_its_first_and_last_offset(replica: ReplicaWriter) -> None:
    with pytest.raises(MissingBatches) as caught:
        verify(replace(first_job(replica.log_dir), gaps_allowed=False))
    assert caught.value.ranges == ((20, 24), (40, 42))


def test_below_the_log_start_the_lineage_may_have_lost_its_head(replica: ReplicaWriter) -> None:
    replica.epochs = [EpochEntry(2, 30)]
    replica._write_checkpoint()
    job = first_job(replica.log_dir)
    assert job.leader_epochs == (EpochEntry(2, 0),)
    verify(replace(job, log_start_offset=30))
    with pytest.raises(CorruptData, match="leader epoch 0"):
        verify(replace(job, log_start_offset=29))


def test_damage_that_is_a_rewrite_is_told_as_a_change(replica: ReplicaWriter) -> None:
    def rewrite() -> None:
        log = bytearray(log_path(replica).read_bytes())
        log[70] ^= 1
        log_path(replica).write_bytes(bytes(log))

    with pytest.raises(Conflict) as caught:
        verify(first_job(replica.log_dir), after_open=rewrite)
    assert caught.value.reason == "SOURCE_CHANGED"


def test_a_truncation_while_reading_is_a_change(replica: ReplicaWriter) -> None:
    with pytest.raises(Conflict) as caught:
        verify(first_job(replica.log_dir), after_open=lambda: os.truncate(log_path(replica), 200))
    assert caught.value.reason == "SOURCE_CHANGED"


def test_the_lineage_is_looked_at_again_after_the_last_byte(replica: ReplicaWriter) -> None:
    def diverge() -> None:
        replica.epochs = [EpochEntry(0, 0), EpochEntry(1, 25), EpochEntry(2, 30)]
        replica._write_checkpoint()

    with pytest.raises(Conflict, match="leader epochs"):
        verify(first_job(replica.log_dir), after_open=diverge)


@pytest.mark.parametrize("content", [None, b"", b"\x00" * 20])
def test_without_a_snapshot_at_the_base_the_producers_are_not_known(
    replica: ReplicaWriter, content: bytes | None
) -> None:
    replica.append(3)
    replica.roll()
    snapshot = replica.path(43, ".snapshot")
    if content is None:
        snapshot.unlink()
    else:
        snapshot.write_bytes(content)
    partition = only_partition(replica.log_dir)
    verified, _ = verify(copy_job(partition, partition.segments[1]))
    assert not verified.producers_known


@pytest.mark.parametrize("part_bytes", [700_000, CHUNK_BYTES, CHUNK_BYTES + 1, 10 * CHUNK_BYTES])
def test_parts_of_any_size_give_the_same_sums(tmp_path: Path, part_bytes: int) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    for _ in range(30):
        replica.append(10, value_bytes=10_000)
    replica.roll()
    log = replica.path(0, ".log").read_bytes()
    assert len(log) > 2 * CHUNK_BYTES
    verified, data = verify(first_job(replica.log_dir), part_bytes=part_bytes)
    assert data == log
    assert verified.checksums.crc32c == crc32c(log)
    assert verified.checksums.chunks == tuple(
        crc32c(log[at : at + CHUNK_BYTES]) for at in range(0, len(log), CHUNK_BYTES)
    )


def test_the_last_part_is_not_given_before_the_end_was_found_right(tmp_path: Path) -> None:
    replica = ReplicaWriter(write_log_dir(tmp_path))
    replica.append(10)
    replica.roll()
    job = first_job(replica.log_dir)
    path = replica.path(0, ".log")
    path.write_bytes(path.read_bytes() + bytes(100))
    source = SegmentSource(job)
    verification = SegmentVerification(job, source)
    with pytest.raises(CorruptData, match="zeros"):
        verification.read_part(bytearray(CHUNK_BYTES))
    source.close()


def test_a_batch_over_the_limit_is_no_damage_but_names_the_setting(replica: ReplicaWriter) -> None:
    job = first_job(replica.log_dir)
    small = replace(job, limits=UploadLimits(batch_bytes_max=100))
    with pytest.raises(InvalidRequest, match="over the limit of 100: raise the limit") as caught:
        verify(small)
    assert caught.value.field == "copier.batch_bytes_max"
