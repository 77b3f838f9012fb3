"""Offsets without a batch: skip them, or declare gaps legal."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.tokens import Principal, Role
from api.models.base import name_of
from api.models.gaps import (
    AllowGapsRequest,
    AllowGapsView,
    OffsetRangeView,
    SkipRequest,
    SkipView,
)
from api.routes.path_parameters import FoundPartition
from kafka_formats.errors import Conflict, InvalidRequest
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction
from rlm.copy.partition_status import Role as PartitionRole
from rlm.local_log.damage import without
from rlm.local_log.gap_rule import Offsets
from rlmm.partition_state import PartitionState
from rlmm.records.control_records import GapsAllowed, OffsetsSkipped

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}", tags=["partitions"])

LEGAL = (
    "offsets without a batch are treated as removed by compaction from now on, and their "
    "segments are copied as they are; later losses on this broker's disk are not noticed. This "
    "can't be undone"
)


@router.post("/skip", summary="Skip offsets that can't be copied")
async def skip_offsets(
    request: Request,
    context: Context,
    tip: FoundPartition,
    body: SkipRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> SkipView:
    """Needs the role admin; carried out by the node with the claim. The offsets are recorded as
    lost, with name and reason, and the rest of the segment is copied. If a copy of them is found
    later, they are readable again. Only the named offsets are skipped: `ranges` as a dry run showed
    them, or one range. 409 with the reason: NOT_LEADER, NOT_NEEDED, OTHER_OFFSETS (different
    offsets are missing now), MENDING (other replicas are being asked for them).
    """
    if not body.dry_run:
        await (
            context.manager.catch_up()
        )  # the view has to be current to show what is copied or lost
    state = _claimed_here(context, tip)
    ranges = _asked(context, tip, body, state)
    damage = context.rlm.damage_of(tip)
    why_missing = "" if damage is None else damage.text
    if not body.dry_run:
        assert state.claim is not None, "_claimed_here returns a state with a claim"
        why = f"skipped by {principal.name}: {body.reason}"
        for first, last in ranges:
            record = OffsetsSkipped(tip, state.claim.token, first, last, why)
            with audited(
                context, tip, AuditAction.OFFSETS_SKIPPED, body.reason, principal,
                offsets=(first, last),
            ):  # fmt: skip
                offset = await context.manager.skip_offsets(record)
            request.scope[METADATA_OFFSET_SCOPE_KEY] = offset
        context.rlm.try_again(tip)
    return SkipView(
        **name_of(tip),
        ranges=[OffsetRangeView(first_offset=first, last_offset=last) for first, last in ranges],
        offsets=sum(last - first + 1 for first, last in ranges),
        why=why_missing,
        changed=not body.dry_run,
        dry_run=body.dry_run,
        text="readers find no records at these offsets; the rest of the segment is copied",
    )


def _claimed_here(context: ApiContext, tip: TopicIdPartition) -> PartitionState:
    state = context.manager.partition_state(tip)
    leads = context.rlm.status(tip).role is PartitionRole.LEADER
    if state is None or state.claim is None or not leads:
        claim = None if state is None else state.claim
        claimed_by = None if claim is None else claim.incarnation.node_id
        raise Conflict(
            f"this node does not copy {tip}: ask the node beside its leader",
            reason="NOT_LEADER",
            ask_node=None if claimed_by == context.identity.node_id else claimed_by,
        )
    return state


def _asked(
    context: ApiContext, tip: TopicIdPartition, body: SkipRequest, state: PartitionState
) -> tuple[Offsets, ...]:
    if (body.first_offset is None) != (body.last_offset is None):
        raise InvalidRequest(
            "give both first_offset and last_offset, or neither", field="last_offset"
        )
    if body.ranges is not None and body.first_offset is not None:
        raise InvalidRequest("give either ranges, or first_offset and last_offset", field="ranges")
    if body.first_offset is not None and body.last_offset is not None:
        end = context.rlm.status(tip).active_base_offset
        if end <= state.next_offset:
            raise Conflict(
                f"every sealed offset of {tip} is copied or recorded as lost, so there is "
                "nothing to skip",
                reason="NOT_NEEDED",
            )
        if not state.next_offset <= body.first_offset <= body.last_offset < end:
            raise InvalidRequest(
                f"only sealed offsets that are not copied yet can be skipped: {state.next_offset} "
                f"to {end - 1}",
                field="first_offset",
            )
        return ((body.first_offset, body.last_offset),)
    if body.ranges is None and not body.dry_run:
        raise InvalidRequest(
            "name the offsets to skip: the ranges that a dry run shows, or first_offset and "
            "last_offset",
            field="ranges",
        )
    if context.rlm.is_mending(tip):
        raise Conflict(
            f"other replicas are being asked for the missing offsets of {tip}: repeat the dry "
            "run once that ends, within minutes",
            reason="MENDING",
        )
    damage = context.rlm.damage_of(tip)
    missing = () if damage is None else without(damage.missing, ((0, state.next_offset - 1),))
    lost = ((each.start, each.end) for each in state.lost_ranges)
    missing = without(missing, lost)
    if not missing:
        raise Conflict(
            f"no damaged segment stops {tip}; to skip other offsets, name first_offset and "
            "last_offset",
            reason="NOT_NEEDED",
        )
    if body.ranges is not None:
        named = tuple((each.first_offset, each.last_offset) for each in body.ranges)
        if named != missing:
            raise Conflict(
                f"the missing offsets of {tip} are different by now: repeat the dry run",
                reason="OTHER_OFFSETS",
            )
    return missing


@router.post("/allow-gaps", summary="Declare offsets without a batch legal in a partition")
async def allow_gaps(
    request: Request,
    context: Context,
    tip: FoundPartition,
    body: AllowGapsRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> AllowGapsView:
    """Needs the role admin. For partitions that a mirror or a restore filled with the offsets of
    their source, and for those that were compacted in the past without a trace of it. In force on
    all nodes.
    """
    if not body.dry_run:
        await context.manager.catch_up()  # the view has to be current to answer "no change"
    before = context.manager.partition_state(tip)
    is_so = before is not None and bool(before.gaps_allowed)
    if not body.dry_run and not is_so:
        why = f"allowed by {principal.name}: {body.reason}"
        with audited(context, tip, AuditAction.GAPS_ALLOWED, body.reason, principal):
            offset = await context.manager.record_gaps_allowed(GapsAllowed(tip, why))
        request.scope[METADATA_OFFSET_SCOPE_KEY] = offset
        context.rlm.try_again(tip)
    now = context.manager.partition_state(tip)
    return AllowGapsView(
        **name_of(tip),
        gaps_allowed=now.gaps_allowed or None if now is not None else None,
        changed=not body.dry_run and not is_so,
        dry_run=body.dry_run,
        text="no change: gaps are legal already" if is_so else LEGAL,
    )
