"""Brings the metadata topic after the metadata log, transaction by transaction.

Whoever writes has fenced all others first and then read each partition to its end: what it finds
there can't change any more but by itself. So it does not matter who leads the quorum: the rows are
the same on every node, and a late leader finds that its rows are written. After any error the
session is dropped, and the next step begins with fencing and reading again.

The ports are made of other parts by `shadow_topic.py` and `shadow.py`; simulations have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import islice
from typing import NoReturn, Protocol

from kafka_formats.errors import Conflict, RetryLater
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.shadow_plan import (
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
    """The topic, from fencing all earlier writers to the first error. Calls raise RetryLater or
    Fenced; after that only `close` is called.
    """

    @property
    def topic_id(self) -> Uuid: ...

    @property
    def partitions(self) -> int: ...

    async def extents(self) -> Mapping[int, tuple[int, int]]:
        """First offset and end, exclusive, of all that is readable of each partition. Those without
        a leader are left out.
        """

    async def read(self, partition: int, start: int, end: int) -> tuple[Sequence[FoundRecord], int]:
        """Some of the records of [`start`, `end`), those of aborted transactions included, and the
        offset up to which these are all: above `start`.
        """

    async def write(self, rows: Mapping[int, Sequence[ShadowRow]]) -> None:
        """Append the rows of each partition, in order, in one transaction, and commit it."""

    async def settle(self) -> bool:
        """Append a record that says nothing to each partition that may end with a transaction's
        marker; False: there is none. Kafka's own manager is never ready with a partition whose end
        is no record.
        """

    async def close(self) -> None: ...


class ShadowTopic(Protocol):
    """Opens sessions."""

    async def open(self) -> TopicSession:
        """Fence all earlier writers: nothing of theirs is appended any more."""


class ShadowLog(Protocol):
    """The metadata log, as this node has applied it."""

    def shadow(self) -> Shadow | None:
        """The state of the shadow; None if nothing is to be written in this phase."""

    def positions(self) -> Iterable[TopicPosition]: ...

    def outbox(self) -> Iterator[OutboxRow]:
        """The rows, ascending; the caller reads a bounded number."""

    def outbox_value(self, offset: int) -> bytes | None:
        """The value of the row at this metadata offset; None: there is none."""

    def applied_offset(self) -> int: ...

    async def catch_up(self) -> None:
        """Return once all is applied that was committed when this was called."""

    async def report(self, report: ShadowWritten) -> None: ...


PartitionOf = Callable[[bytes], TopicIdPartition]


SETTLED_AFTER_MAX = 5
NEWS_RECORDS = 1_000
"""A position that moved on by so many records of the topic is reported for that alone."""


def _is_news(tail: Tail, known: TopicPosition | None) -> bool:
    """True unless only markers are new: reading these again costs less than a record of the log."""
    return (
        known is None
        or tail.last_read > known.last
        or tail.next_offset >= known.next_offset + NEWS_RECORDS
    )


@dataclass(slots=True)
class ShadowWriter:
    """Writes to the metadata topic, one per node; for one caller at a time. `partition_of` tells
    whose change a value is. Records that are missing from the topic are believed to be lost once
    that was seen for `lost_after_s`: a broker that was deposed and does not know it has an older
    end.
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
    _unread: set[int] = field(default_factory=set, init=False)
    _foreign: str = field(default="", init=False)
    _lost_since: float | None = field(default=None, init=False)
    _hides_others: bool = field(default=False, init=False)

    async def step(self) -> bool:
        """Write one transaction, or remove rows that nobody needs; False: there are none.

        Conflict: the topic is not what was written; that is in the log now, too. Errors of the
        ports end the session.
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
        except BaseException:
            await self.close()
            raise
        self._hides_others = transaction.hides_others
        return bool(transaction.rows)

    @property
    def needs_look(self) -> bool:
        """True if the last step saw none but rows that are written, and others may wait behind
        them: a look reports these, and so makes room.
        """
        return self._hides_others

    async def look(self) -> None:
        """Read each partition on to its end, and report what is written. Errors: `step`."""
        shadow = self.log.shadow()
        if shadow is None or shadow.incomplete:
            return
        try:
            session = await self._opened(shadow)
            for _ in range(SETTLED_AFTER_MAX):  # a marker may come after its transaction's end
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
        """Partitions of the topic that had no leader when they were to be read."""
        return frozenset(self._unread)

    async def close(self) -> None:
        """Drop the session. Idempotent."""
        session, self._session = self._session, None
        self._tails.clear()
        self._foreign = ""  # what is not in the log is found again
        if session is not None:
            await session.close()

    async def _opened(self, shadow: Shadow) -> TopicSession:
        if self._session is not None and shadow.begun != self._begun:
            await self.close()
        if self._session is None:
            self._session = await self.topic.open()
            # By then this node knows all that an earlier writer may have written.
            await self.log.catch_up()
            self._begun = self._now().begun
            await self._read_all(self._session)
        return self._session

    def _now(self) -> Shadow:
        shadow = self.log.shadow()
        if shadow is None:
            raise RetryLater("nothing is to be written in this phase any more")
        return shadow

    async def _read_all(self, session: TopicSession) -> None:
        shadow = self._now()
        known = (shadow.topic_id, shadow.partitions)
        if shadow.topic_id != ZERO_UUID and known != (session.topic_id, session.partitions):
            await self._give_up(
                session,
                f"the topic had id {shadow.topic_id} and {shadow.partitions} partitions, and has "
                f"id {session.topic_id} and {session.partitions}: it was made anew, or widened",
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
        """`known` None: nobody has looked at the partition yet; all of it was there before."""
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
                    f"{read.foreign.topic_offset} that no node of this cluster wrote: a broker may "
                    "run with Kafka's own metadata manager"
                )
            tail = read.tail
        self._tails[partition] = tail

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
            f"{where} has a change of metadata offset {named} that is not in this metadata log: it "
            "was restarted from an older state"
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
        """Report what the log does not know yet; False: nothing. A position beyond a foreign record
        is reported together with it, so that no later reader passes it by.
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
