"""The trash over HTTP: listed, restored from, emptied, and refused where nothing is in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx

from api.http.tokens import Role
from rlm.retention.retention_plan import LogStartMove
from rlmm.partition_state import Expiry, ExpiryHold
from rlmm.partition_state import ExpiryMark as Mark
from tests.api.fake_audit import FakeAudit
from tests.api.fake_retention import NOTHING, FakeRetention
from tests.api.fakes import FakeNode, make_node

PATH = "/v1/topics/payments/partitions/0/trash"
MARKED = Expiry(
    (
        Mark(100, 5, 0, 5, 1_000, 0, 60_000, 1, 1_000, "too old"),
        Mark(200, 6, 0, 6, 2_000, 0, 60_000, 1, 1_000, "too old"),
    ),
    None,
    6,
)
HELD = Expiry((), ExpiryHold(-1, "ann", "by mistake", 1_000), 7)
RESTORE = {"why": "by mistake"}


def node_with(
    expiry: Expiry, *, repeats: bool = False, role: Role = Role.ADMIN, claimed: bool = True
) -> FakeNode:
    node = make_node(anonymous_role=role)
    node.manager.expiry = expiry
    made = replace(NOTHING, mark=LogStartMove(200, 2)) if repeats else NOTHING
    retention = FakeRetention(made, claimed=claimed)
    return replace(node, context=replace(node.context, retention=retention))


async def posted(node: FakeNode, what: str, body: dict[str, Any]) -> httpx.Response:
    async with node.client() as client:
        return await client.post(f"{PATH}/{what}", json=body)


async def test_it_lists_what_is_hidden_and_until_when() -> None:
    async with node_with(MARKED, role=Role.READ).client() as client:
        page = (await client.get("/v1/trash")).json()
        other = (await client.get("/v1/trash", params={"topic": "orders"})).json()
    (each,) = page["partitions"]
    assert (each["state"], each["segments"], each["size_bytes"]) == ("expired", 2, 2_000)
    assert (each["log_start_offset"], each["readable_from_offset"]) == (0, 200)
    assert [mark["goes_from_ms"] for mark in each["marks"]] == [61_000, 62_000]
    assert each["goes_from_ms"] == 61_000
    assert (page["trash_s"], page["delegated_partitions"], other["partitions"]) == (86_400, 0, [])


async def test_a_restore_holds_what_the_policy_would_take_again() -> None:
    for repeats, asked, held in (
        (True, None, True), (False, None, False), (True, False, False), (False, True, True),
    ):  # fmt: skip
        node = node_with(MARKED, repeats=repeats)
        answer = await posted(node, "restore", RESTORE | {"hold": asked})
        assert (answer.status_code, answer.json()["hold"]) == (200, held), answer.text
        assert (node.manager.expiry.marks, node.manager.expiry.hold is not None) == ((), held)
    audit = node.context.audit
    assert isinstance(audit, FakeAudit)
    (line,) = [line for line in audit.lines if line.action == "trash_restored"]
    assert (line.by, line.start_offset, line.end_offset) == ("anonymous", 0, 199)
    again = await posted(node, "restore", RESTORE)
    assert (again.status_code, again.json()["reason"]) == (409, "NOT_IN_TRASH")


async def test_a_hold_that_ended_with_its_policy_is_not_listed() -> None:
    hold = HELD.hold
    assert hold is not None
    for policy_offset, listed in ((-1, 1), (3, 0)):
        node = node_with(replace(HELD, hold=hold._replace(policy_offset=policy_offset)))
        async with node.client() as client:
            assert len((await client.get("/v1/trash")).json()["partitions"]) == listed


async def test_a_hold_is_released_once() -> None:
    node = node_with(HELD)
    assert (await posted(node, "release", RESTORE)).json()["hold"] is None
    again = await posted(node, "release", RESTORE)
    assert (again.status_code, again.json()["reason"]) == (409, "NOT_HELD")


async def test_it_is_emptied_by_the_node_with_the_claim_after_a_dry_run() -> None:
    body = {"reason": "the disk is full"}
    node = node_with(MARKED)
    dry = (await posted(node, "empty", body)).json()
    assert (dry["dry_run"], dry["new_log_start_offset"], dry["changed"]) == (True, 200, False)
    unseen = await posted(node, "empty", body | {"dry_run": False})
    assert (unseen.status_code, unseen.json()["field"]) == (400, "up_to_offset")
    for other in (0, 150, 201):
        refused = await posted(node, "empty", body | {"dry_run": False, "up_to_offset": other})
        assert (refused.status_code, refused.json()["reason"]) == (409, "OTHER_MARKS")
    for seen in (100, 200):
        done = await posted(node, "empty", body | {"dry_run": False, "up_to_offset": seen})
        assert done.json()["new_log_start_offset"] == seen, "what came later stays"
    assert done.json()["changed"] is True
    elsewhere = await posted(node_with(MARKED, claimed=False), "empty", body)
    assert elsewhere.json()["reason"] == "NOT_CLAIMED"
    nothing = await posted(node_with(HELD), "empty", body)
    assert nothing.json()["reason"] == "NOT_IN_TRASH"


async def test_only_an_admin_changes_it() -> None:
    for what in ("restore", "release", "empty"):
        answer = await posted(node_with(MARKED, role=Role.OPERATE), what, RESTORE)
        assert answer.status_code in (401, 403), (what, answer.text)
