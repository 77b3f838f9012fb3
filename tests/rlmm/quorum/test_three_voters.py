"""Three drivers agree: over disks that forget, and a network that can be cut."""

from __future__ import annotations

import asyncio

import pytest

from kafka_formats.errors import NotFound, OutcomeUnknown, RetryLater
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Voter
from rlmm.metadata_log import Proposal, SnapshotId
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.log.crash_disk import Survivors
from tests.rlmm.quorum.following import all_propose_and_read_the_same, collect, data
from tests.rlmm.quorum.local_network import NODES, QUICK, Network, Replica, leader_of, quorum


def test_every_node_proposes_and_every_node_reads_the_same() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            await leader_of(replicas)
            await all_propose_and_read_the_same(replicas)

    run_virtually(main)


def test_neighbours_stay_neighbours_and_control_records_pass() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            await leader_of(replicas)
            for replica in replicas:
                first = await replica.log.propose(
                    (Proposal(None, b"a"), Proposal(1005, b"b"), Proposal(None, b"c")),
                    deadline_s=10,
                )
                found = [
                    (record.offset - first, record.control_type, record.value)
                    for record in await collect(replica, first + 3)
                    if record.offset >= first
                ]
                assert found == [(0, None, b"a"), (1, 1005, b"b"), (2, None, b"c")]

    run_virtually(main)


def test_a_new_leader_has_everything_that_was_acknowledged() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            acknowledged = set()
            for round_ in range(3):
                leader = await leader_of(replicas)
                for each in range(10):
                    value = b"%d-%d" % (round_, each)
                    await leader.log.propose(data(value), deadline_s=10)
                    acknowledged.add(value)
                await leader.stop()
                leader.disk.power_cut(Survivors.NONE, Survivors.NONE)
                await leader_of(replicas)
                await leader.start()
            leader = await leader_of(replicas)
            end = await leader.log.propose(data(b"last"), deadline_s=10) + 1
            for replica in replicas:
                values = [record.value for record in await collect(replica, end)]
                assert acknowledged <= set(values)
                assert len(values) == len(set(values)) == 31

    run_virtually(main)


def test_a_leader_that_is_cut_off_commits_nothing_and_its_tail_goes() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            old = await leader_of(replicas)
            await old.log.propose(data(b"before"), deadline_s=10)
            network.isolate(old.node_id, NODES)
            lost = asyncio.ensure_future(old.log.propose(data(b"lost"), deadline_s=10))
            others = [replica for replica in replicas if replica is not old]
            new = await leader_of(others)
            end = await new.log.propose(data(b"after"), deadline_s=10) + 1
            with pytest.raises(OutcomeUnknown):
                await lost
            network.cut.clear()
            for replica in replicas:
                values = [record.value for record in await collect(replica, end)]
                assert values == [b"before", b"after"]

    run_virtually(main)


def test_without_a_majority_nothing_is_appended_and_nobody_hangs() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            leader = await leader_of(replicas)
            others = [replica for replica in replicas if replica is not leader]
            for other in others:
                await other.stop()
            with pytest.raises((RetryLater, OutcomeUnknown)):
                await leader.log.propose(data(b"alone"), deadline_s=1)
            with pytest.raises(RetryLater):
                await leader.log.barrier(deadline_s=0.2)

    run_virtually(main)


def test_a_barrier_of_any_node_lies_above_every_completed_write() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            await leader_of(replicas)
            for writer in replicas:
                offset = await writer.log.propose(data(b"x"), deadline_s=10)
                for reader in replicas:
                    assert await reader.log.barrier(deadline_s=10) > offset

    run_virtually(main)


SMALL = LogLimits(segment_bytes_max=400, retain_bytes_max=0, recent_bytes_max=0)


async def snapshot(replica: Replica, end: int) -> None:
    """Of everything below `end`, with a row that says so, and the log cut up to it."""
    epoch = replica.log.driver.core.epoch_of(end - 1)
    replica.log.allow_truncation_to(end)
    sink = await replica.log.begin_snapshot(SnapshotId(end, epoch), last_contained_timestamp_ms=1)
    await sink.add([Proposal(None, b"row of %d" % end)] * 2_000)
    await sink.finish()


def test_a_replica_that_was_away_too_long_starts_from_the_leaders_snapshot() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            leader = await leader_of(replicas)
            behind = next(replica for replica in replicas if replica is not leader)
            await behind.stop()
            for replica in replicas:
                if replica.running:
                    await replica.stop()
                    await replica.start(limits=SMALL)
            leader = await leader_of([replica for replica in replicas if replica is not behind])
            for each in range(40):
                end = await leader.log.propose(data(b"%040d" % each), deadline_s=10) + 1
            await snapshot(leader, end)
            assert leader.log.describe().log_start_offset > 10
            end = await leader.log.propose(data(b"behind the snapshot"), deadline_s=10) + 1
            log = await behind.start(limits=SMALL)
            async with asyncio.timeout(10):
                while log.driver.apply_to < end:  # committed, and durable here
                    await asyncio.sleep(0.01)
            snapshot_id = log.latest_snapshot()
            assert snapshot_id is not None
            assert [row.value for row in log.read_snapshot(snapshot_id)] == [
                b"row of %d" % (end - 1)
            ] * 2000
            with pytest.raises(NotFound, match="install a snapshot first"):
                await log.read(0, limit=1)
            (record,) = await log.read(snapshot_id.end_offset, limit=9)
            assert record.value == b"behind the snapshot"
            # And it is whole again after a restart and a power cut.
            await behind.stop()
            behind.disk.power_cut(Survivors.NONE, Survivors.NONE)
            log = await behind.start(limits=SMALL)
            end = await log.propose(data(b"goes on"), deadline_s=10) + 1
            values = [record.value for record in await log.read(snapshot_id.end_offset, limit=9)]
            assert values[0] == b"behind the snapshot"

    run_virtually(main)


def test_a_quiet_quorum_keeps_its_leader() -> None:
    async def main() -> None:
        async with quorum(Network()) as replicas:
            leader = await leader_of(replicas)
            epoch = leader.log.describe().leader_epoch
            await asyncio.sleep(5 * QUICK.fetch_timeout_ms / 1000)
            assert {replica.log.describe().leader_epoch for replica in replicas} == {epoch}
            assert {replica.log.describe().leader_id for replica in replicas} == {leader.node_id}

    run_virtually(main)


def test_a_voter_formatted_as_a_quorum_of_its_own_takes_nothing_over() -> None:
    """The one that lost its disk leads a higher epoch of the same cluster id; the others lose their
    power at once, and with it what they only remembered.
    """

    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            lost = next(replica for replica in replicas if replica is not leader)
            sound = [replica for replica in replicas if replica is not lost]
            for number in range(20):
                end = await leader.log.propose(data(b"kept %d" % number), deadline_s=10) + 1
            for replica in sound:
                await collect(replica, end)
            for replica in replicas:
                await replica.stop()
            own = Uuid(b"directory-anew..")
            alone = Replica(network, lost.node_id, (Voter(lost.node_id, own),), directory=own)
            replicas.append(alone)
            for _ in range(3):  # it leads a higher epoch than the others had
                await alone.start()
                await leader_of([alone])
                await alone.log.propose(data(b"taken over") * 30, deadline_s=10)
                await alone.stop()
            await alone.start(limits=SMALL)
            for replica in sound:
                replica.disk = replica.disk.after_power_cut(Survivors.NONE, Survivors.NONE)
                await replica.start()
                assert replica.log.driver.apply_to >= end  # what is committed is known at once
            for _ in range(20):
                await snapshot(alone, await alone.log.propose(data(b"x"), deadline_s=10) + 1)
                await asyncio.sleep(0.1)
            for replica in sound:
                found = await replica.log.read(0, limit=1000)
                assert [each.value for each in found][:20] == [b"kept %d" % n for n in range(20)]
                assert not [each for each in found if each.value == b"taken over"]

    run_virtually(main)
