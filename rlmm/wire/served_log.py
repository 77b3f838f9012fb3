"""The log that a listener serves, and the functions that a listener gets from its node."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rlmm.quorum.envelopes import Envelopes
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels


@dataclass(frozen=True, slots=True)
class ServedLog:
    """The metadata log of a cluster, served by the node `node_id`, whose HTTP interface answers
    `envelopes`.
    """

    cluster_id: str
    node_id: int
    topic_id: bytes
    feature_levels: FeatureLevels = LEVELS_KNOWN
    envelopes: Envelopes = field(default_factory=Envelopes)


@dataclass(frozen=True, slots=True)
class ListenerAmbient:
    """`to_wall_ms` returns the ms to add to the core's clock for the time of day. `new_nonce`
    returns unguessable printable characters without a comma.
    """

    sleep: Callable[[float], Awaitable[None]]
    to_wall_ms: Callable[[], int]
    new_nonce: Callable[[], str]
