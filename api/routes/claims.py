"""The claim and mode of a partition: show, reset, change."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.tokens import Principal, Role
from api.models.base import name_of
from api.models.claims import (
    ClaimCourseView,
    ClaimResetRequest,
    ModeRequest,
    ModeView,
    PartitionClaimView,
)
from api.routes.path_parameters import FoundPartition
from kafka_formats.errors import Conflict, InvalidRequest, NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction
from rlm.copy.claim_outlook import (
    ClaimOutlook,
    NoOutlook,
    ResetRefusal,
    is_cut_off,
    reset_refusal,
)
from rlmm.partition_state import CLAIMABLE_MODES, UNKNOWN_OFFSET, Mode, PartitionState
from rlmm.records.control_records import ClaimReset, PartitionModeChange

router = APIRouter(prefix="/topics/{topic}/partitions/{partition}", tags=["partitions"])

BREATH_SEGMENTS = 64
EFFECTS = {
    Mode.SIDECAR: "the node beside the leader claims the partition, copies it, and expires it by "
    "the topic's policy. No other remote log manager may write to it from now on",
    Mode.READ_ONLY: "no node copies, expires or deletes its segments; reading goes on. Segments "
    "that the broker's own retention deletes meanwhile are lost to the tier",
}
EFFECTS[Mode.DELEGATED] = (
    "the leader's broker itself copies and expires the partition, through the plug-in, once the "
    "topic has remote.storage.enable=true; this node no longer copies it. A partition whose "
    "tier begins below the broker's log start is not claimed: the broker would delete that part"
)
EFFECTS[Mode.PAUSED] = EFFECTS[Mode.READ_ONLY]
VOIDED = (
    "; the present claim is voided, and after the next claim copies under way are started again"
)


@router.get("/claim", summary="The claim of a partition, and the outcome of this node's next claim")
async def partition_claim(context: Context, tip: FoundPartition) -> PartitionClaimView:
    """Ask the node beside the leader, which can predict the outcome of its claim. Changes
    nothing.
    """
    state = _state(context, tip)
    outlook = context.answers.claim_outlook(tip)
    refusal = _refusal(context, state, outlook)
    cut_off = await _cut_off(context, state, outlook)
    return PartitionClaimView.of_state(
        state, outlook, cut_off, refusal, context.manager.applied_offset
    )


@router.post(
    "/claim/reset", summary="Void a claim that blocks the next one, and allow the next one to cut"
)
async def reset_claim(
    request: Request,
    context: Context,
    tip: FoundPartition,
    body: ClaimResetRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> PartitionClaimView:
    """Needs the role admin. Offsets that the next claim cuts off are no longer served, so the body
    confirms them exactly; deleting has to be paused for the topic. 409 with the reason: NOT_LEADER,
    NOT_NEEDED, NO_HELP, NO_CLAIM, MODE, DELETED, DELETING_NOT_PAUSED, OTHER_OFFSETS, CONFLICT. It
    is safe to repeat before the next claim. Whichever node makes the next claim, it is refused as
    suspect if it cuts more than was confirmed.
    """
    if not body.dry_run:
        await context.manager.catch_up()  # so that the view shows a repeated request
    cut_off = await _cut_off(context, _state(context, tip), context.answers.claim_outlook(tip))
    # No await from here to the proposal, so that the checked state is the proposed one.
    state, outlook = _state(context, tip), context.answers.claim_outlook(tip)
    repeated = body.stands(state)
    refusal = body.refusal(state, outlook)
    if refusal is None and not repeated:
        refusal = _refusal(context, state, outlook)
    if not body.dry_run and refusal is not None:
        raise Conflict(f"{tip}: {refusal.text}", reason=refusal.reason)
    if not body.dry_run and not repeated:
        highest = -1 if state.highest_copied is None else state.highest_copied[0]
        cut = (-1, -1) if body.cut_at is None else (body.cut_at, max(highest, body.cut_at))
        with audited(
            context, tip, AuditAction.CLAIM_RESET, body.why(), principal, offsets=cut,
            size_bytes=cut_off[1],
        ):  # fmt: skip
            request.scope[METADATA_OFFSET_SCOPE_KEY] = await context.manager.reset_claim(
                ClaimReset(tip, body.token, body.cut_at)
            )
        state, outlook = _state(context, tip), context.answers.claim_outlook(tip)
    return PartitionClaimView.of_state(
        state, outlook, cut_off, refusal, context.manager.applied_offset
    )


def _refusal(
    context: ApiContext, state: PartitionState, outlook: ClaimOutlook | NoOutlook
) -> ResetRefusal | None:
    paused = context.manager.topic_policy(state.partition.topic).delete_paused
    return reset_refusal(state, outlook, deleting_paused=paused)


async def _cut_off(
    context: ApiContext, state: PartitionState, outlook: ClaimOutlook | NoOutlook
) -> tuple[int, int]:
    """The number and bytes of the segments that a claim after a reset would cut off."""
    if isinstance(outlook, NoOutlook) or not outlook.after_reset.cut_offsets:
        return 0, 0
    after = outlook.after_reset.after
    assert after is not None, "only an accepted claim cuts"
    segments, size_bytes = 0, 0
    rows = context.manager.list_remote_log_segments(state.partition)
    for number, row in enumerate(rows, 1):
        if number % BREATH_SEGMENTS == 0:
            await context.sleep(0)
        if is_cut_off(row, state.lineage, after.lineage):
            segments += 1
            size_bytes += row.size_bytes
    return segments, size_bytes


def _state(context: ApiContext, tip: TopicIdPartition) -> PartitionState:
    state = context.manager.partition_state(tip)
    if state is None:
        raise NotFound(
            f"the metadata does not have {tip} yet, as no node has claimed it: wait for the "
            "first claim"
        )
    return state


@router.put("/mode", summary="Set whether and by whom a partition is copied and expired")
async def set_partition_mode(
    request: Request,
    context: Context,
    tip: FoundPartition,
    body: ModeRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> ModeView:
    """Needs the role admin. In force on all nodes from the metadata offset in the answer's header;
    the present claim is voided. Setting the present mode changes nothing.
    """
    if not body.dry_run:
        await context.manager.catch_up()  # the view has to be current to answer "no change"
    before = context.manager.partition_state(tip)
    wanted = body.wanted
    is_so = before is not None and before.mode is wanted
    text = "no change: this is the mode already" if is_so else EFFECTS[wanted]
    if not is_so and before is not None and before.claim is not None:
        text += VOIDED
    next_claim = None
    if wanted is Mode.SIDECAR and not is_so:
        outlook = context.answers.claim_outlook(tip)
        if isinstance(outlook, ClaimOutlook):
            next_claim = ClaimCourseView.of_course(outlook.as_it_is)
    if not body.dry_run and not is_so:
        if wanted in CLAIMABLE_MODES and body.confirm != tip.topic:
            raise InvalidRequest(
                f"must be the topic's name, {tip.topic}: {EFFECTS[wanted]}", field="confirm"
            )
        replaces = UNKNOWN_OFFSET if before is None else before.mode_offset
        change = body.change(PartitionModeChange(tip, wanted, replaces))
        was = "none" if before is None else before.mode.name.lower()
        with audited(context, tip, AuditAction.MODE_SET, f"{was} to {body.mode}", principal):
            offset = await context.manager.set_partition_mode(change)
        request.scope[METADATA_OFFSET_SCOPE_KEY] = offset
    now = context.manager.partition_state(tip)
    return ModeView(
        **name_of(tip),
        mode=Mode.SIDECAR.name.lower() if now is None else now.mode.name.lower(),
        mode_offset=None if now is None or now.mode_offset < 0 else now.mode_offset,
        changed=not body.dry_run and not is_so,
        dry_run=body.dry_run,
        text=text,
        next_claim=next_claim,
    )
