"""Hold directories that the settings name."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_formats.errors import InvalidRequest
from rlm.local_log.hold_dirs import hold_directories
from tests.rlm.kafka_logs import new_log_dir


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    return new_log_dir(tmp_path / "kafka")


def test_a_hold_directory_in_a_log_directory_is_refused(log_dir: Path) -> None:
    (log_dir / "hold").mkdir()
    with pytest.raises(InvalidRequest, match="lies in the log directory") as refused:
        hold_directories([log_dir / "hold"], [log_dir], own_name="x")
    assert refused.value.field == "hold.dirs"


def test_a_log_directory_without_one_on_its_mount_is_named(log_dir: Path) -> None:
    elsewhere = Path("/dev/shm")
    if elsewhere.stat().st_dev == log_dir.stat().st_dev:
        pytest.skip("one mount for everything")
    with pytest.raises(InvalidRequest, match=f"mount of {log_dir}"):
        hold_directories([elsewhere], [log_dir], own_name="x")


def test_a_missing_hold_directory_is_named(tmp_path: Path, log_dir: Path) -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        hold_directories([tmp_path / "none"], [log_dir], own_name="x")
