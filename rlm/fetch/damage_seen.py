"""Remembers segments that readers found damaged."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field

from kafka_formats.errors import CorruptData
from kafka_formats.kafka_uuid import Uuid
from rlm.format.object_keys import parse_segment_key
from rlm.stores.tier_store import TierStores
from rlmm.segment import RemoteLogSegmentId

logger = logging.getLogger(__name__)

SEEN_MAX = 1_000
"""The most segments remembered; the oldest are dropped first."""


@dataclass(frozen=True, slots=True)
class SeenDamage:
    """A damaged segment, with the error that its reader got."""

    segment_id: RemoteLogSegmentId
    start_offset: int
    text: str


@dataclass(slots=True)
class DamageSeen:
    """The damage that this node's readers found; not stored, since the next read finds it again."""

    seen: dict[Uuid, SeenDamage] = field(default_factory=dict)

    def note(self, error: CorruptData, stores: TierStores) -> None:
        """Remember the segment of a read's error; other damage is ignored."""
        for tier in stores.by_name.values():
            key = parse_segment_key(tier.prefix, error.source)
            if key is not None:
                break
        else:
            return
        id_ = key.segment_id.id
        if id_ in self.seen:
            return
        logger.error(
            "a read found damage in %s: %s; `strandline repair --topic %s --partition %d` looks "
            "for a whole copy",
            key.segment_id, error, key.segment_id.partition.topic,
            key.segment_id.partition.partition,
        )  # fmt: skip
        if len(self.seen) >= SEEN_MAX:
            del self.seen[next(iter(self.seen))]
        self.seen[id_] = SeenDamage(key.segment_id, key.start_offset, str(error))

    def forget(self, id_: Uuid) -> None:
        """Forget a segment that is whole again, or not in the tier any more."""
        self.seen.pop(id_, None)

    def __iter__(self) -> Iterator[SeenDamage]:
        """Iterate over a copy, so that entries may be forgotten meanwhile."""
        return iter(tuple(self.seen.values()))
