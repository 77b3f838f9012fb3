"""One record of 200 MiB: copied and read by tasks, within memory that is stated; no damage."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from kafka_formats.compression import Codec
from kafka_formats.errors import InvalidRequest
from pipeline.read.records import read_slices
from pipeline.read.segment_slice import ReadSettings, plan_slices
from rlm.data_plane.copy_job import UploadLimits
from rlm.data_plane.read_request import Isolation
from tests.pipeline.read.folder_tier import FolderTier, tier_log_dir
from tests.rlm.broker_files import ReplicaWriter, write_log_dir

MIB = 1 << 20
RECORD_BYTES = 200 * MIB
SETTINGS = ReadSettings(columns=("offset", "value"))
QUICK = (Codec.NONE, Codec.ZSTD)
"""Codecs that every run tries: the batch itself is large, or only what it stands for."""

LIMITS = UploadLimits(batch_bytes_max=201 * MIB)


def with_zeros(path: Path, codec: Codec) -> Path:
    """A log directory with one sealed segment: a small record, one of 200 MiB, a small one."""
    replica = ReplicaWriter(write_log_dir(path))
    replica.append()
    replica.append_values(bytes(RECORD_BYTES), codec=codec)
    replica.append()
    replica.roll()
    return replica.log_dir


def sizes(tier: FolderTier, settings: ReadSettings) -> list[tuple[int, int]]:
    """(offset, bytes of the value) of what a task reads."""
    slices = plan_slices(tier.segments("orders"), 0, 2, Isolation.READ_COMMITTED)
    return [
        (row["offset"].as_py(), row["value"].as_buffer().size)
        for batch in read_slices(slices, tier.stores, settings)
        for row in (
            {name: batch[name][at] for name in SETTINGS.columns} for at in range(len(batch))
        )
    ]


SOAK = [pytest.param(codec, marks=pytest.mark.soak) for codec in Codec if codec not in QUICK]


@pytest.mark.parametrize("codec", [*QUICK, *SOAK])
def test_a_record_of_200_mib_is_copied_and_read_or_its_limit_is_named(
    tmp_path: Path, codec: Codec
) -> None:
    log_dir = with_zeros(tmp_path / "kafka", codec)
    if codec is Codec.NONE:
        with pytest.raises(InvalidRequest, match=r"orders-0.* over the limit of .*: raise") as told:
            tier_log_dir(log_dir, tmp_path / "refused")
        assert told.value.field == "copier.batch_bytes_max"
    tier = tier_log_dir(log_dir, tmp_path / "tier", limits=LIMITS)
    with pytest.raises(InvalidRequest, match=r"byte \d+: .*limit.*: raise the limit") as told:
        sizes(tier, replace(SETTINGS, batch_bytes_max=199 * MIB))
    assert told.value.field == "maxBatchBytes"
    tracemalloc.start()
    try:
        found = sizes(tier, SETTINGS)
        held_bytes = tracemalloc.get_traced_memory()[1] + pa.default_memory_pool().max_memory()
    finally:
        tracemalloc.stop()
    assert found == [(0, 20), (1, RECORD_BYTES), (2, 20)]
    assert held_bytes < 5 * RECORD_BYTES  # the largest of each of two counts
