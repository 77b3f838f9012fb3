"""What operators do to a running quorum: voters come and go, leadership moves, nodes may stop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from kafka_formats.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    OutcomeUnknown,
    StrandlineError,
)
from kafka_formats.kafka_uuid import Uuid
from rlmm.log.log_limits import LogLimits
from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.log.recovery import (
    COMMITTED_END_FILE,
    PARTITION_DIRECTORY,
    load_recovery_point,
    store_recovery_point,
)
from rlmm.metadata_log import CommittedRecord, Proposal
from rlmm.quorum.admin import CAUGHT_UP_WITHIN_MS, QuorumAdmin, can_stop
from rlmm.quorum.driver import QuorumDriver
from rlmm.raft.actions import Role
from rlmm.raft.messages import (
    DescribeQuorumResponse,
    Error,
    RemoveVoterRequest,
    ReplicaDescription,
    ReplicaKey,
    VoterChangeResponse,
)
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.log.crash_disk import CrashDisk
from tests.rlmm.quorum.local_network import (
    METADATA,
    NODES,
    Network,
    Replica,
    directory_id,
    leader_of,
    quorum,
    voters_of,
)

DEADLINE_S = 10.0


def admin(replica: Replica) -> QuorumAdmin:
    return QuorumAdmin(replica.log.driver)


async def joined(
    network: Network, replicas: list[Replica], node_id: int, *, directory: Uuid | None = None
) -> Replica:
    """A new node that knows nothing but addresses, and has found the leader."""
    new = Replica(network, node_id, (), bootstrap=NODES, directory=directory)
    replicas.append(new)
    await new.start()
    await eventually(lambda: new.log.describe().state == "observer")
    return new


def voter(replica: Replica) -> Voter:
    endpoint = Endpoint("QUORUM", f"node-{replica.node_id}", 9)
    return Voter(replica.node_id, replica.directory_id, (endpoint,))


def voter_ids(replica: Replica) -> list[int]:
    return [each.node_id for each in replica.log.describe().voters]


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def written(replica: Replica, value: bytes) -> int:
    return await replica.log.propose((Proposal(None, value),), deadline_s=DEADLINE_S)


async def everything(replica: Replica) -> list[bytes]:
    records: tuple[CommittedRecord, ...] = await replica.log.read(0, limit=1_000)
    return [record.value for record in records]


def test_a_fourth_node_observes_then_votes_and_counts_when_another_is_gone() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            await written(leader, b"before")
            fourth = await joined(network, replicas, 4)
            await eventually(lambda: len(leader.log.describe().observers) == 1)
            assert voter_ids(leader) == [1, 2, 3]
            await admin(leader).add_voter(voter(fourth), deadline_s=DEADLINE_S)
            described = leader.log.describe()
            assert [each.address for each in described.voters] == [
                f"node-{node_id}:9" for node_id in (1, 2, 3, 4)
            ]
            assert (described.observers, described.uncommitted_voter_change) == ((), False)
            await eventually(lambda: fourth.log.describe().state == "follower")
            # Three of four are a majority only with the new one.
            gone = next(each for each in replicas if each not in (leader, fourth))
            await gone.stop()
            await written(leader, b"with the fourth")
            end = leader.log.describe().high_watermark
            await eventually(lambda: fourth.log.driver.apply_to >= end)
            assert await everything(fourth) == [b"before", b"with the fourth"]

    run_virtually(main)


def test_a_removed_follower_is_an_observer_and_its_vote_is_not_missed() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            removed = next(each for each in replicas if each is not leader)
            await admin(leader).remove_voter(removed.node_id, None, deadline_s=DEADLINE_S)
            assert removed.node_id not in voter_ids(leader)
            await eventually(lambda: removed.log.describe().state == "observer")
            await removed.stop()
            await written(leader, b"by two of two")
            with pytest.raises(NotFound):
                await admin(leader).remove_voter(removed.node_id, None, deadline_s=DEADLINE_S)

    run_virtually(main)


def test_a_node_finds_again_whom_its_log_removed_where_its_settings_do_not_name_it() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            removed, other = (each for each in replicas if each is not leader)
            await admin(leader).remove_voter(removed.node_id, None, deadline_s=DEADLINE_S)
            await eventually(lambda: removed.node_id not in voter_ids(other))
            await other.stop()
            for replica in (removed, leader):
                await replica.stop()
            again = Replica(network, other.node_id, (), bootstrap=(other.node_id,))
            again.disk = other.disk
            replicas.append(again)
            await again.start()
            assert network.addresses[again.node_id][removed.node_id] == (
                f"node-{removed.node_id}",
                9,
            )

    run_virtually(main)


def test_a_leader_that_is_removed_resigns_and_another_leads() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            old = await leader_of(replicas)
            await written(old, b"before")
            key = str(old.directory_id)
            await admin(old).remove_voter(old.node_id, key, deadline_s=DEADLINE_S)
            rest = [each for each in replicas if each is not old]
            new = await leader_of(rest)
            assert old.node_id not in voter_ids(new)
            await written(new, b"after")
            await eventually(lambda: old.log.describe().state == "observer")
            await eventually(lambda: old.log.describe().high_watermark >= 6)
            assert old.log.describe().leader_id == new.node_id

    run_virtually(main)


def test_leadership_goes_to_the_named_voter_or_to_any_other() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            for named in (True, False):
                old = await leader_of(replicas)
                await written(old, b"x")
                target = next(each for each in reversed(replicas) if each is not old)
                await admin(old).transfer(target.node_id if named else None, deadline_s=DEADLINE_S)
                told = old.log.describe()
                new = await leader_of([each for each in replicas if each is not old])
                assert (told.state, told.leader_id) == ("follower", new.node_id)
                assert new is target or not named
                await written(old, b"y")

    run_virtually(main)


def test_a_transfer_that_another_node_wins_says_so_and_names_it() -> None:
    """The target hears of nothing: neither that it should stand, nor any vote."""

    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            old = await leader_of(replicas)
            await written(old, b"x")
            target, other = (each for each in replicas if each is not old)
            asked = asyncio.create_task(admin(old).transfer(target.node_id, deadline_s=DEADLINE_S))
            while old.log.driver.core.role is Role.LEADER:
                await asyncio.sleep(0)
            network.isolate(target.node_id, (old.node_id, other.node_id))
            with pytest.raises(Conflict, match=f"not node {target.node_id}") as refused:
                await asked
            assert refused.value.reason == "NOT_TRANSFERRED"
            network.cut.clear()
            new = await leader_of(replicas)
            assert f"node {new.node_id} won" in str(refused.value)
            again = f"hand leadership over again if node {target.node_id} is to lead"
            assert again in str(refused.value)

    run_virtually(main)


def test_only_the_leader_is_asked_and_the_others_name_it() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            asked = admin(next(each for each in replicas if each is not leader))
            await eventually(lambda: all(r.log.describe().leader_id > 0 for r in replicas))
            nobody = Voter(9, directory_id(9), (Endpoint("QUORUM", "node-9", 9),))
            attempts: tuple[Callable[[], Awaitable[object]], ...] = (
                lambda: asked.add_voter(nobody, deadline_s=DEADLINE_S),
                lambda: asked.remove_voter(1, None, deadline_s=DEADLINE_S),
                lambda: asked.remove_voter(9, None, deadline_s=DEADLINE_S),
                lambda: asked.transfer(9, deadline_s=DEADLINE_S),
                lambda: asked.transfer(None, deadline_s=DEADLINE_S),
            )
            for attempt in attempts:
                with pytest.raises(Conflict, match=f"ask node {leader.node_id}") as refused:
                    await attempt()
                assert refused.value.reason == "NOT_LEADER"
            with pytest.raises(Conflict, match=f"ask node {leader.node_id}"):
                asked.can_stop(1)

    run_virtually(main)


def test_a_voter_without_which_the_rest_would_stop_is_not_removed() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            keeps_up, silent = (each for each in replicas if each is not leader)
            await silent.stop()
            await asyncio.sleep(CAUGHT_UP_WITHIN_MS / 1000 + 1)
            asked = admin(leader)
            for each in (keeps_up, leader):
                with pytest.raises(Conflict, match=rf"silent: \[{silent.node_id}\]") as refused:
                    await asked.remove_voter(each.node_id, None, deadline_s=DEADLINE_S)
                assert refused.value.reason == "TOO_FEW_WOULD_REMAIN"
                # The same by Kafka's own tool.
                key = ReplicaKey(each.node_id, str(each.directory_id))
                answer = await network.servers[leader.node_id].answer(RemoveVoterRequest(key, 9))
                response = answer.response
                assert isinstance(response, VoterChangeResponse)
                assert response.error is Error.INVALID_REQUEST
                assert f"silent: [{silent.node_id}]" in response.message
            await written(leader, b"goes on")
            await asked.remove_voter(silent.node_id, None, deadline_s=DEADLINE_S)
            assert len(voter_ids(leader)) == 2

    run_virtually(main)


async def test_a_command_without_an_answer_may_still_take_effect() -> None:
    class Silent:
        def feed(self, event: object) -> None:
            pass

    with pytest.raises(OutcomeUnknown, match="it may still happen"):
        await QuorumAdmin(cast(QuorumDriver, Silent())).accept_cut(deadline_s=0.01)


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            asked = admin(leader)
            twice = Voter(2, directory_id(7), (Endpoint("QUORUM", "node-2", 9),))
            silent = Voter(9, directory_id(9), (Endpoint("QUORUM", "node-9", 9),))
            attempts: tuple[tuple[type[StrandlineError], Callable[[], Awaitable[object]]], ...] = (
                (AlreadyExists, lambda: asked.add_voter(twice, deadline_s=DEADLINE_S)),
                (OutcomeUnknown, lambda: asked.add_voter(silent, deadline_s=2.0)),
                (NotFound, lambda: asked.remove_voter(9, None, deadline_s=DEADLINE_S)),
                (
                    NotFound,
                    lambda: asked.remove_voter(1, str(directory_id(2)), deadline_s=DEADLINE_S),
                ),
                (NotFound, lambda: asked.transfer(9, deadline_s=DEADLINE_S)),
                (NotFound, lambda: asked.transfer(leader.node_id, deadline_s=DEADLINE_S)),
                (InvalidRequest, lambda: asked.accept_cut(deadline_s=DEADLINE_S)),
            )
            for expected, attempt in attempts:
                with pytest.raises(expected):
                    await attempt()
                assert voter_ids(leader) == [1, 2, 3]
            await written(leader, b"goes on")

    run_virtually(main)


def test_the_last_voter_cannot_be_removed() -> None:
    async def main() -> None:
        alone = Replica(Network(), 1, voters_of(1))
        await alone.start()
        with pytest.raises(InvalidRequest, match="last voter"):
            await admin(alone).remove_voter(1, None, deadline_s=DEADLINE_S)
        await alone.stop()

    run_virtually(main)


def test_a_lone_voter_is_told_that_nobody_can_take_over() -> None:
    async def main() -> None:
        alone = Replica(Network(), 1, voters_of(1))
        await alone.start()
        asked = admin(alone)
        for target in (None, 1):
            with pytest.raises(NotFound, match="node 1 is the only voter and has no successor"):
                await asked.transfer(target, deadline_s=DEADLINE_S)
        refusal = asked.can_stop(1)
        assert not refusal.allowed
        assert "node 1 is the only voter: stopping it stops the quorum" in refusal.reason
        await written(alone, b"goes on")
        await alone.stop()

    run_virtually(main)


def test_of_two_voters_neither_may_stop() -> None:
    voters = tuple(ReplicaDescription(ReplicaKey(each, "d"), 5, 40, 40) for each in (1, 2))
    known = DescribeQuorumResponse(Error.NONE, 1, 1, 5, voters)
    for node_id in (1, 2):
        refusal = can_stop(known, node_id, now_ms=50)
        assert not refusal.allowed
        assert refusal.reason.startswith("both voters are needed")


def test_a_node_may_stop_while_the_others_are_a_majority_that_keeps_up() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            await eventually(
                lambda: all(admin(leader).can_stop(node_id).allowed for node_id in NODES)
            )
            with pytest.raises(NotFound, match="node 9"):
                admin(leader).can_stop(9)
            down, up = (each for each in replicas if each is not leader)
            await down.stop()
            await asyncio.sleep(CAUGHT_UP_WITHIN_MS / 1000 + 1)
            judged = admin(leader)
            assert judged.can_stop(down.node_id).allowed
            for needed in (leader, up):
                refusal = judged.can_stop(needed.node_id)
                assert not refusal.allowed
                assert f"[{down.node_id}]" in refusal.reason
            await down.start()
            await eventually(lambda: judged.can_stop(up.node_id).allowed)

    run_virtually(main)


def test_a_voter_that_was_never_heard_of_does_not_keep_up_even_right_after_a_boot() -> None:
    voters = tuple(
        ReplicaDescription(ReplicaKey(node_id, "d"), 5, heard_ms, heard_ms)
        for node_id, heard_ms in ((1, 40), (2, 40), (3, -1))
    )
    known = DescribeQuorumResponse(Error.NONE, 1, 1, 5, voters)
    assert not can_stop(known, 2, now_ms=50).allowed
    assert can_stop(known, 3, now_ms=50).allowed


def test_a_dead_voter_is_replaced_by_the_same_node_with_a_fresh_directory() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            await written(leader, b"before")
            dead = next(each for each in replicas if each is not leader)
            await dead.stop()
            dead.disk = CrashDisk()  # gone with all that was on it
            fresh = Uuid(b"fresh-directory.")
            again = await joined(network, replicas, dead.node_id, directory=fresh)
            asked = admin(leader)
            # The same node id with another directory is another replica: it has no vote yet.
            with pytest.raises(AlreadyExists, match="old directory id"):
                await asked.add_voter(voter(again), deadline_s=DEADLINE_S)
            await asked.remove_voter(
                dead.node_id, str(directory_id(dead.node_id)), deadline_s=DEADLINE_S
            )
            await asked.add_voter(voter(again), deadline_s=DEADLINE_S)
            kept = {each.node_id: each.directory_id for each in leader.log.describe().voters}
            assert kept[dead.node_id] == str(fresh)
            third = next(each for each in replicas if each not in (leader, dead, again))
            await third.stop()
            await written(leader, b"with the new directory")
            end = leader.log.describe().high_watermark
            await eventually(lambda: again.log.driver.apply_to >= end)
            assert await everything(again) == [b"before", b"with the new directory"]

    run_virtually(main)


def test_nobody_leads_before_the_operator_accepts_that_what_was_cut_is_lost() -> None:
    async def main() -> None:
        network = Network()
        async with quorum(network) as replicas:
            leader = await leader_of(replicas)
            for number in range(20):
                end = await written(leader, b"%d" % number) + 1
            await eventually(
                lambda: all(each.log.driver.core.log_end_offset >= end for each in replicas)
            )
            for replica in replicas:
                disk = replica.disk.copy()  # as a crash leaves it
                await replica.stop()
                replica.disk = disk
            lost, *cut = replicas
            for replica in cut:
                directory = METADATA / PARTITION_DIRECTORY
                (log,) = (n for n in replica.disk.list_names(directory) if n.endswith(".log"))
                last = replica.disk.size(directory / log) - 1
                replica.disk.damage(directory / log, last)
                await replica.start()
            await asyncio.sleep(20)
            for replica in cut:
                described = replica.log.describe()
                assert described.cut_end_offset >= end
                assert described.state not in ("leader", "follower")
                await admin(replica).accept_cut(deadline_s=DEADLINE_S)
                assert replica.log.describe().cut_end_offset == -1
            leader = await leader_of(cut)
            await written(leader, b"goes on")
            assert await everything(leader) == [b"%d" % number for number in range(19)] + [
                b"goes on"
            ]
            assert not lost.running

    run_virtually(main)


def test_a_record_that_adds_a_voter_is_below_the_recovery_point_once_it_counts() -> None:
    """A voter whose tail was cut below it would take itself for the only one, and lead alone."""

    async def act() -> None:
        network = Network()
        alone = Replica(network, 1, voters_of(1))
        await alone.start(limits=LogLimits(recovery_point_interval_s=3_600.0))
        replicas = [alone]
        new = await joined(network, replicas, 2)
        await admin(alone).add_voter(voter(new), deadline_s=DEADLINE_S)
        end = alone.log.describe().high_watermark
        later = [replica.disk.copy() for replica in replicas]
        for replica in reversed(replicas):
            await replica.stop()
        for disk in later:
            assert load_recovery_point(disk, METADATA) >= end

    run_virtually(act)


def test_a_voter_set_that_a_restart_finds_is_below_the_recovery_point_before_it_counts() -> None:
    """The last life may have ended between the sync of the set and the recovery point."""

    async def act() -> None:
        network = Network()
        alone = Replica(network, 1, voters_of(1))
        await alone.start()
        new = await joined(network, [], 2)
        await admin(alone).add_voter(voter(new), deadline_s=DEADLINE_S)
        end = alone.log.describe().high_watermark
        for replica in (new, alone):
            await replica.stop()
            store_recovery_point(replica.disk, METADATA, 1)
            replica.disk.remove(METADATA / COMMITTED_END_FILE)
        for replica in (new, alone):
            await replica.start(limits=LogLimits(recovery_point_interval_s=3_600.0))
            assert load_recovery_point(replica.disk, METADATA) >= end
            await replica.stop()

    run_virtually(act)
