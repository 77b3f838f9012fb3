"""Retention over HTTP: the dry run, and leave to take more than the brake allows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from api.http.tokens import Role
from api.models.retention import PLAN_SEGMENTS_MAX
from kafka_formats.kafka_uuid import Uuid
from rlm.retention.acceptance import AskedAcceptance
from rlm.retention.retention_plan import Deletion, LogStartMove, Reason
from rlmm.partition_state import UNLIMITED, TopicPolicy
from tests.api.fake_retention import NOTHING, FakeRetention
from tests.api.fakes import TIP, FakeNode, make_node, make_segment

PATH = "/v1/topics/payments/partitions/0/retention"
ACCEPT = {"percent": 85, "up_to_offset": 1200}


def node_with(retention: FakeRetention, role: Role = Role.ADMIN) -> FakeNode:
    node = make_node(anonymous_role=role)
    return replace(node, context=replace(node.context, retention=retention))


async def test_the_plan_says_what_goes_and_why() -> None:
    row = make_segment(1)
    made = replace(
        NOTHING,
        log_start=LogStartMove(1200, 7),
        deletions=(Deletion(row, Reason.TIME, "it is too old"),),
        expiring_bytes=10,
        size_bytes=40,
        held_back="the clocks differ",
    )
    async with node_with(FakeRetention(made), Role.READ).client() as client:
        plan = (await client.get(f"{PATH}/plan")).json()
    assert plan["new_log_start_offset"] == 1200
    assert plan["segments"][0]["segment_id"] == str(row.segment_id.id)
    assert (plan["segments"][0]["reason"], plan["segments"][0]["why"]) == (
        "retention_time", "it is too old",
    )  # fmt: skip
    assert (plan["expiring_bytes"], plan["tiered_bytes"]) == (10, 40)
    assert plan["held_back"] == "the clocks differ"
    assert (plan["retention_ms"], plan["retention_of"]) == (None, "the topic's policy")


async def test_the_plan_names_what_comes_into_the_trash() -> None:
    marked = (Deletion(make_segment(1), Reason.TIME, "it is too old"),)
    made = replace(NOTHING, mark=LogStartMove(1500, 7), marked=marked, hold="ann took it back")
    async with node_with(FakeRetention(made), Role.READ).client() as client:
        plan = (await client.get(f"{PATH}/plan")).json()
    assert (plan["new_log_start_offset"], plan["new_readable_offset"]) == (None, 1500)
    assert (plan["segment_count"], plan["trashed_count"], len(plan["segments"])) == (1, 1, 1)
    assert plan["hold"] == "ann took it back"


async def test_a_policy_is_tried_before_it_is_set() -> None:
    retention = FakeRetention()
    node = node_with(retention, Role.READ)
    node.manager.policies["payments"] = TopicPolicy(5, 6, delete_paused=True, offset=7)
    async with node.client() as client:
        body = {"retention_ms": 1_000, "retention_bytes": None}
        answer = await client.post(f"{PATH}/plan", json=body)
        assert answer.status_code == 200, answer.text
        for wrong in ({}, body | {"retention_ms": -1}, body | {"copy_paused": True}):
            answer = await client.post(f"{PATH}/plan", json=wrong)
            assert answer.json()["kind"] == "invalid_request"
    assert retention.asked_by == [TopicPolicy(1_000, UNLIMITED, delete_paused=True, offset=7)]


async def test_an_answer_lists_a_bounded_number_of_segments() -> None:
    deletion = Deletion(make_segment(1), Reason.SIZE, "")
    made = replace(NOTHING, deletions=(deletion,) * (PLAN_SEGMENTS_MAX + 1))
    async with node_with(FakeRetention(made)).client() as client:
        plan = (await client.get(f"{PATH}/plan")).json()
    assert (len(plan["segments"]), plan["segment_count"]) == (1_000, 1_001)


async def test_an_admin_accepts_a_share_once_on_the_node_that_leads() -> None:
    retention = FakeRetention()
    async with node_with(retention).client() as client:
        answer = await client.put(f"{PATH}/accepted-percent", json=ACCEPT)
        assert answer.status_code == 200, answer.text
        assert answer.json()["accepted"] == "anonymous let it"
        retention.claimed = False
        answer = await client.put(f"{PATH}/accepted-percent", json=ACCEPT)
        assert (answer.status_code, answer.json()["reason"]) == (409, "NOT_CLAIMED")
    assert [asked for _, asked in retention.accepts] == [AskedAcceptance(85.0, 1200, "anonymous")]
    async with node_with(retention, Role.OPERATE).client() as client:
        answer = await client.put(f"{PATH}/accepted-percent", json=ACCEPT)
        assert answer.status_code == 403


@pytest.mark.parametrize("percent", [0, -1, 100.5, "85", None])
async def test_a_share_that_is_none_is_refused(percent: object) -> None:
    retention = FakeRetention()
    async with node_with(retention).client() as client:
        answer = await client.put(f"{PATH}/accepted-percent", json=ACCEPT | {"percent": percent})
    assert answer.json()["kind"] == "invalid_request"
    assert retention.accepts == []


async def test_a_policy_tells_which_topic_it_was_set_for_and_counts_for_no_other() -> None:
    node = make_node()
    former = Uuid(b"payments-of-once")
    node.manager.policies["payments"] = TopicPolicy(
        1000, copy_paused=True, offset=7, topic_id=former
    )
    path = "/v1/topics/payments/policy"
    async with node.client() as client:
        told = (await client.get(path)).json()
        of_former = (await client.get(path, params={"topic_id": str(former)})).json()
        of_other = (await client.get("/v1/topics/other/policy")).json()
        refused = await client.get(path, params={"topic_id": "x"})
    assert (told["topic_id"], told["set_for"]) == (str(TIP.topic_id), str(former))
    assert (told["retention_ms"], told["copy_paused"], told["offset"]) == (None, True, 7)
    assert of_former["retention_ms"] == 1000
    assert (of_other["topic_id"], of_other["set_for"]) == (None, None)
    assert (refused.status_code, refused.json()["field"]) == (400, "topic_id")


async def test_records_are_deleted_from_the_tier_by_an_admin_and_audited() -> None:
    retention = FakeRetention()
    body: dict[str, object] = {"before_offset": 120, "reason": "order 7 has to go"}
    path = f"{PATH}/delete-records"
    node = node_with(retention)
    async with node.client() as client:
        planned = (await client.post(path, json=body)).json()
        assert (retention.deleted_below, planned["changed"]) == ([], False)
        done = (await client.post(path, json=body | {"dry_run": False})).json()
        lines = (await client.get("/v1/audit", params={"action": "records_deleted"})).json()[
            "lines"
        ]
        unsaid = await client.post(path, json={"before_offset": 120})
    assert (done["log_start_offset"], done["new_log_start_offset"]) == (0, 120)
    assert (done["segment_count"], done["kept_to_offset"]) == (2, 129)
    assert (retention.deleted_below, done["changed"]) == ([120], True)
    assert [(line["end_offset"], line["by"]) for line in lines] == [(119, "anonymous")]
    assert unsaid.status_code == 400
    async with node_with(FakeRetention(), Role.OPERATE).client() as client:
        assert (await client.post(path, json=body)).status_code == 403
    async with node_with(FakeRetention(claimed=False)).client() as client:
        refused = await client.post(path, json=body | {"dry_run": False})
    assert (refused.status_code, refused.json()["reason"]) == (409, "NOT_CLAIMED")
