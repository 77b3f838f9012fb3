"""The demo's three nodes: one quorum, each node a `strandline node` process."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import httpx

from rlmm.log.quorum_records import Endpoint, Voter
from rlmm.quorum.config import LISTENER_NAME
from strandline.demo.process import DemoProcess, wait_until
from strandline.demo.store import BUCKET
from strandline.node import ambient
from strandline.node.formatting import NewNode, broker_identity, format_for
from strandline.settings.loading import load_settings

COPIER_ID = 1
"""Id of the node that has the log directory and copies; the other nodes only keep the metadata."""
NODE_IDS = (COPIER_ID, 2, 3)
HOST = "127.0.0.1"
READY_DEADLINE_S = 60.0
LEADER_DEADLINE_S = 30.0
SECRET_MODE = 0o600

_CONFIG = """\
[node]
data_dir = "{home}/node-{node_id}"

[kafka]
log_dirs = {log_dirs}

[topics]
include = ["*"]

[stores.main]
kind = "s3"
bucket = "{bucket}"
endpoint_url = "{endpoint}"
credentials_file = "{home}/credentials"
addressing_style = "path"

[copier]
interval_s = 0.2

[quorum]
listen = "{host}:{quorum_port}"
secret_file = "{home}/quorum-secret"

[http]
port = {http_port}
anonymous_role = "read"
"""


@dataclass(frozen=True, slots=True)
class DemoNode:
    """One node of the demo, running or not."""

    node_id: int
    url: str
    config: Path
    process: DemoProcess
    http: httpx.AsyncClient

    async def get(self, path: str) -> Any:
        """The JSON of the node's answer. Raises InternalError, with the end of the node's log, if
        it does not answer or refuses.
        """
        return (await self._answer(path)).json()

    async def body(self, path: str) -> bytes:
        """The body of the node's answer; errors as in `get`."""
        return (await self._answer(path)).content

    async def _answer(self, path: str) -> httpx.Response:
        try:
            answer = await self.http.get(f"{self.url}{path}")
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise self.process.failed(f"did not answer {path} ({error!r})") from error
        return answer

    async def quorum(self) -> dict[str, Any] | None:
        """The quorum's state as this node sees it; None while the node does not answer."""
        try:
            answer = await self.http.get(f"{self.url}/v1/quorum")
        except httpx.TransportError:
            return None
        found: dict[str, Any] = answer.raise_for_status().json()
        return found

    async def ready(self) -> bool | None:
        """True if the node is ready, else None."""
        try:
            answer = await self.http.get(f"{self.url}/readyz")
        except httpx.TransportError:
            return None
        return True if answer.is_success else None


class DemoNodes:
    """The nodes; as a context manager it kills those that still run at its end."""

    def __init__(self, nodes: Sequence[DemoNode]) -> None:
        self._nodes = {node.node_id: node for node in nodes}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for node in self:
            node.process.kill()

    def __iter__(self) -> Iterator[DemoNode]:
        return iter(self._nodes.values())

    def __getitem__(self, node_id: int) -> DemoNode:
        return self._nodes[node_id]

    @property
    def processes(self) -> tuple[DemoProcess, ...]:
        """The nodes' processes, for `wait_until`."""
        return tuple(node.process for node in self)

    async def start(self, *node_ids: int) -> None:
        """Start the nodes with these ids and wait until they are ready."""
        for node_id in node_ids:
            self[node_id].process.start()
        for node_id in node_ids:
            await wait_until(
                self[node_id].ready,
                f"node {node_id} to be ready",
                processes=self.processes,
                deadline_s=READY_DEADLINE_S,
            )

    async def leader(self) -> dict[str, Any]:
        """Wait for a leader; returns the quorum's state as the leader sees it."""

        async def found() -> dict[str, Any] | None:
            for node in self:
                if node.process.pid is not None:
                    quorum = await node.quorum()
                    if quorum is not None and quorum["state"] == "leader":
                        return quorum
            return None

        return await wait_until(
            found, "a leader", processes=self.processes, deadline_s=LEADER_DEADLINE_S
        )


def format_nodes(
    home: Path, log_dir: Path, endpoint: str, ports: Sequence[int], http: httpx.AsyncClient
) -> DemoNodes:
    """Write the settings, the shared secret and the data directories of three nodes under `home`.
    `ports` are three for the quorum, then three for HTTP. The nodes are not started.
    """
    broker = broker_identity([log_dir])
    assert broker is not None
    _write_private(home / "quorum-secret", ambient.new_nonce())
    # moto accepts any credentials; these are no secret.
    _write_private(
        home / "credentials",
        "[default]\naws_access_key_id = demo\naws_secret_access_key = demo\n",
    )
    cluster_id, quorum_ports, http_ports = ambient.new_uuid(), ports[:3], ports[3:]
    voters = tuple(
        Voter(node_id, ambient.new_uuid(), (Endpoint(LISTENER_NAME, HOST, port),))
        for node_id, port in zip(NODE_IDS, quorum_ports, strict=True)
    )
    nodes = []
    for node_id, quorum_port, http_port in zip(NODE_IDS, quorum_ports, http_ports, strict=True):
        config = home / f"node-{node_id}.toml"
        config.write_text(
            _CONFIG.format(
                home=home,
                node_id=node_id,
                log_dirs=f'["{log_dir}"]' if node_id == COPIER_ID else "[]",
                bucket=BUCKET,
                endpoint=endpoint,
                host=HOST,
                quorum_port=quorum_port,
                http_port=http_port,
            )
        )
        format_for(
            load_settings(config, {}).settings,
            NewNode(
                cluster_id=cluster_id,
                kafka_cluster_id=broker.cluster_id,
                node_id=node_id,
                initial_voters=voters,
            ),
        )
        command = (sys.executable, "-m", "strandline", "node", "--config", str(config))
        process = DemoProcess(f"node {node_id}", command, home / f"node-{node_id}.log")
        nodes.append(DemoNode(node_id, f"http://{HOST}:{http_port}", config, process, http))
    return DemoNodes(nodes)


def free_ports(count: int) -> list[int]:
    """`count` different ports that are free now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, created with that mode."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET_MODE), "w") as file:
        file.write(text)
