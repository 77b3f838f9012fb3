"""Pages over all nodes: nothing is lost, nothing comes twice, whatever the pages are like."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.http.merging import (
    ENDED,
    Lines,
    decode_places,
    encode_places,
    merge,
    merge_by_time,
)
from kafka_formats.errors import InvalidRequest

Keys = st.lists(st.integers(0, 30), unique=True).map(sorted)
Nodes = st.dictionaries(st.integers(0, 5), Keys, min_size=1, max_size=4)
PAGES_MAX = 500


@given(Nodes, st.integers(1, 5), st.integers(1, 4))
def test_pages_by_key_are_the_whole_list_once(
    nodes: dict[int, list[int]], limit: int, shortest: int
) -> None:
    """Also where a node's pages are shorter than asked for."""
    after, shown = -1, list[list[tuple[int, int]]]()
    for _ in range(PAGES_MAX):
        parts = []
        for node, keys in nodes.items():
            rest = [(key, node) for key in keys if key > after]
            page = rest[: min(limit, shortest + node)]
            parts.append((page, len(page) < len(rest)))
        groups, more = merge(parts, lambda item: item[0], limit)
        assert len(groups) <= limit
        shown += groups
        if not more:
            break
        after = groups[-1][-1][0]
    everything = sorted({(key, node) for node, keys in nodes.items() for key in keys})
    assert sorted(item for group in shown for item in group) == everything
    assert [group[0][0] for group in shown] == sorted({key for key, _ in everything})


def test_of_many_long_pages_only_what_the_page_takes_is_looked_at() -> None:
    looked = 0

    def key(item: int) -> int:
        nonlocal looked
        looked += 1
        return item

    groups, more = merge([(range(of, 64_000, 64), True) for of in range(64)], key, 10)
    assert (groups, more) == ([[number] for number in range(10)], True)
    assert looked < 64 * 5


@dataclass(frozen=True)
class Line:
    at_ms: int
    cursor: str


class Log:
    """A node's lines, newest first; a cursor is the number of lines before it, in text."""

    def __init__(self, times: list[int]) -> None:
        self.lines = [Line(at_ms, str(number)) for number, at_ms in enumerate(times, 1)]

    def page(self, place: str | None, size: int) -> Lines[Line]:
        begin = int(place or 0)
        lines = self.lines[begin : begin + size]
        end = begin + len(lines)
        return Lines(str(begin), lines, str(end) if end < len(self.lines) else None)


Times = st.lists(st.integers(0, 9), max_size=12)
"""Any order: clocks are set back."""


@given(
    st.dictionaries(st.integers(0, 5), Times, max_size=4),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20),
)
def test_pages_by_time_are_every_line_once_also_of_nodes_that_were_silent_for_a_while(
    nodes: dict[int, list[int]], limit: int, odd: list[tuple[int, int]]
) -> None:
    """`odd`: on the page of this number a node is silent (0), or its page is so short (size - 1,
    which may be empty while there are older lines).
    """
    logs = {node: Log(times) for node, times in nodes.items()}
    places: dict[int, str] = {}
    shown: list[tuple[int, Line]] = []
    for number in count():
        strange = dict(odd[number : number + 1])
        asked = {node: log for node, log in logs.items() if places.get(node) != ENDED}
        if not asked:
            break
        assert number < PAGES_MAX
        parts = {
            node: log.page(places.get(node), strange[node] - 1 if node in strange else limit)
            for node, log in asked.items()
            if strange.get(node) != 0
        }
        page = merge_by_time(parts, places, limit)
        assert len(page.lines) <= limit
        silent = asked.keys() - parts.keys()
        assert {node: page.places.get(node) for node in silent} == {
            node: places.get(node) for node in silent
        }
        shown += page.lines
        assert page.more == any(page.places[node] != ENDED for node in parts)
        places = decode_places(encode_places(page.places))
    for node, log in logs.items():
        assert [line for of, line in shown if of == node] == log.lines


@given(st.dictionaries(st.integers(0, 5), Times.map(lambda t: sorted(t, reverse=True)), max_size=4))
def test_where_clocks_go_forward_lines_come_newest_first(nodes: dict[int, list[int]]) -> None:
    places: dict[int, str] = {}
    times: list[int] = []
    for _ in range(PAGES_MAX):
        parts = {
            node: Log(each).page(places.get(node), 3)
            for node, each in nodes.items()
            if places.get(node) != ENDED
        }
        page = merge_by_time(parts, places, 3)
        times += [line.at_ms for _, line in page.lines]
        places = page.places
        if not parts:
            break
    assert times == sorted((at_ms for each in nodes.values() for at_ms in each), reverse=True)


def test_the_page_waits_for_a_node_that_has_older_lines_but_sent_none() -> None:
    parts = {1: Log([9, 8]).page(None, 2), 2: Log([7, 6]).page(None, 0)}
    page = merge_by_time(parts, {}, 10)
    assert (page.lines, page.places, page.more) == ([], {1: "0", 2: "0"}, True)


@pytest.mark.parametrize(
    "text", ["1", "x:a", "-1:a", "1:a,,2:b", "12345678901:a", "²:a", "1:\ud800"]
)
def test_places_that_no_page_named_are_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        decode_places(text)
