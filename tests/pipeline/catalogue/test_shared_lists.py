"""Partitions listed together: each wanted one once, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.catalogue.shared_lists import TOGETHER_MAX, shared_prefixes

NUMBERS = st.sets(st.integers(0, 300) | st.integers(0, 2**31 - 1), min_size=1, max_size=120)
NAMES = st.sets(st.from_regex(r"[0-9]{1,4}[a-z]?|x", fullmatch=True), max_size=20)


@given(NUMBERS, st.none() | st.tuples(NUMBERS, NAMES))
def test_each_partition_stands_behind_one_prefix_and_no_other_folder_behind_any(
    wanted: set[int], others: tuple[set[int], set[str]] | None
) -> None:
    there = None if others is None else {*map(str, wanted | others[0]), *others[1]}
    lists = shared_prefixes(wanted, there)
    assert sorted(number for _, together in lists for number in together) == sorted(wanted)
    for prefix, together in lists:
        behind = {name for name in there or map(str, wanted) if f"{name}/".startswith(prefix)}
        assert behind == set(map(str, together))
        assert len(together) <= TOGETHER_MAX


@given(NUMBERS)
def test_it_does_not_matter_whether_those_wanted_were_found(wanted: set[int]) -> None:
    lists = shared_prefixes(wanted, ())
    assert lists == shared_prefixes(wanted, set(map(str, wanted)))


def test_a_whole_topic_is_a_few_lists() -> None:
    for partitions, lists in ((16, 1), (17, 10), (100, 10), (1_000, 100)):
        found = shared_prefixes(range(partitions), set(map(str, range(partitions))))
        assert len(found) == lists, partitions
    assert shared_prefixes(range(3), None) == [("0/", [0]), ("1/", [1]), ("2/", [2])]
    assert shared_prefixes([1, 10, 12], ["1", "10", "11", "12", "1x"]) == [
        ("1/", [1]), ("10/", [10]), ("12/", [12]),
    ]  # fmt: skip
