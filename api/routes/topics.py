"""Topics: list, describe, policy."""

from __future__ import annotations

from json import dumps
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.cursors import decode_cursor, encode_cursor
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.listing import first_after, statuses_of
from api.http.tokens import Principal, Role
from api.http.validation import PAGE_LIMIT_DEFAULT, PageCursor, PageLimit, parse_uuid
from api.models.topics import (
    PartitionSummary,
    PolicyRequest,
    PolicySet,
    PolicyView,
    TopicPage,
    TopicSummary,
    TopicView,
    changed_fields,
)
from api.routes.path_parameters import CheckedTopic, TopicIdParameter
from kafka_formats.errors import NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.audit import AuditAction
from rlm.copy.partition_status import PartitionStatus

router = APIRouter(prefix="/topics", tags=["topics"])


@router.get("", summary="Topics that this node knows, by name")
async def list_topics(
    context: Context, limit: PageLimit = PAGE_LIMIT_DEFAULT, cursor: PageCursor = None
) -> TopicPage:
    """Topics in the metadata and in this node's log directories, tiered or not."""
    after = None if cursor is None else str(decode_cursor("topics", {}, cursor, (str,))[0])
    by_topic: dict[str, list[TopicIdPartition]] = {}
    for tip in context.rlm.partitions():
        if after is None or tip.topic > after:
            by_topic.setdefault(tip.topic, []).append(tip)
    names = sorted(by_topic)
    shown = names[:limit]
    topics = []
    for name in shown:
        statuses = await statuses_of(by_topic[name], context.rlm.status, context.sleep)
        why_not = context.settings.why_left_out(name)
        topics.append(TopicSummary.of_statuses(name, statuses, why_not))
    return TopicPage(
        topics=topics,
        next_cursor=(
            encode_cursor("topics", {}, (shown[-1],)) if len(names) > len(shown) else None
        ),
    )


@router.get("/{topic}", summary="One topic with its partitions")
async def describe_topic(
    context: Context,
    topic: CheckedTopic,
    limit: PageLimit = PAGE_LIMIT_DEFAULT,
    cursor: PageCursor = None,
) -> TopicView:
    """Partitions come in pages; the sums are over all of them."""
    listing = f"partitions of {topic}"
    after = None if cursor is None else decode_cursor(listing, {}, cursor, (int, str))
    partitions = [tip for tip in context.rlm.partitions() if tip.topic == topic]
    statuses = await statuses_of(partitions, context.rlm.status, context.sleep)
    if not statuses:
        raise NotFound(
            f"topic {topic} is neither in the metadata nor in this node's log directories"
        )
    statuses.sort(key=_order)
    shown, more = await first_after(statuses, _order, after, limit, context.sleep)
    why_not = context.settings.why_left_out(topic)
    return TopicView(
        **TopicSummary.of_statuses(topic, statuses, why_not).model_dump(),
        partition_list=[PartitionSummary.of_status(status) for status in shown],
        next_cursor=encode_cursor(listing, {}, _order(shown[-1])) if more else None,
    )


def _order(status: PartitionStatus) -> tuple[int, str]:
    return status.partition.partition, str(status.partition.topic_id)


@router.get("/{topic}/policy", summary="A topic's retention and kill switches")
async def topic_policy(
    context: Context, topic: CheckedTopic, topic_id: TopicIdParameter = None
) -> PolicyView:
    """A topic without a policy keeps everything and pauses nothing. A recreated topic keeps
    everything until a policy is set for it; the switches of the name apply to it, too.
    """
    return _policy_of(
        context, topic, None if topic_id is None else parse_uuid(topic_id, "topic_id")
    )


def _policy_of(context: ApiContext, topic: str, topic_id: Uuid | None) -> PolicyView:
    if topic_id is None:
        topic_id = context.manager.newest_topic_id(topic)
    return PolicyView.of_policy(topic, topic_id, context.manager.topic_policy(topic, topic_id))


@router.put("/{topic}/policy", summary="Replace a topic's policy")
async def set_topic_policy(
    request: Request,
    context: Context,
    topic: CheckedTopic,
    body: PolicyRequest,
    principal: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> PolicySet:
    """Needs the role admin. In force from the metadata offset in the answer's header. The whole
    policy is replaced: fields that the request leaves out get their defaults; `changed` lists the
    differences.
    """
    standing = context.manager.topic_policy(topic)
    change = body.change(topic, standing)
    changed = changed_fields(
        *(PolicyView.of_policy(topic, each.topic_id, each) for each in (standing, change.policy))
    )
    reason = f"{body.why}: " if body.why else ""
    differs = ", ".join(f"{name} from {dumps(value)}" for name, value in changed.items())
    why = (
        f"{reason}{topic}: {body.model_dump_json(exclude={'replaces_offset', 'why'})}; "
        f"changed {differs or 'nothing'}"
    )
    with audited(context, None, AuditAction.POLICY_SET, why, principal):
        request.scope[METADATA_OFFSET_SCOPE_KEY] = await context.manager.set_topic_policy(change)
    now = _policy_of(context, topic, None if body.topic_id is None else change.policy.topic_id)
    return PolicySet(**now.model_dump(), changed=list(changed))
