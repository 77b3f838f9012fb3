"""Requests that one node hands on to another over the quorum's connections (Kafka's Envelope,
KIP-590). Both ends prove there that they are nodes of the cluster, so the receiver may believe the
sender's word about the caller.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

ENVELOPE_BYTES_MAX = 8 << 20
"""Largest request, and largest answer: half of what a connection between nodes takes at once."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request and the caller that its sender vouches for, in the sender's encoding."""

    request: bytes
    principal: bytes


Send = Callable[[tuple[str, int], Envelope, float], Awaitable[bytes]]
"""The answer of the node that listens at (host, port), within so many seconds. PeerFailedError."""

Take = Callable[[Envelope], Awaitable[bytes]]
"""The answer to an envelope of another node."""


@dataclass(slots=True)
class Envelopes:
    """Both directions of one node. `send` None: it has no connections to others. `take` None: its
    HTTP interface does not serve yet, or no longer.
    """

    send: Send | None = None
    take: Take | None = None
