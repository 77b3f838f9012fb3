"""Settings of the cluster in the metadata log: list, set, remove, and those in force on a node."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request

from api.http.admission import Context, require
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.tokens import Principal, Role
from api.models.cluster_settings import (
    NodeSettingsView,
    SettingInForce,
    SettingRequest,
    SettingSet,
    SettingsView,
    SettingView,
)
from kafka_formats.errors import Conflict
from kafka_formats.log_names import check_topic_name
from rlm.cluster_settings.known_settings import PAUSES, RATES, Setting, check_setting
from rlm.control.audit import AuditAction
from rlm.quota.flow_limits import NO_LIMIT, FlowLimits, Rates
from rlmm.partition_state import UNKNOWN_OFFSET
from rlmm.records.control_records import ClusterSetting
from rlmm.records.setting_scope import CLUSTER, WHO_CHARACTERS_MAX, ScopeKind, SettingScope
from rlmm.rows.cluster_settings import SettingRow

router = APIRouter(tags=["cluster"])


@router.get("/settings", summary="The settings of the cluster, of nodes and of topics")
async def list_settings(context: Context) -> SettingsView:
    """Every node answers the same, from the metadata log. A topic's setting overrides its node's,
    that the cluster's, and each of them the node's own file.
    """
    manager = context.manager
    return SettingsView(
        settings=[SettingView.of_row(row) for row in manager.cluster_settings()],
        metadata_offset=manager.applied_offset,
    )


@router.put("/settings/{setting}", summary="Set or remove a setting of the cluster")
async def change_setting(
    request: Request,
    context: Context,
    setting: Setting,
    body: SettingRequest,
    admin: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> SettingSet:
    """Needs the role admin; any node will do. In force on all nodes as they apply it, within a
    second while they follow the quorum, and after a restart. 409: the value in force is not the one
    that `replaces_offset` names. Without `replaces_offset`, setting or removing a pause of the
    cluster also removes the nodes' exceptions (false).
    """
    scope = body.scope.scope()
    check_setting(setting, scope, body.text)
    rate = int(body.value) or None if body.value is not None else None
    if setting is Setting.COPY_RATE:
        context.flow.check(FlowLimits(Rates(copy_bytes_per_s=rate)))
    if setting is Setting.READ_RATE:
        context.flow.check(FlowLimits(Rates(read_bytes_per_s=rate)))
    standing = _standing(context, setting, scope)
    replaces = UNKNOWN_OFFSET if standing is None else standing.offset
    if body.names_what_it_replaces:
        replaces = UNKNOWN_OFFSET if body.replaces_offset is None else body.replaces_offset
    who = admin.name[:WHO_CHARACTERS_MAX]
    change = ClusterSetting(scope, setting, body.text, who, body.why, replaces)
    reason = f"{body.why}: " if body.why else ""
    before = "not set" if standing is None else standing.value
    why = f"{reason}{setting} for {scope}: {body.text or 'not set'}, before: {before}"
    with audited(context, None, AuditAction.SETTING_CHANGED, why, admin):
        offset = await context.manager.set_cluster_setting(change)
    request.scope[METADATA_OFFSET_SCOPE_KEY] = offset
    if setting in PAUSES.values() and scope == CLUSTER and not body.names_what_it_replaces:
        last = await _end_exceptions(context, setting, offset, admin)
        request.scope[METADATA_OFFSET_SCOPE_KEY] = last
    now = _standing(context, setting, scope)
    # A change that had an effect is the row's last record; without an effect there is an older row,
    # or none.
    changed = standing is not None if now is None else now.offset >= offset
    return SettingSet(setting=None if now is None else SettingView.of_row(now), changed=changed)


@router.get("/node/settings", summary="The settings in force on this node, and their sources")
async def describe_settings(
    context: Context,
    topic: Annotated[
        str | None, Query(max_length=1_000, description="The settings in force for this topic.")
    ] = None,
) -> NodeSettingsView:
    """The settings in force. Without a topic, `topics.tiered` is left out. A topic's policy may
    have pauses, too.
    """
    if topic is not None:
        check_topic_name(topic)
    known = [each for each in Setting if topic is not None or each is not Setting.TIERED]
    return NodeSettingsView(
        node_id=context.identity.node_id,
        topic=topic,
        in_force=[_in_force(context, each, topic) for each in known],
        metadata_offset=context.manager.applied_offset,
    )


async def _end_exceptions(
    context: ApiContext, setting: Setting, before: int, admin: Principal
) -> int:
    """Remove the exceptions of nodes that were made before this offset: exceptions to an earlier
    pause would override the next one, too. A caller that names `replaces_offset` removes them one
    by one. Returns the metadata offset of the last change.
    """
    last = before
    for row in context.manager.cluster_settings():
        is_exception = (row.key, row.scope.kind, row.value) == (setting, ScopeKind.NODE, "false")
        if not is_exception or row.offset >= before:
            continue
        why = f"{setting} for {row.scope}: not set, before: false, as the cluster's was changed"
        end = ClusterSetting(
            row.scope, setting, None, admin.name[:WHO_CHARACTERS_MAX], "", row.offset
        )
        with suppress(Conflict), audited(context, None, AuditAction.SETTING_CHANGED, why, admin):
            # Conflict: it was changed meanwhile.
            last = await context.manager.set_cluster_setting(end)
    return last


def _in_force(context: ApiContext, setting: Setting, topic: str | None) -> SettingInForce:
    settings = context.settings
    value: bool | int
    flow = next((flow for flow, each in RATES.items() if each is setting), None)
    if flow is not None:
        row = settings.resolver.rate_row(setting, settings.node_id, topic)
        limits = context.flow.kept(settings.limits(context.flow.own))
        rates = limits.node if topic is None else limits.topics.get(topic, NO_LIMIT)
        value = rates.of(flow) or 0
    else:
        row = settings.row(setting, topic)
        value = row is not None and row.value == "true"
        if setting is Setting.TIERED and topic is not None:
            value = settings.why_left_out(topic) is None
    return SettingInForce(
        setting=setting, value=value, set_by=None if row is None else SettingView.of_row(row)
    )


def _standing(context: ApiContext, setting: Setting, scope: SettingScope) -> SettingRow | None:
    rows = context.manager.cluster_settings()
    return next((row for row in rows if (row.key, row.scope) == (setting, scope)), None)
