"""The ports of a node without a broker: it does not see the Kafka cluster, so a different node has
to carry a move out and keep the metadata topic up to date.
"""

from __future__ import annotations

from collections.abc import Collection

from kafka_formats.errors import RetryLater
from rlm.migration.shadow import ShadowLimits
from rlm.migration.shadow_writer import TopicSession
from rlm.migration.switching import TopicSource

NO_BROKER = (
    "this node leads the metadata quorum but has no broker (kafka.broker), and no voter beside a "
    "broker of the move can take over. Start such a voter, or make a node beside such a broker a "
    "voter (`strandline quorum add-voter`); it takes over by itself"
)
SHADOW_LIMITS = ShadowLimits(hand_over_after_s=0.0, hand_over_every_s=60.0)
"""The limits of a node without a broker: it hands over at once. If two such nodes hand over to each
other by mistake, each leads long enough for the problem to be reported.
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
