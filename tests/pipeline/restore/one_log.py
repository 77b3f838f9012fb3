"""Restores one partition into a log directory, as the job does, without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka_formats.topic_id_partition import TopicIdPartition
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.restore.log_directory import Place, prepare, publish, seal
from pipeline.restore.log_directory_plan import (
    RestoredLog,
    join,
    kept_leader_epoch,
    wanted_segments,
)
from pipeline.restore.log_end import WrittenLog, end_log
from pipeline.restore.log_segment import SegmentFiles, restore_segment
from pipeline.restore.restore_note import Begun
from rsm_backends.store_config import StoreConfig


def restored_log(
    segments: Sequence[TieredSegment],
    stores: Mapping[str, StoreConfig],
    place: Place,
    start: int,
    end: int,
) -> RestoredLog:
    """The log with the offsets [start, end) of the partition that `segments` are of."""
    partition: TopicIdPartition = segments[0].partition
    epoch = kept_leader_epoch(partition, place.topic_id)
    prepare(place, f"{start} {end}")
    files = tuple(
        SegmentFiles(
            segment=each.segment,
            stores=stores,
            aiven_keys=(),
            folder=str(place.staging),
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            leader_epoch=epoch,
        )
        for each in wanted_segments(segments, start, end)
    )
    written = tuple(restore_segment(each) for each in files)
    ended = end_log(WrittenLog(str(partition), str(place.staging), start, files, written))
    log = join(ended.written, start, epoch, source=str(partition))
    log = replace(log, left_out_last=ended.left_out_last)
    kept = sum(1 for each in ended.written if each.log_bytes)
    publish(place, seal(place, log, kept, Begun(str(partition), start, end, "")))
    return log
