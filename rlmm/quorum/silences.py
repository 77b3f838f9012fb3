"""The silence of each replica, by the word of the quorum's leader, from whom all of them fetch
(KIP-500).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_formats.errors import RetryLater
from rlmm.quorum.driver import QuorumDriver
from rlmm.quorum.network_ports import PeerFailedError
from rlmm.raft.messages import DescribeQuorumResponse, Error

NOBODY = -1


@dataclass(frozen=True, slots=True)
class Silences:
    """A leader's word. `silent_ms`: milliseconds since the last fetch, by node id; who has not
    fetched from this leader is left out.
    """

    leader_epoch: int
    silent_ms: Mapping[int, int]


async def ask_silences(driver: QuorumDriver, *, deadline_s: float) -> Silences:
    """Ask the leader, which may be this node. RetryLater: none is known, or none answered."""
    leader_id = driver.core.leader_id
    if leader_id == NOBODY:
        raise RetryLater("the metadata quorum has no leader to ask which replicas fetch")
    if leader_id == driver.core.replica.key.node_id:
        return silences_in(driver.core.describe())
    try:
        return silences_in(await driver.described(leader_id, deadline_ms=int(deadline_s * 1000)))
    except PeerFailedError as error:
        raise RetryLater(f"which replicas fetch was not told: {error}") from error


def silences_in(told: DescribeQuorumResponse) -> Silences:
    """A leader's own last fetch is now. RetryLater: it leads no more."""
    if told.error is not Error.NONE:
        raise RetryLater("the node that was asked which replicas fetch does not lead any more")
    replicas = (*told.voters, *told.observers)
    fetched: dict[int, int] = {}
    for each in replicas:
        if each.last_fetch_ms >= 0:
            node_id = each.key.node_id  # with several directories: whichever fetched last
            fetched[node_id] = max(fetched.get(node_id, 0), each.last_fetch_ms)
    now = max(fetched.values(), default=0)
    return Silences(told.leader_epoch, {node_id: now - at for node_id, at in fetched.items()})
