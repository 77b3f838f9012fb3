"""Planted bugs about the lower end of a log, its holes, and what a cut does to both."""

from __future__ import annotations

from contextlib import AbstractContextManager

import rlmm.apply.claims
import rlmm.apply.segments
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.copy.partition_driver import PartitionDriver
from rlmm.apply.offsets import shrink_lost_ranges
from rlmm.apply.outcome import Draft
from rlmm.lineage import MergedLineage
from rlmm.records.control_records import PartitionClaim
from rlmm.rows.coverage import Range
from rlmm.rows.partitions import PartitionRow
from sim.ground.planting import Patches, planting

CUTS_SEEDS_MAX = 40


_log_start = rlmm.apply.claims._log_start
_shrink = shrink_lost_ranges


def _nothing(*_: object) -> None:
    pass


def _as_it_was(log_start: int, _: int) -> int:
    return log_start


def _kept(_draft: object, _claim: object, row: PartitionRow, *_: object) -> int:
    return row.log_start_offset


def _by_the_new_lineage(
    draft: Draft, claim: PartitionClaim, row: PartitionRow, _: Epochs, merged: MergedLineage
) -> int:
    return _log_start(draft, claim, row, merged.epochs, merged)


def _but_one(draft: Draft, partition: TopicIdPartition, served: list[Range]) -> None:
    _shrink(draft, partition, [(start, end - 1) for start, end in served])


async def _surely(*_: object) -> bool:
    return True


BUGS_OF_CUTS: dict[str, Patches] = {
    "a cut leaves the log start above it": ((rlmm.apply.claims, "min", _as_it_was),),
    "a cut leaves lost ranges above it": ((rlmm.apply.claims, "forget_lost_ranges", _nothing),),
    "a log start outlives the disk that began there": ((rlmm.apply.claims, "_log_start", _kept),),
    "what an epoch brings back has no holes": ((rlmm.apply.claims, "record_holes", _nothing),),
    "what was copied and cut off keeps no log start": (
        (rlmm.apply.claims, "_log_start", _by_the_new_lineage),
    ),
    "the last offset of a copy stays lost": (
        (rlmm.apply.segments, "shrink_lost_ranges", _but_one),
    ),
    "a node records what a replaced leader's log tells": (
        (PartitionDriver, "_leads_still", _surely),
    ),
}
"""Bugs found by seeds of a world of cuts, within `CUTS_SEEDS_MAX`."""


def planted_in_cuts(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_CUTS[name])
