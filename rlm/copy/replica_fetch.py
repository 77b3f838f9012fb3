"""Fetches batches from any broker of the cluster, to mend a segment of this node's replica."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from kafka_client.broker_requests import BrokerError
from kafka_client.connection import Connection
from kafka_client.replica_answers import Batches, Extent, OutOfRange, Replicas
from kafka_client.replica_requests import assigned_replicas, fetch_batches, replica_extent
from kafka_formats.batch_scan import BATCH_BYTES_MAX
from kafka_formats.errors import StrandlineError
from kafka_formats.record_batch import HEADER_BYTES, LOG_OVERHEAD
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.broker_view import BrokerView
from rlm.leadership.leadership import NoAnswer

FETCH_BYTES = 8 << 20
"""Bytes of one fetch; a larger batch comes whole, with the header after it."""

Answer = TypeVar("Answer")

RESPONSE_REST_BYTES = 1 << 16
"""Limit of the bytes of a response that are not batches."""


@dataclass(slots=True)
class ReplicaFetch:
    """The brokers of the cluster. Connections are opened when needed and kept until `close`.
    `batch_bytes_max`: a response with a larger batch is refused.
    """

    view: BrokerView
    batch_bytes_max: int = BATCH_BYTES_MAX
    _addresses: dict[int, tuple[str, int]] = field(default_factory=dict)
    _connections: dict[int, Connection] = field(default_factory=dict)

    async def replicas(self, partition: TopicIdPartition) -> Sequence[int] | NoAnswer:
        """Node ids of all assigned replicas, according to this node's own broker."""

        async def ask(connection: Connection) -> Replicas | BrokerError:
            return await assigned_replicas(connection, partition)

        answer = await self.view.ask(ask)
        if isinstance(answer, NoAnswer):
            return answer
        if isinstance(answer, BrokerError):
            return NoAnswer(f"the broker answered {answer.name} for {partition}")
        self._addresses = dict(answer.addresses)
        return answer.nodes

    async def fetch(
        self, node_id: int, partition: TopicIdPartition, offset: int
    ) -> Batches | OutOfRange | NoAnswer:
        """The broker's batches from `offset` on. NoAnswer: it can't be reached, or refuses."""
        bytes_max = FETCH_BYTES

        async def ask(connection: Connection) -> Batches | OutOfRange | BrokerError:
            return await fetch_batches(connection, partition, offset, bytes_max=bytes_max)

        answer: Batches | OutOfRange | NoAnswer = await self._ask(node_id, ask)
        if isinstance(answer, Batches) and _is_one_that_fills(answer.data):
            bytes_max = len(answer.data) + HEADER_BYTES
            answer = await self._ask(node_id, ask)
        if isinstance(answer, Batches) and not answer.data:
            # The offset is above its high watermark, which is low after a restart: the batches may
            # still exist there.
            return NoAnswer(
                f"its high watermark is {answer.high_watermark}, and it has no batch at {offset}"
            )
        return answer

    async def extent(self, node_id: int, partition: TopicIdPartition) -> Extent | NoAnswer:
        """Start and end of the broker's log. NoAnswer as in `fetch`."""

        async def ask(connection: Connection) -> Extent | BrokerError:
            return await replica_extent(connection, partition)

        return await self._ask(node_id, ask)

    async def _ask(
        self, node_id: int, question: Callable[[Connection], Awaitable[Answer | BrokerError]]
    ) -> Answer | NoAnswer:
        try:
            connection = self._connections.get(node_id)
            if connection is None or connection.closed:
                if node_id not in self._addresses:
                    return NoAnswer("it does not run, or is not known to the cluster now")
                connection = await self.view.connect_to(
                    node_id,
                    *self._addresses[node_id],
                    response_bytes_max=max(self.batch_bytes_max, FETCH_BYTES) + RESPONSE_REST_BYTES,
                )
                self._connections[node_id] = connection
            answer = await question(connection)
        except StrandlineError as error:
            return NoAnswer(str(error))
        if isinstance(answer, BrokerError):
            return NoAnswer(f"it answered {answer.name}")
        return answer

    async def close(self) -> None:
        """Close the connections."""
        while self._connections:
            await self._connections.popitem()[1].close()


def _is_one_that_fills(data: bytes) -> bool:
    """True for a single batch that left no room for the header after it."""
    first = LOG_OVERHEAD + int.from_bytes(data[8:LOG_OVERHEAD], "big")
    return FETCH_BYTES <= len(data) < first + HEADER_BYTES
