"""A topic's data in the tier: show it, mark it for deletion, remove the mark.

Only marks are set here; after the grace period the nodes delete
(`rlm/retention/topic_deletion.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.cursors import decode_cursor, encode_cursor
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.listing import first_after
from api.http.tokens import Principal, Role
from api.http.validation import PAGE_LIMIT_DEFAULT, OffsetNumber, PageCursor, PageLimit, parse_uuid
from api.models.tiered_data import (
    DeletionUndone,
    TieredDataChange,
    TieredDataView,
    TieredPartitionView,
    UndoRequest,
)
from api.routes.path_parameters import CheckedTopic
from kafka_formats.errors import InvalidRequest, NotFound
from rlm.control.audit import AuditAction
from rlmm.manager.trash_writes import UNDONE
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS, PartitionState
from rlmm.records.control_records import PartitionDeleteUndo
from rlmm.records.setting_scope import WHO_CHARACTERS_MAX
from rlmm.segment import PartitionDeleteState, RemotePartitionDeleteMetadata

router = APIRouter(prefix="/topics/{topic}/tiered-data", tags=["topics"])

MARKED = PartitionDeleteState.DELETE_PARTITION_MARKED
ALL_TOPIC_IDS = "all"
BREATH_PARTITIONS = 64

WhichTopicIds = Annotated[
    str | None,
    Query(
        max_length=100,
        description="Topic id, or `all`; may be left out if the name has only one.",
    ),
]
GraceMs = Annotated[
    OffsetNumber,
    Query(description="Time until the data is deleted, in milliseconds. 0: at once."),
]


@router.get("", summary="A topic's data in the tier, and its marks for deletion")
async def tiered_data(
    context: Context,
    topic: CheckedTopic,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> TieredDataView:
    """The tiered data of all topic ids of the name, from the metadata; every node answers
    the same.
    """
    listing = f"tiered data of {topic}"
    after = None if cursor is None else decode_cursor(listing, {}, cursor, (int, str))
    states = sorted(await _states(context, topic, ALL_TOPIC_IDS), key=_order)
    shown, more = await first_after(states, _order, after, limit, context.sleep)
    return TieredDataView(
        topic=topic,
        partitions=[TieredPartitionView.of_state(state) for state in shown],
        next_cursor=encode_cursor(listing, {}, _order(shown[-1])) if more else None,
    )


@router.delete(
    "",
    summary="Mark a topic's data in the tier for deletion",
)
async def delete_tiered_data(
    request: Request,
    context: Context,
    topic: CheckedTopic,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
    confirm: Annotated[
        str, Query(max_length=1_000, description="The topic's name again, as a confirmation.")
    ],
    topic_id: WhichTopicIds = None,
    grace_ms: GraceMs = DELETE_GRACE_DEFAULT_MS,
) -> TieredDataChange:
    """Needs the role admin. Copying stops at once; the data is readable until its bytes are
    deleted, and until then `undo` removes the mark. It is safe to repeat; a different grace period
    needs an undo first.
    """
    if confirm != topic:
        raise InvalidRequest(
            f"must be the topic's name, {topic!r}, not {confirm[:40]!r}", field="confirm"
        )
    await context.manager.catch_up()  # a partition or mark that the view lacks would be left out
    states = await _states(context, topic, topic_id)
    changed = 0
    for state in states:
        if state.delete_state not in (None, MARKED):
            continue  # its deletion has started
        if state.delete_state is MARKED and state.delete_grace_ms == grace_ms:
            continue  # this mark is in force already
        mark = RemotePartitionDeleteMetadata(
            state.partition,
            context.identity.node_id,
            -1,  # the batch of the record has the time
            MARKED,
            replaces_offset=state.delete_offset,
            grace_ms=grace_ms,
        )
        with audited(
            context, state.partition, AuditAction.PARTITION_MARKED, f"grace {grace_ms} ms",
            principal, size_bytes=state.size_bytes,
        ):  # fmt: skip
            request.scope[
                METADATA_OFFSET_SCOPE_KEY
            ] = await context.manager.put_remote_partition_delete_metadata(mark)
        changed += state.delete_state is None
    return _changed(context, topic, states, changed)


@router.post(
    "/undo",
    summary="Remove the deletion marks of a topic",
)
async def undo_deletion(
    request: Request,
    context: Context,
    topic: CheckedTopic,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
    topic_id: WhichTopicIds = ALL_TOPIC_IDS,
    body: UndoRequest | None = None,
) -> DeletionUndone:
    """Needs the role admin. Records that retention had hidden are readable again. Without a body
    the next pass of retention hides again what the policy says, for the full time of the trash.
    `conflict` with the reason GONE for a partition whose deletion has started: the marks of all
    other partitions are removed first.
    """
    await context.manager.catch_up()  # a mark that the view lacks would be left out
    states = await _states(context, topic, topic_id)
    states.sort(key=lambda state: state.delete_state is not MARKED)
    changed = restored = held = 0
    for state in states:
        if state.delete_state is None:
            continue
        hold = await _is_to_hold(context, state, body)
        undo = PartitionDeleteUndo(state.partition, state.delete_offset)
        why = UNDONE if body is None else body.why
        text = f"{body.why}: the mark was removed" if body is not None else "the mark was removed"
        with audited(
            context, state.partition, AuditAction.DELETE_UNDONE,
            f"{text}; its retention is on hold" if hold else text,
            principal, size_bytes=state.size_bytes,
        ):  # fmt: skip
            offset = await context.manager.undo_partition_delete(
                undo, hold=hold, who=principal.name[:WHO_CHARACTERS_MAX], why=why
            )
        request.scope[METADATA_OFFSET_SCOPE_KEY] = offset
        changed += 1
        restored += bool(state.expiry.marks)
        held += hold
    change = _changed(context, topic, states, changed)
    return DeletionUndone(**change.model_dump(), restored=restored, held=held)


async def _is_to_hold(context: ApiContext, state: PartitionState, body: UndoRequest | None) -> bool:
    if body is None or not state.expiry.marks:
        return False
    if body.hold is None:
        return await context.retention.would_repeat(state.partition)
    return body.hold


async def _states(context: ApiContext, topic: str, topic_id: str | None) -> list[PartitionState]:
    """The topic's partitions in the metadata, of one topic id or of all."""
    found: list[PartitionState] = []
    for number, tip in enumerate(context.rlm.partitions(), 1):
        if number % BREATH_PARTITIONS == 0:
            await context.sleep(0)
        state = context.manager.partition_state(tip) if tip.topic == topic else None
        if state is not None:
            found.append(state)
    if not found:
        raise NotFound(f"the metadata has no topic {topic}")
    return _of_topic_id(topic, found, topic_id)


def _of_topic_id(
    topic: str, found: list[PartitionState], topic_id: str | None
) -> list[PartitionState]:
    if topic_id == ALL_TOPIC_IDS:
        return found
    ids = sorted({str(state.partition.topic_id) for state in found})
    if topic_id is None:
        if len(ids) > 1:
            raise InvalidRequest(
                f"the topic {topic} was recreated: give one of its topic ids "
                f"({', '.join(ids)[:400]}), or all",
                field="topic_id",
            )
        return found
    wanted = parse_uuid(topic_id, "topic_id")
    some = [state for state in found if state.partition.topic_id == wanted]
    if not some:
        raise NotFound(f"the topic {topic} has no data with the topic id {topic_id}")
    return some


def _changed(
    context: ApiContext, topic: str, states: Sequence[PartitionState], changed: int
) -> TieredDataChange:
    now = (context.manager.partition_state(state.partition) for state in states)
    due = [
        state.delete_due_ms for state in now if state is not None and state.delete_state is not None
    ]
    return TieredDataChange(topic=topic, changed=changed, goes_from_ms=min(due, default=None))


def _order(state: PartitionState) -> tuple[int, str]:
    return state.partition.partition, str(state.partition.topic_id)
