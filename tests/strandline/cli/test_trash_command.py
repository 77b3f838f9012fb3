"""`strandline trash` against a real node: what a wrong policy took comes back, byte for byte."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.cli.test_claims_commands import answer, asked, said, settings, status
from tests.strandline.cli.test_delete_records_command import stored

WHY = ("--why", "the policy was for logs")
RECORDS = "/v1/topics/orders/partitions/0/records"


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    new_log_dir(tmp_path / "kafka")
    made = KafkaLog.create(tmp_path / "kafka", "orders", entries=((0, 0),))
    made.write(0, 10, 20, 30, end=35)
    return made


def started(tmp_path: Path) -> NodeProcess:
    """With the trash that a node has by default."""
    return NodeProcess(tmp_path, settings(tmp_path))


def copied(node: NodeProcess) -> None:
    node.wait_until(lambda: status(node).get("next_offset") == 30, "copies", deadline_s=60)


def read(node: NodeProcess) -> bytes:
    """All batches of the tier."""
    found = httpx.get(f"{node.url}{RECORDS}", params={"offset": 0, "format": "batches"})
    assert found.status_code == 200, found.text
    return found.content


def earliest(node: NodeProcess) -> int:
    path = "/v1/topics/orders/partitions/0/offsets"
    found = httpx.get(f"{node.url}{path}", params={"timestamp": "earliest"}).json()
    assert isinstance(found["offset"], int)
    return found["offset"]


def trash(node: NodeProcess) -> list[dict[str, Any]]:
    found = answer(node, "trash", "list")["partitions"]
    assert isinstance(found, list)
    return found


def expired_by_mistake(node: NodeProcess) -> None:
    asked(node, "policy", "set", "orders", "--retention-time", "1s")
    node.wait_until(lambda: earliest(node) == 30, "retention marks all of it", deadline_s=60)


def test_a_policy_that_is_set_right_says_what_only_a_restore_brings_back(
    tmp_path: Path, log: KafkaLog
) -> None:
    with started(tmp_path) as node:
        copied(node)
        expired_by_mistake(node)
        right = ("policy", "set", "orders", "--retention-time", "unlimited")
        told = said(asked(node, *right))
        assert "no segment would be deleted now" in told
        assert "3 segments, " in told
        assert "`strandline trash restore orders --why ...` brings them back" in told
        assert answer(node, *right)["in_trash"]["segments"] == 3
        assert "in the trash" not in said(asked(node, *right[:3], "--copying", "paused"))
        asked(node, "trash", "restore", "orders", *WHY)
        assert "in the trash" not in said(asked(node, *right, "--dry-run"))
        assert answer(node, *right)["in_trash"] == {"segments": 0, "size_bytes": 0}


def test_what_a_policy_of_a_second_took_is_restored_byte_for_byte(
    tmp_path: Path, log: KafkaLog
) -> None:
    with started(tmp_path) as node:
        copied(node)
        before = read(node)
        assert before == b"".join(log.log_bytes(base) for base in (0, 10, 20))
        expired_by_mistake(node)
        gone = httpx.get(f"{node.url}{RECORDS}", params={"offset": 0})
        assert (gone.status_code, "in the trash" in gone.text) == (400, True)
        (each,) = trash(node)
        assert (each["state"], each["log_start_offset"], each["readable_from_offset"]) == (
            "expired", 0, 30,
        )  # fmt: skip
        assert (each["segments"], each["hold"]) == (3, None)
        assert each["size_bytes"] == sum(len(log.log_bytes(base)) for base in (0, 10, 20))
        assert stored(tmp_path) == [0, 10, 20]

        text = said(asked(node, "trash", "restore", "orders", *WHY))
        assert "orders-0 is readable from 0 on again: 3 segments" in text
        assert "Its retention is on hold" in text
        assert read(node) == before
        assert "on hold by anonymous: the policy was for logs" in said(asked(node, "trash", "list"))
        assert "took back what it had marked" in said(asked(node, "retention", "plan", "orders", 0))

        asked(node, "policy", "set", "orders", "--retention-time", "36500d")
        assert trash(node) == [], "the policy is another one"
        assert read(node) == before
        lines = answer(node, "audit", "--action", "trash_restored")
        assert "the policy was for logs" in str(lines)


def test_a_hold_is_released_and_the_trash_emptied(tmp_path: Path, log: KafkaLog) -> None:
    assert log.log_bytes(0)
    with started(tmp_path) as node:
        copied(node)
        nothing = asked(node, "trash", "restore", "orders", *WHY, expect=ExitCode.NOT_FOUND)
        assert "orders has no segment in the trash" in said(nothing)
        expired_by_mistake(node)
        asked(node, "trash", "restore", "orders", 0, *WHY)
        assert earliest(node) == 0
        released = said(asked(node, "trash", "release", "orders", *WHY))
        assert "retention of 1 partitions of orders is resumed" in released
        node.wait_until(lambda: earliest(node) == 30, "it is marked again", deadline_s=60)

        dry = said(asked(node, "trash", "empty", "orders", *WHY))
        assert "nothing was changed: --yes --as-of " in dry
        assert " deletes 3 segments of 1 partitions" in dry
        asked(node, "trash", "empty", "orders", *WHY, "--yes", expect=ExitCode.USAGE)
        as_of = answer(node, "trash", "empty", "orders", *WHY)["as_of"]
        later = ("--yes", "--as-of", as_of - 1)
        refused = asked(node, "trash", "empty", "orders", *WHY, *later, expect=ExitCode.CONFLICT)
        assert "were moved there after --as-of" in said(refused)
        assert stored(tmp_path) == [0, 10, 20]
        asked(node, "trash", "empty", "orders", *WHY, "--yes", "--as-of", as_of)
        node.wait_until(lambda: stored(tmp_path) == [], "the objects go", deadline_s=60)
        assert trash(node) == []
        assert status(node)["log_start_offset"] == 30


def test_a_deleted_topic_is_in_the_trash_until_its_deletion_starts(
    tmp_path: Path, log: KafkaLog
) -> None:
    assert log.log_bytes(0)
    with started(tmp_path) as node:
        copied(node)
        before = read(node)
        asked(node, "topics", "delete", "orders", "--yes")
        (each,) = trash(node)
        assert (each["state"], each["segments"]) == ("deleted", 3)
        assert each["goes_from_ms"] > 0
        one = asked(node, "trash", "restore", "orders", 0, *WHY, expect=ExitCode.NOT_FOUND)
        assert "restores all of it" in said(one)
        text = said(asked(node, "trash", "restore", "orders", *WHY))
        assert "1 partitions of orders are no longer marked for deletion" in text
        assert (trash(node), read(node)) == ([], before)

        expired_by_mistake(node)
        asked(node, "topics", "delete", "orders", "--yes")
        text = said(asked(node, "trash", "restore", "orders", *WHY))
        assert (
            "of 1 the expired segments are restored, too. The retention of 1 is on hold, until"
            in text
        )
        assert read(node) == before
        (each,) = trash(node)
        assert (each["state"], each["hold"]["who"]) == ("held", "anonymous")
