"""Findings of scrubs, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from api.http.tokens import Role
from tests.api.fakes import BASE, TIP, make_node, segment_uuid

SCRUB = "/v1/jobs/scrub"


def result(**changes: object) -> dict[str, Any]:
    return {
        "topic": TIP.topic,
        "topic_id": str(TIP.topic_id),
        "partition": TIP.partition,
        "first_offset": 0,
        "last_offset": 99,
        "segments": 3,
        "read_bytes": 1_000,
        "unread": 0,
        "deleted": 0,
        "damaged": 1,
        "scrubbed_at_ms": 7,
        "damage": [
            {
                "segment_id": "AAAAAAAAAAAAAAAAAAAAAQ",
                "start_offset": 10,
                "end_offset": 19,
                "findings": [
                    {"object": "k", "position": 3, "offset": None, "what": "w", "action": "a"}
                ],
            }
        ],
    } | changes


async def test_what_was_posted_is_shown() -> None:
    unknown = result(topic_id="AAAAAAAAAAAAAAAAAAAAAA", topic="nobodys")
    async with make_node().client() as client:
        empty = await client.get(SCRUB)
        posted = await client.post(SCRUB, json={"partitions": [result(), unknown]})
        shown = await client.get(SCRUB)
        elsewhere = await client.get(SCRUB, params={"topic": "a"})
        cleared = await client.post(
            SCRUB, json={"partitions": [result(damaged=0, damage=[], scrubbed_at_ms=8)]}
        )
        damaged = await client.get(SCRUB, params={"damaged": "true"})
    assert empty.json() == {"partitions": [], "damaged_segments": 0, "next_cursor": None}
    assert posted.json() == {"kept": 1, "unknown": 1}
    assert shown.json()["partitions"] == [result()]
    assert (shown.json()["damaged_segments"], elsewhere.json()["partitions"]) == (1, [])
    assert (cleared.status_code, damaged.json()["partitions"]) == (200, [])


async def test_partitions_and_segments_say_when_they_were_scrubbed_and_what_was_found() -> None:
    first, second = (f"{BASE}/segments/{segment_uuid(number)}" for number in (0, 1))
    (damaged,) = result()["damage"]
    damaged |= {"segment_id": str(segment_uuid(0)), "start_offset": 0, "end_offset": 99}
    async with make_node().client() as client:
        before = (await client.get(BASE)).json()["last_scrub"]
        for unread in (0, 1):
            posted = result(damage=[damaged], unread=unread)
            assert (await client.post(SCRUB, json={"partitions": [posted]})).status_code == 200
            partition = (await client.get(BASE)).json()["last_scrub"]
            assert (partition["damaged"], partition["scrubbed_at_ms"]) == (1, 7)
            found = (await client.get(first)).json()
            assert found["damage"] == damaged["findings"]
            assert found["last_scrubbed_ms"] == (None if unread else 7)
        behind = (await client.get(second)).json()
    assert before is None
    assert (behind["last_scrubbed_ms"], behind["damage"]) == (None, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "a/b"},
        {"topic_id": "no id"},
        {"partition": -1},
        {"damaged": True},
        {"damage": [{"segment_id": "x", "start_offset": 0, "end_offset": 1, "findings": []}]},
        {"surprise": 1},
    ],
)
async def test_a_result_that_is_none_is_refused_whole(changes: dict[str, object]) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.post(SCRUB, json={"partitions": [result(), result(**changes)]})
        shown = await client.get(SCRUB)
    assert answer.status_code == 400, answer.text
    assert shown.json()["partitions"] == []


async def test_bodies_are_bounded() -> None:
    async with make_node().client() as client:
        answer = await client.post(SCRUB, json={"partitions": [result()] * 101})
    assert answer.status_code == 400


async def test_a_reader_may_not_post() -> None:
    async with make_node(anonymous_role=Role.READ).client() as client:
        answer = await client.post(SCRUB, json={"partitions": []})
        shown = await client.get(SCRUB)
    assert (answer.status_code, shown.status_code) == (403, 200)
