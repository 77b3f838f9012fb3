"""Collections over HTTP: only admins begin one; how it goes is told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from api.http.tokens import Role
from kafka_formats.kafka_uuid import Uuid
from rlm.reconcile.collection_plan import Known
from rlmm.segment import SegmentState
from tests.api.fake_cluster import FakeCluster
from tests.api.fake_collector import JOB_ID, FakeCollector
from tests.api.fake_erasures import ERASURE_ID, FakeErasures
from tests.api.fake_repairs import REPAIR_ID, FakeRepairs
from tests.api.fakes import FakeNode, make_node, make_segment, write_tokens

COLLECT = "/v1/jobs/collect"


def node(collector: FakeCollector) -> FakeNode:
    plain = make_node()
    return replace(plain, context=replace(plain.context, collector=collector))


async def test_a_pass_only_looks_unless_told_otherwise() -> None:
    collector = FakeCollector()
    async with node(collector).client() as client:
        answer = await client.post(COLLECT, json={})
        job = await client.get(f"/v1/jobs/{JOB_ID}")
    assert answer.status_code == 200
    assert answer.json() == job.json()
    view = job.json()
    assert (view["apply"], view["state"], view["by"]) == (False, "finished", "anonymous")
    assert view["found"]["orphan"] == {
        "objects": 1, "size_bytes": 7, "examples": ["main:tier/x"],
    }  # fmt: skip
    assert view["found"]["foreign"]["objects"] == 0


async def test_another_pass_waits_and_a_forgotten_one_is_not_found() -> None:
    collector = FakeCollector(runs=True)
    async with node(collector).client() as client:
        busy = await client.post(COLLECT, json={"apply": True})
        gone = await client.get(f"/v1/jobs/{JOB_ID}")
    assert (busy.status_code, busy.json()["reason"]) == (409, "RUNNING")
    assert gone.status_code == 404


@pytest.mark.parametrize(("name", "status"), [("reader", 403), ("operator", 403), ("boss", 200)])
async def test_only_an_admin_begins_one_and_is_named(
    tmp_path: Path, name: str, status: int
) -> None:
    guarded = make_node(tokens=write_tokens(tmp_path / "tokens"), anonymous_role=Role.READ)
    async with guarded.client(token=f"{name}-token") as client:
        answer = await client.post(COLLECT, json={"apply": True, "accept_objects": 5})
    assert answer.status_code == status
    if status == 200:
        assert (answer.json()["by"], answer.json()["accept_objects"]) == ("boss", 5)


@pytest.mark.parametrize(
    "body", [{"apply": "yes"}, {"accept_objects": -1}, {"accept_objects": 1.0}, {"all": True}]
)
async def test_a_wrong_wish_is_refused(body: dict[str, object]) -> None:
    collector = FakeCollector()
    async with node(collector).client() as client:
        answer = await client.post(COLLECT, json=body)
    assert (answer.status_code, collector.last) == (400, None)


async def test_what_the_metadata_knows_of_listed_segments_is_told_in_their_order() -> None:
    row = make_segment(7, SegmentState.DELETE_SEGMENT_STARTED)
    deleted, never = Uuid(b"d" * 16), Uuid(b"n" * 16)
    known = {row.segment_id.id: Known(row, 1234), deleted: Known(deleted=True)}
    tip = row.segment_id.partition
    asked = [
        {
            "topic": tip.topic,
            "topic_id": str(tip.topic_id),
            "partition": tip.partition,
            "segment_id": str(each),
        }
        for each in (deleted, row.segment_id.id, never)
    ]
    async with node(FakeCollector(known=known)).client() as client:
        answer = await client.post("/v1/segments/known", json={"segments": asked})
        elsewhere = await client.post(
            "/v1/segments/known", json={"segments": [asked[1] | {"partition": 99}]}
        )
        wrong = await client.post(
            "/v1/segments/known", json={"segments": [asked[0] | {"topic": "a/b"}]}
        )
        many = await client.post("/v1/segments/known", json={"segments": asked * 400})
    found = answer.json()["segments"]
    assert [each["knowledge"] for each in found] == ["deleted", "row", "never"]
    assert (found[1]["state"], found[1]["due_ms"]) == ("DELETE_SEGMENT_STARTED", 1234)
    assert elsewhere.json()["segments"][0]["knowledge"] == "never"
    assert (wrong.status_code, many.status_code) == (400, 400)


async def test_a_repair_is_asked_for_by_an_admin_and_told_by_its_id() -> None:
    plain = make_node()
    repairs = FakeRepairs()
    asked = replace(plain, context=replace(plain.context, repairs=repairs))
    async with asked.client() as client:
        answer = await client.post("/v1/jobs/repair", json={"topic": "orders", "partition": 0})
        assert answer.status_code == 200
        job = answer.json()
        assert (job["checked"], job["damaged"], job["standing"]) == (3, 1, 1)
        assert job["segments"][0]["source"] == "the broker's segments"
        assert job["segments"][0]["outcome"] == "would"
        again = await client.get(f"/v1/jobs/repair/{REPAIR_ID}")
        assert again.json() == job
        assert (await client.get("/v1/jobs/repair/AAAAAAAAAAAAAAAAAAAAAA")).status_code == 404
        wrong = await client.post("/v1/jobs/repair", json={"topic": "orders", "segment": "x"})
        assert (wrong.status_code, wrong.json()["kind"]) == (400, "invalid_request")
        repairs.runs = True
        busy = await client.post("/v1/jobs/repair", json={"topic": "orders"})
        assert (busy.status_code, busy.json()["reason"]) == (409, "RUNNING")


async def test_an_erasure_is_asked_for_by_an_admin_and_told_by_its_id() -> None:
    plain = make_node()
    erasures = FakeErasures()
    asked = replace(plain, context=replace(plain.context, erasures=erasures))
    path, whole = "/v1/jobs/erase", {"topic": "orders", "reason": "a court's order"}
    below = {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ", "partition": 0, "before_offset": 15}
    async with asked.client() as client:
        answer = await client.post(path, json=whole | below | {"dry_run": False})
        assert answer.status_code == 200, answer.text
        job = answer.json()
        assert (job["dry_run"], job["state"], job["before_offset"]) == (False, "incomplete", 15)
        assert job["left"][0]["why"] == "not allowed (AccessDenied)"
        assert job["stores"]["main"]["kept"] == {"live": 3}
        assert erasures.last is not None
        assert erasures.last.request.deadline_s == 3_600.0
        assert (await client.get(f"{path}/{ERASURE_ID}")).json() == job
        assert (await client.get(f"{path}/AAAAAAAAAAAAAAAAAAAAAA")).status_code == 404
        assert (await client.post(path, json=whole)).json()["dry_run"] is True
        for wrong in (
            whole | {"partition": 0},
            whole | {"before_offset": 3},
            whole | {"partition": 0, "before_offset": 3},
            whole | {"topic": "a/b"},
            whole | {"topic_id": "x"},
            whole | {"deadline_s": 0},
            {"topic": "orders"},
        ):
            refused = await client.post(path, json=wrong)
            assert (refused.status_code, refused.json()["kind"]) == (400, "invalid_request"), wrong
        erasures.ordered = False
        early = await client.post(path, json=whole | {"dry_run": False})
        assert (early.status_code, early.json()["reason"]) == (409, "NOT_ORDERED")


@pytest.mark.parametrize(("name", "status"), [("reader", 403), ("operator", 403), ("boss", 200)])
async def test_only_an_admin_erases(tmp_path: Path, name: str, status: int) -> None:
    guarded = make_node(tokens=write_tokens(tmp_path / "tokens"), anonymous_role=Role.READ)
    async with guarded.client(token=f"{name}-token") as client:
        answer = await client.post("/v1/jobs/erase", json={"topic": "orders", "reason": "why"})
    assert answer.status_code == status


async def test_an_erasure_is_told_which_stores_only_other_nodes_have() -> None:
    cluster = FakeCluster()
    node = cluster.nodes[1]
    node.context = replace(node.context, store_names=("main",))
    async with node.client() as client:
        answer = await client.post("/v1/jobs/erase", json={"topic": "orders", "reason": "why"})
    assert answer.status_code == 200, answer.text
    erasures = node.context.erasures
    assert isinstance(erasures, FakeErasures)
    assert erasures.last is not None
    (told,) = erasures.last.request.elsewhere.items()
    assert told[0] == "second"
    assert "node 3 has this store in its settings, but this node has not" in told[1]
