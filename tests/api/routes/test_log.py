"""The levels of a node's log over HTTP: shown to everybody, changed by operators."""

from __future__ import annotations

from pathlib import Path

import pytest

from api.http.tokens import Role
from rlm.control.log_levels import LogArea, LogLevel
from tests.api.fakes import make_node, write_tokens

PATH = "/v1/node/log"


async def test_an_operator_changes_one_area_and_everybody_sees_it(tmp_path: Path) -> None:
    node = make_node(anonymous_role=Role.READ, tokens=write_tokens(tmp_path / "tokens"))
    info = {str(area): "info" for area in LogArea}
    async with node.client(token="operator-token") as operator, node.client() as reader:
        before = (await reader.get(PATH)).json()
        assert before == {"node_id": 1, "format": "text", "levels": info}
        assert (await reader.put(f"{PATH}/stores", json={"level": "debug"})).status_code == 403
        answer = await operator.put(f"{PATH}/stores", json={"level": "debug"})
        assert answer.json() == {**before, "levels": {**info, "stores": "debug"}}
        assert (await reader.get(PATH)).json() == answer.json()
    assert node.context.log.levels.levels[LogArea.STORES] is LogLevel.DEBUG


@pytest.mark.parametrize(
    ("area", "body"),
    [
        ("botocore", {"level": "debug"}),
        ("STORES", {"level": "debug"}),
        ("stores", {"level": "trace"}),
        ("stores", {"level": 10}),
        ("stores", {}),
        ("stores", {"level": "debug", "for_s": 5}),
    ],
)
async def test_a_wrong_request_changes_nothing(area: str, body: dict[str, object]) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.put(f"{PATH}/{area}", json=body)
        assert answer.status_code in (400, 422), answer.text
        assert answer.json()["kind"] == "invalid_request"
    assert set(node.context.log.levels.levels.values()) == {LogLevel.INFO}
