"""The read listener of a node: Kafka consumers read the tier and, through it, the brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from api.metrics.read import ReadFigures, ReadMetrics
from rlm.control.node_problem import NodeProblem
from strandline.node import ambient
from strandline.node.node import Node
from strandline.settings.read import ReadSettings

if TYPE_CHECKING:
    from kafka_listener.connections.listener import ReadLimits, ReadListener


class ReadReplica:
    """One per node, before there is a listener and with none, too."""

    def __init__(self) -> None:
        self._listener: ReadListener | None = None

    def problems(self) -> Iterable[NodeProblem]:
        """Trouble that keeps clients from reading."""
        return self._listener.problems() if self._listener is not None else ()

    @asynccontextmanager
    async def serving(self, node: Node, metrics: ReadMetrics) -> AsyncIterator[None]:
        """Serve consumers while inside, if the settings ask for it. InvalidRequest: an address
        can't be used. Refused: the brokers are another cluster's.
        """
        if not node.settings.read.listen:
            yield
            return
        listener = _listener(node)
        try:
            await listener.start()
            self._listener = listener
            metrics.watch(partial(_figures, listener))
            yield
        finally:
            await listener.close()


def _listener(node: Node) -> ReadListener:
    # Slow to import, and seldom needed: the schemas of Kafka's protocol.
    from kafka_listener.connections.brokers import Brokers
    from kafka_listener.connections.leader_epochs import LeaderEpochs
    from kafka_listener.connections.leader_transactions import LeaderTransactions
    from kafka_listener.connections.listener import ReadListener
    from kafka_listener.reading.tier_reading import TierReading
    from kafka_listener.reading.where import Prefer
    from kafka_listener.virtual_nodes import Replica, VirtualNodes

    settings = node.settings
    host, port = settings.read.address
    brokers = Brokers(
        settings.kafka.bootstrap_addresses(),
        node.directory.kafka_cluster_id,
        ambient.monotonic,
        ambient.new_nonce,
    )
    tier = TierReading(
        node.parts.reads,
        LeaderTransactions(brokers),
        LeaderEpochs(brokers),
        Prefer(settings.read.prefer),
        partial(ambient.sleep, 0.0),
        settings.copier.batch_bytes_max,
    )
    own = Replica(node.directory.node_id, settings.read.advertised or host, port)
    nodes = VirtualNodes.alone(own)
    return ReadListener(nodes, host, brokers, tier, ambient.sleep, _limits(settings.read))


def _limits(read: ReadSettings) -> ReadLimits:
    from kafka_listener.connections.listener import ReadLimits

    return ReadLimits(
        connections_max=read.connections_max,
        request_bytes_max=read.request_bytes_max,
        fetch_bytes_max=read.fetch_bytes_max,
        idle_deadline_s=read.idle_deadline_s,
        lost_ranges_are_gaps=read.lost_range == "gap",
    )


def _figures(listener: ReadListener) -> ReadFigures:
    counts = listener.counts
    return ReadFigures(
        connections=listener.connection_count,
        requests=counts.requests,
        tier_bytes=counts.tier_bytes,
        broker_bytes=counts.broker_bytes,
        not_available=counts.not_available_answers,
        lost_range=counts.lost_range_answers,
        refusals=counts.refusals,
    )
