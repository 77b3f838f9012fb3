"""Whole nodes, killed at random while they copy: the tier, its metadata and the source agree.

A node's own lines say what it acknowledged: every segment that it called copied, in any of its
lives, is there at the end, byte by byte, and so is every other one, once.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import httpx
import pytest

from kafka_formats.offset_checkpoint import HIGH_WATERMARK_FILE
from rlmm.rows.keys import RowKind
from rlmm.view.view import View
from tests.e2e.node_process import NodeProcess, forked
from tests.real.forked import ForkedProcess
from tests.rlm.broker_files import ReplicaWriter, write_checkpoint, write_log_dir
from tests.strandline.command import invoke

PARTITIONS = 3
SEGMENTS_A_ROUND = 6
START_LINES = 9
OF_EVERY_START = {bytes((kind,)) for kind in (RowKind.NODE, RowKind.RECORD_TIME)}
"""Those of the quorum, of the address, of a claim each; then every copy has one."""
QUIET_DEADLINE_S = 60.0
_COPIED = re.compile(rb" copied (orders-\d+)\([^)]*\)/(\S+), offsets (\d+) to (\d+),")


class Broker:
    """A standalone log directory that goes on growing."""

    def __init__(self, log_dir: Path, choose: random.Random) -> None:
        self.log_dir, self._choose = write_log_dir(log_dir), choose
        self._replicas = [ReplicaWriter(log_dir, number=number) for number in range(PARTITIONS)]

    def write(self) -> None:
        """A few more sealed segments, some of them in several parts of a copy's reading."""
        for _ in range(SEGMENTS_A_ROUND):
            replica = self._choose.choice(self._replicas)
            for _ in range(self._choose.randrange(1, 12)):
                replica.append(5, value_bytes=self._choose.choice((20, 5_000, 60_000)))
            replica.roll()
        offsets = {("orders", each.number): each.next_offset for each in self._replicas}
        write_checkpoint(self.log_dir, HIGH_WATERMARK_FILE, offsets)

    def sealed(self) -> Iterator[tuple[int, int, bytes]]:
        """(partition, base offset, bytes) of every sealed segment that is not empty."""
        for replica in self._replicas:
            *sealed, _ = sorted(replica.directory.glob("*.log"))
            for path in sealed:
                yield replica.number, int(path.stem), path.read_bytes()


class KilledNode(NodeProcess):
    """A node whose lines somebody reads."""

    @contextmanager
    def lines(self) -> Iterator[tuple[ForkedProcess, BinaryIO]]:
        """It runs, and is killed at the end."""
        ours, theirs = os.pipe()
        with open(ours, "rb") as lines:
            try:
                process = forked(self._command("node"), theirs)
            finally:
                os.close(theirs)
            try:
                yield process, lines
            finally:
                process.kill()
                process.wait()

    def tier_nothing(self) -> None:
        """From the next start on."""
        self._sections = {**self._sections, "topics": {"include": []}}
        self.write_config()


def node_over(home: Path, log_dir: Path) -> KilledNode:
    (home / "tier").mkdir()
    return KilledNode(
        home / "node",
        {
            "kafka": {"log_dirs": [str(log_dir)]},
            "topics": {"include": ["*"]},
            "stores.main": {"kind": "filesystem", "path": str(home / "tier")},
            "copier": {
                "interval_s": 0.05,
                "upload_deadline_s": 5.0,
                "upload_margin_s": 0.2,
                "backoff_base_s": 0.05,
                "backoff_max_s": 0.2,
            },
            "metadata": {"view_flush_records": 20},
        },
    )


def one_round(node: KilledNode, choose: random.Random, copied: set[tuple[str, ...]]) -> None:
    """So many lines, a moment more, then the kill. What is still in the pipe counts as well."""
    with node.lines() as (process, output):
        lines = b""
        for _ in range(choose.randrange(START_LINES + SEGMENTS_A_ROUND)):
            line = output.readline()
            assert line, lines.decode(errors="replace")
            lines += line
        select.select([output], [], [], choose.uniform(0, 0.05))
        process.kill()
        lines += output.read()
    assert b"Traceback" not in lines, lines.decode(errors="replace")
    copied.update(tuple(map(bytes.decode, found)) for found in _COPIED.findall(lines))


def segments_of(url: str) -> list[dict[str, Any]]:
    """All rows, of every state."""
    found: list[dict[str, Any]] = []
    for partition in range(PARTITIONS):
        path = f"{url}/v1/topics/orders/partitions/{partition}/segments"
        cursor: str | None = None
        while True:
            page = httpx.get(path, params={} if cursor is None else {"cursor": cursor})
            found += page.raise_for_status().json()["segments"]
            cursor = page.json().get("next_cursor")
            if cursor is None:
                break
    return found


def check(node: NodeProcess, broker: Broker, copied: set[tuple[str, ...]]) -> None:
    """Everything is copied once, and can be read; nothing that was said is gone."""
    expected = list(broker.sealed())
    node.start()
    node.wait_until(
        lambda: (
            [each["state"] for each in segments_of(node.url)]
            == ["COPY_SEGMENT_FINISHED"] * len(expected)
        ),
        "every segment to be copied and every left-over to be gone",
        deadline_s=QUIET_DEADLINE_S,
    )
    rows = {(each["partition"], each["start_offset"]): each for each in segments_of(node.url)}
    assert len(rows) == len(expected)
    for partition, base, data in expected:
        row = rows[partition, base]
        path = f"/v1/topics/orders/partitions/{partition}/segments/{row['segment_id']}/log"
        read = httpx.get(node.url + path, params={"topic_id": row["topic_id"]})
        assert read.raise_for_status().content == data
    ids = {(f"orders-{key[0]}", row["segment_id"]) for key, row in rows.items()}
    assert {found[:2] for found in copied} <= ids
    node.stop()
    document = json.loads(invoke("reconcile", "--config", node.config, "--json").stdout)
    assert document["whole"] == len(expected)
    assert not any(document[key] for key in ("missing", "unknown", "unfinished", "uncompared"))


def rows_after_a_start(node: NodeProcess, view_path: Path) -> dict[bytes, bytes]:
    """The view's rows, but for what every start records: the node's registration, and the time."""
    node.start()
    node.stop()
    view = View.open(view_path)
    try:
        rows = dict(view.rows_in_key_order())
    finally:
        view.close()
    return {key: value for key, value in rows.items() if key[:1] not in OF_EVERY_START}


def kill_again_and_again(home: Path, *, rounds: int, seed: int) -> int:
    """How many copies the killed nodes said they had finished."""
    choose, copied = random.Random(seed), set[tuple[str, ...]]()
    broker = Broker(home / "kafka", choose)
    node = node_over(home, broker.log_dir)
    node.format()
    for _ in range(rounds):
        broker.write()
        one_round(node, choose, copied)
    check(node, broker, copied)
    node.tier_nothing()  # nothing is claimed: no row changes any more
    view = home / "node" / "data" / "view"
    rows = rows_after_a_start(node, view)
    shutil.rmtree(view)
    replayed = rows_after_a_start(node, view)
    assert len(rows) > len(copied)
    assert replayed == rows, "replayed from zero, the rows are others"
    return len(copied)


@pytest.mark.integration
def test_five_kills_of_a_node_that_copies(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, rounds=5, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [2, 3, 4])
def test_a_hundred_kills_of_a_node_that_copies(tmp_path: Path, seed: int) -> None:
    assert kill_again_and_again(tmp_path, rounds=100, seed=seed) > 10
