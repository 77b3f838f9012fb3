"""Planted bugs in a restart from a snapshot, and in what makes metadata and store one again."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import rlm.copy.partition_work
import rlm.reconcile.adoption
import rlm.reconcile.reconciliation
import rlm.stores.marker_claims
import rlmm.apply.restart
import rlmm.rows.restart_rows
from kafka_formats.leader_epoch_checkpoint import Epochs
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.reconcile.adoption import Adoption
from rlm.reconcile.adoption_plan import AdoptionStep, next_step
from rlmm.apply.outcome import Draft
from rlmm.rows.partitions import PartitionRow
from rlmm.rows.reads import read_lost_ranges
from sim.ground.planting import Patches, planting

DISASTER_SEEDS_MAX = 130
NOWHERE = 1 << 60


def _all_there(*_: object) -> str:
    return ""


async def _nothing(*_: object, **__: object) -> None:
    pass


async def _finds_none(*_: object) -> list[Any]:
    return []


def _as_it_was(value: bytes) -> bytes:
    return value


def _nothing_to_copy(state: Any, whole: Any, machine: Any, *rest: Any) -> AdoptionStep:
    return next_step(state, whole, replace(machine, wanted_from=NOWHERE, held=()), *rest)


def _as_recorded(recorded: Epochs, _: object) -> Epochs:
    return recorded


def _own_alone(checkpoint: Epochs, _: Epochs) -> Epochs:
    return checkpoint


def _past_any_loss(draft: Draft, partition: TopicIdPartition, row: PartitionRow) -> None:
    log_start = row.log_start_offset
    for lost in read_lost_ranges(draft.rows, partition, max(log_start, 0)):
        log_start = lost.end + 1
    if log_start != row.log_start_offset:
        draft.put_partition(partition, row._replace(log_start_offset=log_start))


BUGS_OF_DISASTER: dict[str, Patches] = {
    "a comparison finds nothing missing": (
        (rlm.reconcile.reconciliation, "why_missing", _all_there),
    ),
    "the claims of a lost cluster stand": ((rlmm.rows.restart_rows, "_voided", _as_it_was),),
    "what was copied since is not found": ((Adoption, "_whole_segments", _finds_none),),
    "a log start passes any loss": ((rlmm.apply.restart, "_let_go", _past_any_loss),),
    "what the disk has is lost to what was copied since": (
        (rlm.reconcile.adoption, "next_step", _nothing_to_copy),
    ),
    "what copies tell of the lineage is not believed": (
        (rlm.reconcile.adoption, "merge_told", _as_recorded),
    ),
    "a claim forgets the epochs of lost claims": (
        (rlm.copy.partition_work, "with_lost_claims", _own_alone),
    ),
    "a node of the lost cluster goes on": ((rlm.stores.marker_claims, "confirm_prefix", _nothing),),
}
"""Bugs found by seeds of a world whose metadata is lost, within `DISASTER_SEEDS_MAX`."""


def planted_in_disaster(name: str) -> AbstractContextManager[None]:
    """Plant the bug for the length of the block."""
    return planting(BUGS_OF_DISASTER[name])
