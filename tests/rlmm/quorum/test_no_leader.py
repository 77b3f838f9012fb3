"""A quorum without a leader: reads go on, writes wait, and /readyz says why.

Copies, reads and deletes are tested in `test_no_leader_in_the_tier.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

from kafka_formats.errors import OutcomeUnknown, RetryLater
from rlmm.manager.metadata_limits import WRITE_DEADLINE_S
from rlmm.records.control_records import LogStart, LostRange
from strandline.node.readiness import NodeFacts, missing_until_ready
from strandline.settings.settings import QuorumSettings
from tests.rlm.virtual_time import run_virtually
from tests.rlmm.metadata_node import (
    PARTITION,
    claim,
    copied,
    deleted,
    finished,
    started,
)
from tests.rlmm.quorum.local_network import NODES, Network
from tests.rlmm.quorum.lost_leader import asked, eventually, lose_the_leader
from tests.rlmm.quorum.three_managers import Node, leading, three_nodes

BOUND_S = 1.0
"""What a caller is willing to wait."""
POLICY = {
    "retention_ms": None, "retention_bytes": None, "copy_paused": True, "delete_paused": False,
}  # fmt: skip
LOOK_UP = "/v1/topics/orders/partitions/0/segments/lookup?epoch=1&offset="


def test_look_ups_are_served_from_the_view_and_say_how_far_it_is(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            await copied(leader.manager, 3)
            end = leader.manager.applied_offset
            await eventually(
                lambda: all(
                    node.manager.applied_offset >= end and node.manager.is_ready(PARTITION)
                    for node in nodes
                )
            )
            await lose_the_leader(network, nodes)
            for node in nodes:
                async with asked(node) as client:
                    found = await client.get(f"{LOOK_UP}150")
                    assert found.json()["segment"]["start_offset"] == 100
                    assert int(found.headers["Strandline-Metadata-Offset"]) >= end
                    # It was ready before, and stays so: an empty answer is one.
                    assert (await client.get(f"{LOOK_UP}5000")).status_code == 404
                    later = {"Strandline-Min-Metadata-Offset": str(end + 1_000)}
                    late = await client.get(f"{LOOK_UP}150", headers=later)
                    assert (late.status_code, late.json()["kind"]) == (503, "retry_later")

    run_virtually(main)


def test_every_write_ends_in_a_retriable_error_within_its_bound(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            token = await copied(leader.manager, 1)
            begun = started(1, token)
            await leader.manager.add_remote_log_segment_metadata(begun)
            await lose_the_leader(network, nodes)
            clock = asyncio.get_running_loop().time
            for node in nodes:
                manager = node.manager
                before = manager.digest()
                writes: tuple[Callable[[], Awaitable[object]], ...] = (
                    lambda: manager.claim_partition(claim(epoch=2), deadline_s=BOUND_S),  # noqa: B023
                    lambda: manager.add_remote_log_segment_metadata(  # noqa: B023
                        started(2, token), deadline_s=BOUND_S
                    ),
                    lambda: manager.update_remote_log_segment_metadata(  # noqa: B023
                        finished(begun), deadline_s=BOUND_S
                    ),
                    lambda: manager.update_remote_log_segment_metadata(  # noqa: B023
                        deleted(begun, token=token), deadline_s=BOUND_S
                    ),
                    lambda: manager.record_log_start(  # noqa: B023
                        LogStart(PARTITION, token, 1, 50), deadline_s=BOUND_S
                    ),
                    lambda: manager.record_lost_range(  # noqa: B023
                        LostRange(PARTITION, token, 100, 150, "gone"), deadline_s=BOUND_S
                    ),
                )
                for write in writes:
                    began = clock()
                    try:
                        await write()
                    except (RetryLater, OutcomeUnknown):
                        assert clock() - began <= BOUND_S + 0.1
                    else:
                        raise AssertionError("written without a majority")
                assert manager.digest() == before

    run_virtually(main)


def test_a_change_asked_for_over_http_ends_in_a_retriable_error(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            await copied((await leading(nodes)).manager, 1)
            await lose_the_leader(network, nodes)
            for node in nodes:
                async with asked(node) as client:
                    async with asyncio.timeout(WRITE_DEADLINE_S + 1):
                        answer = await client.put("/v1/topics/orders/policy", json=POLICY)
                    assert answer.status_code in (503, 504)
                    assert answer.json()["kind"] in ("retry_later", "outcome_unknown")

    run_virtually(main)


def test_nodes_are_not_ready_once_they_heard_of_no_leader_for_long_and_are_again_by_themselves(
    tmp_path: Path,
) -> None:
    settings = QuorumSettings(ready_silence_max_s=10, ready_lag_max=1)

    def missing(node: Node) -> list[str]:
        manager = node.manager
        facts = NodeFacts(
            None,
            manager.is_caught_up(),
            manager.describe(),
            manager.applied_offset,
            int(asyncio.get_running_loop().time() * 1000),
        )
        return missing_until_ready(facts, settings)

    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            await copied(leader.manager, 1)
            await eventually(lambda: not any(map(missing, nodes)))
            lagging = next(node for node in nodes if node is not leader)
            network.isolate(lagging.replica.node_id, NODES)
            await asyncio.sleep(9)
            assert missing(lagging) == []  # a change of leader does not take longer
            await asyncio.sleep(2)
            assert "no leader" in missing(lagging)[0]
            assert not missing(leader)
            await copied(leader.manager, 1, first=1, boot=2)
            network.cut.clear()
            await eventually(lambda: not missing(lagging))
            assert lagging.manager.remote_log_segment_metadata(PARTITION, 1, 150) is not None
            await lose_the_leader(network, nodes)
            await asyncio.sleep(15)
            assert all("Bring back a majority" in missing(node)[0] for node in nodes)
            network.cut.clear()
            await eventually(lambda: not any(map(missing, nodes)))

    run_virtually(main)


def test_a_partition_whose_leadership_changed_is_not_ready_before_there_is_a_leader(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            await copied(leader.manager, 1)
            other = replace(PARTITION, partition=1)
            await eventually(lambda: all(node.manager.is_ready(PARTITION) for node in nodes))
            await lose_the_leader(network, nodes)
            for node in nodes:
                node.manager.on_partition_leadership_changes([PARTITION])
            await asyncio.sleep(5)
            for node in nodes:
                assert (node.manager.is_ready(PARTITION), node.manager.is_ready(other)) == (
                    False,
                    True,
                )
                async with asked(node) as client:
                    empty = await client.get(f"{LOOK_UP}5000")
                    assert (empty.status_code, empty.json()["kind"]) == (503, "retry_later")
            network.cut.clear()
            await eventually(lambda: all(node.manager.is_ready(PARTITION) for node in nodes))
            async with asked(nodes[0]) as client:
                assert (await client.get(f"{LOOK_UP}5000")).status_code == 404

    run_virtually(main)


def test_a_node_that_lags_is_not_ready_until_it_has_what_the_others_have(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            behind = next(node for node in nodes if node is not leader)
            await eventually(lambda: behind.manager.is_ready(PARTITION))
            network.isolate(behind.replica.node_id, NODES)
            await copied(leader.manager, 2)
            behind.manager.on_partition_leadership_changes([PARTITION])
            await asyncio.sleep(5)
            assert not behind.manager.is_ready(PARTITION)
            assert behind.manager.remote_log_segment_metadata(PARTITION, 1, 150) is None
            network.cut.clear()
            await eventually(lambda: behind.manager.is_ready(PARTITION))
            assert behind.manager.remote_log_segment_metadata(PARTITION, 1, 150) is not None

    run_virtually(main)


def test_a_node_that_starts_without_a_leader_is_ready_for_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            await copied((await leading(nodes)).manager, 1)
            again = nodes[0]
            await eventually(
                lambda: again.manager.remote_log_segment_metadata(PARTITION, 1, 50) is not None
            )
            await lose_the_leader(network, nodes)
            await again.stop()
            await again.start()
            await asyncio.sleep(5)
            assert (again.manager.is_ready(PARTITION), again.manager.is_caught_up()) == (False,) * 2
            async with asked(again) as client:
                assert (await client.get(f"{LOOK_UP}50")).status_code == 200
                empty = await client.get(f"{LOOK_UP}5000")
                assert (empty.status_code, empty.json()["kind"]) == (503, "retry_later")
            network.cut.clear()
            await eventually(lambda: again.manager.is_ready(PARTITION))
            assert again.manager.is_caught_up()
            assert again.manager.remote_log_segment_metadata(PARTITION, 1, 50) is not None

    run_virtually(main)


def test_a_dead_leader_is_nobodys_leader_once_the_fetch_timeout_has_passed(tmp_path: Path) -> None:
    async def main() -> None:
        network = Network()
        async with three_nodes(tmp_path, network) as nodes:
            leader = await leading(nodes)
            left = next(node for node in nodes if node is not leader)
            await eventually(lambda: left.manager.describe().leader_id == leader.replica.node_id)
            for node in nodes:
                if node is not left:
                    await node.stop()
            await eventually(lambda: left.manager.describe().state not in ("follower", "leader"))
            for _ in range(50):
                described = left.manager.describe()
                assert described.leader_id == -1, described.state
                await asyncio.sleep(0.1)

    run_virtually(main)
