"""A stock broker expires by `retention.bytes` while nothing can be deleted: what is to be kept
stays readable. It moves its log start before it deletes, and counts again what it did not delete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rlm.delegated.expirations import CONFIRMED_FOR_S
from tests.e2e.broker_site import SEGMENT_BYTES
from tests.e2e.bucket import store_settings
from tests.e2e.http import PLAIN
from tests.e2e.node_quorum import NodeQuorum
from tests.e2e.test_broker_that_tiers_in_trouble import Tiering, beside_three_nodes
from tests.e2e.tiering_broker import TOPIC
from tests.real.kafka import KAFKA_VERSION
from tests.real.kafka_clients import log_bounds
from tests.real.minio import MinioServer
from tests.real.store_gate import Passing, StoreGate

pytestmark = [pytest.mark.e2e, pytest.mark.soak, pytest.mark.timeout(400)]

EXPIRED_BYTES = 120_000
"""Between two and three segments."""
MORE_BYTES = 2 * SEGMENT_BYTES
"""Of what is on the broker's disk alone, which counts as well."""
RUNS_S = 30
"""Some ten runs of the broker's expiration, also of those that wait for a deadline."""


@contextmanager
def tiering(
    tmp_path: Path, version: str = KAFKA_VERSION
) -> Iterator[tuple[Tiering, NodeQuorum, StoreGate]]:
    """A broker with all that is sealed in MinIO. Its node is 1 of three; its store's requests pass
    the gate.
    """
    (tmp_path / "minio").mkdir()
    with (
        MinioServer(tmp_path / "minio") as minio,
        StoreGate("127.0.0.1", int(minio.endpoint_url.rpartition(":")[2])) as gate,
    ):
        config = replace(minio.store_config, prefix="t/", endpoint_url=gate.url)
        with beside_three_nodes(tmp_path, version, store_settings(tmp_path, config)) as (
            there,
            quorum,
        ):
            there.write_until_copied(16)
            there.broker.wait_until(
                lambda: len(there.broker.segment_files(TOPIC, 0)) <= 2, "local retention"
            )
            yield there, quorum, gate


def readable_bytes(there: Tiering, rows: list[dict[str, object]]) -> int:
    """Of these segments, by the log start that consumers are told."""
    start, _ = log_bounds(there.broker.bootstrap, TOPIC, 0)
    return sum(int(str(row["size_bytes"])) for row in rows if int(str(row["end_offset"])) >= start)


def expire(there: Tiering) -> tuple[list[dict[str, object]], int]:
    """The broker is to keep all but some segments: those there are, and the bytes to be kept."""
    rows = [row for row in there.tier.segments() if row["state"] == "COPY_SEGMENT_FINISHED"]
    kept = sum(row["size_bytes"] for row in rows) - EXPIRED_BYTES
    there.broker.alter_topic(TOPIC, {"retention.bytes": str(kept)})
    return rows, kept


def test_nothing_expires_while_deleting_is_paused(tmp_path: Path) -> None:
    with tiering(tmp_path) as (there, quorum, _):
        policy = {"retention_ms": None, "retention_bytes": None, "copy_paused": False}
        url = f"{quorum.nodes[1].url}/v1/topics/{TOPIC}/policy"
        assert PLAIN.put(url, json=policy | {"delete_paused": True}).status_code == 200
        rows, kept = expire(there)
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) == kept + EXPIRED_BYTES
        assert PLAIN.put(url, json=policy | {"delete_paused": False}).status_code == 200
        there.broker.wait_until(
            lambda: readable_bytes(there, rows) < kept + EXPIRED_BYTES, "expiry"
        )
        time.sleep(RUNS_S / 3)
        assert readable_bytes(there, rows) > kept - MORE_BYTES


def test_no_more_expires_than_is_due_while_the_store_is_away(tmp_path: Path) -> None:
    with tiering(tmp_path) as (there, _, gate):
        gate.passing = Passing.NOTHING
        rows, kept = expire(there)
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) > kept - MORE_BYTES
        gate.passing = Passing.ALL
        there.broker.wait_until(
            lambda: len(there.tier.segments()) < len(rows), "the objects to go", deadline_s=200
        )
        assert readable_bytes(there, rows) > kept - MORE_BYTES


def test_no_more_expires_than_is_due_while_the_quorum_has_no_majority(tmp_path: Path) -> None:
    with tiering(tmp_path) as (there, quorum, _):
        for other in (2, 3):
            quorum.nodes[other].kill()
        time.sleep(3 * CONFIRMED_FOR_S)  # no run is under way
        rows, kept = expire(there)
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) > kept - MORE_BYTES
        quorum.start(2, 3)
        there.broker.wait_until(
            lambda: len(there.tier.segments()) < len(rows), "the objects to go", deadline_s=200
        )
        assert readable_bytes(there, rows) > kept - MORE_BYTES


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
def test_no_more_expires_than_is_due_while_rows_are_being_deleted(
    tmp_path: Path, version: str
) -> None:
    """Brokers before 4.0 count these as kept."""
    with tiering(tmp_path, version) as (there, _, _gate):
        rows, kept = expire(there)
        there.broker.wait_until(
            lambda: readable_bytes(there, rows) < kept + EXPIRED_BYTES, "expiry"
        )
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) > kept - MORE_BYTES


@contextmanager
def run_that_breaks_off(there: Tiering, quorum: NodeQuorum, gate: StoreGate) -> Iterator[None]:
    """What the block changes has a run begin. Its node ends amid the deletions and starts again."""
    began, _ = log_bounds(there.broker.bootstrap, TOPIC, 0)
    gate.passing = Passing.NOTHING  # each deletion takes its time
    yield
    there.broker.wait_until(
        lambda: log_bounds(there.broker.bootstrap, TOPIC, 0)[0] > began, "a run to begin"
    )
    quorum.nodes[1].kill()
    gate.passing = Passing.ALL
    quorum.start(1)


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
def test_no_more_expires_than_is_due_behind_a_run_that_broke_off(
    tmp_path: Path, version: str
) -> None:
    with tiering(tmp_path, version) as (there, quorum, gate):
        with run_that_breaks_off(there, quorum, gate):
            rows, kept = expire(there)
        there.broker.wait_until(
            lambda: len(there.tier.segments()) < len(rows), "the objects to go", deadline_s=200
        )
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) > kept - MORE_BYTES


@pytest.mark.parametrize("version", ["3.9.2", KAFKA_VERSION, "4.4.0"])
def test_no_more_expires_than_is_due_behind_a_run_that_broke_off_in_the_next_epoch(
    tmp_path: Path, version: str
) -> None:
    """Brokers from 4.3 on count what is of epochs before the log's first, once all has counted."""
    with tiering(tmp_path, version) as (there, quorum, gate):
        there.broker.restart()
        there.write_until_copied(6)
        there.broker.wait_until(
            lambda: len(there.broker.segment_files(TOPIC, 0)) <= 2, "local retention"
        )
        rows = [row for row in there.tier.segments() if row["state"] == "COPY_SEGMENT_FINISHED"]
        last = rows[-4:]
        assert rows[0]["leader_epochs"] != last[0]["leader_epochs"]
        sizes = sum(row["size_bytes"] for row in rows)
        there.broker.alter_topic(TOPIC, {"retention.bytes": str(sizes - 1)})
        time.sleep(RUNS_S / 3)
        kept = sum(row["size_bytes"] for row in last)
        with run_that_breaks_off(there, quorum, gate):
            there.broker.alter_topic(TOPIC, {"retention.bytes": str(kept)})
        there.broker.wait_until(
            lambda: len(there.tier.segments()) < len(rows) - 2, "the objects to go", deadline_s=200
        )
        time.sleep(RUNS_S)
        assert readable_bytes(there, rows) > kept - MORE_BYTES
