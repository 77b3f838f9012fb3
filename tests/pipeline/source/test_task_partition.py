"""Tasks of the data source: what each carries to an executor."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

from pipeline.read.segment_slice import ReadSettings, plan_slices
from pipeline.source.task_partition import TaskPartition, read_task
from rlm.data_plane.read_request import Isolation
from tests.capture.captured import LOG_DIR
from tests.pipeline.read.folder_tier import tier_log_dir
from tests.pipeline.source.captured_rows import consumed
from tests.rlm.tier import STORE


def test_a_task_reads_transactions_that_end_in_another_store(tmp_path: Path) -> None:
    """New copies go to another store than those before, where an index tells of older records."""
    tier = tier_log_dir(LOG_DIR, tmp_path / "old", "payments")
    new = tier.copied_to(tmp_path / "new").stores[STORE]
    stores = {**tier.stores, "new": replace(new, name="new"), "unused": replace(new, name="unused")}
    first, *rest = tier.segments("payments")
    segments = [first, *(replace(each, store="new") for each in rest)]
    slices = plan_slices(segments, 0, first.last_offset, Isolation.READ_COMMITTED)
    assert {each.store for each in slices[0].later} == {"new"}

    task = pickle.loads(
        pickle.dumps(TaskPartition(tuple(slices), stores, ReadSettings(columns=("offset",))))
    )

    assert task.stores.keys() == {STORE, "new"}
    found = [row["offset"] for batch in read_task(task) for row in batch.to_pylist()]
    wanted = [one.offset for one in consumed("payments", 0) if one.offset <= first.last_offset]
    assert found == wanted
