"""Writes the changes of the metadata log to the metadata topic, transaction by transaction.

A writer first fences all other writers and then reads each partition to its end; after that only it
can change the topic. So two nodes that both think they lead the quorum do no harm: the rows are the
same on every node, and the later writer finds them written. After any error the session is dropped,
and the next step fences and reads again.

`shadow_topic.py` and `shadow.py` have the ports; simulations have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import islice
from typing import NoReturn, Protocol

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.shadow_plan import (
    NONE_WRITTEN,
    FoundRecord,
    ReadTail,
    ShadowRow,
    Tail,
    TransactionLimits,
    after_writing,
    differing,
    lost_records,
    next_transaction,
    tail_after,
)
from rlm.migration.topic_partitioner import metadata_partition
from rlmm.metadata_shadow import (
    REMOVED_MAX,
    OutboxRow,
    Shadow,
    TopicPosition,
)
from rlmm.records.control_records import ShadowWritten


class TopicSession(Protocol):
    """A session with the topic, from fencing all earlier writers to the first error. Calls raise
    RetryLater or Fenced; after that only `close` may be called.
    """

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> int: ...

    async def extents(self) -> Mapping[int, tuple[int, int]]:
        """The first offset and the end (exclusive) of each partition. Partitions without a leader
        are left out.
        """

    async def read(self, partition: int, start: int, end: int) -> tuple[Sequence[FoundRecord], int]:
        """Records from `start` on, below `end`, including those of aborted transactions, and the
        offset up to which (exclusive) these are all records; it is above `start`.
        """

    async def write(self, rows: Mapping[int, Sequence[ShadowRow]]) -> None:
        """Append the rows of each partition, in order, in one transaction, and commit it."""

    async def settle(self) -> bool:
        """Append a filler to each partition that may end with a transaction marker, since Kafka's
        own manager waits for ever for a record at the end. False if there is no such partition.
        """

    async def close(self) -> None: ...


class ShadowTopic(Protocol):
    """Opens sessions with the topic."""

    async def open(self) -> TopicSession:
        """Fence all earlier writers, which can't append any more, and open a session."""


class ShadowLog(Protocol):
    """The metadata log, as applied on this node."""

    def shadow(self) -> Shadow | None:
        """The state of the shadow; None in a phase in which it does not write."""

    def positions(self) -> Iterable[TopicPosition]: ...

    def outbox(self) -> Iterator[OutboxRow]:
        """The rows that are not reported as written yet, ascending; read a limited number."""

    def outbox_value(self, offset: int) -> bytes | None:
        """The value of the row at this metadata offset; None if there is none."""

    def applied_offset(self) -> int: ...

    async def catch_up(self) -> None:
        """Wait until all records are applied that were committed when this was called."""

    async def report(self, report: ShadowWritten) -> None: ...


PartitionOf = Callable[[bytes], TopicIdPartition]


SETTLED_AFTER_MAX = 5
NEWS_RECORDS = 1_000
"""Number of the topic's records after which a position is reported, even without new changes."""


def _is_news(tail: Tail, known: TopicPosition | None) -> bool:
    """True if the position has to be reported. If only few markers are new, reading them again
    costs less than a record in the log.
    """
    return (
        known is None
        or tail.last_read > known.last
        or tail.next_offset >= known.next_offset + NEWS_RECORDS
    )


@dataclass(slots=True)
class ShadowWriter:
    """Writes to the metadata topic; one per node, for one caller at a time. `partition_of` returns
    the partition that a value changes. Records that are missing from the topic count as lost only
    after `lost_after_s`, since a deposed broker that does not know it has an older end; until then
    nothing is written, or a change could be there twice.
    """

    topic: ShadowTopic
    log: ShadowLog
    partition_of: PartitionOf
    monotonic: Callable[[], float]
    _: KW_ONLY
    limits: TransactionLimits = field(default_factory=TransactionLimits)
    lost_after_s: float = 120.0
    _session: TopicSession | None = field(default=None, init=False)
    _begun: int = field(default=-1, init=False)
    _tails: dict[int, Tail] = field(default_factory=dict, init=False)
    _acknowledged: dict[int, int] = field(default_factory=dict, init=False)
    """The last metadata offset of each partition whose write succeeded; kept over sessions."""
    _unread: set[int] = field(default_factory=set, init=False)
    _foreign: str = field(default="", init=False)
    _lost_since: float | None = field(default=None, init=False)
    _hides_others: bool = field(default=False, init=False)

    async def step(self) -> bool:
        """Write one transaction, or remove rows that are not needed any more; False if there are
        none.

        Raises Conflict if the topic does not have what was written; that is recorded then. Errors
        of the ports end the session.
        """
        self._hides_others = False
        shadow = self.log.shadow()
        if shadow is None or shadow.incomplete:
            await self.close()
            return shadow is not None and await self._discard(shadow)
        try:
            session = await self._opened(shadow)
            transaction = next_transaction(self._rows(session), self._tails, self.limits)
            if transaction.rows:
                await session.write(transaction.rows)
                self._tails = after_writing(self._tails, transaction)
                self._acknowledged |= {at: rows[-1].offset for at, rows in transaction.rows.items()}
        except BaseException:
            await self.close()
            raise
        self._hides_others = transaction.hides_others
        return bool(transaction.rows)

    @property
    def needs_look(self) -> bool:
        """True if the last step found only written rows, and further rows may follow: `look`
        reports these, which removes them.
        """
        return self._hides_others

    async def look(self) -> None:
        """Read each partition to its end, and report the written rows. Errors are those of
        `step`.
        """
        shadow = self.log.shadow()
        if shadow is None or shadow.incomplete:
            return
        try:
            session = await self._opened(shadow)
            for _ in range(SETTLED_AFTER_MAX):  # a marker may appear after its transaction ended
                await self._read_all(session)
                if self._waits(session) or not await session.settle():
                    break
            while await self._report(session):
                pass
        except BaseException:
            await self.close()
            raise

    def _waits(self, session: TopicSession) -> bool:
        return bool(next_transaction(self._rows(session), self._tails, self.limits).rows)

    @property
    def unread(self) -> frozenset[int]:
        """The topic's partitions that could not be read, since they had no leader."""
        return frozenset(self._unread)

    async def close(self) -> None:
        """Close the session, if there is one."""
        session, self._session = self._session, None
        self._tails.clear()
        self._foreign = ""  # a foreign record that was not reported is found again
        if session is not None:
            await session.close()

    async def _opened(self, shadow: Shadow) -> TopicSession:
        if self._session is not None and shadow.begun != self._begun:
            await self.close()
        if self._session is None:
            self._session = await self.topic.open()
            # After this, this node has all rows that an earlier writer may have written.
            await self.log.catch_up()
            if self._now().begun != self._begun:
                self._acknowledged.clear()
            self._begun = self._now().begun
            await self._read_all(self._session)
        return self._session

    def _now(self) -> Shadow:
        shadow = self.log.shadow()
        if shadow is None:
            raise RetryLater("the move is in a phase in which the topic is not written")
        return shadow

    async def _read_all(self, session: TopicSession) -> None:
        shadow = self._now()
        known = (shadow.topic_id, shadow.partitions)
        if shadow.topic_id != ZERO_UUID and known != (session.topic_id, session.partitions):
            await self._give_up(
                session,
                f"the topic had id {shadow.topic_id} and {shadow.partitions} partitions, but now "
                f"{session.topic_id} and {session.partitions}: it was recreated, or widened",
            )
        positions = {each.partition: each for each in self.log.positions()}
        extents = await session.extents()
        self._unread = set(range(session.partitions)) - extents.keys()
        for partition, (start, end) in extents.items():
            tail, position = self._tails.get(partition), positions.get(partition)
            if tail is None and position is not None:
                tail = Tail(position.next_offset, position.last, position.last)
            lost = lost_records(tail or Tail(), start=start, end=end)
            if lost is not None:
                await self._lost(session, f"partition {partition} of the topic: {lost}")
            await self._read(session, partition, tail, end)
        for partition in self._unread:
            self._tails.pop(partition, None)
        self._lost_since = None

    async def _read(
        self, session: TopicSession, partition: int, known: Tail | None, end: int
    ) -> None:
        """Read a partition to `end`. `known` None: it was never read before, so its records are
        from before the shadow.
        """
        tail = known or Tail()
        while tail.next_offset < end:
            records, next_offset = await session.read(partition, tail.next_offset, end)
            read = tail_after(tail, records, next_offset)
            if read.tail.last_read > self.log.applied_offset():
                await self.log.catch_up()
            wrong = self._wrong(partition, read, records)
            if wrong is not None:
                await self._give_up(session, wrong)
            if read.foreign is not None and known is not None:
                self._foreign = self._foreign or (
                    f"partition {partition} of the topic has a record at offset "
                    f"{read.foreign.topic_offset} that no node of this cluster wrote, so a broker "
                    "may run with Kafka's own metadata manager"
                )
            tail = read.tail
        if tail.last_read < self._acknowledged.get(partition, NONE_WRITTEN):
            self._await_acknowledged(partition, tail)
            tail = replace(tail, last=tail.last_read)
        self._tails[partition] = tail

    def _await_acknowledged(self, partition: int, tail: Tail) -> None:
        """Return once acknowledged changes at the partition's end count as lost (an unclean
        election): they are written again. RetryLater before.
        """
        now = self.monotonic()
        since = self._lost_since = now if self._lost_since is None else self._lost_since
        if now - since < self.lost_after_s:
            raise RetryLater(
                f"partition {partition} of the topic ends with metadata offset {tail.last_read}, "
                f"and the write up to {self._acknowledged[partition]} was acknowledged: it is "
                f"written again after {self.lost_after_s:g} s"
            )
        del self._acknowledged[partition]

    def _wrong(self, partition: int, read: ReadTail, records: Sequence[FoundRecord]) -> str | None:
        where = f"partition {partition} of the topic"
        if read.disorder is not None:
            return (
                f"{where} repeats metadata offset {read.disorder.metadata_offset} at offset "
                f"{read.disorder.topic_offset}"
            )
        other = differing(records, self.log.outbox_value)
        if other is None and read.tail.last_read <= self.log.applied_offset():
            return None
        named = read.tail.last_read if other is None else other.metadata_offset
        return (
            f"{where} has a change with metadata offset {named} that is not in this metadata log, "
            "which was restarted from an older state"
        )

    async def _lost(self, session: TopicSession, why: str) -> None:
        now = self.monotonic()
        since = self._lost_since = now if self._lost_since is None else self._lost_since
        if now - since >= self.lost_after_s:
            await self._give_up(session, why)
        raise RetryLater(why)

    async def _give_up(self, session: TopicSession, why: str) -> NoReturn:
        await self.log.report(
            ShadowWritten(self._begun, session.topic_id, session.partitions, incomplete=why)
        )
        raise Conflict(why, reason="SHADOW_INCOMPLETE")

    async def _report(self, session: TopicSession) -> bool:
        """Report the news to the log; False if there are none. A foreign record is reported
        together with the positions after it, so that no later reader misses it.
        """
        shadow = self._now()
        transaction = next_transaction(self._rows(session), self._tails, self.limits)
        up_to = transaction.written_up_to
        up_to = shadow.written_up_to if up_to is None else up_to
        known = {each.partition: each for each in self.log.positions()}
        positions = [
            TopicPosition(partition, tail.next_offset, tail.last_read)
            for partition, tail in sorted(self._tails.items())
            if _is_news(tail, known.get(partition))
        ]
        foreign = "" if shadow.foreign else self._foreign
        if foreign:
            positions = [
                TopicPosition(partition, tail.next_offset, tail.last_read)
                for partition, tail in sorted(self._tails.items())
            ]
        if not positions and not foreign and up_to == shadow.written_up_to:
            return False
        await self.log.report(
            ShadowWritten(
                self._begun,
                session.topic_id,
                session.partitions,
                up_to,
                tuple(positions),
                foreign=foreign,
            )
        )
        return True

    async def _discard(self, shadow: Shadow) -> bool:
        rows = list(islice(self.log.outbox(), REMOVED_MAX))
        if rows:
            up_to = rows[-1].offset
            await self.log.report(
                ShadowWritten(shadow.begun, shadow.topic_id, max(1, shadow.partitions), up_to)
            )
        return bool(rows)

    def _rows(self, session: TopicSession) -> Iterator[ShadowRow]:
        for row in self.log.outbox():
            partition = metadata_partition(self.partition_of(row.value), session.partitions)
            yield ShadowRow(row.offset, row.time_ms, partition, row.value)
