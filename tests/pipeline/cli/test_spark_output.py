"""Spark's own words do not stand between those of a job."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pipeline.cli.spark_output import new_log, stderr_to

SPEAK = (sys.executable, "-c", "import sys; sys.stderr.write('noise\\n')")


def test_what_a_child_writes_goes_to_the_file_and_then_no_more(
    tmp_path: Path, capfd: object
) -> None:
    log = tmp_path / "spark.log"
    with stderr_to(log):
        subprocess.run(SPEAK, check=True)
    subprocess.run(SPEAK, check=True)
    assert log.read_text() == "noise\n"


def test_a_log_is_its_owners_alone() -> None:
    log = new_log("test")
    try:
        assert log.stat().st_mode & 0o077 == 0
        assert log.stat().st_size == 0
    finally:
        log.unlink()
