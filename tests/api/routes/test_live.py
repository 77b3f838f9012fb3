"""Events as the node changes, for as many pages as are allowed, and the caller's own role."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from api.http.api_limits import ApiLimits
from api.http.live_streams import LiveStreams
from api.http.tokens import Role
from tests.api.fakes import make_node, write_tokens

ONE_EVENT = ApiLimits(event_stream_s=0.0)


def state_of(text: str) -> dict[str, Any]:
    kind, data = text.removesuffix("\n\n").split("\n")
    assert kind == "event: state"
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    return found


async def test_the_first_event_has_what_the_routes_have() -> None:
    node = make_node(limits=ONE_EVENT)
    async with node.client() as client:
        answer = await client.get("/v1/events")
        assert answer.headers["content-type"].startswith("text/event-stream")
        state = state_of(answer.text)
        quorum = (await client.get("/v1/quorum")).json()
        for name in ("node_id", "state", "leader_id", "leader_epoch", "high_watermark"):
            assert state[name] == quorum[name], name
        voters = [(each["node_id"], each["lag"]) for each in quorum["voters"]]
        told = [(each["node_id"], each["lag"]) for each in state["replicas"] if each["voter"]]
        assert told == voters
        cluster = (await client.get("/v1/cluster")).json()
        assert state["totals"] == cluster["totals"]
        assert state["problems"] == len(cluster["problems"])


async def test_a_stream_too_many_is_told_to_come_later() -> None:
    node = make_node(limits=ApiLimits(event_streams_max=0))
    async with node.client() as client:
        answer = await client.get("/v1/events")
        assert (answer.status_code, answer.json()["kind"]) == (503, "retry_later")


async def test_the_end_of_the_node_ends_streams_and_their_places_are_free() -> None:
    node = make_node()
    live = node.context.live
    async with node.client() as client:
        stream = asyncio.create_task(client.get("/v1/events"))
        while live.open == 0:
            await asyncio.sleep(0)
        live.end()
        assert state_of((await stream).text)["node_id"] == 1
    assert live.open == 0


def test_an_event_is_made_once_for_all_streams() -> None:
    live, made = LiveStreams(), []

    def make() -> bytes:
        made.append(1)
        return b"%d" % len(made)

    assert [live.event(make, at_s, 1.0) for at_s in (5.0, 5.9, 6.0, 6.5, 7.0)] == [
        b"1", b"1", b"2", b"2", b"3",
    ]  # fmt: skip


async def test_a_caller_is_told_its_role(tmp_path: Path) -> None:
    node = make_node(anonymous_role=Role.READ, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="operator-token") as operator, node.client() as anybody:
        told = (await operator.get("/v1/caller")).json()
        assert told == {"name": "operator", "role": "operate", "token": True}
        told = (await anybody.get("/v1/caller")).json()
        assert told == {"name": "anonymous", "role": "read", "token": False}
