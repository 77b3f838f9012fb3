"""Metrics of the metadata quorum, under KRaft's names (`raft-metrics`) where it has them.

The driver's counters and the description of the metadata log are read at each scrape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rlmm.histogram import Histogram
from rlmm.manager.metadata_stats import MetadataStats
from rlmm.metadata_log import LogDescription
from rlmm.quorum.observer import QuorumStats

_PREFIX: Final = "strandline_metadata_"

_OF_LOG: Final[tuple[tuple[str, str, Callable[[LogDescription], float | None]], ...]] = (
    ("high_watermark", "High watermark of the log.", lambda log: log.high_watermark),
    ("log_start_offset", "First offset of the log.", lambda log: log.log_start_offset),
    ("log_end_offset", "Log end offset of this node.", lambda log: log.log_end_offset),
    ("log_end_epoch", "Epoch of this node's last record.", lambda log: log.log_end_epoch),
    ("current_vote", "Node id for which this node voted in the epoch; -1: none.",
     lambda log: log.voted_id),
    ("current_epoch", "Epoch of the quorum.", lambda log: log.leader_epoch),
    ("current_leader", "Node id of the leader; -1: unknown.", lambda log: log.leader_id),
    ("number_of_voters", "Voters of the quorum.", lambda log: len(log.voters)),
    ("number_of_observers", "Observers; only the leader reports them.",
     lambda log: len(log.observers) if log.state == "leader" else None),
    ("uncommitted_voter_change", "1 while a voter is being added or removed.",
     lambda log: log.uncommitted_voter_change),
    ("cut_tail", "1 while this node may not lead, as its damaged tail was cut or it was formatted "
        "without its earlier state.",
     lambda log: log.cut_end_offset >= 0 or log.remembers_nothing),
)  # fmt: skip
_COUNTS: Final[tuple[tuple[str, str, Callable[[QuorumStats], int]], ...]] = (
    ("append_records", "Records that this node appended as leader.",
     lambda own: own.append_records),
    ("fetch_records", "Records that this node fetched from a leader.",
     lambda own: own.fetch_records),
    ("truncations", "Truncations of an uncommitted end of this node's log.",
     lambda own: own.truncations),
)  # fmt: skip
_LATENCIES: Final[tuple[tuple[str, str, Callable[[QuorumStats], Histogram]], ...]] = (
    ("commit_latency", "From an append on the leader to its commit, in seconds.",
     lambda own: own.commit_latency),
    ("election_latency", "From becoming a candidate to a known leader, in seconds.",
     lambda own: own.election_latency),
    ("fsync_latency", "Time of one fsync of the metadata log, in seconds.",
     lambda own: own.fsync_latency),
)  # fmt: skip


_OF_MANAGER: Final[tuple[tuple[str, str, Callable[[MetadataStats], Histogram]], ...]] = (
    ("apply_latency", "From a commit that this node learnt of until its view has applied it, in "
        "seconds.", lambda own: own.apply_latency),
    ("proposal_latency", "Time that a caller waits for the outcome of its record, in seconds.",
     lambda own: own.proposal_latency),
)  # fmt: skip


class QuorumMetrics(Collector):
    """The metric families; without samples while there are no values, so that their names always
    exist.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stats: QuorumStats | None = None
        self._of_manager: MetadataStats | None = None
        self._log: LogDescription | None = None
        self._applied_offset = -1
        self._snapshot_age_ms: int | None = None
        registry.register(self)

    def watch(self, stats: QuorumStats, of_manager: MetadataStats) -> None:
        """Read the counters of this node's driver and metadata manager from now on."""
        self._stats = stats
        self._of_manager = of_manager

    def set_log(
        self, log: LogDescription, applied_offset: int, snapshot_age_ms: int | None
    ) -> None:
        """Set the metadata log and the view's offset in it, for this scrape."""
        self._log = log
        self._applied_offset = applied_offset
        self._snapshot_age_ms = snapshot_age_ms

    def collect(self) -> Iterator[Metric]:
        yield self._state()
        yield from self._gauges()
        yield from self._replicas()
        yield from self._counters()
        yield from self._histograms()

    def _state(self) -> Metric:
        state = GaugeMetricFamily(
            f"{_PREFIX}current_state", "1 for the state of this node's replica.", labels=["state"]
        )
        if self._log is not None:
            state.add_metric([self._log.state], 1)
        return state

    def _gauges(self) -> Iterator[Metric]:
        log, applied = self._log, self._applied_offset
        lag = None if log is None else max(log.high_watermark - 1 - applied, 0)
        age_ms = self._snapshot_age_ms
        own: tuple[tuple[str, str, float | None], ...] = (
            ("applied_offset", "Metadata offset of this node's view.",
             None if log is None else applied),
            ("applied_lag", "Committed offsets that this node's view lacks.", lag),
            ("snapshot_age_seconds", "Age of the last snapshot that this process took.",
             None if age_ms is None else age_ms / 1_000),
        )  # fmt: skip
        of_log = ((name, what, None if log is None else read(log)) for name, what, read in _OF_LOG)
        for name, what, value in (*own, *of_log):
            gauge = GaugeMetricFamily(_PREFIX + name, what)
            if value is not None:
                gauge.add_metric([], value)
            yield gauge

    def _counters(self) -> Iterator[Metric]:
        for name, what, count in _COUNTS:
            counter = CounterMetricFamily(_PREFIX + name, what)
            if self._stats is not None:
                counter.add_metric([], count(self._stats))
            yield counter

    def _replicas(self) -> Iterator[Metric]:
        """The lag of the other replicas, by node id; only the leader knows it."""
        lag = GaugeMetricFamily(
            f"{_PREFIX}replica_lag", "Offsets of the leader's log that a replica lacks.",
            labels=["node_id"],
        )  # fmt: skip
        log = self._log
        if log is not None and log.state == "leader":
            ends: dict[int, int] = {}
            for each in (
                *log.observers,
                *log.voters,
            ):  # a voter's directory wins over an observer's
                if each.log_end_offset >= 0 and each.node_id != log.node_id:
                    ends[each.node_id] = each.log_end_offset
            for node_id, end in sorted(ends.items()):
                lag.add_metric([str(node_id)], max(log.log_end_offset - end, 0))
        yield lag

    def _histograms(self) -> Iterator[Metric]:
        for name, what, histogram in _LATENCIES:
            counted = None if self._stats is None else histogram(self._stats)
            yield _family(name, what, {} if counted is None else {(): counted})
        for name, what, of_manager in _OF_MANAGER:
            counted = None if self._of_manager is None else of_manager(self._of_manager)
            yield _family(name, what, {} if counted is None else {(): counted})
        voters = {} if self._stats is None else self._stats.propagation
        yield _family(
            "propagation_latency",
            "From an append on the leader until a voter's fetch shows that it has the record, "
            "in seconds.",
            {(str(node_id),): counted for node_id, counted in voters.items()},
            labels=("node_id",),
        )


def _family(
    name: str,
    what: str,
    counted: Mapping[tuple[str, ...], Histogram],
    labels: tuple[str, ...] = (),
) -> Metric:
    family = HistogramMetricFamily(f"{_PREFIX}{name}_seconds", what, labels=labels)
    for values, histogram in counted.items():
        family.add_metric(values, _buckets(histogram), histogram.total)
    return family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative buckets, as in the text format."""
    below, buckets = 0, []
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for bound, count in zip(bounds, histogram.counts, strict=True):
        below += count
        buckets.append((bound, float(below)))
    return buckets
