"""Sets of offsets against Python's own sets; what of segments a run takes, and in which tasks."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_formats.errors import InvalidRequest
from pipeline.export.export_plan import (
    OffsetRange,
    commits,
    holes,
    missing_slices,
    offsets_of,
    packed,
)
from pipeline.export.file_names import (
    RunId,
    check_export_name,
    data_file_name,
    record_key,
    record_of_key,
    run_of_data_file,
)
from pipeline.export.offset_ranges import (
    as_json,
    count,
    end,
    from_json,
    overlap,
    united,
    without,
)
from rlm.data_plane.read_request import Isolation
from tests.pipeline.export.export_world import TOPIC, segment

PIECES = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda t: (t[0], sum(t))))


def offsets(ranges: object) -> set[int]:
    return {at for first, last in ranges for at in range(first, last + 1)}  # type: ignore[attr-defined]  # pairs


@given(PIECES, PIECES)
def test_sets_of_offsets_are_sets(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    taken = united(other)
    assert offsets(united(one, other)) == offsets(one) | offsets(other)
    assert offsets(without(one, taken)) == offsets(one) - offsets(other)
    assert offsets(overlap(one, taken)) == offsets(one) & offsets(other)
    assert count(taken) == len(offsets(other))
    assert end(taken) == max(offsets(other), default=-1) + 1
    for first, second in pairwise(taken):
        assert first[1] + 1 < second[0]
    assert from_json(as_json({"p": taken}), source="x") == {"p": taken}


@pytest.mark.parametrize("given", [None, [], {"p": [[2, 1]]}, {"p": [[0, 3], [2, 5]]}, {"p": [1]}])
def test_offsets_that_somebody_else_wrote_are_refused(given: object) -> None:
    with pytest.raises(InvalidRequest, match="table t"):
        from_json(given, source="table t")


@given(PIECES, st.integers(0, 35), st.integers(0, 35))
def test_a_run_takes_of_its_range_what_is_tiered_and_not_exported(
    exported: list[tuple[int, int]], first: int, last: int
) -> None:
    segments = [segment(0, 9), segment(10, 14), segment(20, 33)]
    taken = united(exported)
    slices = missing_slices(segments, taken, (first, last), Isolation.READ_COMMITTED)
    tasks = list(packed(slices, 9_000))
    tiered = offsets((s.first_offset, s.last_offset) for s in segments)
    wanted = (tiered - offsets(taken)) & set(range(first, last + 1))
    assert offsets(offsets_of(tasks).get(str(TOPIC), ())) == wanted
    assert [task.number for task in tasks] == list(range(len(tasks)))
    assert sum(len(task.slices) for task in tasks) == len(slices)
    groups = list(commits(tasks, 12_000))
    assert [task for group in groups for task in group] == tasks
    lost = offsets(holes(slices, taken, (first, last), 0))
    assert not lost & (tiered | offsets(taken))


def test_what_retention_took_before_the_next_run_is_told() -> None:
    segments = [segment(500, 599)]
    bounds = OffsetRange().of(((0, 99),), 600)
    assert bounds == (100, 599)
    slices = missing_slices(segments, ((0, 99),), bounds, Isolation.READ_COMMITTED)
    assert holes(slices, ((0, 99),), bounds, 500) == ((100, 499),)
    assert holes(slices, (), (0, 599), 500) == (), "a first run begins where the tier does"
    # A bucket's tier begins and ends with segments in doubt, which no slice reads.
    assert holes(slices, (), (0, 649), 450) == ((450, 499), (600, 649))
    assert holes([], ((0, 99),), (100, 199), 0) == ((100, 199),)
    assert holes([], (), (100, 199), 500) == ()


def test_a_file_says_whose_it_is_and_others_are_nobodys() -> None:
    run = RunId(7, "0123456789abcde")
    name = data_file_name("shop_1", run, 12, "1f2e3d4c", 0)
    assert run_of_data_file(f"day=2026-01-01/{name}", "shop_1") == run
    # A run of many small tasks, and an export of many runs, have longer numbers.
    late = RunId(123_456_789, "0123456789abcde")
    assert (
        run_of_data_file(data_file_name("shop_1", late, 100_000, "1f2e3d4c", 1000), "shop_1")
        == late
    )
    assert record_of_key(record_key("shop_1", late, "started")) == (late, "started")
    for other in (name + ".crc", "x" + name, name.replace("-", "_"), "part-0.parquet", ""):
        assert run_of_data_file(other, "shop_1") is None
    assert run_of_data_file(name, "shop") is None
    assert record_of_key(record_key("shop_1", run, "files")) == (run, "files")
    assert record_of_key("runs/00000007-0123456789abcde.else") is None
    for bad in ("", "Shop", "a-b", "_a", "a" * 41, "a/b"):
        with pytest.raises(InvalidRequest, match="--name"):
            check_export_name(bad)
