"""Three real nodes, and what operators and strangers do to them: garbage at the listener, a
directory that is not formatted, one that was formatted anew, and one that was copied.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from kafka_formats.kafka_uuid import Uuid
from strandline.cli.exit_codes import ExitCode
from tests.e2e.http import PLAIN
from tests.e2e.node_process import NodeProcess
from tests.real.ports import free_ports
from tests.strandline.command import invoke, strandline

pytestmark = pytest.mark.integration

NODES = (1, 2, 3)
HOST = "127.0.0.1"
CLUSTER = str(Uuid(b"processes-cluste"))
DEADLINE_S = 120.0


def directory(node_id: int, life: int = 1) -> str:
    return str(Uuid(b"node-%d-life-%d..." % (node_id, life)))


class Quorum:
    """Formatted and running nodes, by node id."""

    def __init__(self, home: Path) -> None:
        self.home = home
        (home / "tier").mkdir()
        (home / "secret").write_text("a secret of the quorum's own")
        self.ports = dict(zip(NODES, free_ports(len(NODES)), strict=True))
        self.nodes = {node_id: self.made(node_id, self.ports[node_id]) for node_id in NODES}
        self.offset = -1

    def made(self, node_id: int, port: int, name: str = "") -> NodeProcess:
        return NodeProcess(
            self.home / (name or f"node-{node_id}"),
            {
                "stores.main": {"kind": "filesystem", "path": str(self.home / "tier")},
                "kafka": {"log_dirs": []},
                "quorum": {
                    "listen": f"{HOST}:{port}",
                    "secret_file": str(self.home / "secret"),
                    "bootstrap": [f"{each}@{HOST}:{where}" for each, where in self.ports.items()],
                },
                "http": {"anonymous_role": "admin"},
            },
        )

    @property
    def voters(self) -> str:
        return ",".join(f"{each}@{HOST}:{self.ports[each]}:{directory(each)}" for each in NODES)

    def format(self, node_id: int, *arguments: str) -> None:
        identity = ("--cluster-id", CLUSTER, "--kafka-cluster-id", "kafka")
        self.nodes[node_id].format(*identity, "--node-id", str(node_id), *arguments)

    def start(self) -> None:
        for node_id in NODES:
            self.format(node_id, "--initial-voters", self.voters)
            self.nodes[node_id].spawn()
        for node in self.nodes.values():
            node.wait_until_ready()

    def describe(self, node_id: int) -> dict[str, Any]:
        found: dict[str, Any] = PLAIN.get(f"{self.nodes[node_id].url}/v1/quorum").json()
        return found

    def leader(self) -> int:
        found: list[int] = []

        def known() -> bool:
            for node_id, node in self.nodes.items():
                with suppress(httpx.TransportError):
                    if node.running and self.describe(node_id)["state"] == "leader":
                        found.append(node_id)
                        return True
            return False

        next(iter(self.nodes.values())).wait_until(known, "a leader", deadline_s=DEADLINE_S)
        return found[-1]

    def commits(self) -> None:
        """A change, asked of the leader's node; it is acknowledged, and stays."""
        self.offset += 1
        body = {"retention_ms": self.offset + 1, "retention_bytes": None, "copy_paused": False,
                "delete_paused": False}  # fmt: skip

        def done() -> bool:
            url = f"{self.nodes[self.leader()].url}/v1/topics/topic-{self.offset}/policy"
            with suppress(httpx.TransportError):
                return PLAIN.put(url, json=body).status_code == 200
            return False

        node = self.nodes[self.leader()]
        node.wait_until(done, "a commit", deadline_s=DEADLINE_S)

    def same_everywhere(self) -> None:
        """Everything acknowledged is on every running node, and their states are equal."""
        running = [node_id for node_id, node in self.nodes.items() if node.running]

        def same() -> bool:
            seen = [self.describe(node_id) for node_id in running]
            return len({(each["applied_offset"], each["digest"]) for each in seen}) == 1

        self.nodes[running[0]].wait_until(same, "one state", deadline_s=DEADLINE_S)
        for node_id in running:
            for number in range(self.offset + 1):
                url = f"{self.nodes[node_id].url}/v1/topics/topic-{number}/policy"
                assert PLAIN.get(url).json()["retention_ms"] == number + 1

    def ask(self, *arguments: object) -> Result:
        """`strandline quorum ...`, asked of the leader's node."""
        url = self.nodes[self.leader()].url
        return invoke("quorum", *arguments, env={"STRANDLINE_URL": url})


@pytest.fixture(scope="module")
def quorum(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Quorum]:
    """One for all tests: each leaves it whole."""
    made = Quorum(tmp_path_factory.mktemp("quorum"))
    try:
        made.start()
        made.commits()
        yield made
    finally:
        for node in made.nodes.values():
            if node.running:
                node.kill()


def test_garbage_at_every_listener_stops_nobody(quorum: Quorum) -> None:
    garbage = (
        b"\xff" * 5_000,
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 2**31 - 1) + b"x" * 1_000,
        struct.pack(">i", -1),
        struct.pack(">ihhi", 10, 99, 0, 7) + b"\xff\xff",
        struct.pack(">i", 100) + b"half",
    )
    for port in quorum.ports.values():
        for sent in garbage:
            connected = socket.create_connection((HOST, port), timeout=10)
            with connected as connection, suppress(ConnectionError):
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(4_096):
                    pass
    quorum.commits()
    quorum.same_everywhere()
    for node in quorum.nodes.values():
        assert node.log.count("announced a request of 2147483647 bytes") == 1
        assert node.log.count("sent API key 99 in version 0") == 1
        assert "is it a Kafka client, with the right security protocol?" in node.log


def test_a_directory_that_is_not_formatted_is_refused(tmp_path: Path) -> None:
    lost = Quorum(tmp_path).nodes[1]
    lost.write_config()
    refused = strandline("node", "--config", lost.config)
    assert refused.returncode == ExitCode.USAGE
    assert "is not formatted: run `strandline format` for this node first" in refused.stderr


def test_a_voter_that_lost_its_disk_follows_until_it_is_replaced(quorum: Quorum) -> None:
    wiped = next(each for each in NODES if each != quorum.leader())
    node = quorum.nodes[wiped]
    node.stop()
    shutil.rmtree(quorum.home / f"node-{wiped}" / "data")
    quorum.format(wiped, "--no-initial-voters")
    node.start()
    quorum.commits()
    leader = quorum.nodes[quorum.leader()]
    leader.wait_until(
        lambda: f"quorum remove-voter {wiped} --directory-id {directory(wiped)}" in leader.log,
        "a word about the new directory",
        deadline_s=DEADLINE_S,
    )
    found = quorum.describe(quorum.leader())
    assert directory(wiped) in [each["directory_id"] for each in found["voters"]]
    (observer,) = found["observers"]
    assert observer["node_id"] == wiped
    gone = quorum.ask("remove-voter", wiped, "--directory-id", directory(wiped))
    assert gone.exit_code == ExitCode.OK, gone.stderr
    added = f"{wiped}@{HOST}:{quorum.ports[wiped]}:{observer['directory_id']}"
    back = quorum.ask("add-voter", added)
    assert back.exit_code == ExitCode.OK, back.stderr
    quorum.commits()
    quorum.same_everywhere()
    voters = json.loads(quorum.ask("describe", "--json").stdout)["voters"]
    assert [each["directory_id"] for each in voters if each["node_id"] == wiped] == [
        observer["directory_id"]
    ]


def test_of_a_directory_and_its_copy_one_stops_and_the_quorum_goes_on(quorum: Quorum) -> None:
    copied = next(each for each in NODES if each != quorum.leader())
    original = quorum.nodes[copied]
    original.stop()
    copy = quorum.made(copied, free_ports(1)[0], name="copy")
    copy.write_config()
    shutil.copytree(quorum.home / f"node-{copied}" / "data", quorum.home / "copy" / "data")
    logs = {"original": original, "copy": copy}
    for node in logs.values():
        node.spawn()
    try:
        leader = quorum.nodes[quorum.leader()]
        said = "another process with this node's identity"
        leader.wait_until(
            lambda: any(said in node.log for node in logs.values()),
            "one of the two to stop",
            deadline_s=DEADLINE_S,
        )
        assert "a data directory was copied, or restored while its node ran" in leader.log
        assert sum(said in node.log for node in logs.values()) == 1
        quorum.commits()
    finally:
        for node in logs.values():
            node.kill()
    original.start()
    quorum.commits()
    quorum.same_everywhere()
