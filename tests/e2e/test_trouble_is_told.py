"""Each trouble of a node's surroundings stands in `strandline status` within half a minute: broker,
store and quorum are real, and so is what they suffer. Settings are the defaults, but for
`quorum.ready_silence_max_s` (3 s, not 10).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.bucket import store_settings
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.e2e.node_quorum import COPIER_ID, NodeQuorum
from tests.e2e.writer import Writer
from tests.real.kafka import KafkaBroker
from tests.real.minio import MinioServer
from tests.real.process_tree import stopped
from tests.real.store_gate import Passing, StoreGate
from tests.strandline.command import invoke

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(420)]

TOPIC = "voyages"
TOPIC_CONFIG = {
    "internal.segment.bytes": "49152",
    "index.interval.bytes": "2048",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}
POLL_S = 1.0
TOLD_S = 30.0
OVER_S = 90.0
"""The waits between two tries of what failed for a while."""


class Site:
    """A broker and the node beside it, the quorum's other two, and the store behind a gate."""

    def __init__(self, broker: KafkaBroker, minio: MinioServer, gate: StoreGate) -> None:
        self.broker = broker
        self.minio = minio
        self.gate = gate
        self.quorum: NodeQuorum

    @property
    def node(self) -> NodeProcess:
        """The one that copies."""
        return self.quorum.nodes[COPIER_ID]

    def status(self) -> str:
        """As an operator sees it, however wide the terminal is."""
        done = invoke("status", "--url", self.node.url)
        assert done.exit_code == 0, done.stderr
        return " ".join(done.stdout.split())

    def write(self) -> None:
        """More sealed segments than before."""
        with Writer(self.broker.bootstrap, TOPIC, 1):
            before = len(self.broker.segment_files(TOPIC, 0))
            self.broker.wait_until(
                lambda: len(self.broker.segment_files(TOPIC, 0)) > before + 1, "sealed segments"
            )

    def tells(self, *words: str) -> None:
        """Within half a minute from now all these words stand in the status."""
        began, said = time.monotonic(), ""
        while time.monotonic() - began < TOLD_S:
            said = self.status()
            if all(word in said for word in words):
                return
            time.sleep(POLL_S)
        raise AssertionError(f"{words} after {TOLD_S:g} s: {said}")

    def is_well(self) -> None:
        """Nothing is wrong any more."""
        self.node.wait_until(
            lambda: PLAIN.get(f"{self.node.url}/v1/cluster").json()["problems"] == [],
            "no problem",
            deadline_s=OVER_S,
        )

    def wait_until_all_is_copied(self) -> None:
        """Up to the active segment."""

        def copied() -> bool:
            answer = PLAIN.get(f"{self.node.url}/v1/topics/{TOPIC}/partitions/0")
            active = int(self.broker.segment_files(TOPIC, 0)[-1].stem)
            return bool(answer.json().get("highest_copied_offset") == active - 1)

        self.node.wait_until(copied, "everything sealed to be copied", deadline_s=OVER_S)

    def waiting(self) -> str:
        """What `strandline partitions` says of those that do not go on."""
        said = invoke("partitions", "--waiting", "--url", self.node.url)
        assert said.stdout, said.stderr or "nothing waits"
        return said.stdout

    def metrics(self) -> set[str]:
        """The lines of /metrics."""
        return set(PLAIN.get(f"{self.node.url}/metrics").text.splitlines())


@contextmanager
def site(tmp_path: Path) -> Iterator[Site]:
    """All is well, and what is sealed is copied."""
    (tmp_path / "minio").mkdir()
    with (
        KafkaBroker(tmp_path / "broker") as broker,
        MinioServer(tmp_path / "minio") as minio,
        StoreGate("127.0.0.1", int(minio.endpoint_url.rpartition(":")[2])) as gate,
    ):
        broker.create_topic(TOPIC, partitions=1, config=TOPIC_CONFIG)
        home = tmp_path / "nodes"
        home.mkdir()
        sections: dict[str, dict[str, object]] = {
            "topics": {"include": [TOPIC]},
            "stores.main": store_settings(
                home, replace(minio.store_config, prefix="t/", endpoint_url=gate.url)
            ),
        }
        kafka: dict[str, object] = {"log_dirs": [str(broker.log_dir)], "broker": broker.bootstrap}
        found = Site(broker, minio, gate)
        with NodeQuorum(home, broker.cluster_id, sections, {f"{COPIER_ID}": kafka}) as quorum:
            found.quorum = quorum
            found.write()
            found.wait_until_all_is_copied()
            found.is_well()
            assert "problem" not in found.status()
            yield found


def of_the_store(there: Site) -> None:
    """Nothing waits to be copied: who only waited for a failed copy would say nothing."""
    there.gate.passing = Passing.NOTHING
    there.tells("problem with store main: ")
    there.gate.passing = Passing.ALL
    there.is_well()
    with stopped(there.minio.pid):
        there.tells("problem with store main: ", "no answer")
    there.is_well()


def of_the_broker(there: Site) -> None:
    with stopped(there.broker.pid):
        there.tells("1 partition is not copied (broker unavailable)")
    there.is_well()
    there.broker.kill()
    there.tells("1 partition is not copied (broker unavailable)")
    assert "broker unavailable: " in there.waiting()
    there.broker.start()
    there.is_well()


def of_the_quorum(there: Site) -> None:
    for each in (2, 3):
        there.quorum.nodes[each].kill()
    there.tells("problem with quorum: ", "majority")
    there.node.wait_until(
        lambda: (
            there.metrics() >= {"strandline_ready 0.0", "strandline_metadata_current_leader -1.0"}
        ),
        "the metrics of a quorum without a majority",
        deadline_s=TOLD_S,
    )
    there.quorum.start(2, 3)
    there.is_well()


def of_a_bucket_that_takes_no_writes(there: Site) -> None:
    there.gate.passing = Passing.READS
    there.write()
    there.tells("1 partition is not copied (backing off)", "read-only")
    for _ in range(5):  # an attempt is under way at times
        assert "read-only" in there.waiting()
    there.gate.passing = Passing.ALL
    there.wait_until_all_is_copied()


def test_each_trouble_is_told_within_half_a_minute(tmp_path: Path) -> None:
    with site(tmp_path) as there:
        of_the_store(there)
        of_the_broker(there)
        of_the_quorum(there)
        of_a_bucket_that_takes_no_writes(there)
