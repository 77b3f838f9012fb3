"""Spark tasks decide transactions where an unclean election cut a segment, as a node does:
`tests/rlm/data_plane/test_open_at_cut.py` has the other cases.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict
from pipeline.catalogue.tiered_segment import TieredSegment
from pipeline.read.open_stores import OpenStores
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, plan_slices
from pipeline.read.transactions import stable_end
from rlm.data_plane.read_request import Isolation
from rlm.format.manifest import Manifest
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.rlm.data_plane.cut_logs import CutLogs, cut_logs

OFFSETS = ReadSettings(columns=("offset",), isolation=Isolation.READ_COMMITTED)


def cut_tier(logs: CutLogs, folder: Path) -> tuple[FolderTier, list[TieredSegment]]:
    """Both logs tiered in one folder, and the segments that the lineage serves up to the cut."""
    kept = tier_log_dir(logs.kept.log_dir, folder / "tier")
    gone = tier_log_dir(logs.gone.log_dir, folder / "gone")
    for segment in gone.segments("orders"):
        if segment.start_offset < logs.cut:
            for suffix in ("log", "indexes", "rsm-manifest"):
                shutil.copy(gone.file(segment, suffix), kept.file(segment, suffix))
    served = [
        replace(segment, last_offset=min(segment.last_offset, logs.cut - 1))
        for segment in gone.segments("orders")
        if segment.start_offset < logs.cut
    ]
    return kept, served


def read(tier: FolderTier, segments: list[TieredSegment], end: int) -> tuple[list[int], int]:
    """The committed offsets below `end`, and the number of undecided records."""
    counted: list[int] = []
    slices = plan_slices(segments, 0, end - 1, Isolation.READ_COMMITTED)
    found = read_slices(slices, tier.stores, OFFSETS, on_undecided=counted.append)
    return [row["offset"] for batch in found for row in batch.to_pylist()], sum(counted)


def stable(tier: FolderTier, segments: list[TieredSegment]) -> int:
    with OpenStores(tier.stores) as stores:
        return stable_end(segments, stores)


@pytest.mark.parametrize("seed", range(12))
def test_where_the_tier_ends_with_a_cut_its_batches_tell_how_far_it_decides(
    tmp_path: Path, seed: int
) -> None:
    logs = cut_logs(tmp_path, seed)
    tier, segments = cut_tier(logs, tmp_path)
    end = stable(tier, segments)
    assert end == min(logs.open_at_cut, default=logs.cut)
    wanted = [each.offset for each in logs.fates if each.is_committed and each.offset < end]
    assert read(tier, segments, end) == (wanted, 0)


@pytest.mark.parametrize("seed", range(12))
def test_before_a_hole_only_what_ended_in_it_is_undecided(tmp_path: Path, seed: int) -> None:
    logs = cut_logs(tmp_path, seed)
    tier, segments = cut_tier(logs, tmp_path)
    behind = [each for each in tier.segments("orders") if each.start_offset >= logs.behind]
    served = [each for each in logs.fates if not logs.cut <= each.offset < logs.behind]
    lost = [each for each in served if logs.cut <= each.ends_at < logs.behind]
    wanted = [each.offset for each in served if each.is_committed and each not in lost]
    assert read(tier, [*segments, *behind], logs.kept.next_offset) == (wanted, len(lost))


def test_without_what_was_open_at_the_base_the_end_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier, segments = cut_tier(cut_logs(tmp_path, 1), tmp_path)
    monkeypatch.setattr(Manifest, "open_at_base", None)
    with pytest.raises(Conflict, match="outside the lineage") as caught:
        stable(tier, segments)
    assert caught.value.reason == "TRANSACTIONS_UNKNOWN"
