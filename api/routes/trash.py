"""The trash: list it, restore from it, empty it.

For a deleted topic `tiered-data/undo` removes the marks (`tiered_data.py`).
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.http.admission import Context, require
from api.http.api_limits import SCAN_ITEMS_PER_SLICE
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.cursors import decode_cursor, encode_cursor
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.listing import page_after
from api.http.tokens import Principal, Role
from api.http.validation import PAGE_LIMIT_DEFAULT, PageCursor, PageLimit
from api.models.base import name_of
from api.models.retention import DeleteRecordsView
from api.models.trash import (
    MARKED,
    EmptyTrashRequest,
    ReleaseRequest,
    RestoredPartition,
    RestoreRequest,
    TrashedPartition,
    TrashPage,
)
from api.routes.path_parameters import FoundPartition
from kafka_formats.errors import Conflict, InvalidRequest, NotFound
from kafka_formats.log_names import check_topic_name
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction
from rlm.retention.mark_times import last_mark, mark_up_to
from rlmm.partition_state import Mode, PartitionState
from rlmm.records.control_records import ExpiryTakenBack
from rlmm.records.setting_scope import WHO_CHARACTERS_MAX

router = APIRouter(tags=["retention"])
PATH = "/topics/{topic}/partitions/{partition}/trash"
LISTING = "trash"
Admin = Annotated[Principal, Depends(require(Role.ADMIN))]


@router.get("/trash", summary="Everything in the trash, and holds of retention")
async def list_trash(
    context: Context,
    topic: Annotated[str | None, Query(max_length=1_000, description="Only this topic.")] = None,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> TrashPage:
    """A page of the trash, from the metadata; every node answers the same."""
    if topic is not None:
        check_topic_name(topic)
    filters = {"topic": topic}
    after = None if cursor is None else decode_cursor(LISTING, filters, cursor, (str, int, str))
    found: list[PartitionState] = []
    delegated = 0
    for number, tip in enumerate(context.rlm.partitions(), 1):
        if number % SCAN_ITEMS_PER_SLICE == 0:
            await context.sleep(0)
        state = context.manager.partition_state(tip) if topic in (None, tip.topic) else None
        if state is not None:
            delegated += state.mode is Mode.DELEGATED
            if state.delete_state is MARKED or _is_hidden_or_held(context, state):
                found.append(state)
    shown, more = page_after(sorted(found, key=_order), _order, after, limit)
    return TrashPage(
        partitions=[
            TrashedPartition.of_state(each, context.manager.topic_policy(each.partition.topic))
            for each in shown
        ],
        delegated_partitions=delegated,
        trash_s=context.retention.trash_s,
        next_cursor=encode_cursor(LISTING, filters, _order(shown[-1])) if more else None,
        metadata_offset=context.manager.applied_offset,
    )


def _is_hidden_or_held(context: ApiContext, state: PartitionState) -> bool:
    """True if the partition has marks or a hold in force. A hold that ended with its policy stays
    in the row until the next mark.
    """
    expiry = state.expiry
    if expiry.marks or expiry.hold is None:
        return bool(expiry.marks)
    return expiry.held_by(context.manager.topic_policy(state.partition.topic).offset) is not None


def _order(state: PartitionState) -> tuple[str, int, str]:
    tip = state.partition
    return tip.topic, tip.partition, str(tip.topic_id)


@router.post(
    f"{PATH}/restore", summary="Restore records that retention hid from readers from the trash"
)
async def restore_partition(
    request: Request, context: Context, tip: FoundPartition, body: RestoreRequest, admin: Admin
) -> RestoredPartition:
    """Needs the role admin; any node will do. Readers start at the log start again, and every
    record above it is readable. Retention is put on hold if the policy would delete the same again,
    unless `hold` is false. 409 NOT_IN_TRASH: the trash has nothing of the partition (any more).
    """
    await context.manager.catch_up()  # a mark that the view lacks would be left out
    state = _state(context, tip)
    expiry = state.expiry
    if not expiry.marks:
        raise Conflict(_nothing_of(state), reason="NOT_IN_TRASH")
    hold = await context.retention.would_repeat(tip) if body.hold is None else body.hold
    back = ExpiryTakenBack(tip, expiry.offset, hold, admin.name[:WHO_CHARACTERS_MAX], body.why)
    why = f"{body.why}; its retention {'is on hold' if hold else 'goes on'}"
    with audited(
        context, tip, AuditAction.TRASH_RESTORED, why, admin,
        offsets=(state.log_start_offset, expiry.below - 1), size_bytes=expiry.size_bytes,
    ):  # fmt: skip
        request.scope[METADATA_OFFSET_SCOPE_KEY] = await context.manager.take_expiry_back(back)
    return RestoredPartition(
        **name_of(tip),
        log_start_offset=state.log_start_offset,
        segments=expiry.segments,
        size_bytes=expiry.size_bytes,
        hold=hold,
    )


@router.post(f"{PATH}/release", summary="End the hold of a partition's retention")
async def release_retention(
    request: Request, context: Context, tip: FoundPartition, body: ReleaseRequest, admin: Admin
) -> TrashedPartition:
    """Needs the role admin; any node will do. The next pass marks what the policy says. 409
    NOT_HELD: no hold is in force.
    """
    await context.manager.catch_up()  # a hold that the view lacks would be left out
    state = _state(context, tip)
    policy = context.manager.topic_policy(tip.topic)
    if state.expiry.held_by(policy.offset) is None:
        raise Conflict(f"retention of {tip} is not on hold", reason="NOT_HELD")
    who = admin.name[:WHO_CHARACTERS_MAX]
    back = ExpiryTakenBack(tip, state.expiry.offset, hold=False, who=who, why=body.why)
    with audited(context, tip, AuditAction.RETENTION_RELEASED, body.why, admin):
        request.scope[METADATA_OFFSET_SCOPE_KEY] = await context.manager.take_expiry_back(back)
    return TrashedPartition.of_state(_state(context, tip), policy)


@router.post(
    f"{PATH}/empty", summary="Delete the content of the trash without waiting for its time"
)
async def empty_trash(
    context: Context, tip: FoundPartition, body: EmptyTrashRequest, admin: Admin
) -> DeleteRecordsView:
    """Needs the role admin; carried out by the node with the claim, as `retention/delete-records`
    below `up_to_offset`: it can't be undone. 409 NOT_IN_TRASH: the trash has nothing of the
    partition; OTHER_MARKS: no mark ends at `up_to_offset` any more; CONFLICT: it was restored
    meanwhile.
    """
    await context.manager.catch_up()  # the view must not show a mark that was removed
    state = _state(context, tip)
    last = last_mark(state.expiry)
    if last is None:
        raise Conflict(_nothing_of(state), reason="NOT_IN_TRASH")
    if body.up_to_offset is not None:
        last = mark_up_to(state.expiry, body.up_to_offset)
        if last is None:
            raise Conflict(
                f"no mark of {tip} ends at {body.up_to_offset} any more: list the trash again",
                reason="OTHER_MARKS",
            )
    before = last.mark.offset
    if body.dry_run:
        planned = await context.retention.delete_records(tip, before, apply=False)
    elif body.up_to_offset is None:
        raise InvalidRequest(
            "give the offset up to which to delete, as the dry run shows it", field="up_to_offset"
        )
    else:
        with audited(
            context,
            tip,
            AuditAction.TRASH_EMPTIED,
            body.reason,
            admin,
            offsets=(-1, before - 1),
        ):
            planned = await context.retention.delete_records(tip, before, apply=True, emptied=last)
    return DeleteRecordsView.told(tip, planned, dry_run=body.dry_run)


def _state(context: ApiContext, tip: TopicIdPartition) -> PartitionState:
    state = context.manager.partition_state(tip)
    if state is None:
        raise NotFound(f"{tip} is not in the metadata: none of its segments was ever tiered")
    return state


def _nothing_of(state: PartitionState) -> str:
    if state.mode is Mode.DELEGATED:
        return (
            f"{state.partition} is DELEGATED: its broker carries out retention, which has no trash"
        )
    return f"the trash has nothing of {state.partition}"
