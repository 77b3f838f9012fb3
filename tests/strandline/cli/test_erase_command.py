"""`strandline erase` as typed, on a real bucket that keeps versions: nothing is left, or it is told
what is, and nothing else goes.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.bucket import store_settings
from tests.e2e.node_process import NodeProcess
from tests.real.s3_admin import client, limited, make_bucket
from tests.rlm.kafka_logs import KafkaLog, new_log_dir
from tests.strandline.cli.test_claims_commands import asked, said, status
from tests.strandline.command import invoke

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
ERASE = ("erase", "--topic", "orders", "--why", "order 7 has to go")
BELOW = ("--partition", 0, "--before", 15)
TOPIC_PATH = "/v1/topics/orders"


@pytest.fixture
def bucket(request: pytest.FixtureRequest, minio_store_config: StoreConfig) -> StoreConfig:
    name = f"erase-{abs(hash(request.node.name)) % 10**9}"
    config = replace(minio_store_config, bucket=name, prefix="tier/")
    make_bucket(config, versioned=True)
    return config


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    new_log_dir(tmp_path / "kafka")
    made = KafkaLog.create(tmp_path / "kafka", "orders", entries=((0, 0),))
    made.write(0, 10, 20, 30, end=35)
    return made


def new_node(home: Path, config: StoreConfig, *, delay_s: float = 0.1) -> NodeProcess:
    store = store_settings(home, config)
    if config.session_token:
        with Path(str(store["credentials_file"])).open("a") as credentials:
            credentials.write(f"aws_session_token = {config.session_token}\n")
    sections: dict[str, dict[str, object]] = {
        "kafka": {"log_dirs": [str(home / "kafka")]},
        "topics": {"include": ["*"]},
        "stores.main": store,
        "copier": {"interval_s": 0.5, "upload_margin_s": 0.1},
        "retention": {"interval_s": 0.5, "delete_delay_s": delay_s},
        "http": {"anonymous_role": "admin"},
    }
    return NodeProcess(home / "node", sections)


def copied(node: NodeProcess) -> None:
    node.wait_until(lambda: status(node).get("next_offset") == 30, "copies", deadline_s=60)


def kept(config: StoreConfig, start: str = "tier/orders-") -> list[tuple[str, str, bool]]:
    """(file name, version, is it a delete marker) of everything with this start."""
    s3 = client(config)
    try:
        page = s3.list_object_versions(Bucket=config.bucket, Prefix=start)
    finally:
        s3.close()
    assert not page["IsTruncated"]
    found = [(each, False) for each in page.get("Versions", ())]
    found += [(each, True) for each in page.get("DeleteMarkers", ())]
    return [(each["Key"].rpartition("/")[2], each["VersionId"], mark) for each, mark in found]


def offsets(config: StoreConfig) -> set[int]:
    return {int(name[:20]) for name, _, _ in kept(config)}


def erased(node: NodeProcess, *more: object, expect: ExitCode = ExitCode.OK) -> dict[str, Any]:
    found = json.loads(asked(node, *ERASE, *more, "--json", expect=expect).stdout)
    assert isinstance(found, dict)
    return found


def lines(node: NodeProcess) -> list[dict[str, Any]]:
    found = httpx.get(f"{node.url}/v1/audit", params={"action": "erasure"}).json()["lines"]
    assert isinstance(found, list)
    return found


def test_what_is_below_an_offset_goes_in_every_version_and_the_rest_stays(
    tmp_path: Path, log: KafkaLog, bucket: StoreConfig
) -> None:
    with new_node(tmp_path, bucket) as node:
        copied(node)
        before = kept(bucket)
        dry = said(asked(node, *ERASE, *BELOW, expect=ExitCode.OK))
        assert "1 segments" in dry
        assert "--yes would be refused now: the broker's log of orders-0 starts at 0" in dry
        assert "kafka-delete-records" in dry
        refused = asked(node, *ERASE, *BELOW, "--yes", expect=ExitCode.CONFLICT)
        assert "nothing was changed: the broker's log of orders-0 starts at 0" in said(refused)
        asked(node, "pause", "deleting", "--why", "wait")
        held = asked(node, *ERASE, *BELOW, "--tier-only", "--yes", expect=ExitCode.CONFLICT)
        assert "paused" in said(held)
        asked(node, "resume", "deleting")
        assert (kept(bucket), status(node)["log_start_offset"]) == (before, 0)

        report = erased(node, *BELOW, "--tier-only", "--yes")
        assert (report["state"], report["left"], report["kept_to_offset"]) == ("finished", [], 19)
        assert len(report["gone"]) == 3
        assert all("/00000000000000000000-" in key for key in report["gone"])
        assert offsets(bucket) == {10, 20}
        assert {each for each in before if not each[0].startswith("0" * 20)} == set(kept(bucket))
        assert status(node)["log_start_offset"] == 15
        assert lines(node)[0]["by"] == "anonymous"
        assert "order 7 has to go" in lines(node)[-1]["why"]
        again = said(asked(node, *ERASE, *BELOW, "--tier-only", "--yes"))
        assert "a final listing of the stores shows none of these objects any more" in again
        assert "--before 20" in again, "how the one that 15 lies in goes"


def test_a_topic_with_history_and_trash_goes_whole_once_it_is_gone_from_kafka(
    tmp_path: Path, log: KafkaLog, bucket: StoreConfig
) -> None:
    other = KafkaLog.create(tmp_path / "kafka", "events", entries=((0, 0),))
    other.write(0, 10, 20, end=25)
    with new_node(tmp_path, bucket) as node:
        copied(node)
        asked(node, "policy", "set", "orders", "--retention-time", "1s")
        node.wait_until(lambda: _trashed(node) == 3, "the trash", deadline_s=60)
        alive = asked(node, *ERASE, "--yes", expect=ExitCode.CONFLICT)
        assert "orders exists in Kafka: brokers have 1 of its partitions" in said(alive)
        assert offsets(bucket) == {0, 10, 20}
        shutil.rmtree(log.directory)
        shutil.rmtree(other.directory)
        node.wait_until(lambda: _roles(node) == {"remote_only"}, "a look", deadline_s=60)
        asked(node, "topics", "delete", "orders", "--yes")  # with a grace of days
        planned = erased(node)
        assert (planned["dry_run"], planned["segments"], planned["refused"]) == (True, 3, None)
        assert planned["stores"]["main"]["versions"] == 9
        assert len(kept(bucket)) == 9
        report = erased(node, "--yes")
        assert (report["state"], len(report["gone"]), report["left"]) == ("finished", 9, [])
        assert kept(bucket) == []
        again = erased(node, "--yes")
        assert (again["state"], again["gone"]) == ("finished", [])
        unmarked = ("erase", "--topic", "events", "--why", "nobody marked it", "--yes", "--json")
        report = json.loads(asked(node, *unmarked).stdout)
        assert (report["state"], len(report["gone"])) == ("finished", 6)
        assert kept(bucket, "tier/events-") == []


def _roles(node: NodeProcess) -> set[str]:
    page = httpx.get(f"{node.url}/v1/cluster/partitions").json()
    return {str(each["role"]) for each in page["partitions"]}


def _trashed(node: NodeProcess) -> int:
    page = httpx.get(f"{node.url}/v1/trash", params={"topic": "orders"}).json()
    return sum(int(each["segments"]) for each in page["partitions"])


def test_a_node_that_is_killed_meanwhile_goes_on_when_it_is_asked_again(
    tmp_path: Path, log: KafkaLog, bucket: StoreConfig
) -> None:
    with new_node(tmp_path, bucket, delay_s=3.0) as node:
        copied(node)
        asked(node, "topics", "delete", "orders", "--yes", "--grace", "0s")
        body = {"topic": "orders", "reason": "a court's order", "dry_run": False}
        job = httpx.post(f"{node.url}/v1/jobs/erase", json=body).json()
        path = f"{node.url}/v1/jobs/erase/{job['id']}"
        node.wait_until(lambda: _waits(path), "the segments' delay", deadline_s=60)
        node.kill()
        node.start()
        shutil.rmtree(log.directory)
        node.wait_until(lambda: httpx.get(path).status_code == 404, "another life", deadline_s=60)
        report = erased(node, "--yes")
        assert (report["state"], report["left"]) == ("finished", [])
        assert kept(bucket) == []


def _waits(path: str) -> bool:
    job = httpx.get(path).json()
    return bool(job["state"] == "running" and job["waiting"] > 0)


def test_a_store_that_does_not_allow_it_is_told_with_what_it_keeps(
    tmp_path: Path, log: KafkaLog, bucket: StoreConfig
) -> None:
    arn = f"arn:aws:s3:::{bucket.bucket}"
    allowed = {"Effect": "Allow", "Action": ["s3:*"], "Resource": [arn, f"{arn}/*"]}
    denied = {"Effect": "Deny", "Action": ["s3:DeleteObjectVersion"], "Resource": [arn, f"{arn}/*"]}
    policy = {"Version": "2012-10-17", "Statement": [allowed, denied]}
    with new_node(tmp_path, limited(bucket, policy)) as node:
        copied(node)
        done = invoke(*ERASE, *BELOW, "--tier-only", "--yes", env={"STRANDLINE_URL": node.url})
        assert done.exit_code == ExitCode.INCOMPLETE, done.stdout + done.stderr
        assert "left: main:tier/orders-" in said(done)
        assert "not allowed" in said(done)
        assert "AccessDenied" in said(done)
        assert sum(not mark for _, _, mark in kept(bucket)) == 9, "its versions are still there"
        assert status(node)["log_start_offset"] == 15
        s3 = client(bucket)
        shown = s3.list_objects_v2(Bucket=bucket.bucket, Prefix="tier/orders-")
        s3.close()
        assert len(shown["Contents"]) == 6, "no object is back"
