"""Every route that may change something asks for more than `read`; none can be forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from api.http.route_table import writes
from tests.api.fakes import make_node, openapi, write_tokens
from tests.api.test_hostile_input import PATH_VALUES

WITHOUT_TOKEN = {"/healthz", "/readyz", "/v1/openapi.json"}


def operations() -> Iterator[tuple[str, str]]:
    for template, methods in openapi()["paths"].items():
        for method in methods:
            yield method.upper(), template


async def test_a_token_of_role_read_changes_nothing(tmp_path: Path) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    refused = []
    async with node.client(token="reader-token", address="10.0.0.9") as client:
        for method, template in operations():
            if writes(method, template):
                answer = await client.request(method, template.format(**PATH_VALUES), json={})
                refused.append((method, template, answer.status_code))
    assert len(refused) > 20
    assert [each for each in refused if each[2] != 403] == []


async def test_a_brokers_token_changes_nothing_but_what_its_broker_does(tmp_path: Path) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    allowed = set()
    async with node.client(token="broker-token", address="10.0.0.9") as client:
        for method, template in operations():
            if writes(method, template):
                answer = await client.request(method, template.format(**PATH_VALUES), json={})
                if answer.status_code != 403:
                    allowed.add(template)
                else:
                    assert "has the role broker" in answer.text
    assert allowed
    assert {each for each in allowed if not each.startswith("/v1/broker/")} == set()


async def test_without_a_token_nothing_is_answered_but_health_and_the_document() -> None:
    node = make_node(anonymous_role=None)
    async with node.client(address="10.0.0.9") as client:
        for method, template in operations():
            answer = await client.request(method, template.format(**PATH_VALUES))
            expected = 200 if template in WITHOUT_TOKEN else 401
            assert answer.status_code == expected, (method, template)
