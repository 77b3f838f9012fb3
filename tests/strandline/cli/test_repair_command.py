"""`strandline repair` as typed, on objects of a real bucket that somebody damaged or deleted: every
byte is read again afterwards, and nothing is left of what was damaged.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from rsm_backends.store_config import StoreConfig
from strandline.cli.exit_codes import ExitCode
from tests.e2e.bucket import named_objects, store_settings, stored_objects
from tests.e2e.node_process import NodeProcess
from tests.e2e.tier_client import TierClient
from tests.real.s3_admin import client, make_bucket
from tests.strandline.captured_node import ask
from tests.strandline.command import CAPTURED, CAPTURED_SEGMENTS, invoke
from tests.strandline.conftest import COPY_DEADLINE_S, copied_segments

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
PAYMENTS = [("payments", 0), ("payments", 1)]
"""With aborted transactions."""

EVENTS = [("events", 0), ("events", 1)]
Tiers = dict[tuple[str, int], tuple[bytes, list[Any]]]


@contextmanager
def node_with_everything(
    home: Path, config: StoreConfig, log_dir: Path, **repair: object
) -> Iterator[NodeProcess]:
    home.mkdir(exist_ok=True)
    sections: dict[str, dict[str, object]] = {
        "kafka": {"log_dirs": [str(log_dir)]},
        "topics": {"include": ["*"]},
        "stores.main": store_settings(home, config),
        "copier": {"interval_s": 0.5, "upload_margin_s": 0.5},
        "retention": {"delete_delay_s": 0.5},
        "http": {"anonymous_role": "admin"},
        "repair": {"free_bytes_min": 1, **repair},
    }
    with NodeProcess(home / "node", sections) as node:
        node.wait_until(
            lambda: copied_segments(node.url) == CAPTURED_SEGMENTS,
            "copies",
            deadline_s=COPY_DEADLINE_S,
        )
        yield node


def read_all(node: NodeProcess, partitions: list[tuple[str, int]]) -> Tiers:
    """All bytes of each partition, and what a consumer of committed records gets."""
    found = {}
    for topic, number in partitions:
        tier = TierClient(node.url, topic, number)
        start = tier.status()["log_start_offset"]
        committed = list(tier.records("read_committed", start=start))
        found[topic, number] = (tier.batches(start=start), committed)
    return found


def rows(node: NodeProcess, topic: str, number: int) -> list[dict[str, Any]]:
    return TierClient(node.url, topic, number).segments()


def flip(s3: Any, bucket: str, key: str) -> None:
    data = bytearray(s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    data[len(data) // 2] ^= 0xFF
    s3.put_object(Bucket=bucket, Key=key, Body=bytes(data))


def damage_all(config: StoreConfig, segments: list[dict[str, Any]]) -> int:
    """One object of each segment, each in another way."""
    s3 = client(config)
    deeds: Iterator[tuple[str, Callable[..., object]]] = cycle(
        [
            (".log", flip),
            (".log", lambda s3, bucket, key: s3.delete_object(Bucket=bucket, Key=key)),
            (".indexes", lambda s3, bucket, key: s3.delete_object(Bucket=bucket, Key=key)),
            (".rsm-manifest", flip),
            (".indexes", flip),
        ]
    )
    for row, (suffix, deed) in zip(segments, deeds, strict=False):
        (key,) = [key for key in named_objects(config.prefix, [row]) if key.endswith(suffix)]
        deed(s3, config.bucket, key)
    s3.close()
    return len(segments)


def all_rows(node: NodeProcess, partitions: list[tuple[str, int]]) -> list[dict[str, Any]]:
    return [row for topic, number in partitions for row in rows(node, topic, number)]


def assert_tidy(node: NodeProcess, config: StoreConfig) -> None:
    """The bucket has what the metadata names, and every byte of it is right."""

    def is_tidy() -> bool:
        named: dict[str, int] = {}
        for path in CAPTURED.glob("*-*"):
            topic, _, number = path.name.rpartition("-")
            if path.is_dir():
                named |= named_objects(config.prefix, rows(node, topic, int(number)))
        return stored_objects(config) == named

    node.wait_until(is_tidy, "what was damaged to go", deadline_s=60)


def test_what_somebody_damaged_or_deleted_is_copied_anew_from_the_brokers_disk(
    tmp_path: Path, minio_store_config: StoreConfig
) -> None:
    config = replace(minio_store_config, prefix="repair/")
    with node_with_everything(tmp_path, config, CAPTURED) as node:
        wanted = read_all(node, PAYMENTS + EVENTS)
        damaged = damage_all(config, all_rows(node, PAYMENTS + EVENTS))
        env = {"STRANDLINE_URL": node.url}

        looked = invoke("repair", "--topic", "payments", "--partition", "0", env=env)
        assert looked.exit_code == ExitCode.INCOMPLETE
        assert "nothing was changed: --yes does it" in looked.stdout
        assert "would" in looked.stdout
        assert len(rows(node, "payments", 0)) == sum(
            row["topic"] == "payments" and row["partition"] == 0 for row in all_rows(node, PAYMENTS)
        )
        done = [ask(node, "repair", "--topic", topic, "--yes") for topic in ("payments", "events")]
        assert sum(each["damaged"] for each in done) == damaged
        told = [segment for each in done for segment in each["segments"]]
        assert {segment["outcome"] for segment in told} == {"repaired"}
        assert {segment["source"] for segment in told} == {
            "the broker's segments", "the segment's own objects",
        }  # fmt: skip
        assert read_all(node, PAYMENTS + EVENTS) == wanted
        again = ask(node, "repair", "--topic", "payments", "--yes")
        assert (again["damaged"], again["checked"] > 0) == (0, True)
        lines = ask(node, "audit", "--action", "segment_repaired")
        assert len(lines) == damaged
        assert {line["by"] for line in lines} == {"anonymous"}
        verified = invoke("stores", "verify", "main", "--deep", "--config", node.config, env=env)
        assert verified.exit_code == ExitCode.OK, verified.stdout
        assert_tidy(node, config)


def test_a_bucket_that_keeps_versions_has_what_the_broker_has_not_any_more(
    tmp_path: Path, minio_store_config: StoreConfig
) -> None:
    """And a node that was told to repairs what its readers meet by itself."""
    config = replace(minio_store_config, bucket="repair-versions", prefix="repair/")
    make_bucket(config, versioned=True)
    log_dir = tmp_path / "log-dir"
    shutil.copytree(CAPTURED, log_dir)
    with node_with_everything(
        tmp_path, config, log_dir, automatic=True, interval_s=0.5, per_hour_max=100
    ) as node:
        wanted = read_all(node, PAYMENTS)
        for topic, number in PAYMENTS:
            for path in (log_dir / f"{topic}-{number}").glob("*.log"):
                data = bytearray(path.read_bytes())
                if data:
                    data[len(data) // 2] ^= 0xFF
                    path.write_bytes(data)
        segments = all_rows(node, PAYMENTS)
        damaged = damage_all(config, segments)
        for row in segments:  # each is met by a reader; what is damaged beside a log is not
            tier = TierClient(node.url, row["topic"], row["partition"])
            try:
                tier.log(row["segment_id"])
            except (AssertionError, OSError, RuntimeError):
                continue
        done = ask(node, "repair", "--topic", "payments", "--yes", code=None)
        while done["state"] != "finished":
            done = ask(node, "repair", "--topic", "payments", "--yes", code=None)
        assert not done["standing"]
        assert read_all(node, PAYMENTS) == wanted
        lines = ask(node, "audit", "--action", "segment_repaired")
        assert len(lines) == damaged
        assert any("from version " in line["why"] for line in lines)
        assert_tidy(node, config)
