"""Metrics: events become counters, a scrape becomes gauges, every name is documented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from api.metrics.lag import LAG_TOPICS_MAX
from api.metrics.metrics import NodeMetrics
from kafka_formats.crc32c import crc32c
from kafka_formats.errors import NotFound
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.run_events import (
    ClaimLost,
    LogStartRecorded,
    LostRangeRecorded,
    PartitionClaimed,
    SegmentCopied,
    SegmentDeleted,
    SegmentFailed,
    SegmentProgress,
    SegmentStarted,
)
from rlm.copy.lag import Lag
from rlm.copy.partition_status import Role as NodeRole
from rlmm.segment import RemoteLogSegmentId
from rsm_backends.measured_store import MeasuredStore
from rsm_backends.memory import MemoryStore
from tests.api.fakes import (
    BASE,
    TIP,
    copying_status,
    make_node,
    make_status,
    segment_uuid,
)

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "API.md"
ID = RemoteLogSegmentId(TIP, segment_uuid(0))


def value(metrics: NodeMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_events_are_counted() -> None:
    metrics = NodeMetrics()
    for event in (
        PartitionClaimed(TIP, 2, 7),
        LogStartRecorded(TIP, 0),
        SegmentStarted(ID, 0, 99, 1000),
        SegmentProgress(ID, 600, 1000),
        SegmentFailed(TIP, ID, 0, "retry_later", "throttled"),
        SegmentProgress(ID, 400, 1000),
        SegmentProgress(ID, 1000, 1000),
        SegmentCopied(ID, 0, 99, 1000, 1500),
        SegmentDeleted(ID, 0, "left over"),
        LostRangeRecorded(TIP, 10, 12, "retention"),
        ClaimLost(TIP, "fenced"),
    ):
        metrics.copy.on_event(event)
    assert value(metrics, "strandline_remote_copy_requests_total") == 1
    assert value(metrics, "strandline_remote_copy_segments_total") == 1
    assert value(metrics, "strandline_remote_copy_bytes_total") == 1000
    assert value(metrics, "strandline_remote_copy_sent_bytes_total") == 1600
    assert value(metrics, "strandline_remote_copy_errors_total", kind="retry_later") == 1
    assert value(metrics, "strandline_lost_offsets_total") == 3
    assert value(metrics, "strandline_remote_delete_segments_total") == 1
    assert value(metrics, "strandline_claims_total") == 1
    assert value(metrics, "strandline_claims_lost_total") == 1
    assert value(metrics, "strandline_remote_copy_seconds_sum") == 1.5


async def test_store_calls_are_counted() -> None:
    metrics = NodeMetrics()
    store = MeasuredStore(
        MemoryStore(lambda: 0), metrics.store.observer("main"), monotonic=lambda: 0.0
    )
    await store.put("key", b"x" * 500, crc32c=crc32c(b"x" * 500))
    with pytest.raises(NotFound):
        await store.head("nothing")
    labels = {"store": "main", "operation": "put"}
    assert value(metrics, "strandline_store_requests_total", outcome="ok", **labels) == 1
    assert value(metrics, "strandline_store_bytes_total", **labels) == 500
    labels = {"store": "main", "operation": "head", "outcome": "not_found"}
    assert value(metrics, "strandline_store_requests_total", **labels) == 1


def test_lag_counts_only_where_this_node_leads() -> None:
    metrics = NodeMetrics()
    led, copying = make_status(), copying_status(replace(TIP, partition=1))
    followed = replace(make_status(), role=NodeRole.FOLLOWER, lag=None)
    metrics.state.set_partitions([led, copying, followed])
    assert value(metrics, "strandline_remote_copy_lag_bytes") == 2000
    assert value(metrics, "strandline_remote_copy_lag_seconds") == 5
    topic_lag = "strandline_topic_remote_copy_lag_segments"
    assert value(metrics, topic_lag, topic=TIP.topic) == 2
    assert value(metrics, "strandline_partitions", role="leader") == 2
    assert value(metrics, "strandline_partitions_waiting", why="back_off") == 2
    assert value(metrics, "strandline_partitions_blocked") == 1
    assert value(metrics, "strandline_copies_in_flight") == 1
    metrics.state.set_partitions([])
    assert value(metrics, "strandline_partitions", role="leader") is None
    assert value(metrics, "strandline_remote_copy_lag_bytes") == 0
    assert value(metrics, topic_lag, topic=TIP.topic) is None


def test_topics_in_the_metrics_are_few_however_many_there_are() -> None:
    metrics = NodeMetrics()
    many = [
        replace(make_status(replace(TIP, topic=f"t{number}")), lag=Lag(1, 1, number))
        for number in range(LAG_TOPICS_MAX + 500)
    ]
    metrics.state.set_partitions(many)
    (family,) = (
        each
        for each in metrics.registry.collect()
        if each.name == "strandline_topic_remote_copy_lag_bytes"
    )
    assert len(family.samples) == LAG_TOPICS_MAX + 1
    assert sum(each.value for each in family.samples) == len(many)


async def test_a_scrape_shows_the_state_and_the_requests_before_it() -> None:
    node = make_node()
    app = node.app()
    async with node.client(app=app) as client:
        await client.get(BASE)
        await client.get("/nowhere/at/all")
        answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "strandline_metadata_applied_offset 41.0" in answer.text
    assert 'strandline_remote_log_metadata_count{state="COPY_SEGMENT_FINISHED"} 3.0' in answer.text
    metrics = node.context.metrics
    route = "/v1/topics/{topic}/partitions/{partition}"
    count = "strandline_http_requests_total"
    assert value(metrics, count, method="GET", route=route, status="200") == 1
    assert value(metrics, count, method="GET", route="none", status="404") == 1
    assert value(metrics, "strandline_http_requests_in_flight") == 0


def test_every_metric_is_documented() -> None:
    text = DOCUMENT.read_text()
    names = {
        family.name for family in NodeMetrics().registry.collect() if "strandline" in family.name
    }
    assert len(names) > 20
    assert {name for name in names if f"`{name}" not in text} == set()


async def test_troubles_of_the_node_are_counted_by_area_until_they_are_over() -> None:
    node = make_node()
    node.rlm.troubles = [NodeProblem(ProblemArea.STORE, name, "it is away") for name in ("a", "b")]
    async with node.client() as client:
        text = (await client.get("/metrics")).text
        assert 'strandline_node_problems{area="store"} 2.0' in text
        assert 'strandline_node_problems{area="clock"} 0.0' in text
        node.rlm.troubles = []
        assert 'strandline_node_problems{area="store"} 0.0' in (await client.get("/metrics")).text
