"""Ports of a node without a broker: it sees nothing of the Kafka cluster, so that another node has
to carry a move out and keep the metadata topic up.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_formats.errors import RetryLater
from rlm.migration.shadow import ShadowLimits
from rlm.migration.shadow_writer import TopicSession
from rlm.migration.switching import TopicSource

NO_BROKER = (
    "this node leads the metadata quorum and has no broker (kafka.broker), and no voter beside a "
    "broker of the move could take over. Start one, or make a node beside such a broker a voter "
    "(`strandline quorum add-voter`); it takes over by itself"
)
SHADOW_LIMITS = ShadowLimits(hand_over_after_s=0.0, hand_over_every_s=60.0)
"""The limits of a node without a broker: another node is to write at once. Of two such nodes that
took each other for one with a broker, each leads long enough to be told.
"""


class NoBrokers:
    """See `switching.BrokersPort`."""

    async def live(self) -> Collection[int]:
        """Raise RetryLater."""
        raise RetryLater(NO_BROKER)

    async def open_topic(self) -> TopicSource:
        """Raise RetryLater."""
        raise RetryLater(NO_BROKER)


class NoTopic:
    """See `shadow_writer.ShadowTopic`."""

    async def open(self) -> TopicSession:
        """Raise RetryLater."""
        raise RetryLater(NO_BROKER)
