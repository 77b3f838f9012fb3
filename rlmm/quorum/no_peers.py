"""A network without other nodes."""

from __future__ import annotations

from collections.abc import Mapping

from rlmm.quorum.network_ports import PeerFailedError, ProduceAnswer
from rlmm.raft.messages import PeerRequest, PeerResponse
from rlmm.rows.feature_level import FeatureLevels


class NoPeers:
    """`Peers` of a sole voter."""

    def set_addresses(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        pass

    async def ask(self, node_id: int, request: PeerRequest, *, deadline_ms: int) -> PeerResponse:  # noqa: ARG002 - nobody to ask
        raise PeerFailedError(f"nobody is node {node_id}", sent=False)

    async def produce(self, node_id: int, records: bytes, *, deadline_ms: int) -> ProduceAnswer:  # noqa: ARG002 - nobody
        raise PeerFailedError(f"nobody is node {node_id}", sent=False)

    async def feature_levels(self, node_id: int, *, deadline_ms: int) -> FeatureLevels:  # noqa: ARG002 - nobody
        raise PeerFailedError(f"nobody is node {node_id}", sent=False)

    async def close(self) -> None:
        pass
