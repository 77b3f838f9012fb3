"""Executors use no value of a driver that runs a different program."""

from __future__ import annotations

import copyreg
import io
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from kafka_formats.errors import Refused
from pipeline.jobs.frame_errors import our_errors
from pipeline.jobs.guarded import Guarded
from pipeline.jobs.tasks import run_tasks
from pipeline.read.segment_slice import ReadSettings, plan_slices
from pipeline.source.batch_reader import BatchReader
from pipeline.source.stream_reader import StreamReader
from pipeline.source.task_partition import TaskPartition
from pipeline.spark import marked_pickle
from pipeline.spark.marked_pickle import Marked, SentWork
from pipeline.spark.program_mark import PACKAGES, own_folders, program_mark
from rlm.data_plane.read_request import Isolation
from tests.capture.captured import LOG_DIR
from tests.pipeline.read.folder_tier import tier_log_dir
from tests.real.toolbox import REPOSITORY

FIELDS = ("    start_offset: int\n", "    end_offset: int\n")
READING = """
import pickle, sys
from kafka_formats.errors import Refused
for data in pickle.load(sys.stdin.buffer):
    try:
        found = pickle.loads(data)
    except Refused as error:
        print("refused", error)
    else:
        segments = [each.segment for each in getattr(found, "slices", ())]
        print(type(found).__name__, *((each.start_offset, each.end_offset) for each in segments))
"""


def copied_to(folder: Path) -> Path:
    """A second installation of this program."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(REPOSITORY / name, folder / name, ignore=ignored)
    return folder


def zipped(program: Path) -> Path:
    """The installation in an archive, as `--py-files` ships it."""
    path = program.with_suffix(".zip")
    with zipfile.ZipFile(path, "w") as archive:
        for each in sorted(program.rglob("*.py")):
            archive.write(each, each.relative_to(program))
    return path


def swap_fields(program: Path) -> None:
    """Two fields of a segment change places, as between two releases."""
    path = program / "pipeline" / "catalogue" / "tiered_segment.py"
    before, after = "".join(FIELDS), "".join(reversed(FIELDS))
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))


def unpickled_by(program: Path, *found: object) -> list[str]:
    """A line about each object, of a process with that installation."""
    done = subprocess.run(
        [sys.executable, "-c", READING],
        input=pickle.dumps([pickle.dumps(each) for each in found]),
        cwd=program.parent,
        env={"PYTHONPATH": str(program)},
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stdout.decode().splitlines()


@pytest.fixture
def sent(tmp_path: Path) -> list[Marked]:
    """One of each kind."""
    tier = tier_log_dir(LOG_DIR, tmp_path / "tier", "payments")
    first, *_ = tier.segments("payments")
    slices = plan_slices([first], 0, first.last_offset, Isolation.READ_UNCOMMITTED)
    options = {"strandline.store": f"file://{tmp_path / 'tier'}", "subscribe": "payments"}
    return [
        TaskPartition(tuple(slices), tier.stores, ReadSettings(columns=("offset",))),
        BatchReader(options),
        StreamReader(options),
        Guarded(len, 4),
        SentWork(len),
    ]


class Unmarked(pickle.Pickler):
    """Pickles as releases before the mark did."""

    def reducer_override(self, found: object) -> Any:
        """By the fields alone."""
        if isinstance(found, Marked):
            return copyreg.__newobj__, (type(found),), vars(found)  # type: ignore[attr-defined]
        return NotImplemented


KINDS = ["TaskPartition", "BatchReader", "StreamReader", "Guarded", "SentWork"]


def test_the_same_program_at_a_different_place_takes_all(
    tmp_path: Path, sent: list[Marked]
) -> None:
    """Also without the compiled modules, and out of an archive."""
    program = copied_to(tmp_path / "program")
    (program / "pipeline" / ".#records.py").write_text("what an editor leaves")
    (program / "pipeline" / "records~.py").write_text("what an editor leaves")
    for place in (program, zipped(program)):
        first, *rest = unpickled_by(place, *sent)
        assert first.startswith("TaskPartition (0, ")
        assert [each.split()[0] for each in (first, *rest)] == KINDS


def test_a_program_of_different_fields_takes_nothing(tmp_path: Path, sent: list[Marked]) -> None:
    program = copied_to(tmp_path / "program")
    swap_fields(program)
    for place in (program, zipped(program)):
        told = unpickled_by(place, *sent)
        assert len(told) == len(sent)
        for each in told:
            assert each.startswith(f"refused this Python worker runs Strandline from {place} on ")
            assert f"and the driver a different one from {REPOSITORY} on " in each
            assert each.endswith(
                "Install the same release in the Python of driver and executors, then restart both"
            )


def test_values_of_a_release_before_the_mark_are_refused() -> None:
    buffer = io.BytesIO()
    Unmarked(buffer).dump(Guarded(len, 4))
    with pytest.raises(Refused, match="of a release before that"):
        pickle.loads(buffer.getvalue())


def test_the_mark_tells_every_source_and_where_it_lies(tmp_path: Path) -> None:
    package = tmp_path / "package"
    (package / "below").mkdir(parents=True)
    (package / "one.py").write_text("a")
    marks = {program_mark({"package": str(package)})}
    (package / "one.py").write_text("b")
    marks.add(program_mark({"package": str(package)}))
    (package / "one.py").rename(package / "two.py")
    marks.add(program_mark({"package": str(package)}))
    (package / "two.py").rename(package / "below" / "two.py")
    marks.add(program_mark({"package": str(package)}))
    marks.add(program_mark({"other": str(package)}))
    assert len(marks) == 5


def test_all_packages_of_executors_are_told() -> None:
    assert tuple(own_folders()) == PACKAGES
    whole = (REPOSITORY / "executors" / "pyproject.toml").read_text()
    shipped = [line.split('"')[1] for line in whole.splitlines() if line.startswith('"../')]
    assert [each.removeprefix("../") for each in shipped if not each.endswith(".py")] == [*PACKAGES]


def length(items: tuple[int, ...]) -> int:
    return len(items)


def as_it_is(batches: Iterator[Any]) -> Iterator[Any]:
    return batches


@pytest.mark.spark
def test_a_job_ends_with_what_is_to_be_done(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    quiet = Console(file=io.StringIO())

    def run() -> list[int]:
        items = [(1, 2), (3,)]
        return list(run_tasks(spark.sparkContext, items, length, what="look", console=quiet))

    assert run() == [2, 1]
    monkeypatch.setattr(marked_pickle, "PROGRAM", "of the release after")
    with pytest.raises(Refused, match=r"program of the release after.* then restart both"):
        run()


@pytest.mark.spark
def test_so_does_a_data_frame(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> int:
        return spark.range(3).mapInArrow(SentWork(as_it_is), "id bigint").count()

    assert run() == 3
    monkeypatch.setattr(marked_pickle, "PROGRAM", "of the release after")
    with pytest.raises(Refused, match=r"program of the release after"), our_errors():
        run()
