"""Three nodes as processes: killed, stopped, and connected by roads that can be blocked."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from kafka_formats.errors import OutcomeUnknown, RetryLater
from tests.linearizability.clients import Acknowledged
from tests.linearizability.node_process import HOST, LINE_BYTES_MAX, NodeConfig
from tests.linearizability.policy_register import Done, Refused, Seen
from tests.linearizability.proxy import Road
from tests.real.ports import free_ports
from tests.real.toolbox import REPOSITORY

NODES = (1, 2, 3)
ANSWER_DEADLINE_S = 1.5
START_DEADLINE_S = 30.0
SETTLE_DEADLINE_S = 60.0
CHECK_DEADLINE_S = 60.0
POLL_S = 0.05
RAFT = {
    "election_timeout_ms": 200,
    "fetch_timeout_ms": 400,
    "election_backoff_max_ms": 200,
    "request_timeout_ms": 400,
    "pre_vote_retry_ms": 50,
    "fetch_wait_max_ms": 100,
}


class ProcessNode:
    """An `Endpoint` over a process."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.node_id = config.node_id
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not running"
        return self._process.pid

    def begin(self) -> None:
        """Start the process; `ready` waits for it."""
        home = Path(self.config.home)
        home.mkdir(parents=True, exist_ok=True)
        with (home / "node.log").open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.linearizability.node_process", self.config.to_json()],
                cwd=REPOSITORY,
                stdout=output,
                stderr=output,
            )

    async def ready(self) -> None:
        async with asyncio.timeout(START_DEADLINE_S):
            while True:
                self.check()
                try:
                    await self.describe()
                except (RetryLater, OutcomeUnknown):
                    await asyncio.sleep(POLL_S)
                else:
                    return

    def check(self) -> None:
        """Whether it ended by itself, which it never may."""
        if self._process is not None and self._process.poll() is not None:
            tail = (Path(self.config.home) / "node.log").read_text(errors="replace")[-3000:]
            raise AssertionError(f"node {self.node_id} ended by itself: {tail}")

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None, "not running"
        self._process.send_signal(number)

    def kill(self) -> None:
        self.check()
        self.send(signal.SIGKILL)
        self.reap()

    def reap(self) -> int:
        """Wait for its end."""
        assert self._process is not None, "not running"
        process, self._process = self._process, None
        return process.wait(START_DEADLINE_S)

    # ---- as a client

    async def read(self, topic: str) -> Seen:
        answer = await self.ask({"do": "read", "topic": topic})
        return Seen(answer["value"], answer["version"])

    async def set(self, topic: str, value: int, replaces: int) -> Done | Refused:
        answer = await self.ask({"do": "set", "topic": topic, "value": value, "replaces": replaces})
        return Refused() if "refused" in answer else Done(answer["version"])

    async def describe(self) -> dict[str, Any]:
        return await self.ask({"do": "describe"})

    async def lost(self, acknowledged: list[Acknowledged]) -> list[Any]:
        """What its log does not hold where it was acknowledged."""
        told = [[each.offset, each.topic, each.value, each.replaces] for each in acknowledged]
        asked = {"do": "lost", "acknowledged": told}
        answer = await self.ask(asked, deadline_s=CHECK_DEADLINE_S)
        lost: list[Any] = answer["lost"]
        return lost

    async def ask(
        self, asked: dict[str, Any], *, deadline_s: float = ANSWER_DEADLINE_S
    ) -> dict[str, Any]:
        """RetryLater: nothing came of it. OutcomeUnknown: no answer."""
        try:
            reader, writer = await asyncio.open_connection(
                HOST, self.config.client_port, limit=LINE_BYTES_MAX
            )
        except ConnectionError as error:
            raise RetryLater("connection refused") from error
        try:
            async with asyncio.timeout(deadline_s):
                writer.write(json.dumps(asked).encode() + b"\n")
                line = await reader.readline()
        except (ConnectionError, TimeoutError) as error:
            raise OutcomeUnknown("no answer") from error
        finally:
            writer.transport.abort()
        if not line.endswith(b"\n"):
            raise OutcomeUnknown("half an answer")
        answer: dict[str, Any] = json.loads(line)
        if answer.get("error") == "RetryLater":
            raise RetryLater(answer["message"])
        if answer.get("error") == "OutcomeUnknown":
            raise OutcomeUnknown(answer["message"])
        assert "error" not in answer, answer
        return answer


class ProcessCluster:
    """All three with their roads; `whole` brings everything back."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.roads: dict[tuple[int, int], Road] = {}
        self.nodes: list[ProcessNode] = []
        self.paused: set[int] = set()

    async def start(self) -> None:
        free = free_ports(2 * len(NODES))
        listening, clients = free[: len(NODES)], free[len(NODES) :]
        ports = dict(zip(NODES, listening, strict=True))
        for me in NODES:
            for other in NODES:
                if other != me:
                    self.roads[me, other] = Road(ports[other])
                    await self.roads[me, other].start()
        for me, client_port in zip(NODES, clients, strict=True):
            roads = {other: self.roads[me, other].port for other in NODES if other != me}
            home = str(self._home / f"node-{me}")
            self.nodes.append(ProcessNode(NodeConfig(me, home, client_port, ports, roads, RAFT)))
        await self.whole()

    def block(self, origin: int, destination: int) -> None:
        """Nothing that `origin` sends reaches `destination`."""
        self.roads[origin, destination].there.block()
        self.roads[destination, origin].back.block()

    async def whole(self) -> None:
        """Unblock, wake and start everything, and wait for a leader."""
        for road in self.roads.values():
            road.there.unblock()
            road.back.unblock()
        for node in self.nodes:
            if node.node_id in self.paused:
                node.send(signal.SIGCONT)
        self.paused.clear()
        down = [node for node in self.nodes if not node.running]
        for node in down:
            node.begin()
        await asyncio.gather(*(node.ready() for node in down))
        async with asyncio.timeout(SETTLE_DEADLINE_S):
            while await self.leader() is None:
                await asyncio.sleep(POLL_S)
        for node in self.nodes:
            node.check()

    async def leader(self) -> ProcessNode | None:
        """Who leads the newest epoch, as far as nodes answer."""
        known = []
        for node in self.nodes:
            if node.running and node.node_id not in self.paused:
                try:
                    answer = await node.describe()
                except (RetryLater, OutcomeUnknown):
                    continue
                if answer["established"] and answer["leader_id"] == node.node_id:
                    known.append((answer["epoch"], node))
        return max(known, key=lambda each: each[0])[1] if known else None

    async def victim(self, choose: random.Random) -> ProcessNode:
        """The leader more often than not."""
        leader = await self.leader()
        return leader if leader and choose.random() < 0.6 else choose.choice(self.nodes)

    async def digests(self) -> set[tuple[int, str]]:
        """(applied offset, digest) of the nodes, once all have applied everything."""
        async with asyncio.timeout(SETTLE_DEADLINE_S):
            while True:
                known = [await node.describe() for node in self.nodes]
                end = max(each["log_end_offset"] for each in known)
                if all(each["applied"] == end - 1 for each in known):
                    return {(each["applied"], each["digest"]) for each in known}
                await asyncio.sleep(POLL_S)

    async def close(self) -> None:
        for node in self.nodes:
            if node.running:
                node.send(signal.SIGCONT)
                node.send(signal.SIGKILL)
                node.reap()
        for road in self.roads.values():
            await road.close()
