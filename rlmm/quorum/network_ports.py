"""The ports between the quorum's driver and a network.

`rlmm/wire` implements `Peers` and calls a `QuorumServer`; tests connect drivers in one process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rlmm.raft.messages import (
    Error,
    PeerRequest,
    PeerResponse,
    Request,
    Response,
)
from rlmm.rows.feature_level import FeatureLevels

NO_OFFSET = -1


class PeerFailedError(Exception):
    """A request without a usable answer. Callers translate it to one of our errors.

    `unsupported_version`: the peer does not support this version of the RPC. `sent`: the peer may
    have received the request, so a Produce may have been appended. `late`: the deadline passed.
    """

    def __init__(
        self,
        message: str,
        *,
        unsupported_version: bool = False,
        sent: bool = True,
        late: bool = False,
    ):
        super().__init__(message)
        self.unsupported_version = unsupported_version
        self.sent = sent
        self.late = late


@dataclass(frozen=True, slots=True)
class ProduceAnswer:
    """The answer to a Produce. `base_offset` is that of the first record, -1 with an error.

    `appended`: the records may be committed despite the error (outcome unknown). `leader_epoch`:
    the epoch in which a node's forwarded records were committed, else -1.
    """

    error: Error
    base_offset: int = NO_OFFSET
    appended: bool = False
    leader_id: int = -1
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Answer:
    """A response with its bytes: stored batches of a Fetch, or a part of a snapshot."""

    response: Response
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class ListenerView:
    """The facts for read-only clients; `nodes` are (node id, host, port) of the voters."""

    leader_id: int
    leader_epoch: int
    log_start_offset: int
    high_watermark: int
    nodes: tuple[tuple[int, str, int], ...]


class Peers(Protocol):
    """Requests to other nodes of the quorum."""

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Set the listeners of nodes by node id; no request is sent to nodes left out."""

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:
        """The decoded answer. PeerFailedError: no usable answer within the deadline."""

    async def produce(self, node_id: int, records: bytes, *, deadline_ms: int) -> ProduceAnswer:
        """Forward this node's proposals to the leader. PeerFailedError: no answer in time."""

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:
        """The levels that the node's program knows. PeerFailedError: no answer in time."""

    async def close(self) -> None:
        """Close every connection. Idempotent."""


class NoPeers:
    """`Peers` of a sole voter, which has none."""

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        pass

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:  # noqa: ARG002 - no peer
        raise PeerFailedError(f"there is no node {node_id} in this quorum of one", sent=False)

    async def produce(self, node_id: int, records: bytes, *, deadline_ms: int) -> ProduceAnswer:  # noqa: ARG002 - no peer
        raise PeerFailedError(f"there is no node {node_id} in this quorum of one", sent=False)

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:  # noqa: ARG002 - no peer
        raise PeerFailedError(f"there is no node {node_id} in this quorum of one", sent=False)

    async def close(self) -> None:
        pass


class QuorumServer(Protocol):
    """The target of a listener's requests: authenticated, and for this cluster and topic."""

    async def answer(self, request: Request) -> Answer:
        """Answer a request of a peer, a tool or an operator."""

    async def produce(self, records: bytes) -> ProduceAnswer:
        """Append a different node's proposals; answered once they are committed or lost. Refused
        unless this node leads.
        """

    async def propose(self, records: bytes, *, timeout_ms: int) -> ProduceAnswer:
        """Propose a client's batches like this node's own proposals, whichever node leads."""

    async def read_committed(self, from_offset: int, bytes_max: int) -> bytes:
        """Whole batches below the high watermark; empty at it. NotFound: below the log start."""

    def view(self) -> ListenerView:
        """Leader, offsets and addresses as this node knows them."""
