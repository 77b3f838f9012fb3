"""A node and a one-shot copy before stores that are not there, refuse, or take no writes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rlmm.data_directory.data_directory import open_data_directory
from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.node_process import NodeProcess
from tests.real.s3_admin import client, limited
from tests.strandline.command import CAPTURED, invoke, strandline
from tests.strandline.conftest import copied_segments

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

CODECS_SEGMENTS = 3


@pytest.fixture
def prefix() -> str:
    return f"node-{uuid.uuid4().hex[:12]}/"


def allowing(config: StoreConfig, *actions: str) -> StoreConfig:
    """Credentials that may do only `actions` in the bucket."""
    resources = [f"arn:aws:s3:::{config.bucket}", f"arn:aws:s3:::{config.bucket}/*"]
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": resources}
    return limited(config, {"Version": "2012-10-17", "Statement": [statement]})


def write_node(home: Path, config: StoreConfig, prefix: str) -> NodeProcess:
    """A formatted node that would copy one small topic there."""
    home.mkdir(exist_ok=True)
    session = f"aws_session_token = {config.session_token}\n" if config.session_token else ""
    (home / "credentials").write_text(
        f"[default]\naws_access_key_id = {config.access_key_id}\n"
        f"aws_secret_access_key = {config.secret_access_key}\n{session}"
    )
    (home / "credentials").chmod(0o600)
    store: Mapping[str, object] = {
        "kind": "s3",
        "bucket": config.bucket,
        "prefix": prefix,
        "endpoint_url": config.endpoint_url,
        "credentials_file": str(home / "credentials"),
        "addressing_style": "path",
        "attempts_max": 2,
    }
    return NodeProcess(
        home,
        {
            "kafka": {"log_dirs": [str(CAPTURED)]},
            "topics": {"include": ["codecs"]},
            "stores.main": store,
            "copier": {"interval_s": 0.5},
        },
    )


def keys(config: StoreConfig, prefix: str) -> list[str]:
    s3 = client(config)
    found = s3.list_objects_v2(Bucket=config.bucket, Prefix=prefix).get("Contents", [])
    s3.close()
    return [each["Key"] for each in found]


def assert_refuses(node: NodeProcess, code: ExitCode, *words: str) -> None:
    """Both ways to copy fail with `code` and `words`, say no secret, and lose nothing."""
    secret = (node.config.parent / "credentials").read_text().split("secret_access_key = ")[1]
    for command in (["node"], ["copy", "--once"]):
        done = strandline(*command, "--config", node.config)
        assert done.returncode == code, done.stderr
        error = next(line for line in done.stderr.splitlines() if line.startswith("error: "))
        assert all(word in error for word in words), error
        assert "Traceback" not in done.stderr
        assert secret.split()[0] not in done.stderr + done.stdout
    with open_data_directory(node.config.parent / "data"):
        pass  # whole, and not locked


def doctor(node: NodeProcess) -> dict[str, tuple[bool, str]]:
    done = invoke("doctor", "--config", node.config, "--json")
    return {each["check"]: (each["ok"], each["detail"]) for each in json.loads(done.stdout)}


def test_wrong_credentials_are_refused_and_the_right_ones_go_on(
    tmp_path: Path, minio_store_config: StoreConfig, prefix: str
) -> None:
    wrong = replace(minio_store_config, secret_access_key="not-the-secret-key-at-all")
    node = write_node(tmp_path / "node", wrong, prefix)
    node.format()
    assert_refuses(node, ExitCode.REFUSED, "credentials")
    ok, detail = doctor(node)["store main: put"]
    assert not ok
    assert "credentials" in detail
    assert keys(minio_store_config, prefix) == []

    node = write_node(tmp_path / "node", minio_store_config, prefix)
    node.write_config()
    node.start()
    node.wait_until(lambda: copied_segments(node.url) == CODECS_SEGMENTS, "copies", deadline_s=60)
    node.stop()
    assert len(keys(minio_store_config, prefix)) == 3 * CODECS_SEGMENTS + 1  # and the marker


def test_a_bucket_that_does_not_exist_is_named_and_not_made(
    tmp_path: Path, minio_store_config: StoreConfig, prefix: str
) -> None:
    missing = replace(minio_store_config, bucket="strandline-no-such-bucket")
    node = write_node(tmp_path / "node", missing, prefix)
    node.format()
    assert_refuses(node, ExitCode.USAGE, "strandline-no-such-bucket")
    assert not doctor(node)["store main: put"][0]
    s3 = client(minio_store_config)
    assert missing.bucket not in [each["Name"] for each in s3.list_buckets()["Buckets"]]
    s3.close()


def test_a_bucket_that_takes_no_writes_is_refused_before_anything_is_recorded(
    tmp_path: Path, minio_store_config: StoreConfig, prefix: str
) -> None:
    reader = allowing(minio_store_config, "s3:GetObject", "s3:ListBucket")
    node = write_node(tmp_path / "node", reader, prefix)
    node.format()
    assert_refuses(node, ExitCode.REFUSED, "not allowed", "grant")
    found = doctor(node)
    assert not found["store main: put"][0]
    assert found["store main: head, CRC32C"] == (False, "not tried, since put failed")
    assert keys(minio_store_config, prefix) == []


def test_another_clusters_prefix_is_refused_and_doctor_says_whose_it_is(
    tmp_path: Path, minio_store_config: StoreConfig, prefix: str
) -> None:
    first = write_node(tmp_path / "first", minio_store_config, prefix)
    first.format()
    assert strandline("copy", "--once", "--config", first.config).returncode == 0
    before = keys(minio_store_config, prefix)
    second = write_node(tmp_path / "second", minio_store_config, prefix)
    second.format()
    assert_refuses(second, ExitCode.REFUSED, "belongs to the Strandline cluster", "prefix")
    ok, detail = doctor(second)["store main: cluster marker"]
    assert not ok
    assert "belongs to the Strandline cluster" in detail
    assert keys(minio_store_config, prefix) == before
    assert doctor(first)["store main: cluster marker"][0]
