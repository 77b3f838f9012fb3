"""The copy protocol, stopped at every one of its steps: killed, killed with requests that arrive
long after, or interrupted and closed. Later lives of the node bring bucket and metadata together
again, and lose nothing.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.crc32c import crc32c
from rlm.control.run_events import SegmentDeleted
from rlm.format.object_keys import segment_keys
from tests.rlm.crash_world import (
    CRASH_LIMITS,
    GOES_WELL,
    LEFT_OVER,
    SCENARIOS,
    UPLOAD_FAILS,
    End,
    Scenario,
    all_steps,
    end_everywhere,
    new_source,
    one_life,
    unharmed,
)
from tests.rlm.one_node import LIMITS, PREFIX, new_world
from tests.rlm.virtual_time import run_virtually


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("end", End, ids=lambda end: end.value)
def test_a_run_stopped_at_any_step_is_finished_by_the_next(
    tmp_path: Path, scenario: Scenario, end: End
) -> None:
    assert end_everywhere(tmp_path, scenario, end) > 0


def both_times(*steps: str) -> set[str]:
    return {f"{when} {step}" for when in ("before", "after") for step in steps}


def test_every_call_to_the_store_and_every_proposal_is_among_the_steps(tmp_path: Path) -> None:
    kinds = (".log", ".indexes", ".rsm-manifest")
    claiming = both_times("put marker", "list", "put probe", "head probe", "delete probe")
    claiming |= both_times("claim_partition", "record_log_start") | {"before get marker"}
    copying = both_times("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED")
    copying |= both_times("start .log", "put part of .log", "complete .log")
    copying |= both_times("put .indexes", "put .rsm-manifest")
    cleaning = both_times("DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED", "delete objects")
    cleaning |= both_times(*(f"list uploads of {kind}" for kind in kinds))
    assert set(all_steps(tmp_path / "a", GOES_WELL)) == claiming | copying
    assert set(all_steps(tmp_path / "b", UPLOAD_FAILS)) == claiming | copying | cleaning
    left_over = set(all_steps(tmp_path / "c", LEFT_OVER))
    assert cleaning <= left_over
    assert "before record_lost_range" in all_steps(tmp_path / "d", SCENARIOS[2])


def test_an_upload_that_a_dead_node_left_is_aborted(tmp_path: Path) -> None:
    source = new_source(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (source.log.log_dir,))
        await one_life(world, "before complete .log", unharmed, End.KILLED, CRASH_LIMITS)
        assert len(world.store.unfinished_uploads) == 1
        async with world.boot(limits=replace(LIMITS, once_clean_up_wait_s=3_600.0)) as node:
            await node.remote_log.run_once()
            await node.assert_quiesced()

    run_virtually(main)


def test_a_killed_nodes_attempt_waits_for_its_deadline_before_it_goes_for_good(
    tmp_path: Path,
) -> None:
    source = new_source(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (source.log.log_dir,))
        await one_life(world, "before start .log", unharmed, End.KILLED, CRASH_LIMITS)
        async with world.boot() as node:
            left = node.metadata.left_overs(source.log.partition)
            assert len(left) == 1
            report = await node.remote_log.run_once()
            # The copies go on at once, under new ids; only the final delete waits.
            assert len(report.copied) == 2
            assert [each.segment_id for each in report.pending_clean_ups] == [left[0].segment_id]
            margin_ms = round(LIMITS.upload_margin_s * 1000)
            assert report.pending_clean_ups[0].due_ms == left[0].upload_deadline_ms + margin_ms
            assert not report.complete

    run_virtually(main)


def test_an_interrupted_node_cleans_up_its_own_attempt_before_it_ends(tmp_path: Path) -> None:
    source = new_source(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (source.log.log_dir,))
        await one_life(world, "before put .indexes", unharmed, End.INTERRUPTED, CRASH_LIMITS)
        async with world.boot() as node:
            await node.assert_quiesced()

    run_virtually(main)


def test_a_zombies_late_upload_is_removed_by_the_second_delete(tmp_path: Path) -> None:
    source = new_source(tmp_path)

    async def main() -> None:
        world = new_world(tmp_path, (source.log.log_dir,))
        await one_life(world, "before put .indexes", unharmed, End.KILLED, CRASH_LIMITS)
        async with world.boot(limits=replace(LIMITS, once_clean_up_wait_s=3_600.0)) as node:
            (row,) = node.metadata.left_overs(source.log.partition)
            run = asyncio.create_task(node.remote_log.run_once())
            await asyncio.sleep(LIMITS.upload_deadline_s / 2)  # the first delete is long over
            key = segment_keys(PREFIX, row.segment_id, row.start_offset).log
            await node.store.put(key, b"late", crc32c=crc32c(b"late"))
            report = await run
            deleted = [each for each in node.events if isinstance(each, SegmentDeleted)]
            assert report.complete
            assert [each.segment_id for each in deleted] == [row.segment_id]
            await node.assert_quiesced()

    run_virtually(main)
