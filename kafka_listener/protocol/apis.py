"""The requests that a read replica supports, and the treatment of each. Pure.

A request that is not in this table ends its connection, as with Kafka's brokers; ApiVersions does
not list it, so clients report it as unsupported. That goes for all requests that change topics,
records or configuration, and for transactions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum

Versions = tuple[int, int]
"""Lowest and highest, inclusive."""


class Api(IntEnum):
    """API keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    SASL_AUTHENTICATE = 36
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


class Treatment(Enum):
    """The treatment of a request. RELAYED: request and answer are passed on unchanged. READ:
    decoded, and answered here or with the broker's help. REFUSED: answered with an error that makes
    the client stop. LOGIN: relayed where clients log in at the brokers; elsewhere refused, and
    ApiVersions does not list it.
    """

    RELAYED = "relayed"
    READ = "read"
    REFUSED = "refused"
    LOGIN = "login"


@dataclass(frozen=True, slots=True)
class Served:
    """The treatment of an API, and its lowest and highest supported version."""

    treatment: Treatment
    low: int
    high: int


SERVED: Mapping[int, Served] = {
    # A producer that finds no Produce in ApiVersions waits for it; one that gets an error stops.
    Api.PRODUCE: Served(Treatment.REFUSED, 3, 13),
    Api.FETCH: Served(Treatment.READ, 4, 18),
    Api.LIST_OFFSETS: Served(Treatment.READ, 1, 11),
    # Below version 4 it creates topics that are requested and do not exist.
    Api.METADATA: Served(Treatment.READ, 4, 13),
    Api.OFFSET_COMMIT: Served(Treatment.RELAYED, 2, 10),
    Api.OFFSET_FETCH: Served(Treatment.RELAYED, 1, 10),
    Api.FIND_COORDINATOR: Served(Treatment.READ, 0, 6),
    Api.JOIN_GROUP: Served(Treatment.RELAYED, 0, 9),
    Api.HEARTBEAT: Served(Treatment.RELAYED, 0, 4),
    Api.LEAVE_GROUP: Served(Treatment.RELAYED, 0, 5),
    Api.SYNC_GROUP: Served(Treatment.RELAYED, 0, 5),
    Api.DESCRIBE_GROUPS: Served(Treatment.RELAYED, 0, 6),
    Api.LIST_GROUPS: Served(Treatment.RELAYED, 0, 5),
    # After a handshake of version 0 the messages come without a header.
    Api.SASL_HANDSHAKE: Served(Treatment.LOGIN, 1, 1),
    Api.API_VERSIONS: Served(Treatment.READ, 0, 4),
    Api.INIT_PRODUCER_ID: Served(Treatment.REFUSED, 0, 6),
    Api.OFFSET_FOR_LEADER_EPOCH: Served(Treatment.READ, 2, 4),
    Api.SASL_AUTHENTICATE: Served(Treatment.LOGIN, 0, 2),
    Api.DESCRIBE_CLUSTER: Served(Treatment.READ, 0, 2),
    Api.CONSUMER_GROUP_HEARTBEAT: Served(Treatment.RELAYED, 0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: Served(Treatment.RELAYED, 0, 1),
}


def served(api_key: int, version: int) -> Served | None:
    """The treatment of a request; None if it is not supported and ends the connection."""
    found = SERVED.get(api_key)
    return found if found is not None and found.low <= version <= found.high else None


def announced(broker: Mapping[int, Versions], *, logs_in: bool = False) -> dict[int, Versions]:
    """The versions that ApiVersions lists: those that both this node and the broker support.
    `logs_in`: the client logs in at its broker.
    """
    common = {}
    for api, ours in SERVED.items():
        low, high = broker.get(api, (0, -1))
        low, high = max(low, ours.low), min(high, ours.high)
        if low <= high and (logs_in or ours.treatment is not Treatment.LOGIN):
            common[int(api)] = (low, high)
    return common
