"""The move from Kafka's own metadata topic: its phase, and the state of the brokers' plug-ins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Request

from api.http.admission import Context, require
from api.http.asking_all import NodeAnswer, Question, ask_all
from api.http.audited_change import audited
from api.http.context import ApiContext
from api.http.gate import METADATA_OFFSET_SCOPE_KEY
from api.http.tokens import Principal, Role
from api.models.cluster_parts import NodePartView
from api.models.migration import (
    BridgeView,
    MigrationOfNode,
    NodeMigrationView,
    PhaseChanged,
    PhaseRequest,
    WholeMigrationView,
    phase_name,
)
from kafka_formats.errors import Conflict
from rlm.control.audit import AuditAction
from rlmm.migration_phase import FROZEN_PHASES, TOPIC_PHASES, MigrationPhase, why_not_next
from rlmm.records.control_records import MigrationPhaseChange
from rlmm.records.setting_scope import WHO_CHARACTERS_MAX

HEARD_BEFORE = FROZEN_PHASES | {MigrationPhase.DONE}
"""Phases that begin only once the bridges of all live brokers have sent requests. A broker whose
bridge last saw KAFKA still looks up in the topic, which is kept up to date until DONE.
"""
_OF_TOPIC = frozenset(map(phase_name, TOPIC_PHASES))

router = APIRouter(tags=["cluster"])


@router.get("/migration", summary="The move from Kafka's metadata topic, as this node sees it")
async def node_migration(context: Context) -> NodeMigrationView:
    """The move as this node sees it, with the bridge of its own broker only;
    `/v1/cluster/migration` has those of all nodes.
    """
    return _of_node(context)


@router.get("/cluster/migration", summary="The move as all nodes see it, with their brokers")
async def whole_migration(request: Request, context: Context) -> WholeMigrationView:
    """The move as the nodes that answered see it; `nodes` lists those that did not."""
    told = await _ask_all(request, context)
    return WholeMigrationView(
        nodes=NodePartView.all_of(told),
        seen=[
            MigrationOfNode(node=each.node_id, **dict(each.part))
            for each in told
            if each.part is not None
        ],
    )


@router.put("/migration", summary="Begin the next phase of the move")
async def change_phase(
    request: Request,
    context: Context,
    body: PhaseRequest,
    admin: Annotated[Principal, Depends(require(Role.ADMIN))],
) -> PhaseChanged:
    """Needs the role admin, at a node beside a broker. `switching` and `back` end by themselves, in
    `quorum` or `kafka`: `/v1/cluster/migration` shows their progress. 409: the phase can't begin,
    for the reasons that `dry_run` shows, and nothing was changed.
    """
    stands, cluster_id = context.manager.migration(), context.identity.kafka_cluster_id
    wanted = MigrationPhase[body.phase.upper()]
    wrong = [*why_not_next(stands, wanted, context.manager.feature_level())]
    if cluster_id is None:
        wrong.append("this node serves no Kafka cluster: ask a node beside a broker")
    elif not wrong and wanted in HEARD_BEFORE:
        wrong += await _in_the_way(request, context, wanted)
    if wrong and not body.dry_run:
        raise Conflict("; ".join(wrong))
    if not body.dry_run and cluster_id is not None:
        change = MigrationPhaseChange(
            wanted, stands.since, cluster_id, admin.name[:WHO_CHARACTERS_MAX], body.why
        )
        reason = f"{body.why}: " if body.why else ""
        why = f"{reason}the move from Kafka's metadata topic: {stands.phase.name} -> {wanted.name}"
        with audited(context, None, AuditAction.MOVE_PHASE, why, admin):
            offset = await context.manager.record_move(change)
        request.scope[METADATA_OFFSET_SCOPE_KEY] = offset
    return PhaseChanged(**dict(_of_node(context)), dry_run=body.dry_run, in_the_way=wrong)


async def _in_the_way(request: Request, context: ApiContext, wanted: MigrationPhase) -> list[str]:
    """The reasons against the phase: live brokers whose bridge sends no requests to any node, or no
    voter that could carry it out.
    """
    if context.moving is None or not context.moving.has_broker:
        return [
            "this node has no broker to ask for the live brokers: ask a node with kafka.broker set"
        ]
    told = await _ask_all(request, context)
    parts = {each.node_id: each.part for each in told if each.part is not None}
    bridges = {
        part.bridge.broker_id: part.bridge
        for part in parts.values()
        if part.bridge is not None and part.bridge.has_lease
    }
    live = set(await context.moving.brokers.live())
    able = {node_id for node_id in live & parts.keys() if parts[node_id].has_broker}
    voters = {each.node_id for each in context.manager.describe().voters}
    wrong = [
        f"broker {broker} is live, but no node gets requests of its bridge: configure "
        "MigratingMetadataManager in it, and start the node beside it"
        for broker in sorted(live - bridges.keys())
    ]
    if wanted in FROZEN_PHASES and not able & voters:
        wrong.append(_no_voter_can(able))
    heard = {broker: bridges[broker] for broker in sorted(live & bridges.keys())}
    if wanted is MigrationPhase.SWITCHING:
        releases = {broker: bridge.plugin_version for broker, bridge in heard.items()}
        wrong += _other_releases(releases, context.identity.version)
    elif wanted is MigrationPhase.DONE:
        wrong += _look_up_in_topic(heard)
    return wrong


def _look_up_in_topic(heard: Mapping[int, BridgeView]) -> Iterator[str]:
    """The brokers whose bridge sends requests but has not seen an answer since the switch."""
    for broker, bridge in heard.items():
        if bridge.seen in _OF_TOPIC:
            yield (
                f"broker {broker} still acts by phase {bridge.seen.upper()} and looks up in the "
                "topic: it should see the new phase within a second; if not, its log has the "
                "reason"
            )


def _no_voter_can(able: Collection[int]) -> str:
    which = f" (node {', '.join(map(str, sorted(able)))})" if able else ""
    return (
        "no voter of the metadata quorum has kafka.broker set and a live broker, and only the "
        f"quorum's leader can carry this out: make a node that has both{which} a voter "
        "(`strandline quorum add-voter`), or set kafka.broker of a voter"
    )


def _other_releases(releases: Mapping[int, str], own: str) -> Iterator[str]:
    """The plug-ins of a release other than this node's, from `releases` by broker id; "": not
    announced yet.
    """
    others = {broker: release for broker, release in releases.items() if release not in ("", own)}
    if others:
        told = ", ".join(f"broker {each} {release}" for each, release in sorted(others.items()))
        yield (
            f"brokers run plug-ins of a release other than this node's {own} ({told}), and a "
            "switch was tested with equal releases only: install the jars of this release in "
            "each broker"
        )


async def _ask_all(request: Request, context: ApiContext) -> list[NodeAnswer[NodeMigrationView]]:
    async def own() -> NodeMigrationView:
        return _of_node(context)

    return await ask_all(request, Question("/v1/migration", lambda _: {}, NodeMigrationView), own)


def _of_node(context: ApiContext) -> NodeMigrationView:
    last = None if context.broker is None else context.broker.phases.last
    attempt = None if context.moving is None else context.moving.attempt
    return NodeMigrationView.of_migration(
        context.manager.migration(),
        last,
        attempt,
        context.monotonic(),
        ended=None if context.moving is None else context.moving.ended,
        has_broker=context.moving is not None and context.moving.has_broker,
    )
