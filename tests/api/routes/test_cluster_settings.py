"""Settings of the cluster over HTTP: list, set, remove, which wins, and what enabling would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rlm.quota.flow_limits import FlowLimits, Rates
from rlmm.records import setting_scope
from rlmm.records.control_records import ClusterSetting
from rlmm.rows.nodes import Liveness
from tests.api.fake_audit import FakeAudit
from tests.api.fake_cluster import FakeCluster, liveness
from tests.api.fake_settings import SET_MS
from tests.api.fakes import make_node, write_tokens

TIERED = "/v1/settings/topics.tiered"
RATE = "/v1/settings/limits.copy_bytes_per_s"
LOGS = {"kind": "topic", "name": "logs.*"}
CLUSTER = {"kind": "cluster", "name": ""}


def body(scope: dict[str, str], value: object, **rest: object) -> dict[str, object]:
    return {"scope": scope, "value": value, **rest}


async def test_a_setting_is_set_told_and_removed_with_who_and_why() -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.put(TIERED, json=body(LOGS, True, why="the audit asks"))
        assert answer.status_code == 200, answer.text
        expected = {
            "setting": "topics.tiered", "scope": LOGS, "value": "true", "who": "anonymous",
            "why": "the audit asks", "offset": 42, "set_ms": SET_MS,
        }  # fmt: skip
        assert answer.json() == {"setting": expected, "changed": True}
        assert answer.headers["Strandline-Metadata-Offset"] == "42"
        listed = (await client.get("/v1/settings")).json()
        assert listed == {"settings": [expected], "metadata_offset": 42}
        removed = await client.put(TIERED, json=body(LOGS, None, replaces_offset=42))
        assert removed.json() == {"setting": None, "changed": True}
        assert (await client.get("/v1/settings")).json()["settings"] == []
    assert isinstance(node.context.audit, FakeAudit)
    lines = [each for each in node.context.audit.lines if each.action == "setting_changed"]
    assert [(each.why, each.by) for each in lines] == [
        ("the audit asks: topics.tiered for topic logs.*: true, before: not set", "anonymous"),
        ("topics.tiered for topic logs.*: not set, before: true", "anonymous"),
    ]


async def test_who_sets_what_stands_already_is_told_whose_it_is(tmp_path: Path) -> None:
    node = make_node(tokens=write_tokens(tmp_path / "tokens"))
    pause = "/v1/settings/deleting.paused"
    async with node.client(token="boss-token") as client:
        await client.put(pause, json=body(CLUSTER, True, why="a wrong policy"))
    async with node.client() as client:
        second = (await client.put(pause, json=body(CLUSTER, True, why="me too"))).json()
        assert second["changed"] is False
        assert (second["setting"]["who"], second["setting"]["why"]) == ("boss", "a wrong policy")
        assert (await client.put(pause, json=body(CLUSTER, None))).json()["changed"] is True
        again = await client.put(pause, json=body(CLUSTER, None))
        assert again.json() == {"setting": None, "changed": False}


async def test_a_pause_of_the_cluster_ends_exceptions_of_an_earlier_one() -> None:
    """A node's would win over the next pause, which is then not one of all nodes."""
    node = make_node()
    pause = "/v1/settings/deleting.paused"

    async def scopes(client: Any) -> list[str]:
        listed = (await client.get("/v1/settings")).json()["settings"]
        return [f"{each['scope']['name']} {each['value']}" for each in listed]

    async with node.client() as client:
        await client.put(pause, json=body(CLUSTER, True))
        for name, value in (("2", False), ("3", True)):
            await client.put(pause, json=body({"kind": "node", "name": name}, value))
        named = await client.put(pause, json=body(CLUSTER, None, replaces_offset=42))
        assert named.status_code == 200, named.text
        assert await scopes(client) == ["2 false", "3 true"], "it ends what it names"
        await client.put(pause, json=body(CLUSTER, True))
        assert await scopes(client) == [" true", "3 true"]
        await client.put(pause, json=body({"kind": "node", "name": "2"}, False))
        await client.put(pause, json=body(CLUSTER, None))
        assert await scopes(client) == ["3 true"]
    assert isinstance(node.context.audit, FakeAudit)
    ended = [each.why for each in node.context.audit.lines if "as the cluster's" in each.why]
    assert len(ended) == 2
    assert ended[0].startswith("deleting.paused for node 2: not set, before: false")


async def test_a_change_that_names_another_setting_than_stands_is_a_conflict() -> None:
    node = make_node()
    async with node.client() as client:
        await client.put(TIERED, json=body(LOGS, True))
        for named in (None, 7):
            answer = await client.put(TIERED, json=body(LOGS, False, replaces_offset=named))
            assert (answer.status_code, answer.json()["kind"]) == (409, "conflict")
        answer = await client.put(TIERED, json=body(LOGS, False, replaces_offset=42))
        assert answer.json()["setting"]["value"] == "false"


@pytest.mark.parametrize(
    ("path", "given"),
    [
        (TIERED, body(CLUSTER, True)),
        (TIERED, body(LOGS, 5)),
        (TIERED, body({"kind": "topic", "name": "__consumer_offsets"}, True)),
        (TIERED, body({"kind": "topic", "name": "a/b"}, True)),
        (TIERED, body({"kind": "rack", "name": "a"}, True)),
        (RATE, body(LOGS, 5_000_000)),
        (RATE, body(CLUSTER, True)),
        (RATE, body(CLUSTER, -1)),
        ("/v1/settings/copying.paused", body({"kind": "node", "name": "one"}, True)),
        ("/v1/settings/newer", body(CLUSTER, True)),
    ],
)
async def test_settings_that_say_nothing_are_refused(path: str, given: dict[str, Any]) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.put(path, json=given)
    assert (answer.status_code, answer.json()["kind"]) == (400, "invalid_request"), answer.text
    assert node.manager.cluster_settings() == ()


async def test_setting_needs_the_role_admin(tmp_path: Path) -> None:
    node = make_node(anonymous_role=None, tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="operator-token") as client:
        assert (await client.put(TIERED, json=body(LOGS, True))).status_code == 403
        assert (await client.get("/v1/settings")).status_code == 200
    async with node.client(token="boss-token") as client:
        answer = await client.put(TIERED, json=body(LOGS, True))
        assert answer.json()["setting"]["who"] == "boss"


async def test_a_node_tells_which_setting_wins() -> None:
    node = make_node()
    node.context.flow.change(FlowLimits(Rates(2**22), {"payments": Rates(None, 2**21)}))
    async with node.client() as client:
        rates = {"limits.copy_bytes_per_s": 2**22, "limits.read_bytes_per_s": 0}
        pauses = {"copying.paused": False, "deleting.paused": False}
        assert await values(client) == pauses | rates
        of_topic = {"limits.copy_bytes_per_s": 0, "limits.read_bytes_per_s": 2**21}
        found = await values(client, topic="payments")
        assert found == pauses | of_topic | {"topics.tiered": True}
        await client.put(RATE, json=body({"kind": "node", "name": "1"}, 2**23))
        await client.put(RATE, json=body(CLUSTER, 0))
        await client.put("/v1/settings/deleting.paused", json=body(CLUSTER, True))
        await client.put(TIERED, json=body({"kind": "topic", "name": "p*"}, False))
        assert await values(client) == {
            "copying.paused": False, "deleting.paused": True,
            "limits.copy_bytes_per_s": 2**23, "limits.read_bytes_per_s": 0,
        }  # fmt: skip
        told = (await client.get("/v1/node/settings", params={"topic": "payments"})).json()
        by = {each["setting"]: each["set_by"] for each in told["in_force"]}
        assert by["topics.tiered"]["scope"]["name"] == "p*"
        assert by["copying.paused"] is None
        assert (await values(client, topic="payments"))["topics.tiered"] is False
        wrong = await client.get("/v1/node/settings", params={"topic": "a/b"})
        assert wrong.status_code == 400


async def test_a_limit_that_is_too_low_for_a_node_is_told_as_the_node_holds_it() -> None:
    """As one that was set at a node with smaller parts, or by another release."""
    node = make_node()
    for scope in (setting_scope.CLUSTER, setting_scope.of_topic("payments")):
        low = ClusterSetting(scope, "limits.read_bytes_per_s", "5", "ann", "", -1)
        await node.manager.set_cluster_setting(low)
    async with node.client() as client:
        assert (await values(client))["limits.read_bytes_per_s"] == 2**20
        found = (await values(client, topic="payments"))["limits.read_bytes_per_s"]
        assert found == 2**20


async def test_a_pause_of_the_cluster_is_a_metric_on_each_node() -> None:
    node = make_node()
    async with node.client() as client:
        assert 'strandline_paused{what="deleting"} 0.0' in (await client.get("/metrics")).text
        await client.put("/v1/settings/deleting.paused", json=body(CLUSTER, True))
        metrics = (await client.get("/metrics")).text
        assert 'strandline_paused{what="deleting"} 1.0' in metrics
        assert 'strandline_paused{what="copying"} 0.0' in metrics


async def values(client: Any, **params: str) -> dict[str, object]:
    answer = await client.get("/v1/node/settings", params=params)
    assert answer.status_code == 200, answer.text
    return {each["setting"]: each["value"] for each in answer.json()["in_force"]}


async def test_the_effect_of_enabling_and_disabling_is_told_without_a_change() -> None:
    node = make_node()

    async def topics(client: Any, **params: str) -> list[dict[str, Any]]:
        answer = await client.get("/v1/node/tiering-effect", params=params)
        assert answer.json()["next_cursor"] is None
        found: list[dict[str, Any]] = answer.json()["topics"]
        return found

    async with node.client() as client:
        web = {
            "topic": "logs.web", "node": 1, "tiered": True, "partitions": 3, "sealed_segments": 7,
            "sealed_bytes": 7_000,
        }  # fmt: skip
        assert await topics(client, name="*", tiered="true") == [web], "payments is tiered already"
        found = await topics(client, name="p*", tiered="false")
        assert [(each["topic"], each["tiered"]) for each in found] == [("payments", False)]
        await client.put(TIERED, json=body(LOGS, True))
        found = await topics(client, name="logs.*")
        assert [(each["topic"], each["tiered"]) for each in found] == [("logs.web", False)]
        for wrong in ("", "a/b", "x" * 250):
            answer = await client.get("/v1/node/tiering-effect", params={"name": wrong})
            assert answer.status_code == 400
    assert len(node.manager.cluster_settings()) == 1


@pytest.mark.parametrize("limit", [1, 2, 5])
async def test_the_effect_on_all_nodes_disks_in_pages(limit: int) -> None:
    cluster = FakeCluster()
    path = "/v1/cluster/tiering-effect"
    found: list[tuple[str, int]] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = await cluster.ask(
            path, asked=2, limit=limit, name="logs.*", tiered="true",
            **({} if cursor is None else {"cursor": cursor}),
        )  # fmt: skip
        found += [(each["topic"], each["node"]) for each in page["topics"]]
        cursor = page["next_cursor"]
    assert found == [("logs.web", 1), ("logs.web", 2), ("logs.web", 3)]
    cluster.register(n3=liveness(Liveness.FENCED))
    page = await cluster.ask(path, name="logs.*", tiered="true")
    assert [each["node"] for each in page["topics"]] == [1, 2]
    assert [each["node"] for each in page["nodes"] if not each["answered"]] == [3]
