"""Requests that one node forwards to another over the quorum's connections (Kafka's Envelope,
KIP-590). Both ends are authenticated there as nodes of the cluster, so the receiver may trust the
caller's identity that the sender reports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

ENVELOPE_BYTES_MAX = 8 << 20
"""Limit of a request and of an answer: half of the largest frame between nodes."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A request and the caller that its sender vouches for, in the sender's encoding."""

    request: bytes
    principal: bytes


Send = Callable[[tuple[str, int], Envelope, float], Awaitable[bytes]]
"""Sends an envelope to the node that listens at (host, port), with a deadline in seconds; returns
the answer. PeerFailedError.
"""

Take = Callable[[Envelope], Awaitable[bytes]]
"""Handles an envelope of a different node; returns the answer."""


@dataclass(slots=True)
class Envelopes:
    """Both directions of one node. `send` None: it has no connections to other nodes. `take` None:
    its HTTP interface does not serve yet, or no longer.
    """

    send: Send | None = None
    take: Take | None = None
