"""The routes over the real managers: a directory is copied, and everything about it is asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.api_limits import ApiLimits
from api.http.tokens import Role
from kafka_formats.log_names import segment_file_name
from rlmm.rows.feature_level import LEVELS_KNOWN
from tests.api.fakes import app_over, make_node
from tests.rlm.kafka_logs import TIMESTAMP_MS, KafkaLog, new_log_dir
from tests.rlm.one_node import new_world
from tests.rlm.virtual_time import run_virtually

ORDERS = "/v1/topics/orders/partitions/0"


def new_orders(folder: Path) -> KafkaLog:
    """Three sealed segments, [0, 9], [10, 14] and [15, 19], and an active one."""
    log = KafkaLog.create(new_log_dir(folder / "kafka"), "orders", entries=((0, 0), (2, 15)))
    log.write(0, 10, end=15)
    log.write(15, 20, end=25, epoch=2)
    return log


@pytest.fixture
def orders(tmp_path: Path) -> KafkaLog:
    return new_orders(tmp_path)


@asynccontextmanager
async def asked(tmp_path: Path, orders: KafkaLog) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a node that has copied [0, 9], [10, 14] and [15, 19]."""
    async with new_world(tmp_path, (orders.log_dir,)).boot(data_plane=True) as node:
        assert (await node.remote_log.run_once()).complete
        fake = make_node(limits=ApiLimits(event_stream_s=0.0))  # its clock stands still
        fake.quorum.levels_known = LEVELS_KNOWN
        context = replace(
            fake.context,
            manager=node.metadata,
            rlm=node.remote_log,
            answers=node.parts.answers,
            reads=node.parts.reads,
            anonymous_role=Role.ADMIN,
        )
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app_over(context)), base_url="http://localhost"
        ) as client:
            yield client


async def get(client: httpx.AsyncClient, path: str) -> Any:
    """The JSON of a good answer."""
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_what_was_copied_is_listed_looked_up_and_read_back(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            assert [t["topic"] for t in (await get(client, "/v1/topics"))["topics"]] == ["orders"]
            status = await get(client, ORDERS)
            assert (status["highest_copied_offset"], status["next_offset"]) == (19, 20)
            seen: list[dict[str, Any]] = []
            page: dict[str, Any] = {"next_cursor": None}
            while not seen or page["next_cursor"] is not None:
                behind = "" if page["next_cursor"] is None else f"&cursor={page['next_cursor']}"
                page = await get(client, f"{ORDERS}/segments?limit=1{behind}")
                seen += page["segments"]
            assert [(s["start_offset"], s["end_offset"]) for s in seen] == [
                (0, 9),
                (10, 14),
                (15, 19),
            ]
            found = await get(client, f"{ORDERS}/segments/lookup?epoch=0&offset=12")
            assert found["segment"]["segment_id"] == seen[1]["segment_id"]
            for segment in seen:
                path = f"{ORDERS}/segments/{segment['segment_id']}"
                whole = (await client.get(f"{path}/log")).content
                assert whole == orders.log_bytes(segment["start_offset"])
                part = await client.get(f"{path}/log", headers={"Range": "bytes=5-20"})
                assert (part.status_code, part.content) == (206, whole[5:21])
                index = (await client.get(f"{path}/indexes/offset")).content
                name = segment_file_name(segment["start_offset"], ".index")
                assert index == (orders.directory / name).read_bytes()
                assert (await client.get(f"{path}/indexes/transaction")).status_code == 404
                states = [c["state"] for c in (await get(client, f"{path}/history"))["changes"]]
                assert states == ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"]

    run_virtually(main)


def test_the_coverage_names_each_offset_once_and_where_it_ends(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            topic = await get(client, "/v1/topics/orders/coverage")
            assert topic["partitions"] == [
                {"partition": 0, "earliest_offset": 0, "latest_offset": 20}
            ]
            answer = await client.get(f"{ORDERS}/coverage?topic_id={topic['topic_id']}")
            assert answer.headers["content-type"] == "application/x-ndjson"
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert [(each["first_offset"], each["last_offset"]) for each in lines] == [
                (0, 9),
                (10, 14),
                (15, 19),
            ]
            segments = (await get(client, f"{ORDERS}/segments"))["segments"]
            ranges = {"first_offset", "last_offset"}
            for line, segment in zip(lines, segments, strict=True):
                assert {name: segment[name] for name in line.keys() - ranges} == {
                    name: value for name, value in line.items() if name not in ranges
                }
            whole = await client.get("/v1/topics/orders/coverage/segments")
            assert whole.content == answer.content
            part = await client.get(f"{ORDERS}/coverage?first_offset=12&last_offset=17")
            cut = [json.loads(line) for line in part.text.splitlines()]
            assert [(each["first_offset"], each["last_offset"]) for each in cut] == [
                (12, 14),
                (15, 17),
            ]
            for path in ("gone/coverage", "orders/partitions/7/coverage"):
                nothing = await client.get(f"/v1/topics/{path}")
                assert (nothing.status_code, nothing.json()["kind"]) == (404, "not_found")

    run_virtually(main)


def test_records_come_back_across_segments_as_they_were_stored(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            answer = await client.get(f"{ORDERS}/records?offset=0")
            stored = b"".join(orders.log_bytes(base) for base in (0, 10, 15))
            assert answer.content == stored
            lines = await client.get(
                f"{ORDERS}/records?offset=8&isolation=read_committed",
                headers={"Accept": "application/x-ndjson"},
            )
            offsets = [json.loads(line)["offset"] for line in lines.text.splitlines()]
            assert offsets == list(range(8, 20))
            above = await client.get(f"{ORDERS}/records?offset=20")
            assert (above.status_code, above.json()["kind"]) == (404, "not_found")

    run_virtually(main)


def test_the_questions_of_leaders_followers_and_list_offsets_are_answered(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            transition = await get(client, f"{ORDERS}/leader-transition")
            assert (transition["highest_copied_offset"], transition["next_offset"]) == (19, 20)
            follower = await get(
                client,
                f"{ORDERS}/follower-fetch?fetch_offset=3&leader_epoch=2"
                "&leader_local_log_start_offset=15",
            )
            assert (follower["plan"], follower["fetch_offset"]) == ("build_from_tier", 15)
            snapshot = await client.get(follower["producer_snapshot_link"])
            assert snapshot.content == (orders.directory / f"{15:020d}.snapshot").read_bytes()
            for name, offset in (
                ("earliest", 0),
                ("latest-tiered", 19),
                ("earliest-pending-upload", 20),
                (str(TIMESTAMP_MS + 12), 12),
            ):
                answer = await get(client, f"{ORDERS}/offsets?timestamp={name}")
                assert answer["offset"] == offset, name

    run_virtually(main)


def test_a_policy_survives_and_the_metrics_tell_the_totals(
    tmp_path: Path, orders: KafkaLog
) -> None:
    async def main() -> None:
        async with asked(tmp_path, orders) as client:
            body = {
                "retention_ms": 5,
                "retention_bytes": None,
                "copy_paused": True,
                "delete_paused": False,
                "replaces_offset": None,
            }
            put = await client.put("/v1/topics/orders/policy", json=body)
            assert put.status_code == 200, put.text
            offset = put.headers["Strandline-Metadata-Offset"]
            seen = await client.get(
                "/v1/topics/orders/policy", headers={"Strandline-Min-Metadata-Offset": offset}
            )
            changed = {"changed": ["retention_ms", "copy_paused"]}
            assert put.json() == seen.json() | changed
            assert (seen.json()["retention_ms"], seen.json()["offset"]) == (5, int(offset))
            repeated = await client.put("/v1/topics/orders/policy", json=body)
            assert repeated.json() == seen.json() | {"changed": []}
            late = await client.put("/v1/topics/orders/policy", json=body | {"retention_ms": 6})
            assert (late.status_code, late.json()["reason"]) == (409, "CONFLICT")
            metrics = (await client.get("/metrics")).text
            assert (
                'strandline_remote_log_metadata_count{state="COPY_SEGMENT_FINISHED"} 3.0' in metrics
            )
            assert (await get(client, "/v1/cluster"))["totals"]["copy_segment_finished"] == 3
            assert (await get(client, "/v1/quorum"))["high_watermark"] > int(offset)

    run_virtually(main)
