"""The quorum's metrics: what the driver counts, under KRaft's names."""

from __future__ import annotations

from dataclasses import replace

from api.metrics.metrics import NodeMetrics
from rlmm.manager.metadata_stats import MetadataStats
from rlmm.quorum.observer import QuorumStats
from rlmm.raft.actions import Role
from tests.api.fakes import FakeMetadata, make_node


def value(metrics: NodeMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"strandline_metadata_{name}", labels)


async def test_a_scrape_shows_the_quorum() -> None:
    node = make_node()
    async with node.client() as client:
        text = (await client.get("/metrics")).text
    for line in (
        'strandline_metadata_current_state{state="leader"} 1.0',
        "strandline_metadata_current_leader 1.0",
        "strandline_metadata_current_epoch 4.0",
        "strandline_metadata_current_vote -1.0",
        "strandline_metadata_log_end_epoch 0.0",
        "strandline_metadata_high_watermark 42.0",
        "strandline_metadata_log_end_offset 42.0",
        "strandline_metadata_applied_lag 0.0",
        "strandline_metadata_number_of_voters 3.0",
        "strandline_metadata_number_of_observers 0.0",
        "strandline_metadata_uncommitted_voter_change 0.0",
        "strandline_metadata_cut_tail 0.0",
        "strandline_metadata_snapshot_age_seconds 2.5",
    ):
        assert f"{line}\n" in text
    assert "\nstrandline_metadata_append_records_total " not in text  # nobody counts


def test_a_state_that_ended_is_not_shown_any_more() -> None:
    metrics = NodeMetrics()
    leader = FakeMetadata().describe()
    metrics.quorum.set_log(leader, 30, None)
    assert value(metrics, "applied_lag") == 11
    metrics.quorum.set_log(replace(leader, state="follower", leader_id=-1), 41, None)
    assert value(metrics, "current_state", state="leader") is None
    assert value(metrics, "current_state", state="follower") == 1
    assert value(metrics, "current_leader") == -1
    assert value(metrics, "number_of_observers") is None
    assert value(metrics, "snapshot_age_seconds") is None


def test_what_the_driver_counts_is_rendered() -> None:
    metrics, now = NodeMetrics(), [10.0]
    stats = QuorumStats(lambda: now[0])
    of_manager = MetadataStats(lambda: now[0])
    metrics.quorum.watch(stats, of_manager)
    stats.role_changed(Role.CANDIDATE)
    now[0] += 0.3
    stats.role_changed(Role.LEADER)
    stats.appended(5, 5, leading=True)
    now[0] += 0.002
    stats.appended(8, 3, leading=True)
    stats.high_watermark_moved(5)
    now[0] += 20.0
    stats.high_watermark_moved(8)
    stats.synced(0.0001)
    stats.truncated()
    stats.acknowledged(2, 8)
    stats.appended(9, 1, leading=True)
    with of_manager.proposing():
        now[0] += 0.04
    stats.acknowledged(2, 9)
    of_manager.applied(now[0] - 0.2)
    of_manager.applied(None)
    assert value(metrics, "append_records_total") == 9
    assert value(metrics, "truncations_total") == 1
    assert value(metrics, "election_latency_seconds_bucket", le="0.25") == 0
    assert value(metrics, "election_latency_seconds_bucket", le="0.5") == 1
    assert value(metrics, "commit_latency_seconds_bucket", le="0.001") == 0
    assert value(metrics, "commit_latency_seconds_bucket", le="0.0025") == 1
    assert value(metrics, "commit_latency_seconds_bucket", le="10") == 1
    assert value(metrics, "commit_latency_seconds_bucket", le="+Inf") == 2
    assert value(metrics, "commit_latency_seconds_count") == 2
    assert value(metrics, "fsync_latency_seconds_bucket", le="0.0001") == 1
    for name, labels in (("proposal", {}), ("propagation", {"node_id": "2"})):
        assert value(metrics, f"{name}_latency_seconds_bucket", le="0.025", **labels) == 0
        assert value(metrics, f"{name}_latency_seconds_bucket", le="0.05", **labels) == 1
    assert value(metrics, "apply_latency_seconds_count") == 1


def test_the_leader_alone_tells_the_lag_of_each_other_replica() -> None:
    metrics = NodeMetrics()
    leader = FakeMetadata().describe()
    metrics.quorum.set_log(leader, 30, None)
    ends = {each.node_id: each.log_end_offset for each in leader.voters}
    assert len(ends) == 3
    for node_id, end in ends.items():
        is_told = node_id != leader.node_id and end >= 0
        expected = leader.log_end_offset - end if is_told else None
        assert value(metrics, "replica_lag", node_id=f"{node_id}") == expected
    metrics.quorum.set_log(replace(leader, state="follower"), 30, None)
    assert value(metrics, "replica_lag", node_id="2") is None
