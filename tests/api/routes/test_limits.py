"""A node's rate limits over HTTP: shown to everybody, changed by operators, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.http.tokens import Role
from rlm.quota.flow_limits import MIB, FlowLimits, Rates
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import make_node, write_tokens

PATH = "/v1/node/limits"
NONE = {"copy_bytes_per_s": None, "read_bytes_per_s": None}
SOME = {
    "copy_bytes_per_s": 50 * MIB,
    "read_bytes_per_s": None,
    "topics": {"logs": {"copy_bytes_per_s": 5 * MIB, "read_bytes_per_s": 2 * MIB}},
}


async def test_an_operator_changes_them_and_everybody_sees_it(tmp_path: Path) -> None:
    node = make_node(anonymous_role=Role.READ, tokens=write_tokens(tmp_path / "tokens"))
    flow = node.context.flow
    node.context.metrics.flow.watch(flow)
    async with node.client(token="operator-token") as operator, node.client() as reader:
        shown: dict[str, object] = {"node_id": 1, "revision": 0, **NONE, "topics": {}}
        assert (await reader.get(PATH)).json() == shown
        assert (await reader.put(PATH, json=SOME)).status_code == 403
        answer = await operator.put(PATH, json=SOME)
        shown = {"node_id": 1, "revision": 1, **SOME}
        assert answer.json() == shown == (await reader.get(PATH)).json()
        assert flow.limits == FlowLimits(Rates(50 * MIB, None), {"logs": Rates(5 * MIB, 2 * MIB)})
        metrics = (await reader.get("/metrics")).text
        assert "strandline_remote_copy_limit_bytes_per_second 5.24288e+07" in metrics
        assert "strandline_remote_fetch_limit_bytes_per_second 0.0" in metrics
        await operator.put(PATH, json={**NONE, "topics": {}})
        assert flow.limits == FlowLimits()
    assert isinstance(node.context.audit, FakeAudit)
    assert [(each.action, each.why) for each in node.context.audit.lines[-2:]] == [
        (
            "limits_changed",
            "bytes per second: copies 52428800, reads None; topics with their own: 1",
        ),
        ("limits_changed", "bytes per second: copies None, reads None; topics with their own: 0"),
    ]


async def test_a_change_names_the_limits_that_it_replaces() -> None:
    node = make_node()
    async with node.client() as client:
        statuses = [
            (await client.put(PATH, json=SOME | {"replaces_revision": revision})).status_code
            for revision in (1, 0, 0, 1, None)
        ]
    assert statuses == [409, 200, 409, 200, 200]


@pytest.mark.parametrize(
    "body",
    [
        {},
        NONE,
        {**NONE, "topics": {}, "write_bytes_per_s": 5},
        {**SOME, "copy_bytes_per_s": 0},
        {**SOME, "copy_bytes_per_s": MIB - 1},
        {**SOME, "copy_bytes_per_s": "50MiB"},
        {**NONE, "topics": {"no topic": {"copy_bytes_per_s": MIB, "read_bytes_per_s": None}}},
        {**NONE, "topics": {"logs": {"copy_bytes_per_s": MIB}}},
    ],
)
async def test_a_wrong_request_changes_nothing(body: dict[str, object]) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.put(PATH, json=body)
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["kind"] == "invalid_request"
    assert node.context.flow.limits == FlowLimits()
