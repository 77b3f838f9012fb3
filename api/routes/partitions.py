"""Status of a partition, ListOffsets, and the requests of a new leader and a follower."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Query

from api.http.admission import Context
from api.http.validation import INT64_MAX, EpochNumber, OffsetNumber
from api.models.partitions import (
    FollowerFetchView,
    LeaderTransitionRequest,
    LeaderTransitionView,
    OffsetView,
    PartitionView,
)
from api.routes.path_parameters import FoundPartition
from kafka_formats.errors import InvalidRequest, NotFound
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs
from rlm.fetch.follower_start import FollowerFetchQuery
from rlm.fetch.leader_transition import LeaderTransitionQuery
from rlm.fetch.list_offsets import OffsetSpec
from rlmm.partition_state import PartitionState

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}", tags=["partitions"])

OFFSET_NAMES = {spec.name.lower().replace("_", "-"): spec for spec in OffsetSpec}
_TIME = re.compile(r"[0-9]{1,19}")


@router.get("", summary="Status of a partition, and why it is not being copied")
async def partition_status(context: Context, tip: FoundPartition) -> PartitionView:
    """Role, mode, epochs, all offsets, lag, the copy under way, the last error and scrub."""
    return PartitionView.of_status(context.rlm.status(tip), context.scrubs.of(tip))


@router.get("/offsets", summary="ListOffsets: a special offset by name, or a time")
async def list_offset(
    context: Context,
    tip: FoundPartition,
    timestamp: Annotated[
        str,
        Query(
            max_length=100,
            description=f"One of {', '.join(sorted(OFFSET_NAMES))}, or a time in milliseconds "
            "since the epoch: finds the first record at or after it.",
            examples=["latest-tiered"],
        ),
    ],
) -> OffsetView:
    """Kafka's ListOffsets with its special timestamps -1 to -6 by name (KIP-405, KIP-1023)."""
    answer = await context.answers.offsets(tip, parse_timestamp(timestamp))
    return OffsetView.of_answer(answer, timestamp)


def parse_timestamp(text: str) -> int:
    """Parse a name, or milliseconds since the epoch. InvalidRequest(timestamp): neither."""
    special = OFFSET_NAMES.get(text)
    if special is not None:
        return int(special)
    if not _TIME.fullmatch(text) or int(text) > INT64_MAX:
        raise InvalidRequest(
            f"{text[:40]!r} is neither milliseconds since the epoch nor one of "
            f"{', '.join(sorted(OFFSET_NAMES))}",
            field="timestamp",
        )
    return int(text)


@router.get(
    "/leader-transition",
    summary="The offset at which a leader continues copying, by the known lineage",
)
async def leader_transition_by_lineage(
    context: Context,
    tip: FoundPartition,
    leader_epoch: EpochNumber | None = None,
    log_end_offset: OffsetNumber | None = None,
    local_log_start_offset: OffsetNumber | None = None,
) -> LeaderTransitionView:
    """The answer to a leader whose checkpoint equals the metadata's lineage.

    Default leader epoch: the lineage's last; a higher one begins at `log_end_offset`. Default log
    end and log start: those of the tier. A leader with a different checkpoint sends it with POST.
    """
    state = context.manager.partition_state(tip)
    if state is None or not state.lineage:
        raise NotFound(
            f"{tip} was never claimed, so it has no lineage: send the leader's checkpoint with POST"
        )
    end = _log_end(state) if log_end_offset is None else log_end_offset
    start = local_log_start_offset
    epoch = state.lineage[-1].epoch if leader_epoch is None else leader_epoch
    query = LeaderTransitionQuery(
        partition=tip,
        leader_epoch=epoch,
        checkpoint=_checkpoint(state.lineage, epoch, end),
        local_log_start_offset=max(0, state.log_start_offset) if start is None else start,
        log_end_offset=end,
    )
    return LeaderTransitionView.of_answer(context.answers.leader_transition(query))


def _log_end(state: PartitionState) -> int:
    return max(0, state.log_start_offset, state.next_offset, state.lineage[-1].start_offset)


def _checkpoint(lineage: Epochs, leader_epoch: int, log_end_offset: int) -> Epochs:
    """The lineage up to `leader_epoch`, which begins at the log end if the lineage lacks it."""
    kept = tuple(entry for entry in lineage if entry.epoch <= leader_epoch)
    if kept and kept[-1].epoch == leader_epoch:
        return kept
    return (*kept, EpochEntry(leader_epoch, log_end_offset))


@router.post("/leader-transition", summary="The offset at which a new leader continues copying")
async def leader_transition(
    context: Context, tip: FoundPartition, body: LeaderTransitionRequest
) -> LeaderTransitionView:
    """Read-only. The answer is valid as of `metadata_offset`."""
    return LeaderTransitionView.of_answer(context.answers.leader_transition(body.query(tip)))


@router.get("/follower-fetch", summary="The state that a follower needs to rebuild from the tier")
async def follower_fetch(
    context: Context,
    tip: FoundPartition,
    fetch_offset: OffsetNumber,
    leader_epoch: EpochNumber,
    leader_local_log_start_offset: Annotated[
        OffsetNumber | None,
        Query(description="Left out: this node asks its broker, if that leads."),
    ] = None,
    from_last_tiered: Annotated[
        bool, Query(description="KIP-1023, for an empty follower: fetch only the uncopied tail.")
    ] = False,
) -> FollowerFetchView:
    """The offset at which a follower starts after KIP-405's OFFSET_MOVED_TO_TIERED_STORAGE, and its
    state.
    """
    query = FollowerFetchQuery(
        partition=tip,
        fetch_offset=fetch_offset,
        leader_epoch=leader_epoch,
        leader_local_log_start_offset=leader_local_log_start_offset,
        from_last_tiered=from_last_tiered,
    )
    return FollowerFetchView.of_answer(await context.answers.follower_fetch(query))
