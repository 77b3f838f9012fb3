"""Several nodes as one quorum, run the way docs/OPERATIONS.md tells an operator to."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kafka_formats.kafka_uuid import Uuid
from strandline.cli.exit_codes import ExitCode
from strandline.node import ambient
from tests.e2e.http import PLAIN
from tests.e2e.node_process import POLL_S, NodeProcess, Sections
from tests.real.ports import free_ports
from tests.strandline.command import invoke

COPIER_ID = 1
FOUNDERS = (COPIER_ID, 2, 3)
DEADLINE_S = 60.0
READY_SILENCE_MAX_S = SILENCE_MAX_S = 3.0


class NodeQuorum:
    """As a context manager: formatted and started.

    `kafka` is the log directory of node 1, which copies alone; or the `[kafka]` of each node.
    """

    def __init__(
        self,
        home: Path,
        kafka_cluster_id: str,
        sections: Sections,
        kafka: Path | Sections,
        founders: Sequence[int] = FOUNDERS,
    ) -> None:
        self._home = home
        self._founders = founders
        self._kafka_cluster_id = kafka_cluster_id
        self._sections = sections
        self._kafka = (
            {f"{COPIER_ID}": {"log_dirs": [str(kafka)]}} if isinstance(kafka, Path) else kafka
        )
        self._cluster_id = ""
        self._secret = home / "quorum-secret"
        self._secret.touch(0o600)
        self._secret.write_text(ambient.new_nonce())
        self._ports: dict[int, int] = {}
        self.nodes: dict[int, NodeProcess] = {}

    def __enter__(self) -> Self:
        for node_id in self._founders:
            self._add(node_id)
        self.format()
        try:
            self.start(*self._founders)
        except BaseException:
            self._kill_all()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._kill_all()

    def format(self, *options: str) -> None:
        """The founders' directories, as voters of a new cluster."""
        self._cluster_id = str(ambient.new_uuid())
        directories: Mapping[int, Uuid] = {each: ambient.new_uuid() for each in self._founders}
        voters = ",".join(f"{self._address(each)}:{directories[each]}" for each in self._founders)
        for node_id in self._founders:
            self._format(node_id, "--initial-voters", voters, *options)

    def start(self, *node_ids: int) -> None:
        """All of these at once: alone, a node of several is not ready."""
        for node_id in node_ids:
            self.nodes[node_id].spawn()
        for node_id in node_ids:
            self.nodes[node_id].wait_until_ready()

    def follow(self, node_id: int, **sections: Mapping[str, object]) -> NodeProcess:
        """A new node with an empty directory, and `sections` beside the others', follows."""
        bootstrap = [self._address(each) for each in self.nodes]
        self._add(node_id, bootstrap=bootstrap, more=sections)
        self._format(node_id, "--no-initial-voters")
        self.nodes[node_id].start()
        return self.nodes[node_id]

    def join(self, node_id: int) -> None:
        """A new node with an empty directory follows, then votes."""
        self.follow(node_id)
        (directory,) = (
            each["directory_id"]
            for each in self.described(self.leader())["observers"]
            if each["node_id"] == node_id
        )
        self.operate("add-voter", f"{self._address(node_id)}:{directory}")

    def operate(self, *arguments: object) -> None:
        """`strandline quorum ...`, asked of the leader's node; of the next, if it leads no more."""

        def done() -> bool:
            said = invoke("quorum", *arguments, "--url", self.nodes[self.leader()].url)
            moved = said.exit_code == ExitCode.CONFLICT and "does not lead" in said.stderr
            lost = said.exit_code == ExitCode.CONFLICT and "won the election" in said.stderr
            assert moved or lost or said.exit_code == ExitCode.OK, said.stdout + said.stderr
            return not moved

        self.wait_until(done, f"strandline quorum {arguments}")

    def transfer_to(self, node_id: int) -> None:
        """Until it leads: who wins the election that follows is not the old leader's to say."""

        def leads() -> bool:
            if self.leader() == node_id:
                return True
            self.operate("transfer", node_id)
            return False

        self.wait_until(leads, f"node {node_id} to lead")

    def may_stop(self, node_id: int) -> bool:
        """What `strandline quorum can-stop` says; no as well where it could not be judged."""
        url = self.nodes[self.leader()].url
        return invoke("quorum", "can-stop", node_id, "--url", url).exit_code == ExitCode.OK

    @property
    def running(self) -> dict[int, NodeProcess]:
        """Those that run."""
        return {node_id: node for node_id, node in self.nodes.items() if node.running}

    def described(self, node_id: int) -> dict[str, Any]:
        """The quorum as one node sees it."""
        answer = PLAIN.get(f"{self.nodes[node_id].url}/v1/quorum")
        described: dict[str, Any] = answer.raise_for_status().json()
        return described

    def leader(self) -> int:
        """Who leads, and knows that a majority follows; waits for one."""
        found: list[int] = []

        def leads() -> bool:
            found[:] = [each for each in self.running if self.described(each)["state"] == "leader"]
            return len(found) == 1

        self.wait_until(leads, "one leader")
        return found[0]

    def voters(self) -> set[int]:
        """As the leader knows them."""
        return {each["node_id"] for each in self.described(self.leader())["voters"]}

    def states(self) -> set[tuple[int, str]]:
        """(applied offset, digest) of those that run; one, when they are all quiet and agree."""
        seen = (self.described(each) for each in self.running)
        return {(each["applied_offset"], each["digest"]) for each in seen}

    def wait_until(
        self, holds: Callable[[], bool], what: str, *, deadline_s: float = DEADLINE_S
    ) -> None:
        """Look again and again; a node that died by itself ends the wait."""
        end = time.monotonic() + deadline_s
        while not holds():
            for node in self.running.values():
                node.assert_alive()
            if time.monotonic() > end:
                logs = "\n".join(f"node {n}: {each.log[-2_000:]}" for n, each in self.nodes.items())
                raise TimeoutError(f"{what}: not within {deadline_s} s. {logs}")
            time.sleep(POLL_S)

    def _add(
        self, node_id: int, *, bootstrap: list[str] | None = None, more: Sections | None = None
    ) -> None:
        self._ports[node_id] = free_ports(1)[0]
        quorum: dict[str, object] = {
            "listen": f"127.0.0.1:{self._ports[node_id]}",
            "secret_file": str(self._secret),
            "ready_silence_max_s": READY_SILENCE_MAX_S,
            "bootstrap": bootstrap or [],
        }
        kafka = self._kafka.get(f"{node_id}", {"log_dirs": []})
        own = {"quorum": quorum, "kafka": kafka, "nodes": {"silence_max_s": SILENCE_MAX_S}}
        sections = {**self._sections, **own, **(more or {})}
        self.nodes[node_id] = NodeProcess(self._home / f"node-{node_id}", sections)

    def _format(self, node_id: int, *arguments: str) -> None:
        self.nodes[node_id].format(
            *("--cluster-id", self._cluster_id, "--kafka-cluster-id", self._kafka_cluster_id),
            *("--node-id", str(node_id), *arguments),
        )

    def _address(self, node_id: int) -> str:
        return f"{node_id}@127.0.0.1:{self._ports[node_id]}"

    def _kill_all(self) -> None:
        for node in self.running.values():
            node.kill()
