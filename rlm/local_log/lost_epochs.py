"""Finds the leader epochs of a lost leader-epoch-checkpoint in the batches, which have the epoch of
their leader, as Kafka's own recovery does (LogSegment.recover).

They are used only if the recorded lineage agrees at every offset, and never change it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kafka_formats.errors import CorruptData
from kafka_formats.leader_epoch_checkpoint import (
    EpochEntry,
    Epochs,
    epoch_for_offset,
    truncate_from_start,
)
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.local_log.batch_headers import batch_headers
from rlm.local_log.log_dir import LocalPartition, LocalSegment
from rlmm.lineage import ascending
from rlmm.segment import OFFSET_MAX

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FoundEpochs:
    """Epochs found in the batches. `heads` are the epochs below `above`, the first entry of the
    checkpoint that the broker began again.
    """

    heads: Epochs
    above: EpochEntry


def with_heads_found(
    local: LocalPartition, found: FoundEpochs | None, log_start: int
) -> LocalPartition:
    """The replica with its whole checkpoint; unchanged if the checkpoint has changed since."""
    own = local.leader_epochs
    if found is None or not own or own[0] != found.above or log_start >= found.above.start_offset:
        return local
    heads = truncate_from_start(found.heads, log_start)
    return replace(local, leader_epochs=_joined(heads, own))


def _joined(heads: Epochs, own: Epochs) -> Epochs:
    """Join both; the broker's next append may have begun its checkpoint in the middle of an epoch,
    which both then have.
    """
    goes_on = heads and own and heads[-1].epoch == own[0].epoch
    return (*heads, *own[1:]) if goes_on else (*heads, *own)


def agree(heads: Epochs, own: Epochs, lineage: Epochs) -> bool:
    """True if heads and checkpoint together equal the recorded lineage at every offset."""
    joined = _joined(heads, own)
    if not heads or not own or not lineage or not ascending(joined):
        return False
    first = heads[0].start_offset
    if lineage[0].start_offset > first or heads[-1].start_offset >= own[0].start_offset:
        return False
    borders = {entry.start_offset for entry in (*joined, *lineage)}
    return all(
        epoch_for_offset(joined, offset) == epoch_for_offset(lineage, offset)
        for offset in borders
        if offset >= first
    )


def read_heads(
    segments: Sequence[LocalSegment], start: int, above: EpochEntry, *, batches_max: int
) -> Epochs:
    """Epochs of the batches from offset `start` to the beginning of the epoch `above`, which may be
    inside a segment, even the active one. Blocks.

    CorruptData for an impossible log, or more than `batches_max` batches; OSError.
    """
    end = above.start_offset
    heads: list[EpochEntry] = []
    following = start
    left = batches_max
    for segment in segments:
        if segment.base_offset >= end:
            break
        behind = OFFSET_MAX if segment.next_base_offset is None else segment.next_base_offset
        source = str(segment.log_path)
        for header, position in batch_headers(segment.log_path):
            if header.base_offset >= end:
                break
            left -= 1
            last = header.last_offset
            if left < 0 or last >= behind:
                why = (
                    f"more than {batches_max} batches are below offset {end}"
                    if left < 0
                    else f"offset {last} belongs to the next segment"
                )
                raise CorruptData(why, source=source, position=position)
            epoch = header.partition_leader_epoch
            if last >= end and epoch != above.epoch:
                why = f"a batch of epoch {epoch} reaches past {end}, where {above.epoch} begins"
                raise CorruptData(why, source=source, position=position)
            if last >= following:
                if not heads or epoch != heads[-1].epoch:
                    heads.append(EpochEntry(epoch, max(header.base_offset, start)))
                following = last + 1
    return tuple(heads)


_Asked = tuple[Epochs, Epochs, int]


@dataclass(slots=True)
class EpochFinder:
    """Reads the batches' headers of one partition at a time, in a thread. `_tried`: the inputs of
    each partition's last failed attempt, which is not repeated. `_reading`: attempts under way,
    which on a slow disk go on after the deadline.
    """

    batches_max: int
    deadline_s: float
    _one: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    _tried: dict[TopicIdPartition, _Asked] = field(default_factory=dict)
    _reading: dict[TopicIdPartition, tuple[_Asked, asyncio.Future[Epochs]]] = field(
        default_factory=dict
    )

    async def find(
        self, local: LocalPartition, lineage: Epochs, next_offset: int, log_start: int
    ) -> FoundEpochs | None:
        """The trusted epochs from the next offset to copy up to the checkpoint's first entry; None
        if the checkpoint reaches down far enough, or the batches give no trusted epochs.
        """
        own = local.leader_epochs
        first = max(local.segments[0].base_offset, next_offset, log_start)
        if not own or first >= own[0].start_offset:
            return None
        asked = (own, lineage, first)
        if self._tried.get(local.partition) == asked:
            return None
        async with self._one:
            try:
                heads = await self._heads(local, asked)
            except (CorruptData, OSError) as error:
                if isinstance(error, CorruptData):  # an OSError may be over at the next scan
                    self._tried[local.partition] = asked
                logger.warning("%s: the leader epochs cannot be read from its batches: %s",
                    local.partition, str(error) or "reading them takes long",
                )  # fmt: skip
                return None
        if not agree(heads, own, lineage):
            self._tried[local.partition] = asked
            logger.warning(
                "%s: its batches have the epochs %s and its checkpoint %s, which contradicts the "
                "recorded lineage", local.partition, heads[:8], own[:8],
            )  # fmt: skip
            return None
        logger.warning(
            "%s: its leader-epoch-checkpoint begins at offset %d; the batches from %d on have "
            "the epochs of the recorded lineage, and are copied",
            local.partition, own[0].start_offset, first,
        )  # fmt: skip
        return FoundEpochs(heads, own[0])

    async def _heads(self, local: LocalPartition, asked: _Asked) -> Epochs:
        """The epochs that `read_heads` finds, or its errors; TimeoutError while it still reads."""
        own, _, first = asked
        known = self._reading.get(local.partition)
        if known is None or known[0] != asked:
            segments = [
                each
                for each in local.segments
                if each.next_base_offset is None or each.next_base_offset > first
            ]
            reading = asyncio.ensure_future(
                asyncio.to_thread(read_heads, segments, first, own[0], batches_max=self.batches_max)
            )
            known = self._reading[local.partition] = asked, reading
        done, _ = await asyncio.wait({known[1]}, timeout=self.deadline_s)
        if not done:
            raise TimeoutError
        del self._reading[local.partition]
        return known[1].result()
