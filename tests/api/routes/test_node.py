"""The kill switches of a node over HTTP: shown to everybody, thrown by operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from api.http.tokens import Role
from tests.api.fakes import TIP, copying_status, make_node, write_tokens

PATH = "/v1/node/switches"


async def test_an_operator_pauses_and_resumes_and_everybody_sees_it(tmp_path: Path) -> None:
    node = make_node(anonymous_role=Role.READ, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="operator-token") as operator, node.client() as reader:
        body = {"paused": True, "why": "the bucket is full"}
        answer = await operator.put(f"{PATH}/copying", json=body)
        assert answer.status_code == 200, answer.text
        pause = {"since_ms": 1_000, "by": "operator", "why": "the bucket is full"}
        shown = (await reader.get(PATH)).json()
        assert shown == {"node_id": 1, "copying": pause, "deleting": None, "copies_in_flight": 0}
        metrics = (await reader.get("/metrics")).text
        assert 'strandline_paused{what="copying"} 1.0' in metrics
        assert 'strandline_paused{what="deleting"} 0.0' in metrics
        refused = await reader.put(f"{PATH}/copying", json={"paused": False})
        assert refused.status_code == 403
        answer = await operator.put(f"{PATH}/copying", json={"paused": False})
        assert answer.json()["copying"] is None


async def test_copies_under_way_are_counted_beside_the_switches() -> None:
    node = make_node()
    node.rlm.known.append(copying_status(replace(TIP, partition=1)))
    async with node.client() as client:
        assert (await client.get(PATH)).json()["copies_in_flight"] == 1


@pytest.mark.parametrize(
    ("switch", "body"),
    [
        ("reading", {"paused": True}),
        ("copying", {}),
        ("copying", {"paused": "yes"}),
        ("copying", {"paused": True, "why": "x" * 501}),
        ("copying", {"paused": True, "until": 5}),
    ],
)
async def test_a_wrong_request_changes_nothing(switch: str, body: dict[str, object]) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.put(f"{PATH}/{switch}", json=body)
        assert answer.json()["kind"] in ("invalid_request", "not_found"), answer.text
        assert (await client.get(PATH)).json()["copying"] is None
