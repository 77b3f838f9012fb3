"""The commands that ask a node: what a person reads, what a script parses, how they fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from strandline.cli.exit_codes import ExitCode
from strandline.cli.query_commands import records_end_texts
from tests.e2e.node_process import NodeProcess
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS, invoke

KNOWN_NOWHERE = "AAAAAAAAQACAAAAAAAAAAQ"


def ask(node: NodeProcess, *arguments: object) -> Result:
    return invoke(*arguments, env={"STRANDLINE_URL": node.url})


def answer(node: NodeProcess, *arguments: object) -> Any:
    done = ask(node, *arguments, "--json")
    assert done.exit_code == ExitCode.OK, done.stderr
    return json.loads(done.stdout)


def table(node: NodeProcess, *arguments: object) -> list[str]:
    done = ask(node, *arguments)
    assert done.exit_code == ExitCode.OK, done.stderr
    return [" ".join(line.split()) for line in done.stdout.splitlines()]


def first_segment(node: NodeProcess) -> dict[str, Any]:
    segment: dict[str, Any] = answer(node, "segments", "list", "orders", 0)[0]
    return segment


def test_status_tells_node_and_totals(node: NodeProcess) -> None:
    lines = table(node, "status")
    assert f"segments, copy finished {CAPTURED_SEGMENTS}" in lines
    assert "metadata leader 1" in lines
    both = answer(node, "status")
    assert both["cluster"]["totals"]["copy_segment_finished"] == CAPTURED_SEGMENTS
    assert both["quorum"]["applied_offset"] > CAPTURED_SEGMENTS


def test_topics_are_listed_with_their_sums(node: NodeProcess) -> None:
    topics = {each["topic"]: each for each in answer(node, "topics", "list")}
    assert topics["orders"]["remote_segments"] == 27
    assert table(node, "topics", "list")[0] == "topic tiered partitions segments size"
    assert any(line.startswith("orders yes 3 27 ") for line in table(node, "topics", "list"))


def test_partitions_say_how_far_and_why_not_further(node: NodeProcess) -> None:
    lines = table(node, "partitions")
    assert "orders 0 leader 431 62.3 KiB 0 up to date" in lines
    (waiting,) = (line for line in lines if line.startswith("payments 1"))
    assert waiting.endswith("waits for stable offset")
    (line,) = table(node, "partitions", "--waiting")
    assert line.startswith("payments-1 ")
    assert "waits for stable offset: the last stable offset is " in line
    (internal,) = (line for line in lines if line.startswith("__consumer_offsets"))
    assert internal.endswith("not included")
    assert {each["topic"] for each in answer(node, "partitions", "orders")} == {"orders"}


def test_the_audit_tells_where_log_starts_were_set(node: NodeProcess) -> None:
    lines = answer(node, "audit", "--topic", "orders", "--action", "log_start_moved")
    assert sorted(each["partition"] for each in lines) == [0, 1, 2]
    assert {each["by"] for each in lines} == {"node 1"}
    (first, *_) = table(node, "audit", "--lines", 1)
    assert first == "time action partition offsets size segment by why"


def test_segments_are_listed_without_a_gap(node: NodeProcess) -> None:
    segments = answer(node, "segments", "list", "orders", 0)
    starts = [each["start_offset"] for each in segments]
    ends = [each["end_offset"] for each in segments]
    assert starts == [0, *(end + 1 for end in ends[:-1])]
    assert len(table(node, "segments", "list", "orders", 0)) == 1 + len(segments)


def test_segments_can_be_filtered_by_the_state_as_the_table_shows_it(node: NodeProcess) -> None:
    finished = answer(node, "segments", "list", "orders", 0, "--state", "copy-finished")
    assert len(finished) == 9
    assert answer(node, "segments", "list", "orders", 0, "--state", "delete-started") == []
    wrong = ask(node, "segments", "list", "orders", 0, "--state", "gone")
    assert wrong.exit_code == ExitCode.USAGE
    assert "copy-finished" in wrong.stderr


def test_one_segment_is_shown_whole(node: NodeProcess) -> None:
    segment = first_segment(node)
    shown = answer(node, "segments", "show", "orders", 0, segment["segment_id"])
    assert shown["size_bytes"] == (CAPTURED / "orders-0" / f"{0:020d}.log").stat().st_size
    lines = table(node, "segments", "show", "orders", 0, segment["segment_id"])
    assert f"segment id {segment['segment_id']}" in lines


def test_a_segments_history_is_its_records(node: NodeProcess) -> None:
    segment_id = first_segment(node)["segment_id"]
    changes = answer(node, "segments", "history", "orders", 0, segment_id)["changes"]
    assert [each["state"] for each in changes] == ["COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED"]
    assert len(table(node, "segments", "history", "orders", 0, segment_id)) == 3


def test_offsets_gives_all_specials_or_the_one_that_was_asked(node: NodeProcess) -> None:
    offsets = {each["timestamp"]: each["offset"] for each in answer(node, "offsets", "orders", 0)}
    assert offsets["latest-tiered"] == 431
    assert offsets["earliest"] == 0
    assert "latest-tiered 431 6" in table(node, "offsets", "orders", 0)
    (by_time,) = answer(node, "offsets", "orders", 0, "--timestamp", 1760000001000)
    assert by_time["offset"] == 2


def test_leader_transition_says_where_to_go_on(node: NodeProcess) -> None:
    assert answer(node, "leader-transition", "orders", 0)["next_offset"] == 432
    assert "next offset 432" in table(node, "leader-transition", "orders", 0)
    assert "lineage 0:0 2:120 4:240 6:360" in table(node, "leader-transition", "orders", 0)


def test_follower_fetch_says_what_to_rebuild(node: NodeProcess) -> None:
    asked = ("follower-fetch", "orders", 0, "--fetch-offset", 0, "--leader-epoch", 6)
    found = answer(node, *asked, "--leader-local-log-start", 240)
    assert found["plan"] == "build_from_tier"
    lines = table(node, *asked, "--leader-local-log-start", 240)
    assert "plan build_from_tier" in lines
    assert f"segment {found['segment']['segment_id']}, offsets 192 to 239" in lines


def test_an_empty_follower_may_begin_after_the_last_copied_offset(node: NodeProcess) -> None:
    asked = ("follower-fetch", "orders", 0, "--fetch-offset", 0, "--leader-epoch", 6)
    found = answer(node, *asked, "--leader-local-log-start", 240, "--from-last-tiered")
    assert (found["plan"], found["fetch_offset"]) == ("build_from_tier", 432)


def test_a_fenced_epoch_is_a_conflict(node: NodeProcess) -> None:
    done = ask(node, "follower-fetch", "orders", 0, "--fetch-offset", 0, "--leader-epoch", 0)
    assert done.exit_code == ExitCode.CONFLICT
    assert "FENCED_LEADER_EPOCH" in done.stderr


def test_records_are_one_json_object_a_line(node: NodeProcess) -> None:
    done = ask(node, "records", "orders", 0, "--offset", 5)
    assert done.exit_code == ExitCode.OK
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["offset"] for each in records] == list(range(5, 432))
    assert done.stderr == "nothing more is tiered for this reader; the next offset is 432\n"
    page = ask(node, "records", "orders", 0, "--max-bytes", 1)
    following = json.loads(page.stdout.splitlines()[-1])["offset"] + 1
    assert page.stderr == (f"the next offset is {following}: go on with --offset {following}\n")


def test_what_a_page_of_records_passed_over_is_said() -> None:
    end = {"next_offset": 9, "at_end": False, "lost": [{"start": 3, "end": 4}]}
    assert list(records_end_texts(end | {"undecided_records": 2})) == [
        "offsets 3 to 4 are lost: no segment has them",
        "2 records were left out: the markers of their transactions are lost, so it is unknown "
        "whether they were committed",
        "the next offset is 9: go on with --offset 9",
    ]


def test_raw_records_are_the_batches_as_they_lie_on_the_brokers_disk(node: NodeProcess) -> None:
    done = ask(node, "records", "orders", 0, "--raw")
    assert done.exit_code == ExitCode.OK
    logs = sorted((CAPTURED / "orders-0").glob("*.log"))[:9]
    assert done.stdout_bytes == b"".join(log.read_bytes() for log in logs)


def test_committed_records_leave_aborted_transactions_out(node: NodeProcess) -> None:
    def offsets(*more: str) -> set[int]:
        done = ask(node, "records", "payments", 0, *more)
        return {json.loads(line)["offset"] for line in done.stdout.splitlines()}

    assert offsets("--committed") < offsets()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("partitions", "nosuch"), ExitCode.NOT_FOUND, "topic nosuch"),
        (("segments", "list", "orders", 99), ExitCode.NOT_FOUND, "orders-99"),
        (("segments", "show", "orders", 0, KNOWN_NOWHERE), ExitCode.NOT_FOUND, KNOWN_NOWHERE),
        (("segments", "show", "orders", 0, "xyz"), ExitCode.USAGE, "Uuid"),
        (("offsets", "orders", 0, "--timestamp", "abc"), ExitCode.USAGE, "latest-tiered"),
        (("offsets", "orders", 0, "--timestamp", 2**70), ExitCode.USAGE, "timestamp"),
        (("offsets", "orders", -1), ExitCode.USAGE, "partition"),
        (("offsets", "orders", 2**40), ExitCode.USAGE, "partition"),
        (("records", "orders", 0, "--offset", 2**70), ExitCode.USAGE, "offset"),
        (("records", "orders", 0, "--offset", 100_000), ExitCode.NOT_FOUND, "offset"),
        (("records", "nosuch", 0), ExitCode.NOT_FOUND, "nosuch"),
        (
            ("topics", "list", "--url", "http://127.0.0.1:1"),
            ExitCode.RETRY_LATER,
            "is the node running",
        ),
        (("topics", "list", "--url", "nonsense"), ExitCode.USAGE, "--url"),
        (("topics", "list", "--token-file", "/nonexistent"), ExitCode.USAGE, "--token-file"),
    ],
)
def test_what_can_not_be_answered_says_why_with_its_exit_code(
    node: NodeProcess, arguments: tuple[object, ...], code: ExitCode, words: str
) -> None:
    done = ask(node, *arguments)
    assert (done.exit_code, words in done.stderr) == (code, True), done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "topic", ["../cluster", "..", ".", "a/b", "%2e%2e", "a\nb", "[red]x", "\x1b[31m", "x" * 300]
)
def test_a_hostile_topic_name_is_refused_and_reaches_no_other_route(
    node: NodeProcess, topic: str
) -> None:
    for arguments in (("partitions", topic), ("offsets", topic, 0), ("records", topic, 0)):
        done = ask(node, *arguments)
        assert done.exit_code in (ExitCode.USAGE, ExitCode.NOT_FOUND), done.output
        assert "\x1b" not in done.stderr
        assert "is not a topic name" in done.stderr
        assert done.stdout == ""


def test_a_wrong_token_is_refused(node: NodeProcess, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("nobody-knows-this-one\n")
    done = ask(node, "status", "--token-file", token)
    assert done.exit_code == ExitCode.REFUSED
    assert "nobody-knows" not in done.output


def test_metrics_count_what_the_copies_did_to_the_store(node: NodeProcess) -> None:
    metrics = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in httpx.get(f"{node.url}/metrics").text.splitlines()
        if not line.startswith("#")
    }
    puts = 'strandline_store_requests_total{operation="put",outcome="ok",store="main"}'
    sent = 'strandline_store_bytes_total{operation="put",store="main"}'
    assert metrics[puts] >= 3 * CAPTURED_SEGMENTS  # .log, .indexes, .rsm-manifest of each
    assert metrics[sent] > metrics["strandline_remote_copy_bytes_total"] > 0
