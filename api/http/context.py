"""The node's parts and settings, as the HTTP interface uses them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from api.http.api_limits import ApiLimits
from api.http.live_streams import LiveStreams
from api.http.page_files import PageFiles
from api.http.silent_nodes import SilentNodes
from api.http.streaming import StreamSlots
from api.http.survey import Surveys
from api.http.tokens import Role, TokenBook
from api.metrics.metrics import NodeMetrics
from kafka_formats.kafka_uuid import Uuid
from rlm.cluster_settings.in_force import SettingsInForce
from rlm.control.log_levels import LogLevels
from rlm.delegated.calls import BrokerCalls
from rlm.fetch.resolved_reads import ResolvedReads
from rlm.fetch.tier_answers import Answers
from rlm.migration.moving import Moving
from rlm.node_files.audit_log import AuditLog
from rlm.node_files.kill_switches import KillSwitches
from rlm.node_files.scrub_results import ScrubResults
from rlm.quota.flow_control import FlowControl
from rlm.reconcile.collector import Collector
from rlm.reconcile.erasure import Erasures
from rlm.repair.repairs import Repairs
from rlm.retention.expirer import Expirer
from rlm.service import RemoteLogManager
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.quorum.admin import QuorumAdmin
from rlmm.quorum.envelopes import Envelopes
from rsm_backends.store_config import StoreLocation


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """Identity of the node. `kafka_cluster_id` None: the directory was formatted for no particular
    Kafka cluster.
    """

    cluster_id: str
    kafka_cluster_id: str | None
    node_id: int
    version: str


@dataclass(frozen=True, slots=True)
class LogControl:
    """Format and levels of the node's log."""

    format: Literal["text", "json"]
    levels: LogLevels


def always_ready() -> tuple[str, ...]:
    """The readiness of a node that waits for nothing."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiContext:
    """The node's parts, for the application.

    `anonymous_role` is the role of a request without a token from this machine; None: every request
    needs a token. `not_ready` lists what the node waits for before it may serve. `broker` None: it
    serves no broker's plug-in. `moving` None: it takes part in no move. `envelopes` carry requests
    to and from the other nodes.
    """

    manager: RemoteLogMetadataManager
    rlm: RemoteLogManager
    answers: Answers
    reads: ResolvedReads
    quorum: QuorumAdmin
    audit: AuditLog
    collector: Collector
    erasures: Erasures
    retention: Expirer
    switches: KillSwitches
    settings: SettingsInForce
    flow: FlowControl
    log: LogControl
    scrubs: ScrubResults
    repairs: Repairs
    identity: NodeIdentity
    tokens: TokenBook
    monotonic: Callable[[], float]
    now_ms: Callable[[], int]
    store_names: Sequence[str]
    store_locations: dict[str, StoreLocation] = field(default_factory=dict)
    default_store: str
    sleep: Callable[[float], Awaitable[None]]
    new_uuid: Callable[[], Uuid]
    anonymous_role: Role | None = None
    limits: ApiLimits = field(default_factory=ApiLimits)
    metrics: NodeMetrics = field(default_factory=NodeMetrics)
    streams: StreamSlots = field(default_factory=StreamSlots)
    silent_nodes: SilentNodes = field(default_factory=SilentNodes)
    surveys: Surveys = field(default_factory=Surveys)
    live: LiveStreams = field(default_factory=LiveStreams)
    page: PageFiles = field(default_factory=PageFiles)
    not_ready: Callable[[], Sequence[str]] = always_ready
    broker: BrokerCalls | None = None
    moving: Moving | None = None
    envelopes: Envelopes = field(default_factory=Envelopes)
