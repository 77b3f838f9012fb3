"""Look-ups (partition, epoch, offset) in process, decoded: rate, p99, memory, fresh after a write.

`python -m bench.lookups [SEGMENTS]` (1,000,000): questions at random over all segments. After the
look-ups alone, each of a number of writes is followed at once by a look-up that must see it.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path
from time import perf_counter

from bench.metadata_node import MetadataNode, measured_on_a_copy, metadata_node, propose
from bench.metadata_set import OFFSETS_PER_SEGMENT, MetadataSet
from bench.node_process import resident_mib
from bench.table import Measure, percentile
from kafka_formats.topic_id_partition import TopicIdPartition

BLOCKS = 200
BLOCK = 5_000
WRITES = 300
RATE_MIN = 50_000
P99_MAX_US = 50
MEMORY_MAX_MIB = 300

Question = tuple[TopicIdPartition, int, int]


class Questions:
    """Random questions that all have an answer."""

    def __init__(self, metadata_set: MetadataSet) -> None:
        self._random = random.Random(1)
        self._set = metadata_set
        self._partitions = [metadata_set.partition(n) for n in range(metadata_set.partitions)]
        self._starts = [entry.start_offset for entry in metadata_set.lineage]

    def some(self, count: int) -> list[Question]:
        return [self._one() for _ in range(count)]

    def _one(self) -> Question:
        offset = self._random.randrange(self._set.segments_each * OFFSETS_PER_SEGMENT)
        epoch = self._set.lineage[bisect_right(self._starts, offset) - 1].epoch
        return self._random.choice(self._partitions), epoch, offset


def check(node: MetadataNode, questions: list[Question]) -> None:
    """Every answer is the segment that holds the offset."""
    for partition, epoch, offset in questions:
        answer = node.manager.remote_log_segment_metadata(partition, epoch, offset)
        assert answer is not None, (partition, epoch, offset)
        assert answer.metadata.segment_id.partition == partition
        assert answer.metadata.start_offset <= offset <= answer.valid_until


def rates(node: MetadataNode, questions: Questions) -> tuple[list[float], list[float]]:
    """(look-ups a second of each block, microseconds of each look-up); blocks alternate."""
    rate, each_us = [], []
    look_up = node.manager.remote_log_segment_metadata
    for number in range(BLOCKS):
        asked = questions.some(BLOCK)
        if number % 2:
            for question in asked:
                begun = perf_counter()
                look_up(*question)
                each_us.append((perf_counter() - begun) * 1e6)
        else:
            begun = perf_counter()
            for question in asked:
                look_up(*question)
            rate.append(BLOCK / (perf_counter() - begun))
    return rate, each_us


async def after_writes(node: MetadataNode, metadata_set: MetadataSet) -> list[float]:
    """Microseconds of the first look-up after each write, which sees what was written."""
    took = []
    for number in range(min(WRITES, metadata_set.partitions)):
        segment = metadata_set.started(number, metadata_set.segments_each)
        await propose(node, [segment])
        begun = perf_counter()
        answer = node.manager.remote_log_segment_metadata(
            segment.segment_id.partition, segment.leader_epochs[-1][0], segment.end_offset
        )
        took.append((perf_counter() - begun) * 1e6)
        assert answer is not None
        assert answer.metadata.segment_id == segment.segment_id
    return took


async def measure(path: Path, metadata_set: MetadataSet) -> list[Measure]:
    async with metadata_node(path) as node:
        questions = Questions(metadata_set)
        check(node, questions.some(BLOCK))
        before = resident_mib()
        rate, each_us = rates(node, questions)
        memory = resident_mib()
        fresh = await after_writes(node, metadata_set)
    middle, p99 = sorted(rate)[len(rate) // 2], percentile(each_us, 99)
    return [
        Measure(f"look-ups, blocks of {BLOCK:,}", "1/s", rate, ">= 50,000", middle >= RATE_MIN),
        Measure("one look-up", "us", each_us),
        Measure("one look-up, p99", "us", [p99], "< 50", p99 < P99_MAX_US),
        Measure("first look-up after a write", "us", fresh),
        Measure("resident before", "MiB", [before]),
        Measure(
            f"resident after {BLOCKS * BLOCK:,} look-ups", "MiB", [memory], "< 300",
            memory < MEMORY_MAX_MIB,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    measured_on_a_copy("Look-ups in process", measure)
