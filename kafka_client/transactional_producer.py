"""A producer of whole transactions, fenced by its transactional id.

One session lasts from InitProducerId to its first error. Whatever an error left in the topic has to
be read: records of a transaction that did not end are visible to readers of uncommitted records,
and only the topic itself shows how many. So the owner opens the next session, reads the partitions
to their end, and continues after what it finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from kafka_client.broker_requests import TopicPartition
from kafka_client.connection import Connection
from kafka_client.topic_leaders import NO_LEADER, TopicLeaders
from kafka_client.transaction_requests import (
    Coordinator,
    ProducerIdentity,
    StillBusyError,
    add_partitions,
    end_transaction,
    find_coordinator,
    init_producer_id,
    produce,
)
from kafka_formats.errors import OutcomeUnknown, RetryLater
from kafka_formats.record_batch import Record, encode_batch

Answer = TypeVar("Answer")
Connect = Callable[[int, str, int], Awaitable[Connection]]
"""Opens a connection to the broker with this node id, host and port."""

_SEQUENCES = 2**31


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """`transaction_timeout_s`: the coordinator ends a transaction that takes longer. A coordinator
    that is still busy is asked again after `busy_pause_s`. `deadline_s` bounds the opening of a
    session, and each of its transactions.
    """

    transaction_timeout_s: float = 60.0
    deadline_s: float = 30.0
    produce_timeout_s: float = 8.0
    busy_pause_s: float = 0.02


@dataclass(slots=True)
class TransactionalProducer:
    """One session, made by `open`; after any error it is `over` and has to be closed."""

    identity: ProducerIdentity
    connect: Connect
    sleep: Callable[[float], Awaitable[None]]
    limits: ProducerLimits
    _coordinator: Connection
    _leaders: dict[int, Connection] = field(default_factory=dict)
    _sequences: dict[TopicPartition, int] = field(default_factory=dict)
    _over: bool = False

    @classmethod
    async def open(
        cls,
        any_broker: Connection,
        transactional_id: str,
        *,
        connect: Connect,
        sleep: Callable[[float], Awaitable[None]],
        limits: ProducerLimits = ProducerLimits(),
    ) -> Self:
        """Fence every earlier producer of the id. RetryLater: no coordinator, or it is too slow.
        Refused: a permission is missing.
        """
        try:
            async with asyncio.timeout(limits.deadline_s):
                found: Coordinator = await _until_not_busy(
                    lambda: find_coordinator(any_broker, transactional_id), sleep, limits
                )
                coordinator = await connect(found.node_id, found.host, found.port)
                try:
                    identity = await _until_not_busy(
                        lambda: init_producer_id(
                            coordinator,
                            transactional_id,
                            transaction_timeout_s=limits.transaction_timeout_s,
                        ),
                        sleep,
                        limits,
                    )
                except BaseException:
                    coordinator.abort()
                    raise
        except TimeoutError:
            raise RetryLater(
                f"the coordinator of {transactional_id} did not let a new producer begin within "
                f"{limits.deadline_s:g} s"
            ) from None
        return cls(identity, connect, sleep, limits, coordinator)

    @property
    def over(self) -> bool:
        """True after an error: open a new session."""
        return self._over

    async def write(
        self, topic: str, leaders: TopicLeaders, records: Mapping[int, Sequence[Record]]
    ) -> dict[int, int]:
        """Append the records, one batch per partition, in one transaction, and commit it; returns
        the offset of each partition's first record. Offsets of the given records only number them.

        Fenced: a different producer began, and no record of this one will be appended any more.
        OutcomeUnknown: the transaction may still be committed or aborted. After these two all, some
        or none of the records may be in the log. RetryLater, Refused: none is. InvalidRequest: a
        batch is not accepted as it is.
        """
        if self._over:
            raise RetryLater("this producer ended by an error: open a new one")
        self._over = True  # until the transaction is committed
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                offsets = await self._transaction(topic, leaders, records)
        except TimeoutError:
            raise OutcomeUnknown(
                f"a transaction on {topic} did not end within {self.limits.deadline_s:g} s"
            ) from None
        self._over = False
        return offsets

    async def _transaction(
        self, topic: str, leaders: TopicLeaders, records: Mapping[int, Sequence[Record]]
    ) -> dict[int, int]:
        for_leader: dict[int, dict[TopicPartition, bytes]] = {}
        for partition, batch in records.items():
            leader = leaders.leaders.get(partition, NO_LEADER)
            for_leader.setdefault(leader, {})[topic, partition] = self._batch(
                (topic, partition), batch
            )
        connections = {each: await self.leader(topic, leaders, each) for each in for_leader}
        await _until_not_busy(
            lambda: add_partitions(self._coordinator, self.identity, topic, tuple(records)),
            self.sleep,
            self.limits,
        )
        offsets: dict[int, int] = {}
        try:
            appending = [
                produce(
                    connections[leader],
                    self.identity.transactional_id,
                    batches,
                    timeout_s=self.limits.produce_timeout_s,
                )
                for leader, batches in for_leader.items()
            ]
            # All of them: the partitions are read to their ends only when no append is under way.
            for appended in await asyncio.gather(*appending, return_exceptions=True):
                if isinstance(appended, BaseException):
                    raise appended
                offsets |= {partition: offset for (_, partition), offset in appended.items()}
            await _until_not_busy(
                lambda: end_transaction(self._coordinator, self.identity, committed=True),
                self.sleep,
                self.limits,
            )
        except RetryLater as error:
            raise OutcomeUnknown(
                f"a transaction on {topic} may be in the log in part: {error}"
            ) from error
        for partition, batch in records.items():
            name = (topic, partition)
            self._sequences[name] = (self._sequences.get(name, 0) + len(batch)) % _SEQUENCES
        return offsets

    def _batch(self, name: TopicPartition, records: Sequence[Record]) -> bytes:
        return encode_batch(
            records,
            base_offset=records[0].offset,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self._sequences.get(name, 0),
            transactional=True,
        )

    async def leader(self, topic: str, leaders: TopicLeaders, node_id: int) -> Connection:
        """The session's connection to a leader, also for reading what was written before.
        RetryLater: there is no such broker now, or the connection was lost: the session is over.
        """
        known = self._leaders.get(node_id)
        if known is not None:
            if known.lost:
                self._over = True
                raise RetryLater(f"the connection to {known.name} was lost: open a new producer")
            return known
        address = leaders.addresses.get(node_id)
        if address is None:
            raise RetryLater(f"a partition of {topic} has no live leader")
        made = self._leaders[node_id] = await self.connect(node_id, *address)
        return made

    def has_connected(self, node_id: int) -> bool:
        """True if there is or was a connection to the broker."""
        return node_id in self._leaders

    async def close(self) -> None:
        """Close the connections; an open transaction is ended by the next session, or at its
        time-out. Idempotent.
        """
        self._over = True
        await self._coordinator.close()
        while self._leaders:
            await self._leaders.popitem()[1].close()


async def _until_not_busy(
    ask: Callable[[], Awaitable[Answer]],
    sleep: Callable[[float], Awaitable[None]],
    limits: ProducerLimits,
) -> Answer:
    """Ask until the coordinator has ended the earlier transaction; the caller has a deadline."""
    while True:
        try:
            return await ask()
        except StillBusyError:
            await sleep(limits.busy_pause_s)
