"""What the driver tells is counted, and three real drivers tell it."""

from __future__ import annotations

from rlmm.histogram import LATENCY_SECONDS, Histogram
from rlmm.metadata_log import Proposal
from rlmm.quorum.observer import PENDING_MAX, QuorumStats
from rlmm.raft.actions import Role
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.quorum.local_network import Network, leader_of, quorum
from tests.rlmm.quorum.test_membership import eventually


def test_a_value_on_a_bound_counts_below_it() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 1], 14.0)


def test_what_a_leader_appended_and_did_not_commit_is_not_timed() -> None:
    stats = QuorumStats(lambda: 1.0)
    stats.appended(4, 4, leading=True)
    stats.role_changed(Role.RESIGNED)
    stats.high_watermark_moved(9)
    assert sum(stats.commit_latency.counts) == 0
    assert stats.append_records == 4


def test_appends_that_are_never_committed_take_no_more_memory_than_their_bound() -> None:
    stats = QuorumStats(lambda: 1.0)
    for end in range(PENDING_MAX + 5):
        stats.appended(end, 1, leading=True)
    stats.high_watermark_moved(2 * PENDING_MAX)
    assert sum(stats.commit_latency.counts) == PENDING_MAX
    assert stats.append_records == PENDING_MAX + 5


def test_an_election_is_timed_from_its_first_round() -> None:
    now = [0.0]
    stats = QuorumStats(lambda: now[0])
    stats.role_changed(Role.FOLLOWER)
    assert sum(stats.election_latency.counts) == 0
    for role in (Role.PROSPECTIVE, Role.UNATTACHED, Role.PROSPECTIVE, Role.CANDIDATE):
        stats.role_changed(role)
        now[0] += 1
    stats.role_changed(Role.FOLLOWER)
    assert stats.election_latency.total == 4
    assert len(stats.election_latency.counts) == len(LATENCY_SECONDS) + 1


def test_one_append_at_a_time_is_followed_to_each_voter() -> None:
    now = [0.0]
    stats = QuorumStats(lambda: now[0])
    for node_id in (2, 3):
        stats.acknowledged(node_id, 0)
    stats.appended(4, 4, leading=True)
    now[0] = 0.5
    stats.appended(9, 5, leading=True)
    stats.acknowledged(2, 3)
    assert stats.propagation == {}, "node 2 lacks a part of it"
    stats.acknowledged(2, 9)
    now[0] = 2.0
    stats.acknowledged(3, 4)
    assert {each: stats.propagation[each].total for each in (2, 3)} == {2: 0.5, 3: 2.0}
    stats.acknowledged(3, 9)
    assert sum(stats.propagation[3].counts) == 1
    stats.appended(10, 1, leading=True)
    stats.role_changed(Role.FOLLOWER)
    stats.acknowledged(2, 10)
    assert sum(stats.propagation[2].counts) == 1, "another leader's now"


def test_the_first_news_of_commits_is_kept_until_it_is_taken() -> None:
    now = [1.0]
    stats = QuorumStats(lambda: now[0])
    assert stats.take_advanced_s() is None
    for at in (1.0, 2.0):
        now[0] = at
        stats.high_watermark_moved(int(at))
    assert (stats.take_advanced_s(), stats.take_advanced_s()) == (1.0, None)


def test_three_drivers_count_what_they_do() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            for _ in range(10):
                await leader.log.propose((Proposal(None, b"x"), Proposal(None, b"y")), deadline_s=9)
            stats = leader.log.stats
            end = leader.log.describe().log_end_offset
            assert stats.append_records == end
            assert sum(stats.commit_latency.counts) == 11  # with the leader change
            assert sum(stats.election_latency.counts) == 1
            assert sum(stats.fsync_latency.counts) > 0  # one sync may serve several commits
            said = leader.log.describe()
            assert (said.voted_id, said.log_end_epoch) == (leader.node_id, said.leader_epoch)
            others = {each.node_id for each in replicas if each is not leader}
            await eventually(lambda: stats.propagation.keys() == others)
            for other in (each for each in replicas if each is not leader):
                assert other.log.stats.propagation == {}
                await eventually(lambda: other.log.driver.apply_to == end)  # noqa: B023
                assert other.log.stats.fetch_records == end
                assert other.log.stats.append_records == 0
                assert other.log.describe().log_end_epoch == said.leader_epoch

    run_virtually(main)
