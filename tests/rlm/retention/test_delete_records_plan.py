"""Deleting records below an offset from the tier: how far, what goes, what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, InvalidRequest
from rlm.node_files.kill_switches import Switch
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from tests.rlm.one_node import Node, new_world
from tests.rlm.test_service_retention import GONE_AFTER_S, log_start, three_segments
from tests.rlm.virtual_time import run_virtually


def test_a_node_without_the_claim_deletes_nothing(tmp_path: Path) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot() as node:
            with pytest.raises(Conflict, match="no claim"):
                await node.parts.expirer.delete_records(log.partition, 5, apply=True)

    run_virtually(main)


def test_records_are_deleted_up_to_an_offset_and_bytes_go_by_whole_segments(
    tmp_path: Path,
) -> None:
    log = three_segments(tmp_path)

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            expirer = node.parts.expirer
            planned = await expirer.delete_records(log.partition, 15, apply=False)
            assert planned.move is not None
            assert (planned.move.offset, planned.segments, planned.kept) == (15, 1, 19)
            assert log_start(node, log) == 0, "it was a dry run"
            assert await expirer.delete_records(log.partition, 15, apply=True) == planned
            assert log_start(node, log) == 15
            assert node.finished(log.partition) == [(0, 9), (10, 19), (20, 29)]
            await expirer.run_pass()
            await asyncio.sleep(GONE_AFTER_S)
            assert node.finished(log.partition) == [(10, 19), (20, 29)]
            again = await expirer.delete_records(log.partition, 10, apply=True)
            assert (again.move, log_start(node, log)) == (None, 15), "it never goes back"
            with pytest.raises(InvalidRequest, match="ends at offset 30"):
                await expirer.delete_records(log.partition, 31, apply=True)
            await expirer.delete_records(log.partition, 30, apply=True)
            assert log_start(node, log) == 30

    run_virtually(main)


@pytest.mark.parametrize("by", ["switch", "policy"])
def test_nothing_is_deleted_while_deleting_is_paused(tmp_path: Path, by: str) -> None:
    log = three_segments(tmp_path)

    async def pause(node: Node) -> None:
        if by == "switch":
            await node.parts.given.switches.pause(Switch.DELETING, by="an admin")
            return
        paused = TopicPolicy(delete_paused=True)
        await node.metadata.set_topic_policy(TopicPolicyChange("orders", paused, -1))

    async def main() -> None:
        async with new_world(tmp_path, (log.log_dir,)).boot(data_plane=True) as node:
            await node.remote_log.run_once()
            await pause(node)
            with pytest.raises(Conflict, match="paused"):
                await node.parts.expirer.delete_records(log.partition, 15, apply=True)
            assert log_start(node, log) == 0
            tried = await node.parts.expirer.delete_records(log.partition, 15, apply=False)
            assert "paused" in (tried.held_back or ""), "the dry run says so, too"

    run_virtually(main)
