"""A topic's data in the tier is marked for deletion and brought back, over the real metadata."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from api.http.tokens import Role
from api.routes.tiered_data import _of_topic_id
from kafka_formats.errors import Conflict, InvalidRequest, NotFound, OutcomeUnknown
from rlmm.partition_state import DELETE_GRACE_DEFAULT_MS
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import make_node, write_tokens
from tests.api.test_over_real_parts import asked, get, new_orders
from tests.rlm.planner_facts import PARTITION, state, uuid
from tests.rlm.virtual_time import run_virtually

PATH = "/v1/topics/orders/tiered-data"


def test_a_topic_is_marked_seen_and_taken_back(tmp_path: Path) -> None:
    orders = new_orders(tmp_path)

    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            (before,) = (await get(client, PATH))["partitions"]
            assert (before["delete_state"], before["goes_from_ms"]) == (None, None)
            assert before["remote_segments"] == 3
            for changed in (1, 0):  # repeating it is safe
                answer = await client.delete(PATH, params={"confirm": "orders"})
                assert answer.status_code == 200, answer.text
                assert answer.json()["changed"] == changed
                audit = await get(client, "/v1/audit?action=partition_marked&topic=orders")
                assert len(audit["lines"]) == 1, "a mark that stands is not proposed again"
            assert int(answer.headers["Strandline-Metadata-Offset"]) > 0
            (marked,) = (await get(client, PATH))["partitions"]
            assert marked["delete_state"] == "marked"
            assert marked["grace_ms"] == DELETE_GRACE_DEFAULT_MS
            assert marked["goes_from_ms"] == marked["marked_at_ms"] + DELETE_GRACE_DEFAULT_MS
            assert answer.json()["goes_from_ms"] == marked["goes_from_ms"]
            sooner = await client.delete(PATH, params={"confirm": "orders", "grace_ms": "0"})
            assert (sooner.status_code, sooner.json()["kind"]) == (409, "conflict")
            undone = await client.post(f"{PATH}/undo")
            assert undone.json() == {
                "topic": "orders", "changed": 1, "goes_from_ms": None, "restored": 0, "held": 0,
            }  # fmt: skip
            assert (await get(client, PATH))["partitions"] == [before]
            again = await client.post(f"{PATH}/undo")
            assert again.json()["changed"] == 0
            now = await client.delete(PATH, params={"confirm": "orders", "grace_ms": "0"})
            assert now.json()["changed"] == 1

    run_virtually(main)


async def test_marks_and_undos_have_a_line_with_who_asked(tmp_path: Path) -> None:
    node = make_node(tokens=write_tokens(tmp_path / "tokens"))
    path = "/v1/topics/payments/tiered-data"
    async with node.client(token="boss-token") as client:
        params = {"confirm": "payments", "grace_ms": "60000"}
        assert (await client.delete(path, params=params)).status_code == 200
        node.manager.refusal = OutcomeUnknown("no answer")
        assert (await client.delete(path, params=params)).status_code == 504
        node.manager.refusal = Conflict("another mark stands")
        assert (await client.delete(path, params=params)).status_code == 409
    assert isinstance(node.context.audit, FakeAudit)
    told = [(line.action, line.by, line.why) for line in node.context.audit.lines[4:]]
    assert told == [
        ("partition_marked", "boss", "grace 60000 ms"),
        ("partition_marked", "boss", "grace 60000 ms; the outcome is unknown"),
    ]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({}, "confirm"),
        ({"confirm": "order"}, "confirm"),
        ({"confirm": "payments", "topic_id": "x"}, "topic_id"),
        ({"confirm": "payments", "grace_ms": "-1"}, "grace_ms"),
    ],
)
async def test_what_is_not_asked_for_clearly_is_not_marked(
    params: dict[str, str], field: str
) -> None:
    async with make_node().client() as client:
        answer = await client.delete("/v1/topics/payments/tiered-data", params=params)
        assert (answer.status_code, answer.json()["field"]) == (400, field)


async def test_only_an_admin_marks_and_takes_back() -> None:
    async with make_node(anonymous_role=Role.OPERATE).client() as client:
        path = "/v1/topics/payments/tiered-data"
        assert (await client.delete(path, params={"confirm": "payments"})).status_code == 403
        assert (await client.post(f"{path}/undo")).status_code == 403
        assert (await client.get(path)).status_code == 200


async def test_a_topic_that_the_metadata_does_not_know_is_not_found() -> None:
    async with make_node().client() as client:
        answer = await client.delete("/v1/topics/other/tiered-data", params={"confirm": "other"})
        assert answer.status_code == 404


def test_a_topic_that_was_made_again_needs_its_topic_id() -> None:
    old = state()
    new = replace(old, partition=replace(PARTITION, topic_id=uuid(9)))
    with pytest.raises(InvalidRequest) as refused:
        _of_topic_id("orders", [old, new], None)
    assert refused.value.field == "topic_id"
    assert _of_topic_id("orders", [old, new], str(uuid(9))) == [new]
    assert _of_topic_id("orders", [old, new], "all") == [old, new]
    assert _of_topic_id("orders", [old], None) == [old]
    with pytest.raises(NotFound):
        _of_topic_id("orders", [old], str(uuid(9)))
