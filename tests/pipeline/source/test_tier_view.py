"""A query's view of the tier from one look to the next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict
from pipeline.read.segment_slice import ReadSettings
from pipeline.source.tier_view import TierView
from tests.capture.captured import LOG_DIR
from tests.pipeline.read.folder_tier import tier_log_dir
from tests.pipeline.source.tiered import MadeUpCatalogue


def test_a_last_segment_that_was_cut_since_the_last_look_is_looked_up_anew(tmp_path: Path) -> None:
    """An election took its tail, with the markers that had decided what is before the cut."""
    tier = tier_log_dir(LOG_DIR, tmp_path, "payments")
    *segments, _ = tier.segments("payments")  # the last one ends within a transaction
    of = segments[-1].partition
    catalogue = MadeUpCatalogue({of: segments}, tier.stores)
    view = TierView(catalogue, ReadSettings())
    assert view.partitions({of: 0})[of].bounds.latest == segments[-1].last_offset + 1

    cut = replace(segments[-1], last_offset=segments[-1].last_offset - 3)
    catalogue.tier[of] = [*segments[:-1], cut]

    with pytest.raises(Conflict, match="ends outside the lineage"):
        view.partitions({of: 0})
