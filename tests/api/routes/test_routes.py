"""Every route answers with what the node knows, and 404 where it knows nothing."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from kafka_formats.errors import NotFound
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.data_plane.read_request import Isolation, RecordFormat, RecordsRequest
from rlm.fetch.follower_start import FollowerFetchQuery
from rlm.fetch.leader_transition import LeaderTransitionQuery
from rlm.fetch.list_offsets import OffsetSpec
from rlm.format.manifest import IndexType
from rlmm.segment import SegmentState
from tests.api.fakes import (
    BASE,
    LINEAGE,
    TIP,
    TOPIC_ID,
    FakeNode,
    FakeStream,
    copying_status,
    make_node,
    make_segment,
    make_status,
    segment_uuid,
)


async def get(node: FakeNode, path: str, status: int = 200, **headers: str) -> Any:
    """The JSON of a GET, whose status has to be as said."""
    async with node.client() as client:
        answer = await client.get(path, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_the_cluster_tells_who_answers_and_what_the_tier_holds() -> None:
    answer = await get(make_node(), "/v1/cluster")
    assert answer["kafka_cluster_id"] == "kafka"
    assert answer["totals"] == {
        "partitions": 1,
        "copy_segment_started": 1,
        "copy_segment_finished": 3,
        "delete_segment_started": 0,
        "size_bytes": 3000,
    }


async def test_the_cluster_tells_what_keeps_this_node_from_its_work() -> None:
    node = make_node()
    assert (await get(node, "/v1/cluster"))["problems"] == []
    node.rlm.troubles = [
        NodeProblem(ProblemArea.LOG_DIRS, None, "no meta.properties in /\udcff"),
        NodeProblem(ProblemArea.STORE, "old", "the bucket is missing"),
    ]
    assert (await get(node, "/v1/cluster"))["problems"] == [
        {"about": "log_dirs", "name": None, "text": "no meta.properties in /\\udcff"},
        {"about": "store", "name": "old", "text": "the bucket is missing"},
    ]


async def test_the_quorum_tells_its_offsets_and_voters() -> None:
    answer = await get(make_node(), "/v1/quorum")
    assert (answer["leader_id"], answer["high_watermark"], answer["applied_offset"]) == (1, 42, 41)
    assert (answer["state"], answer["node_id"]) == ("leader", 1)
    shown = [(each["node_id"], each["address"], each["lag"]) for each in answer["voters"]]
    assert shown == [(1, "node-1:9", 0), (2, "node-2:9", 2), (3, None, None)]
    assert (answer["uncommitted_voter_change"], answer["cut_end_offset"]) == (False, None)


async def test_topics_come_in_pages_by_name() -> None:
    node = make_node()
    names = ["c", "a", "b", "a"]
    node.rlm.known = [
        make_status(TopicIdPartition(name, TOPIC_ID, number)) for number, name in enumerate(names)
    ]
    first = await get(node, "/v1/topics?limit=2")
    assert [topic["topic"] for topic in first["topics"]] == ["a", "b"]
    assert first["topics"][0]["partitions"] == 2
    second = await get(node, f"/v1/topics?limit=2&cursor={first['next_cursor']}")
    assert [topic["topic"] for topic in second["topics"]] == ["c"]
    assert second["next_cursor"] is None


async def test_a_topic_has_its_partitions_in_pages_and_sums_over_all() -> None:
    node = make_node()
    node.rlm.known = [make_status(replace(TIP, partition=number)) for number in (2, 0, 1)]
    first = await get(node, "/v1/topics/payments?limit=2")
    assert [entry["partition"] for entry in first["partition_list"]] == [0, 1]
    assert (first["partitions"], first["remote_segments"]) == (3, 9)
    second = await get(node, f"/v1/topics/payments?limit=2&cursor={first['next_cursor']}")
    assert [entry["partition"] for entry in second["partition_list"]] == [2]


async def test_a_partition_status_shows_null_where_nothing_is_known() -> None:
    node = make_node()
    node.rlm.known = [replace(make_status(), next_offset=-1, leader_epoch=-1)]
    answer = await get(node, BASE)
    assert answer["next_offset"] is None
    assert answer["leader_epoch"] is None
    assert answer["why_not_copying"] == "back_off"
    assert answer["lost_ranges"] == [{"start_offset": 10, "end_offset": 12, "why": "retention"}]


async def test_a_partition_status_shows_the_copy_under_way() -> None:
    node = make_node()
    node.rlm.known = [copying_status(TIP)]
    answer = await get(node, BASE)
    assert answer["copying"]["bytes_total"] == 1000
    assert (answer["why_not_copying"], answer["blocked"]) == (None, "corrupt")


async def test_an_older_incarnation_of_a_topic_is_found_by_its_id() -> None:
    answer = await get(make_node(), f"{BASE}?topic_id={TOPIC_ID}")
    assert answer["topic_id"] == str(TOPIC_ID)
    await get(make_node(), f"{BASE}?topic_id={segment_uuid(9)}", 404)


async def test_by_name_nothing_of_an_older_topic_is_found_in_a_log_directory() -> None:
    """The log directories' partitions include those that the metadata knows."""
    node = make_node()
    older, wanted = segment_uuid(8), "/v1/topics/payments/partitions/4"
    node.manager.older = (TopicIdPartition("payments", older, 0),)
    node.rlm.known.append(make_status(TopicIdPartition("payments", older, 4)))
    refused = await get(node, wanted, 404)
    assert "give its topic_id" in str(refused)
    assert (await get(node, f"{wanted}?topic_id={older}"))["topic_id"] == str(older)
    node.rlm.known.append(make_status(TopicIdPartition("payments", TOPIC_ID, 4)))
    assert (await get(node, wanted))["topic_id"] == str(TOPIC_ID)


async def test_a_partition_that_is_only_on_disk_is_found() -> None:
    node = make_node()
    node.rlm.known.append(make_status(TopicIdPartition("orders", TOPIC_ID, 4)))
    answer = await get(node, "/v1/topics/orders/partitions/4")
    assert answer["partition"] == 4


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/nothing",
        "/v1/topics/nothing/partitions/0",
        "/v1/topics/payments/partitions/1",
        f"{BASE}/segments/{segment_uuid(9)}",
        f"{BASE}/segments/{segment_uuid(9)}/history",
        f"{BASE}/segments/{segment_uuid(9)}/log",
        f"{BASE}/segments/{segment_uuid(9)}/indexes/offset",
        f"{BASE}/segments/lookup?epoch=9&offset=0",
    ],
)
async def test_what_nobody_knows_is_not_found(path: str) -> None:
    problem = await get(make_node(), path, 404)
    assert problem["kind"] == "not_found"


@pytest.mark.parametrize(
    ("asked", "timestamp"),
    [
        ("earliest", OffsetSpec.EARLIEST),
        ("latest", OffsetSpec.LATEST),
        ("max-timestamp", OffsetSpec.MAX_TIMESTAMP),
        ("earliest-local", OffsetSpec.EARLIEST_LOCAL),
        ("latest-tiered", OffsetSpec.LATEST_TIERED),
        ("earliest-pending-upload", OffsetSpec.EARLIEST_PENDING_UPLOAD),
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
    ],
)
async def test_offsets_are_asked_by_name_or_by_time(asked: str, timestamp: int) -> None:
    node = make_node()
    answer = await get(node, f"{BASE}/offsets?timestamp={asked}")
    assert node.rlm.asked == [timestamp]
    assert (answer["offset"], answer["leader_epoch"], answer["timestamp_ms"]) == (299, 2, None)


async def test_a_leader_sends_its_checkpoint_and_hears_where_to_go_on() -> None:
    node = make_node()
    body = {
        "leader_epoch": 5,
        "leader_epoch_checkpoint": [
            {"epoch": 2, "start_offset": 150},
            {"epoch": 5, "start_offset": 310},
        ],
        "local_log_start_offset": 150,
        "log_end_offset": 320,
    }
    async with node.client() as client:
        answer = (await client.post(f"{BASE}/leader-transition", json=body)).json()
    assert (answer["highest_copied_offset"], answer["next_offset"]) == (299, 300)
    assert answer["left_overs"][0]["state"] == "COPY_SEGMENT_STARTED"
    assert answer["claim"]["token"] == 7
    assert [entry["epoch"] for entry in answer["lineage"]] == [0, 2, 5]


async def test_a_leader_without_a_checkpoint_is_answered_by_the_known_lineage() -> None:
    node = make_node()
    await get(node, f"{BASE}/leader-transition")
    await get(node, f"{BASE}/leader-transition?leader_epoch=6&log_end_offset=350")
    first, second = node.rlm.asked
    assert isinstance(first, LeaderTransitionQuery)
    assert isinstance(second, LeaderTransitionQuery)
    assert (first.leader_epoch, first.checkpoint, first.log_end_offset) == (2, LINEAGE, 300)
    assert second.checkpoint == (*LINEAGE, (6, 350))


async def test_a_leader_of_a_former_epoch_is_fenced() -> None:
    problem = await get(make_node(), f"{BASE}/leader-transition?leader_epoch=1", 409)
    assert problem["kind"] == "fenced"


async def test_a_follower_hears_where_to_start_and_which_snapshot_to_restore() -> None:
    node = make_node()
    answer = await get(node, f"{BASE}/follower-fetch?fetch_offset=10&leader_epoch=2")
    assert node.rlm.asked == [FollowerFetchQuery(TIP, 10, 2, None, False)]
    assert (answer["plan"], answer["error_code"], answer["fetch_offset"]) == (
        "build_from_tier",
        109,
        300,
    )
    link = answer["producer_snapshot_link"]
    async with node.client() as client:
        assert (await client.get(link)).status_code == 200
    assert node.rlm.asked[-1] == (segment_uuid(2), IndexType.PRODUCER_SNAPSHOT)


async def test_segments_come_in_pages() -> None:
    node = make_node()
    seen: list[int] = []
    path = f"{BASE}/segments?limit=2"
    page = await get(node, path)
    seen += [segment["start_offset"] for segment in page["segments"]]
    page = await get(node, f"{path}&cursor={page['next_cursor']}")
    seen += [segment["start_offset"] for segment in page["segments"]]
    assert seen == [0, 100, 200]
    assert page["next_cursor"] is None


async def test_a_page_that_ends_with_the_list_has_no_cursor() -> None:
    page = await get(make_node(), f"{BASE}/segments?limit=3")
    assert page["next_cursor"] is None


@pytest.mark.parametrize(
    ("query", "starts"),
    [
        ("state=COPY_SEGMENT_STARTED", [300]),
        ("epoch=0", [0]),
        ("epoch=2&state=COPY_SEGMENT_FINISHED", [100, 200]),
        ("offset=150", [100]),
        ("since_ms=1000200", [200, 300]),
        ("offset=150&epoch=0", []),
    ],
)
async def test_segments_are_filtered(query: str, starts: list[int]) -> None:
    node = make_node()
    node.manager.segments.append(make_segment(3, SegmentState.COPY_SEGMENT_STARTED))
    page = await get(node, f"{BASE}/segments?{query}")
    assert [segment["start_offset"] for segment in page["segments"]] == starts


async def test_a_segment_shows_its_objects_and_its_custom_metadata() -> None:
    answer = await get(make_node(), f"{BASE}/segments/{segment_uuid(0)}")
    assert answer["objects"]["log_crc32c"] == "e3069283"
    assert base64.b64decode(answer["custom_metadata"]) == make_segment(0).custom_metadata
    assert answer["writer"]["boot_counter"] == 3


async def test_custom_metadata_of_another_manager_is_shown_unread() -> None:
    node = make_node()
    node.manager.segments[0] = replace(make_segment(0), custom_metadata=b"other")
    answer = await get(node, f"{BASE}/segments/{segment_uuid(0)}")
    assert answer["objects"] is None
    assert base64.b64decode(answer["custom_metadata"]) == b"other"


async def test_a_look_up_names_the_segment_and_how_far_it_serves() -> None:
    answer = await get(make_node(), f"{BASE}/segments/lookup?epoch=2&offset=150")
    assert (answer["segment"]["start_offset"], answer["valid_until"]) == (100, 199)
    answer = await get(make_node(), f"{BASE}/segments/lookup?epoch=2&offset=150&with_txn_index=1")
    assert answer["segment"]["start_offset"] == 200


async def test_nothing_found_is_no_answer_while_the_partition_is_not_ready() -> None:
    node = make_node()
    node.manager.ready = False
    problem = await get(node, f"{BASE}/segments/lookup?epoch=9&offset=0", 503)
    assert problem["kind"] == "retry_later"


async def test_a_segment_has_a_history() -> None:
    path = f"{BASE}/segments/{segment_uuid(0)}/history"
    answer = await get(make_node(), path)
    assert [change["state"] for change in answer["changes"]] == [
        "COPY_SEGMENT_STARTED",
        "COPY_SEGMENT_FINISHED",
    ]
    assert len((await get(make_node(), f"{path}?limit=1"))["changes"]) == 1


@pytest.mark.parametrize("name", ["offset", "timestamp", "producer-snapshot", "transaction"])
async def test_an_index_is_streamed(name: str) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.get(f"{BASE}/segments/{segment_uuid(0)}/indexes/{name}")
    assert answer.content == b"firstsecond"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert node.rlm.asked == [(segment_uuid(0), IndexType[name.upper().replace("-", "_")])]


async def test_an_index_that_the_segment_does_not_have_is_not_found() -> None:
    node = make_node()
    node.rlm.stream = FakeStream([NotFound("this segment has no transaction index")])
    await get(node, f"{BASE}/segments/{segment_uuid(0)}/indexes/transaction", 404)
    assert node.rlm.stream.closed


@pytest.mark.parametrize(
    ("accept", "query", "wanted"),
    [
        ("*/*", "", RecordFormat.BATCHES),
        ("application/octet-stream", "", RecordFormat.BATCHES),
        ("application/x-ndjson", "", RecordFormat.JSON_LINES),
        ("application/x-ndjson, */*;q=0.1", "", RecordFormat.JSON_LINES),
        ("application/x-ndjson;q=0, */*", "", RecordFormat.BATCHES),
        ("application/*", "", RecordFormat.BATCHES),
        ("*/*", "&format=json_lines", RecordFormat.JSON_LINES),
        ("application/x-ndjson", "&format=batches", RecordFormat.BATCHES),
    ],
)
async def test_records_come_in_the_format_asked_for(
    accept: str, query: str, wanted: RecordFormat
) -> None:
    node = make_node()
    async with node.client() as client:
        answer = await client.get(
            f"{BASE}/records?offset=5&isolation=read_committed&max_bytes=77{query}",
            headers={"Accept": accept},
        )
    assert node.rlm.asked == [RecordsRequest(5, 77, Isolation.READ_COMMITTED, wanted)]
    json_lines = wanted is RecordFormat.JSON_LINES
    media_type = "application/x-ndjson" if json_lines else "application/octet-stream"
    assert answer.headers["content-type"] == media_type


async def test_a_page_of_json_says_where_to_go_on_and_what_it_passed_over() -> None:
    node = make_node()
    async with node.client() as client:
        query = f"{BASE}/records?offset=5&format=json_lines"
        plain = await client.get(query)
        answer = await client.get(f"{query}&end=true")
        refused = await client.get(f"{BASE}/records?offset=5&format=batches&end=true")
    assert answer.content.startswith(plain.content)
    assert json.loads(answer.content[len(plain.content) :]) == {
        "end": {
            "next_offset": 17,
            "at_end": False,
            "lost": [{"start": 8, "end": 9}],
            "undecided_records": 2,
        }
    }
    assert (refused.status_code, refused.json()["field"]) == (400, "end")


async def test_a_reader_is_told_which_offsets_it_will_pass_over() -> None:
    node = make_node()
    async with node.client() as client:
        told = [
            (await client.get(f"{BASE}/records?offset={offset}")).headers.get(
                "strandline-lost-ranges"
            )
            for offset in (0, 12, 13)
        ]
    assert told == ["10-12", "10-12", None]


async def test_a_media_type_that_is_not_offered_is_not_acceptable() -> None:
    problem = await get(make_node(), f"{BASE}/records?offset=5", 406, Accept="text/html")
    assert problem["kind"] == "not_acceptable"


async def test_a_policy_is_replaced_by_the_one_who_saw_the_standing_one() -> None:
    node = make_node()
    path = "/v1/topics/payments/policy"
    assert (await get(node, path))["offset"] is None
    body: dict[str, object] = {
        "retention_ms": 1000,
        "retention_bytes": None,
        "copy_paused": True,
        "delete_paused": False,
        "replaces_offset": None,
    }
    async with node.client() as client:
        first = await client.put(path, json=body)
        assert first.json() == {
            "topic": "payments",
            "topic_id": str(TIP.topic_id),
            "set_for": str(TIP.topic_id),
            "retention_ms": 1000,
            "retention_bytes": None,
            "copy_paused": True,
            "delete_paused": False,
            "follow_delete_records": False,
            "offset": 42,
            "changed": ["retention_ms", "copy_paused"],
        }
        assert first.headers["Strandline-Metadata-Offset"] == "42"
        late = await client.put(path, json=body)
        assert (late.status_code, late.json()["kind"]) == (409, "conflict")
        assert late.json()["reason"] == "CONFLICT"
        del body["replaces_offset"]
        assert (await client.put(path, json=body)).status_code == 200
        lines = (await client.get("/v1/audit", params={"action": "policy_set"})).json()["lines"]
    assert [line["by"] for line in lines] == ["anonymous"] * 2, "none about what was refused"
    assert lines[0]["why"].startswith('payments: {"retention_ms":1000,')


async def test_a_policy_that_leaves_following_out_turns_it_off_and_that_is_told() -> None:
    node = make_node()
    path = "/v1/topics/payments/policy"
    body: dict[str, object] = {
        "retention_ms": None,
        "retention_bytes": None,
        "copy_paused": False,
        "delete_paused": False,
        "follow_delete_records": True,
    }
    async with node.client() as client:
        assert (await client.put(path, json=body)).json()["changed"] == ["follow_delete_records"]
        assert (await client.put(path, json=body)).json()["changed"] == []
        del body["follow_delete_records"]
        answer = (await client.put(path, json=body)).json()
        assert (answer["follow_delete_records"], answer["changed"]) == (
            False,
            ["follow_delete_records"],
        )
        lines = (await client.get("/v1/audit", params={"action": "policy_set"})).json()["lines"]
    changes = [line["why"].partition("; ")[2] for line in reversed(lines)]
    assert changes == [
        "changed follow_delete_records from false",
        "changed nothing",
        "changed follow_delete_records from true",
    ]


async def test_a_node_is_alive_and_ready_unless_it_says_what_is_missing() -> None:
    assert await get(make_node(), "/healthz") == {"status": "alive"}
    assert await get(make_node(), "/readyz") == {"status": "ready"}
    problem = await get(make_node(not_ready=["no claim yet", "catching up"]), "/readyz", 503)
    assert problem["detail"] == "not ready: no claim yet; catching up"
