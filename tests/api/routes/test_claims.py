"""Claims are shown and reset, and modes changed, over the real metadata and log manager."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.tokens import Role
from api.models.claims import ClaimResetRequest
from kafka_formats.errors import OutcomeUnknown
from rlm.leadership.leadership import BrokerWord, Leads, NoAnswer, NotLeading
from rlmm.apply import claims as apply_claims
from tests.api.fake_audit import FakeAudit
from tests.api.fakes import BASE, app_over, make_node, write_tokens
from tests.api.test_over_real_parts import ORDERS, get, new_orders
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog
from tests.rlm.one_node import Node, new_world
from tests.rlm.virtual_time import run_virtually

KEY = ("orders", 0)
CLAIM, RESET, MODE = f"{ORDERS}/claim", f"{ORDERS}/claim/reset", f"{ORDERS}/mode"


@dataclass
class World:
    """A node beside a broker, and a client of it. [0, 9], [10, 14] and [15, 19] are copied."""

    orders: KafkaLog
    broker: FakeBroker
    node: Node
    client: httpx.AsyncClient

    async def lead(self, word: BrokerWord, *entries: tuple[int, int]) -> None:
        """The broker says this from now on; the node looks."""
        if entries:
            self.orders.set_epochs(*entries)
            for base, end in ((0, 10), (10, 15), (15, 20), (20, 25)):
                self.orders.write_as(base, end, entries)
        self.broker.words[KEY] = word
        await self.node.remote_log.run_once()

    async def reset(self, **change: object) -> httpx.Response:
        """Confirms all that the claim shows, but for `change`."""
        shown = await get(self.client, CLAIM)
        course = {"cut_at": None, "cut_offsets": 0}
        if shown["next_claim"] is not None:
            course = {name: shown["next_claim"]["after_reset"][name] for name in course}
        body = {"token": shown["claim"]["token"], **course, **change}
        return await self.client.post(RESET, json=body)

    async def reason(self, **change: object) -> str:
        """Why a reset is refused."""
        answer = await self.reset(**change)
        assert answer.status_code == 409, answer.text
        before = await get(self.client, CLAIM)
        assert not before["reset_stands"], "nothing was changed"
        return str(answer.json()["reason"])

    async def pause(self) -> None:
        """Deleting, and copying too: the records on the disk stay those of the first leader."""
        policy = {"retention_ms": None, "retention_bytes": None}
        paused = {"copy_paused": True, "delete_paused": True}
        answer = await self.client.put("/v1/topics/orders/policy", json=policy | paused)
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def leading(tmp_path: Path) -> AsyncIterator[World]:
    orders = new_orders(tmp_path)
    broker = FakeBroker({KEY: Leads(2, 25)})
    async with new_world(tmp_path, (orders.log_dir,)).boot(broker=broker) as node:
        assert (await node.remote_log.run_once()).complete
        context = replace(
            make_node().context,
            manager=node.metadata,
            rlm=node.remote_log,
            answers=node.parts.answers,
            reads=node.parts.reads,
            anonymous_role=Role.ADMIN,
        )
        transport = httpx.ASGITransport(app_over(context))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield World(orders, broker, node, client)


@pytest.fixture(autouse=True)
def _few_offsets_are_suspect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_claims, "LINEAGE_CUT_OFFSETS_MAX", 10)


def test_a_suspect_claim_is_let_through_by_a_reset_that_confirms_it_and_comes_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with leading(tmp_path) as world:
            # Another replica came to lead uncleanly: epoch 3 goes on from offset 4.
            await world.lead(Leads(3, 25), (0, 0), (3, 4))
            status = await get(world.client, ORDERS)
            assert status["why_not_copying"] == "claim_refused"
            shown = await get(world.client, CLAIM)
            assert shown["next_claim"]["as_it_is"]["verdict"] == "suspect"
            after = shown["next_claim"]["after_reset"]
            assert (after["verdict"], after["cut_at"], after["cut_offsets"]) == ("accepted", 4, 16)
            assert after["highest_copied_offset"] == 3
            assert (shown["cut_off_segments"], shown["cut_off_bytes"] > 0) == (2, True)
            assert shown["reset_refused"]["reason"] == "DELETING_NOT_PAUSED"
            assert await world.reason() == "DELETING_NOT_PAUSED"
            await world.pause()
            assert (await get(world.client, CLAIM))["reset_refused"] is None
            assert await world.reason(cut_offsets=15) == "OTHER_OFFSETS"
            assert await world.reason(cut_at=None) == "OTHER_OFFSETS"
            assert await world.reason(token=shown["claim"]["token"] + 1) == "CONFLICT"
            tried = await world.reset(dry_run=True)
            assert (tried.status_code, tried.json()["reset_stands"]) == (200, False)

            for _ in range(2):  # repeating it is safe
                done = await world.reset()
                assert (done.status_code, done.json()["reset_stands"]) == (200, True)
                assert done.json()["reset_cut_at"] == 4
            for other in ({"cut_at": 5}, {"cut_offsets": 15}):
                answer = await world.reset(**other)
                assert (answer.status_code, answer.json()["reason"]) == (409, "OTHER_OFFSETS")
            assert int(done.headers["Strandline-Metadata-Offset"]) > shown["metadata_offset"]
            audit = (await get(world.client, "/v1/audit?action=claim_reset"))["lines"]
            token = shown["claim"]["token"]
            assert [each["why"] for each in audit] == [
                f"token {token}; the next claim may cut at 4"
            ]
            await world.lead(Leads(3, 25))
            now = await get(world.client, CLAIM)
            assert (now["claim_stands"], now["reset_stands"]) == (True, False)
            assert now["highest_copied_offset"] == 3
            assert now["reset_refused"]["reason"] == "NOT_NEEDED"

            # It was the wrong replica: while deleting is paused, the right one brings all back.
            await world.lead(Leads(4, 25), (0, 0), (2, 15), (4, 25))
            assert (await get(world.client, CLAIM))["highest_copied_offset"] == 19
            found = await get(world.client, f"{ORDERS}/segments/lookup?epoch=2&offset=15")
            assert found["segment"]["start_offset"] == 15

    run_virtually(main)


def test_a_reset_that_nobody_needs_or_that_does_not_help_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(tmp_path) as world:
            await world.pause()
            assert await world.reason() == "NOT_NEEDED"
            await world.lead(NotLeading())
            assert await world.reason() == "NOT_LEADER"
            await world.lead(NoAnswer("the broker is down"))
            assert "the broker is down" in (await world.reset()).json()["detail"]
            # An older epoch than the one that was claimed: no reset lets it in.
            await world.lead(Leads(1, 25), (0, 0), (1, 15))
            assert await world.reason() == "NO_HELP"
            mode = {"mode": "paused"}
            assert (await world.client.put(MODE, json=mode)).status_code == 200
            assert await world.reason() == "MODE"

    run_virtually(main)


def test_a_claim_that_nobody_foresaw_is_refused_though_a_reset_stands(tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(tmp_path) as world:
            await world.pause()
            await world.lead(Leads(3, 25), (0, 0), (3, 9))
            shown = await get(world.client, CLAIM)
            assert shown["next_claim"]["after_reset"]["cut_at"] == 9
            assert (await world.reset()).status_code == 200
            # Before it claims, a replica that has less comes to lead.
            await world.lead(Leads(4, 25), (0, 0), (4, 4))
            shown = await get(world.client, CLAIM)
            assert (shown["reset_stands"], shown["reset_cut_at"]) == (True, 9)
            refused = shown["next_claim"]["as_it_is"]
            assert refused["verdict"] == "suspect"
            assert "the reset in force allows a cut at 9 or above" in refused["text"]
            assert (await get(world.client, ORDERS))["why_not_copying"] == "claim_refused"
            assert (await world.reset()).json()["reset_cut_at"] == 4
            await world.lead(Leads(4, 25))
            now = await get(world.client, CLAIM)
            assert (now["claim_stands"], now["highest_copied_offset"]) == (True, 3)

    run_virtually(main)


def test_a_mode_change_says_what_it_does_and_names_the_mode_it_replaces(tmp_path: Path) -> None:
    async def main() -> None:
        async with leading(tmp_path) as world:
            put = world.client.put
            tried = (await put(MODE, json={"mode": "read_only", "dry_run": True})).json()
            assert (tried["mode"], tried["changed"]) == ("sidecar", False)
            assert "lost to the tier; the present claim is voided" in tried["text"]
            late = {"mode": "read_only", "replaces_offset": tried["mode_offset"] + 1}
            assert (await put(MODE, json=late)).status_code == 409
            for changed in (True, False):  # repeating it is safe
                answer = await put(MODE, json={"mode": "read_only"})
                assert answer.status_code == 200, answer.text
                assert (answer.json()["mode"], answer.json()["changed"]) == ("read_only", changed)
            await world.lead(Leads(2, 25))
            assert (await get(world.client, ORDERS))["why_not_copying"] == "mode"
            back = {"mode": "sidecar"}
            unsure = await put(MODE, json=back)
            assert (unsure.status_code, unsure.json()["field"]) == (400, "confirm")
            tried = (await put(MODE, json=back | {"dry_run": True})).json()
            assert tried["next_claim"]["verdict"] == "accepted"
            assert tried["next_claim"]["cut_at"] is None
            done = await put(MODE, json=back | {"confirm": "orders"})
            assert done.json()["changed"]
            await world.lead(Leads(2, 25))
            status = await get(world.client, ORDERS)
            assert (status["mode"], status["highest_copied_offset"]) == ("sidecar", 19)
            assert status["claim_token"] > 0

    run_virtually(main)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/claim/reset", {"token": 7, "cut_at": None, "cut_offsets": 0}),
        ("PUT", "/mode", {"mode": "paused"}),
    ],
)
async def test_these_need_an_admin(
    tmp_path: Path, method: str, path: str, body: dict[str, Any]
) -> None:
    node = make_node(tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="operator-token") as client:
        assert (await client.request(method, BASE + path, json=body)).status_code == 403


async def test_a_mode_change_has_a_line_in_the_audit_with_who_asked(tmp_path: Path) -> None:
    node = make_node(tokens=write_tokens(tmp_path / "tokens"))
    async with node.client(token="boss-token") as client:
        assert (await client.put(f"{BASE}/mode", json={"mode": "paused"})).status_code == 200
        node.manager.refusal = OutcomeUnknown("no answer")
        assert (await client.put(f"{BASE}/mode", json={"mode": "paused"})).status_code == 504
    assert isinstance(node.context.audit, FakeAudit)
    told = [(line.action, line.by, line.why) for line in node.context.audit.lines[4:]]
    assert told == [
        ("mode_set", "boss", "sidecar to paused"),
        ("mode_set", "boss", "sidecar to paused; the outcome is unknown"),
    ]


def test_a_reset_that_cuts_nothing_says_so_in_the_audit() -> None:
    body = ClaimResetRequest(token=7, cut_at=None, cut_offsets=0)
    assert body.why() == "token 7; the next claim cuts nothing"
