"""The log that a listener serves, and what a listener takes from its surroundings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rlmm.quorum.envelopes import Envelopes
from rlmm.rows.feature_level import LEVELS_KNOWN, FeatureLevels


@dataclass(frozen=True, slots=True)
class ServedLog:
    """The metadata log of a cluster, served by the node `node_id`, which takes `envelopes`."""

    cluster_id: str
    node_id: int
    topic_id: bytes
    feature_levels: FeatureLevels = LEVELS_KNOWN
    envelopes: Envelopes = field(default_factory=Envelopes)


@dataclass(frozen=True, slots=True)
class ListenerAmbient:
    """`to_wall_ms` is added to times of the core's clock to give the time of day. `new_nonce` gives
    printable characters without a comma that nobody can guess.
    """

    sleep: Callable[[float], Awaitable[None]]
    to_wall_ms: Callable[[], int]
    new_nonce: Callable[[], str]
