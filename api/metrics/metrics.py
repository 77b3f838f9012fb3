"""Prometheus metrics of a node, and the observers that feed them.

Counters are fed by events; gauges are read from the view and the partition statuses at each scrape,
so that they can't drift. The number of label values does not grow with topics or partitions: only
the few topics furthest behind have labels, and a partition has its status route.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.process_collector import ProcessCollector

from api.metrics.cache import CacheMetrics
from api.metrics.flow import FlowMetrics
from api.metrics.hold import HoldMetrics
from api.metrics.lag import LagMetrics
from api.metrics.quorum import QuorumMetrics
from api.metrics.read import ReadMetrics
from api.metrics.repair import RepairMetrics
from api.metrics.shadow import ShadowMetrics
from api.metrics.spool import SpoolMetrics
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.run_events import (
    ClaimLost,
    CopyEvent,
    LostRangeRecorded,
    PartitionClaimed,
    SegmentCopied,
    SegmentDeleted,
    SegmentFailed,
    SegmentProgress,
    SegmentStarted,
)
from rlm.copy.partition_status import PartitionStatus
from rlm.node_files.kill_switches import Switch
from rlmm.partition_state import Totals
from rlmm.rows.nodes import Liveness, RegisteredNode
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.measured_store import StoreCall

METRICS_MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"

COPY_ERROR_KINDS = (
    "retry_later", "outcome_unknown", "fenced", "conflict", "corrupt_data", "refused", "not_found",
    "already_exists", "invalid_request", "internal",
)  # fmt: skip
ANSWERED = "answered"
_COPY_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900)
_HTTP_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30)
_STORE_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)


class ForwardingOutcome(Enum):
    """The outcome of a request that only one other node can answer."""

    ANSWERED = "answered"
    NOT_REACHED = "not_reached"
    UNKNOWN = "unknown"
    REDIRECTED = "redirected"
    REFUSED = "refused"


class Silence(StrEnum):
    """The reason why a node gave no part to a view of the whole cluster."""

    FENCED = "fenced"
    STOPPED = "stopped"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    REFUSED = "refused"
    OTHER_RELEASE = "other_release"
    FAILED = "failed"


class HttpMetrics:
    """Requests: number, duration and status. `route` is the path's template."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "strandline_http_requests",
            "HTTP requests, by method, route template and status.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "strandline_http_request_seconds",
            "Time from a request's headers to the end of its answer, in seconds.",
            ["route"],
            buckets=_HTTP_SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "strandline_http_requests_in_flight",
            "HTTP requests being answered now.",
            registry=registry,
        )

        self._corrupt = Counter(
            "strandline_corrupt_reads",
            "Answers that ended because stored bytes are damaged or missing: alert on it.",
            registry=registry,
        )

        self._handed_on = Counter(
            "strandline_http_handed_on",
            "Requests that only one other node can answer, by outcome.",
            ["outcome"],
            registry=registry,
        )
        for outcome in ForwardingOutcome:
            self._handed_on.labels(outcome.value)

        self._asked = Counter(
            "strandline_http_nodes_asked",
            "Parts of views of the whole cluster: answered, or why a node gave none.",
            ["outcome"],
            registry=registry,
        )
        for told in (None, *Silence):
            self._asked.labels(told or ANSWERED)

    def asked(self, silence: Silence | None) -> None:
        """Count another node's part of a view of the whole cluster; None: it answered."""
        self._asked.labels(silence or ANSWERED).inc()

    def handed_on(self, outcome: ForwardingOutcome) -> None:
        """Count a request that only one other node can answer."""
        self._handed_on.labels(outcome.value).inc()

    def corrupt(self) -> None:
        """Count an answer that ended with CorruptData."""
        self._corrupt.inc()

    def started(self) -> None:
        """Count a request that begins."""
        self._in_flight.inc()

    def finished(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, or whose client disconnected (status 499)."""
        self._in_flight.dec()
        self._requests.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class StoreMetrics:
    """Calls to the object stores: number, duration and bytes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "strandline_store_requests",
            "Object store calls, by store, operation and outcome (ok or an error kind).",
            ["store", "operation", "outcome"],
            registry=registry,
        )
        self._seconds = Histogram(
            "strandline_store_request_seconds",
            "Time of one object store call, in seconds.",
            ["store", "operation"],
            buckets=_STORE_SECONDS,
            registry=registry,
        )
        self._bytes = Counter(
            "strandline_store_bytes",
            "Bytes sent to (put) and received from (get) object stores.",
            ["store", "operation"],
            registry=registry,
        )

    def observer(self, store: str) -> StoreCallCounter:
        """The observer of the `MeasuredStore` around the store of this name."""
        return StoreCallCounter(store, self._requests, self._seconds, self._bytes)

    def on_store_call(self, store: str, call: StoreCall) -> None:
        """Count a call that a worker process made."""
        self.observer(store).store_call_ended(call)


@dataclass(frozen=True, slots=True)
class StoreCallCounter:
    """A `rsm_backends.measured_store.StoreObserver` for one store."""

    store: str
    requests: Counter
    seconds: Histogram
    moved: Counter

    def store_call_ended(self, call: StoreCall) -> None:
        """Count a call that ended, with or without an error."""
        self.requests.labels(self.store, call.operation, call.error or "ok").inc()
        self.seconds.labels(self.store, call.operation).observe(call.duration_s)
        moved = call.bytes_sent + call.bytes_received
        if moved:
            self.moved.labels(self.store, call.operation).inc(moved)


class CopyMetrics:
    """Copies, failures, claims, losses and deletions of the control plane."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str, *labels: str) -> Counter:
            return Counter(f"strandline_{name}", what, labels, registry=registry)

        self._segments = counter("remote_copy_segments", "Segments copied (COPY_SEGMENT_FINISHED).")
        self._requests = counter("remote_copy_requests", "Copies begun (COPY_SEGMENT_STARTED).")
        self._bytes = counter("remote_copy_bytes", "Bytes of .log files of copied segments.")
        self._sent = counter(
            "remote_copy_sent_bytes",
            "Bytes of segments that the stores received, retries included.",
        )
        self._errors = counter("remote_copy_errors", "Failed copy attempts, by error kind.", "kind")
        for kind in COPY_ERROR_KINDS:
            self._errors.labels(kind)  # a counter that starts at its first error shows no increase
        self._claims = counter("claims", "Partition claims accepted for this node.")
        self._claims_lost = counter("claims_lost", "Partition claims that this node lost.")
        self._lost = counter(
            "lost_offsets",
            "Offsets that were gone from the local log before they were copied: alert on it.",
        )
        self._deleted = counter("remote_delete_segments", "Segments cleaned up or deleted.")
        self._seconds = Histogram(
            "strandline_remote_copy_seconds",
            "Time to copy one segment, in seconds.",
            buckets=_COPY_SECONDS,
            registry=registry,
        )
        self._progress: dict[RemoteLogSegmentId, int] = {}

    def on_event(self, event: CopyEvent) -> None:
        """Handler of the events of `RemoteLogManager`."""
        match event:
            case SegmentStarted():
                self._requests.inc()
            case SegmentProgress():
                before = self._progress.get(event.segment_id, 0)
                self._sent.inc(max(0, event.bytes_done - before))
                self._progress[event.segment_id] = event.bytes_done
            case SegmentCopied():
                self._progress.pop(event.segment_id, None)
                self._segments.inc()
                self._bytes.inc(event.size_bytes)
                self._seconds.observe(event.took_ms / 1_000)
            case SegmentFailed():
                if event.segment_id is not None:
                    self._progress.pop(event.segment_id, None)
                self._errors.labels(event.kind).inc()
            case SegmentDeleted():
                self._progress.pop(event.segment_id, None)
                self._deleted.inc()
            case LostRangeRecorded():
                self._lost.inc(event.end - event.start + 1)
            case PartitionClaimed():
                self._claims.inc()
            case ClaimLost():
                self._claims_lost.inc()
            case _:
                pass


class StateMetrics:
    """Gauges that are set at each scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"strandline_{name}", what, labels, registry=registry)

        self._segments = gauge("remote_log_metadata_count", "Segments known, by state.", "state")
        self._bytes = gauge("remote_log_size_bytes", "Bytes of .log files of finished segments.")
        self._trash = gauge(
            "trash_bytes",
            "Part of strandline_remote_log_size_bytes that an expiry mark hides from readers.",
        )
        self._delete_lag = gauge(
            "remote_delete_lag_segments", "Segments marked as deleted whose objects still exist."
        )
        self._problems = gauge(
            "node_problems", "Problems that keep the node from a part of its work, by area.", "area"
        )
        self._nodes = gauge("nodes", "Nodes of the cluster, by liveness.", "liveness")
        self._partitions = gauge("remote_partitions", "Partitions known to the metadata.")
        self._roles = gauge("partitions", "Partitions on this node, by role.", "role")
        self._waiting = gauge("partitions_waiting", "Partitions not copying now, by reason.", "why")
        self._blocked = gauge(
            "partitions_blocked", "Partitions stopped by a corrupt segment: alert on it."
        )
        self._ready = gauge("ready", "1 while the node is ready, as /readyz reports: alert on 0.")
        self._copying = gauge("copies_in_flight", "Copies under way.")
        self._lag = LagMetrics(registry)
        self._paused = gauge(
            "paused", "1 while this work is paused on this node: copying, deleting.", "what"
        )

    def set_pauses(self, *paused: Callable[[Switch], str | None]) -> None:
        """Set the gauge of each switch: 1 if any of the sources `paused` returns a reason
        for it.
        """
        for switch in Switch:
            is_paused = any(each(switch) is not None for each in paused)
            self._paused.labels(switch.value).set(is_paused)

    def set_ready(self, ready: bool) -> None:
        """Set the answer of /readyz."""
        self._ready.set(ready)

    def set_problems(self, problems: Iterable[NodeProblem]) -> None:
        """Set the number of problems in each area."""
        counts = Counts(problem.area for problem in problems)
        for area in ProblemArea:
            self._problems.labels(area.value).set(counts[area])

    def set_nodes(self, nodes: Iterable[RegisteredNode]) -> None:
        """Set the number of nodes by liveness; nodes that an admin removed are left out."""
        counts = Counts(node.liveness for node in nodes)
        for liveness in Liveness:
            if liveness is not Liveness.REMOVED:
                self._nodes.labels(liveness.name.lower()).set(counts[liveness])

    def set_totals(self, totals: Totals) -> None:
        """Set the totals of the whole tier."""
        self._segments.labels("COPY_SEGMENT_STARTED").set(totals.copy_started)
        self._segments.labels("COPY_SEGMENT_FINISHED").set(totals.copy_finished)
        self._segments.labels("DELETE_SEGMENT_STARTED").set(totals.delete_started)
        self._bytes.set(totals.size_bytes)
        self._delete_lag.set(totals.delete_started)
        self._partitions.set(totals.partitions)

    def set_partitions(self, statuses: Iterable[PartitionStatus]) -> None:
        """Set sums over this node's partitions."""
        roles: dict[str, int] = {}
        waiting: dict[str, int] = {}
        statuses = tuple(statuses)
        blocked = copying = trash = 0
        for status in statuses:
            roles[status.role.value] = roles.get(status.role.value, 0) + 1
            if status.why_not_copying is not None:
                why = status.why_not_copying.value
                waiting[why] = waiting.get(why, 0) + 1
            blocked += status.blocked is not None
            copying += status.copying is not None
            trash += status.trash_bytes
        self._roles.clear()
        for role, count in roles.items():
            self._roles.labels(role).set(count)
        self._waiting.clear()
        for why, count in waiting.items():
            self._waiting.labels(why).set(count)
        self._blocked.set(blocked)
        self._copying.set(copying)
        self._trash.set(trash)
        self._lag.set_partitions(statuses)


class NodeMetrics:
    """All metrics of one node, in their own registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.http = HttpMetrics(self.registry)
        self.store = StoreMetrics(self.registry)
        self.copy = CopyMetrics(self.registry)
        self.state = StateMetrics(self.registry)
        self.hold = HoldMetrics(self.registry)
        self.repair = RepairMetrics(self.registry)
        self.spool = SpoolMetrics(self.registry)
        self.read = ReadMetrics(self.registry)
        self.quorum = QuorumMetrics(self.registry)
        self.shadow = ShadowMetrics(self.registry)
        self.flow = FlowMetrics(self.registry)
        self.cache = CacheMetrics(self.registry)
        ProcessCollector(registry=self.registry)

    def exposition(self) -> bytes:
        """The text format that Prometheus scrapes."""
        return generate_latest(self.registry)
