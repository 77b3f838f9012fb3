"""The strip of a partition: every piece of few, and of many those at places that lie evenly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from api.routes.strip import _at_places
from kafka_formats.kafka_uuid import ZERO_UUID
from rlmm.rows.served_ranges import ServedRange
from tests.api.test_over_real_parts import ORDERS, asked, get, new_orders
from tests.rlm.virtual_time import run_virtually


def test_few_pieces_are_all_told_and_many_are_told_at_places(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(tmp_path, new_orders(tmp_path)) as client:
            whole = await get(client, f"{ORDERS}/strip")
            assert (whole["first_offset"], whole["last_offset"], whole["whole"]) == (0, 19, True)
            pieces = [(each["start_offset"], each["end_offset"]) for each in whole["pieces"]]
            assert pieces == [(0, 9), (10, 14), (15, 19)]
            listed = (await get(client, f"{ORDERS}/segments"))["segments"]
            assert [each["segment_id"] for each in whole["pieces"]] == [
                each["segment_id"] for each in listed
            ]
            part = await get(client, f"{ORDERS}/strip?first_offset=12&last_offset=16")
            pieces = [(each["start_offset"], each["end_offset"]) for each in part["pieces"]]
            assert pieces == [(12, 14), (15, 16)]
            thin = await get(client, f"{ORDERS}/strip?points=2")
            assert thin["whole"] is False
            pieces = [(each["start_offset"], each["end_offset"]) for each in thin["pieces"]]
            assert pieces == [(0, 9), (19, 19)]
            wrong = await client.get(f"{ORDERS}/strip?first_offset=5&last_offset=4")
            assert (wrong.status_code, wrong.json()["field"]) == (400, "last_offset")

    run_virtually(scenario)


def test_partitions_come_by_filters_and_in_pages(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with asked(tmp_path, new_orders(tmp_path)) as client:
            (row,) = (await get(client, "/v1/node/partitions"))["partitions"]
            assert (row["topic"], row["partition"], row["remote_segments"]) == ("orders", 0, 3)
            shown = {
                query: len((await get(client, f"/v1/cluster/partitions?{query}"))["partitions"])
                for query in (
                    "topic=orders", "topic=order", "contains=rder", "contains=x", "partition=1",
                    "only=lost", "only=blocked",
                )
            }  # fmt: skip
            assert shown == {
                "topic=orders": 1, "topic=order": 0, "contains=rder": 1, "contains=x": 0,
                "partition=1": 0, "only=lost": 0, "only=blocked": 0,
            }  # fmt: skip

    run_virtually(scenario)


class Overlapped:
    """A long segment, and a later one that serves some offsets in its midst."""

    def served_segments(self, _: object, first: int, last: int) -> Iterator[tuple[Any, Any]]:
        long, short = SimpleNamespace(start_offset=0), SimpleNamespace(start_offset=40)
        for begin, end, segment in ((0, 39, long), (40, 59, short), (60, 99, long)):
            if begin <= last and first <= end:
                yield ServedRange(max(begin, first), min(end, last), ZERO_UUID), segment


async def test_a_segment_around_another_has_a_piece_on_either_side() -> None:
    context: Any = SimpleNamespace(manager=Overlapped(), sleep=asyncio.sleep)
    state: Any = None
    pieces = await _at_places(context, state, 0, 99, 10)
    ranges = [(each.first_offset, each.last_offset) for each, _ in pieces]
    assert ranges == [(0, 39), (44, 59), (66, 99)]
