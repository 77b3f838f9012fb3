"""The HTTP interface of a node, served from the node's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from api.app import create_app
from api.http.api_limits import ApiLimits
from api.http.context import ApiContext, LogControl, NodeIdentity
from api.http.tokens import Role, TokenBook
from api.http.vouched_requests import VouchedRequests
from api.metrics.metrics import NodeMetrics
from api.server import ApiServer, TlsFiles, serve
from rlmm.quorum.admin import QuorumAdmin
from strandline.node import ambient
from strandline.node.node import Node
from strandline.node.readiness import NodeFacts, missing_until_ready
from strandline.settings.settings import HttpSettings
from strandline.settings.store_configs import store_locations

_ROLES = {"none": None, "read": Role.READ, "operate": Role.OPERATE, "admin": Role.ADMIN}


@dataclass(frozen=True, slots=True)
class HttpInterface:
    """The running HTTP interface: its address, and the parts that SIGHUP reloads."""

    url: str
    tokens: TokenBook
    server: ApiServer


def api_limits(http: HttpSettings) -> ApiLimits:
    """The limits of the HTTP interface, from the settings."""
    return ApiLimits(
        body_bytes_max=http.body_bytes_max,
        connections_max=http.connections_max,
        answer_deadline_s=http.request_timeout_s,
        chunk_deadline_s=http.request_timeout_s,
        stream_bytes_per_s_min=http.stream_bytes_per_s_min,
        quorum_deadline_s=http.request_timeout_s * 2 / 3,
        event_streams_max=http.event_streams_max,
        hand_on_deadline_s=http.hand_on_timeout_s,
        view_deadline_s=http.view_timeout_s,
    )


def _not_ready(node: Node) -> list[str]:
    facts = NodeFacts(
        failure=node.failure.reason,
        caught_up_since_start=node.metadata.is_caught_up(),
        log=node.metadata.describe(),
        applied_offset=node.metadata.applied_offset,
        now_ms=ambient.now_ms(),
    )
    return missing_until_ready(facts, node.settings.quorum)


def _identity(node: Node) -> NodeIdentity:
    return NodeIdentity(
        cluster_id=str(node.directory.cluster_id),
        kafka_cluster_id=node.directory.kafka_cluster_id,
        node_id=node.directory.node_id,
        version=version("strandline"),
    )


@asynccontextmanager
async def serving(node: Node, metrics: NodeMetrics) -> AsyncIterator[HttpInterface]:
    """Serve `node` inside this context. Raises InvalidRequest if the address can't be used."""
    http = node.settings.http
    limits = api_limits(http)
    tokens = TokenBook(http.tokens_file)
    metrics.quorum.watch(node.metadata_log.stats, node.metadata.stats)
    metrics.flow.watch(node.flow)
    metrics.cache.watch(node.pool)
    metrics.repair.watch(node.repairs)
    metrics.spool.watch(node.parts.given.spool)
    context = ApiContext(
        manager=node.metadata,
        rlm=node.remote_log,
        answers=node.parts.answers,
        reads=node.parts.reads,
        quorum=QuorumAdmin(node.metadata_log.driver),
        audit=node.audit,
        collector=node.erasures.collector,
        erasures=node.erasures,
        retention=node.parts.expirer,
        switches=node.parts.given.switches,
        settings=node.parts.settings,
        flow=node.flow,
        log=LogControl(node.settings.log.format, node.log_levels),
        scrubs=node.scrubs,
        repairs=node.repairs,
        identity=_identity(node),
        tokens=tokens,
        monotonic=ambient.monotonic,
        now_ms=ambient.now_ms,
        store_names=tuple(node.settings.stores),
        store_locations=store_locations(node.settings),
        default_store=node.settings.default_store,
        sleep=ambient.sleep,
        new_uuid=ambient.new_uuid,
        anonymous_role=_ROLES[http.anonymous_role],
        limits=limits,
        metrics=metrics,
        not_ready=partial(_not_ready, node),
        broker=node.parts.new_broker_calls(),
        moving=node.moving,
        envelopes=node.metadata_log.envelopes,
    )
    tls = None
    if http.tls_certificate_file is not None and http.tls_key_file is not None:
        tls = TlsFiles(http.tls_certificate_file, http.tls_key_file)
    app = create_app(context)
    server = await serve(app, http.host, http.port, tls=tls, limits=limits)
    host = f"[{http.host}]" if ":" in http.host else http.host
    url = f"{'http' if tls is None else 'https'}://{host}:{server.port}"
    node.metadata_log.envelopes.take = VouchedRequests(app, context.identity).answer
    try:
        yield HttpInterface(url, tokens, server)
    finally:
        node.metadata_log.envelopes.take = None
        context.live.end()
        await server.close()
