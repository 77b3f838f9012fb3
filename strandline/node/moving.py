"""Builds the parts of a move from Kafka's own metadata topic. A node without a broker has them too:
if it becomes the quorum's leader, it hands the leadership to a node with a broker.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from rlm.control.task_watch import Loop
from rlm.migration.handing_over import HAND_OVER_DEADLINE_S, HandingOver
from rlm.migration.log_side import LogSide
from rlm.migration.moving import Moving
from rlm.migration.no_broker import SHADOW_LIMITS, NoBrokers, NoTopic
from rlm.migration.shadow import ShadowTask
from rlm.migration.shadow_writer import ShadowTopic
from rlm.migration.switching import BrokersPort
from rlmm.quorum.admin import QuorumAdmin
from rlmm.quorum.quorum_log import QuorumLog
from strandline.node import ambient
from strandline.node.remote_log import RemoteLogParts
from strandline.settings.settings import Settings

if TYPE_CHECKING:
    from rlm.leadership.broker_view import BrokerView


def new_moving(
    settings: Settings, parts: RemoteLogParts, broker: BrokerView | None, log: QuorumLog
) -> Moving:
    """The node's part in a switch from Kafka's topic or back to it."""
    brokers: BrokersPort = NoBrokers()
    if broker is not None:
        from rlm.migration.broker_side import BrokerSide  # slow to import, like the broker's view

        brokers = BrokerSide(broker)
    around, metadata = parts.around, parts.given.metadata
    node_id = around.identity.incarnation.node_id
    transfer = partial(QuorumAdmin(log.driver).transfer, deadline_s=HAND_OVER_DEADLINE_S)
    return Moving(
        metadata,
        around,
        lambda: parts.phases.last,
        LogSide(metadata, f"node {node_id}", HandingOver(metadata, node_id, transfer)),
        brokers,
        settings.metadata.switch_deadline_s,
        has_broker=broker is not None,
    )


def move_loops(moving: Moving, parts: RemoteLogParts, broker: BrokerView | None) -> Iterator[Loop]:
    """The loops of a switch, and the loop that writes on to Kafka's topic after it, for a way
    back.
    """
    yield from moving.loops
    shadow = _new_shadow(moving, parts, broker)
    yield Loop("keep Kafka's metadata topic up", shadow.run, shadow.problems)


def _new_shadow(moving: Moving, parts: RemoteLogParts, broker: BrokerView | None) -> ShadowTask:
    around, metadata = parts.around, parts.given.metadata
    if broker is None:
        return ShadowTask(metadata, NoTopic, around, moving.log.hand_over, limits=SHADOW_LIMITS)

    def new_topic() -> ShadowTopic:
        # Slow to import, and few nodes write to the topic.
        from rlm.migration.shadow_topic import KafkaTopic, transactional_id

        id_ = transactional_id(around.identity.cluster_id)
        return KafkaTopic(broker, id_, ambient.sleep, around.ambient.now_ms)

    return ShadowTask(metadata, new_topic, around, moving.log.hand_over)
