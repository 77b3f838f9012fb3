"""Compares segments with their objects in a store: the object exists, its length, its CRC32C.

The store's own checksum is trusted if it has one. The manifest, which is small, is always read;
with `deep` every object is. The number of requests at once and the memory are bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.format.object_keys import ObjectSuffix, segment_keys
from rlm.stores.tier_store import TierStore
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.streams import closing_stream

SEGMENTS_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of the metadata; `objects` has (bytes, CRC32C) of each object."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    end_offset: int
    objects: Mapping[ObjectSuffix, tuple[int, int]]

    @classmethod
    def of_answer(cls, row: Mapping[str, Any]) -> StoredSegment:
        """A segment from a row of the HTTP interface that names its objects."""
        tip = TopicIdPartition(row["topic"], Uuid.parse(row["topic_id"]), row["partition"])
        names = {
            ObjectSuffix.LOG: "log",
            ObjectSuffix.INDEXES: "indexes",
            ObjectSuffix.MANIFEST: "manifest",
        }
        objects = row["objects"]
        return cls(
            RemoteLogSegmentId(tip, Uuid.parse(row["segment_id"])),
            row["start_offset"],
            row["end_offset"],
            {
                suffix: (objects[f"{name}_bytes"], int(objects[f"{name}_crc32c"], 16))
                for suffix, name in names.items()
            },
        )


@dataclass(frozen=True, slots=True)
class SegmentVerdict:
    """The result for one segment. `wrong` names the wrong objects, empty if all are right.
    `unproven` counts the objects of the right length whose checksum the store does not have.
    """

    segment: StoredSegment
    wrong: str
    unproven: int


async def verify_segments(
    tier: TierStore, segments: Sequence[StoredSegment], *, deep: bool
) -> list[SegmentVerdict]:
    """A verdict for each segment, in order. Raises the errors of the store except NotFound, which
    is part of the verdict.
    """
    slots = asyncio.Semaphore(SEGMENTS_AT_ONCE)

    async def verified(segment: StoredSegment) -> SegmentVerdict:
        async with slots:
            return await _verify(tier, segment, deep=deep)

    return await asyncio.gather(*map(verified, segments))


async def _verify(tier: TierStore, segment: StoredSegment, *, deep: bool) -> SegmentVerdict:
    keys = segment_keys(tier.prefix, segment.segment_id, segment.start_offset)
    by_suffix = {
        ObjectSuffix.LOG: keys.log,
        ObjectSuffix.INDEXES: keys.indexes,
        ObjectSuffix.MANIFEST: keys.manifest,
    }
    wrong = []
    unproven = 0
    for suffix, key in by_suffix.items():
        size, crc = segment.objects[suffix]
        try:
            info = await tier.store.head(key)
            found: int | None = info.crc32c
            if info.size == size and (deep or suffix is ObjectSuffix.MANIFEST):
                found = await _read_crc32c(tier, key)
        except NotFound:
            wrong.append(f".{suffix} is missing")
            continue
        if info.size != size:
            wrong.append(f".{suffix} has {info.size} bytes, not {size}")
        elif found is None:
            unproven += 1
        elif found != crc:
            wrong.append(f".{suffix} has CRC32C {found:08x}, not {crc:08x}")
    return SegmentVerdict(segment, ", ".join(wrong), unproven)


async def _read_crc32c(tier: TierStore, key: str) -> int:
    found = 0
    async with closing_stream(tier.store.get(key)) as pieces:
        async for piece in pieces:
            found = crc32c(piece, found)
    return found
