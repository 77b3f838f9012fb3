"""The metadata manager where two things come at once: deadlines, snapshots and what goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kafka_formats.errors import RetryLater
from rlmm.metadata_log import Proposal
from rlmm.partition_state import TopicPolicy
from rlmm.records.control_records import TopicPolicyChange
from tests.rlmm.metadata_node import copied, running_node


async def test_a_write_that_no_leader_took_is_told_so_at_its_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log knows that nothing was appended; the manager's own deadline must not come first."""
    async with running_node(tmp_path) as node:

        async def propose(_: tuple[Proposal, ...], *, deadline_s: float) -> int:
            given_up = asyncio.Event()
            asyncio.get_running_loop().call_later(deadline_s, given_up.set)
            await given_up.wait()
            raise RetryLater("no leader took the record; nothing was appended")

        monkeypatch.setattr(node.log, "propose", propose)
        with pytest.raises(RetryLater, match="nothing was appended"):
            await node.manager.set_topic_policy(
                TopicPolicyChange("orders", TopicPolicy(retention_ms=1), -1), deadline_s=0.02
            )


async def test_what_is_applied_before_a_snapshot_is_in_it_and_counts_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The view's flush comes first and takes its time. A snapshot that stayed due although it is
    there would be asked for without end, and nothing else would run.
    """
    async with running_node(tmp_path) as node:
        await copied(node.manager, 3)
        applying = node.manager._applying
        flush = applying.flush

        async def flush_while_much_is_applied() -> None:
            await flush()
            applying.snapshot_due.set()

        monkeypatch.setattr(applying, "flush", flush_while_much_is_applied)
        await node.manager.take_snapshot()
        due = [applying.snapshot_due.is_set()]
        applying.snapshot_due.set()
        await node.manager.take_snapshot()
        due.append(applying.snapshot_due.is_set())
        applying.snapshot_due.clear()
        assert due == [False, False]
