"""A segment whose deletion the node ends, in the lists for brokers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rlmm.segment import SegmentState
from sim.tier import plugin_bodies
from tests.rlm.delegated.delegating import announcement
from tests.rlm.delegated.plugin_client import segment
from tests.rlm.delegated.test_calls import CUSTOM, DELETED, DELETING, FINISHED, beside
from tests.rlm.delegated.test_expirations import states
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize(
    ("version", "shown"), [("3.9.2", []), ("7.9.1-ccs", []), ("4.0.0", [DELETING])]
)
def test_a_broker_that_counts_what_is_being_deleted_is_not_shown_it(
    tmp_path: Path, orders: KafkaLog, version: str, shown: list[SegmentState]
) -> None:
    """The row stays for a minute or two behind the broker's own deletion."""

    async def main() -> None:
        async with beside(tmp_path, orders) as (node, plugin):
            tip = orders.partition
            said = replace(announcement(tip), kafka_version=version)
            await plugin.call("announce", plugin_bodies.announce(said))
            await asyncio.sleep(1)
            row = segment(tip, 1, 0, 9)
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            tag, rows, _ = await plugin.page(tip)
            assert [each.state for each in rows or ()] == [FINISHED]
            await plugin.update(row, DELETING)
            await plugin.delete(row)
            await plugin.update(row, DELETED)
            assert states(node, tip) == [(0, DELETING.name)]
            rows = (await plugin.page(tip))[1]
            assert [each.state for each in rows or ()] == shown
            changes = await plugin.list_changes(tip, tag)
            assert [each.state for each in changes.rows] == shown
            assert [*changes.gone] == ([] if shown else [row.segment_id.id])

    run_virtually(main)


@pytest.mark.parametrize("version", ["3.9.2", "4.0.0", "4.4.0"])
def test_no_leader_is_told_that_its_log_begins_with_what_is_being_deleted(
    tmp_path: Path, orders: KafkaLog, version: str
) -> None:
    """A leader without old records was elected unclean, and began to delete the tier's; then the
    one with all of them leads again. Its log start is the first of what is listed of its first
    epoch (findLogStartOffset): its disk would lose what it has below.
    """

    async def main() -> None:
        async with beside(tmp_path, orders) as (_, plugin):
            tip = orders.partition
            said = replace(announcement(tip), kafka_version=version)
            await plugin.call("announce", plugin_bodies.announce(said))
            await asyncio.sleep(1)
            row = segment(tip, 1, 10, 19)  # the one below is gone already
            await plugin.add(row)
            await plugin.update(row, FINISHED, CUSTOM)
            tag, rows, _ = await plugin.page(tip, 0)
            assert [each.start_offset for each in rows or ()] == [10]
            await plugin.update(row, DELETING)
            assert (await plugin.page(tip, 0))[1] == ()
            assert (await plugin.page(tip, 0, tag))[1] == ()

    run_virtually(main)
