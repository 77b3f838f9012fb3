"""A look at the log directories hangs while the leader epoch goes up: the node answers by an old
look, and never that an offset of the new epoch has no segment.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.leadership.leadership import Leads
from rlmm.segment import SegmentState
from tests.rlm.delegated.delegating import broker_of
from tests.rlm.delegated.plugin_client import ToldError, files_of, segment
from tests.rlm.delegated.test_copies import beside
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.rlm.virtual_time import run_virtually


def test_what_was_copied_in_an_epoch_that_no_look_has_seen_is_not_told_absent(
    tmp_path: Path,
) -> None:
    log = KafkaLog.create(new_log_dir(tmp_path / "kafka"), "orders", entries=((0, 0),))
    log.write(0, end=12)

    async def main() -> None:
        broker = broker_of(log, 0, 12)
        async with beside(tmp_path, log, broker=broker) as (node, plugin):
            tip = log.partition
            await asyncio.sleep(30)
            hung = asyncio.get_running_loop().create_future()
            node.parts.table._scanner._reading = hung
            await asyncio.sleep(200)
            log.write_across(0, 12, 20, epochs=(0, 1))
            log.write(20, end=25, epoch=1)
            log.set_epochs((0, 0), (1, 12))
            (log.directory / f"{0:020d}.snapshot").touch()
            broker.words["orders", 0] = Leads(1, 25)
            plugin.seq += 1
            await plugin.announce(tip)
            await asyncio.sleep(120)
            row = replace(
                segment(tip, 1, 0, 19),
                leader_epochs=((0, 0), (1, 12)),
                size_bytes=len(log.log_bytes(0)),
                txn_index_empty=True,
            )
            await plugin.add(row)
            custom = await plugin.copy(files_of(log, row))
            await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, custom)
            for with_txn_index in (False, True):
                with pytest.raises(ToldError, match="leader epoch 1 is not recorded yet"):
                    await plugin.look_up(tip, 1, 15, with_txn_index=with_txn_index)
            hung.set_result(None)
            await asyncio.sleep(30)
            found = await plugin.look_up(tip, 1, 15)
            assert found is not None
            assert found.end_offset == 19

    run_virtually(main)
