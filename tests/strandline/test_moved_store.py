"""A store moves to another bucket while its node goes on: copied, verified, switched, and back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.bucket import store_settings
from tests.e2e.node_process import NodeProcess
from tests.real.s3_admin import client, make_bucket
from tests.strandline.command import CAPTURED, invoke
from tests.strandline.conftest import COPY_DEADLINE_S, copied_segments

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPICS = ("codecs", "orders")
SEGMENTS = sum(
    len(list(path.glob("*.log"))) - 1
    for path in CAPTURED.glob("*")
    if path.name.rpartition("-")[0] in TOPICS
)


class Site:
    """A node that has copied all into one bucket, and the bucket that it is to move to."""

    def __init__(self, home: Path, config: StoreConfig) -> None:
        self.old = replace(config, prefix="moving/")
        self.new = replace(self.old, bucket="moved")
        make_bucket(self.new)
        self.s3 = client(config)
        sections: dict[str, dict[str, object]] = {
            "kafka": {"log_dirs": [str(CAPTURED)]},
            "topics": {"include": list(TOPICS)},
            "stores.main": store_settings(home, self.old),
            "copier": {"interval_s": 0.5},
            "http": {"anonymous_role": "admin"},
        }
        self.node = NodeProcess(home / "node", sections)
        self.node.write_config()
        self.at_old = self.node.config.read_text()
        bucket = json.dumps(self.old.bucket)
        self.at_new = self.at_old.replace(f"bucket = {bucket}", 'bucket = "moved"')
        self.moved = home / "moved.toml"
        self.moved.write_text(self.at_new)

    def keys(self, config: StoreConfig) -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(
            Bucket=config.bucket, Prefix=config.prefix
        )
        return [each["Key"] for page in pages for each in page.get("Contents", ())]

    def copy(self, *keys: str) -> None:
        for key in keys:
            source = {"Bucket": self.old.bucket, "Key": key}
            self.s3.copy_object(Bucket=self.new.bucket, Key=key, CopySource=source)

    def ask(self, *arguments: object, code: ExitCode = ExitCode.OK) -> Any:
        done = invoke(*arguments, "--json", env={"STRANDLINE_URL": self.node.url})
        assert done.exit_code == code, done.stdout + done.stderr
        return json.loads(done.stdout)

    def verify(self, *options: str, code: ExitCode = ExitCode.OK) -> dict[str, Any]:
        report = self.ask("stores", "verify", "main", "--config", self.moved, *options, code=code)
        assert isinstance(report, dict)
        assert report["segments"] == SEGMENTS
        return report

    def records(self) -> list[str]:
        env = {"STRANDLINE_URL": self.node.url}
        texts = []
        for topic in TOPICS:
            done = invoke("records", topic, 0, "--max-bytes", 2**20, env=env)
            assert done.exit_code == ExitCode.OK, done.stderr
            texts.append(done.stdout)
        return texts

    def restart(self, config: str) -> None:
        self.node.stop()
        self.node.config.write_text(config)
        self.node.start()


@pytest.fixture
def site(tmp_path: Path, minio_store_config: StoreConfig) -> Iterator[Site]:
    site = Site(tmp_path, minio_store_config)
    with site.node as node:
        node.wait_until(
            lambda: copied_segments(node.url) == SEGMENTS, "copies", deadline_s=COPY_DEADLINE_S
        )
        yield site
    site.s3.close()


def test_a_store_moves_without_a_moment_in_which_a_reader_fails(site: Site) -> None:
    read = site.records()
    nothing = site.verify(code=ExitCode.INCOMPLETE)
    assert (nothing["wrong"], nothing["whole"]) == (SEGMENTS, 0)
    assert (
        nothing["problems"][0]["wrong"]
        == ".log is missing, .indexes is missing, .rsm-manifest is missing"
    )

    for what in ("copying", "deleting"):
        site.ask("pause", what)
    keys = site.keys(site.old)
    site.copy(*keys)
    whole = site.verify("--deep")
    assert (whole["whole"], whole["wrong"], whole["unproven_objects"]) == (SEGMENTS, 0, 0)
    assert site.verify()["whole"] == SEGMENTS

    # One object that the tool got wrong, with the right length; then one that is too short.
    log = next(key for key in keys if key.endswith(".log"))
    data = site.s3.get_object(Bucket="moved", Key=log)["Body"].read()
    site.s3.put_object(Bucket="moved", Key=log, Body=data[:-1] + bytes([data[-1] ^ 1]))
    (found,) = site.verify("--deep", code=ExitCode.INCOMPLETE)["problems"]
    assert ".log has CRC32C" in found["wrong"]
    assert found["segment_id"] in log
    site.s3.put_object(Bucket="moved", Key=log, Body=data[:-1])
    (found,) = site.verify(code=ExitCode.INCOMPLETE)["problems"]
    assert found["wrong"] == f".log has {len(data) - 1} bytes, not {len(data)}"
    site.copy(log)

    for config in (site.at_new, site.at_old, site.at_new):
        site.restart(config)
        assert site.records() == read
    for key in site.keys(site.old):
        site.s3.delete_object(Bucket=site.old.bucket, Key=key)
    for what in ("copying", "deleting"):
        site.ask("resume", what)
    assert site.records() == read
    assert site.verify("--deep")["whole"] == SEGMENTS
