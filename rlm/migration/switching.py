"""Carries the truth from the topic into the metadata log, or back. Each step may be done twice.

Forth (SWITCHING): silence, read and import, compare, QUORUM. Back (BACK): silence, the topic has
all that the log has, compare, KAFKA. A difference, or an attempt that is not through at its
deadline, returns to where it came from, with the reason. Whoever takes an attempt over after a
crash begins it again, and comes to the same. A node whose own broker is silent, or that has none,
sees nothing of the Kafka cluster, and lets another one carry the attempt out.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol

from kafka_formats.errors import RetryLater, StrandlineError
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.migration.acknowledgements import LEASE_S
from rlm.migration.compared import Compared, counted
from rlm.migration.incarnations import Incarnations, Newest
from rlm.migration.kafka_cache import KafkaCache
from rlm.migration.topic_checks import PartitionRead, check_reads
from rlm.migration.topic_replay import TopicReplay
from rlmm.migration_phase import RETURNS_TO, Migration, MigrationPhase
from rlmm.records.control_records import WHY_CHARACTERS_MAX

CLOCKS_DIFFER_S = 1.0
"""The clocks of a broker and this node may run apart so far within a lease."""
LOOK_EVERY_S = 0.25
RETRY_AFTER_S = 1.0
OWN_SILENT_S = 4.0
"""The silence of its own broker after which a node hands the move over. It is less than the 9 s for
which Kafka's controller takes a silent broker for living: so the node that takes over still sees it
living.
"""
DIFFERENCES_TOLD_MAX = 5


class _OverError(Exception):
    """The attempt is over, or another node's."""


class DifferenceError(Exception):
    """The log and the topic, or the topic and what can be moved, differ: no attempt mends that."""


class LogPort(Protocol):
    """The metadata log's side. What it writes is applied here when it returns."""

    def leads(self) -> bool:
        """True while this node leads the quorum: then it carries attempts out."""

    def standing(self) -> Migration:
        """The phase by the log as this node has applied it."""

    def acknowledged(self, since: int) -> Collection[int]:
        """The brokers that acknowledged the phase of this record: they write nothing more."""

    def partitions(self) -> Collection[TopicIdPartition]:
        """All partitions that the log has of topics that brokers tier."""

    async def bring(self, tip: TopicIdPartition, cache: KafkaCache | None, since: int) -> None:
        """Import a partition in place of what stands of it; None: the topic has it no more."""

    def newest_topic(self, name: str) -> Uuid:
        """The id of the topic that the log takes for the newest one of its name."""

    async def differences(self, tip: TopicIdPartition, cache: KafkaCache | None) -> Sequence[str]:
        """Sentences on all that a broker would see otherwise in the log than in the topic; None: it
        has nothing of the partition.
        """

    def behind_topic(self) -> int:
        """Number of records that the topic doesn't have yet."""

    async def begin_shadow(self, since: int, topic_id: Uuid, ends: Sequence[int]) -> None:
        """Record the ends of the topic's partitions, 0 and up, behind which nobody else writes."""

    async def move(self, before: Migration, phase: MigrationPhase, why: str) -> None:
        """Record the next phase. Conflict: another record came first."""

    async def hand_over(self, since: int) -> bool:
        """Let another node lead the quorum, beside a broker that acknowledged the phase of this
        record. False: none can.
        """


class TopicSource(Protocol):
    """The metadata topic as its leaders have it now."""

    @property
    def topic_id(self) -> Uuid:
        """The id that it has now."""

    @property
    def partitions(self) -> Sequence[int]:
        """The topic's partitions, ascending."""

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        """Replay a partition up to its end of now."""

    async def close(self) -> None:
        """Close the connections."""


class BrokersPort(Protocol):
    """The Kafka cluster."""

    async def live(self) -> Collection[int]:
        """Ids of the brokers that its controller takes for living. RetryLater: can't be asked."""

    async def open_topic(self) -> TopicSource:
        """The metadata topic. RetryLater: can't be read now."""


@dataclass(frozen=True, slots=True)
class Time:
    """Monotonic seconds, and a sleep of so many seconds."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Watch:
    """A phase that stands, as a node saw it, whichever node carries it out. `since`: when it stood
    here first; `known`: the brokers that lived by the word of this node's own broker once they had
    acknowledged the phase. If that broker calls one of them dead later, it heard so from its
    controller since, and with it of all that the other one led before.
    """

    standing: Migration | None = None
    since: float = 0.0
    known: set[int] = field(default_factory=set)

    def begin(self, standing: Migration, now: float) -> None:
        """Forget what was seen of another phase."""
        if self.standing != standing:
            self.standing, self.since, self.known = standing, now, set()

    def note(self, acknowledged: Collection[int], live: Collection[int]) -> None:
        """`live`: asked for after `acknowledged` were."""
        self.known.update(set(acknowledged) & set(live))


@dataclass(slots=True)
class Attempt:
    """The step of an attempt, for people: `share` of it that is done, 0 to 1, and what it waits
    for. `is_silent`: nobody writes any more, which stays so while the phase does. `given_up`: why
    it returns, once it does. `answered`: when this node's own broker last did. `compared`: what was
    found equal since the topic was last begun to be read.
    """

    standing: Migration
    begun: float
    answered: float
    handed_over: bool = False
    is_silent: bool = False
    step: str = ""
    share: float = 0.0
    trouble: str = ""
    given_up: str = ""
    compared: list[Compared] = field(default_factory=list)

    def begin(self, step: str) -> None:
        """Go on to the next step."""
        self.step, self.share, self.trouble = step, 0.0, ""


@dataclass(frozen=True, slots=True)
class Switching:
    """The attempts of one node. `deadline_s` bounds one, from when it is begun here. A node that
    `has_broker` waits for it for a while, and hands an attempt over once.
    """

    log: LogPort
    brokers: BrokersPort
    time: Time
    deadline_s: float
    has_broker: bool = True
    watch: Watch = field(default_factory=Watch)

    def begin(self, before: Attempt | None = None) -> Attempt | None:
        """The attempt that stands in the log, if this node is to carry it out. One that is `before`
        begun again, as after an error that nobody expected, has no more time than that had.
        """
        standing, now = self.log.standing(), self.time.monotonic()
        if standing.phase in RETURNS_TO:
            self.watch.begin(standing, now)
        if standing.phase not in RETURNS_TO or not self.log.leads():
            return None
        if before is None or before.standing != standing:
            return Attempt(standing, now, now if self.has_broker else -math.inf)
        return replace(before, share=0.0)

    async def look_on(self) -> None:
        """See how brokers are while another node carries an attempt out: this one may take over."""
        standing = self.log.standing()
        if standing.phase not in RETURNS_TO:
            return
        self.watch.begin(standing, self.time.monotonic())
        with suppress(RetryLater):
            acknowledged = set(self.log.acknowledged(standing.since))
            self.watch.note(acknowledged, await self.brokers.live())

    async def run(self, attempt: Attempt) -> None:
        """Carry the attempt to its end, or until another node does."""
        forth = attempt.standing.phase is MigrationPhase.SWITCHING
        while True:
            try:
                self._go_on(attempt)
                await (self._forth(attempt) if forth else self._back(attempt))
            except _OverError:
                return
            except DifferenceError as error:
                await self._return(attempt, str(error))
            except TimeoutError:
                late = f"not done within {self.deadline_s:g} s, while {attempt.step}"
                await self._return(attempt, f"{late}: {attempt.trouble}".removesuffix(": "))
            except StrandlineError as error:
                attempt.trouble = str(error)
                await self.time.sleep(RETRY_AFTER_S)

    def _go_on(self, attempt: Attempt) -> None:
        """Nothing, while the attempt stands, this node leads the quorum, and there is time."""
        if self.log.standing() != attempt.standing or not self.log.leads():
            raise _OverError
        if self.time.monotonic() - attempt.begun >= self.deadline_s:
            raise TimeoutError

    async def _return(self, attempt: Attempt, why: str) -> None:
        before, attempt.given_up = attempt.standing, attempt.given_up or why[:WHY_CHARACTERS_MAX]
        try:
            await self.log.move(before, RETURNS_TO[before.phase], attempt.given_up)
        except StrandlineError as error:
            attempt.trouble = f"{attempt.given_up}; to say so failed: {error}"
            await self.time.sleep(RETRY_AFTER_S)

    async def _forth(self, attempt: Attempt) -> None:
        await self._silence(attempt)
        await self._check_known(attempt)
        standing, source = attempt.standing, await self.brokers.open_topic()
        try:
            ends = await self._import(source, attempt)
            await self._check_known(attempt)  # also those that were heard meanwhile
            await self.log.begin_shadow(standing.since, source.topic_id, ends)
        finally:
            await source.close()
        self._go_on(attempt)
        await self.log.move(standing, MigrationPhase.QUORUM, "the log has what the topic had")

    async def _back(self, attempt: Attempt) -> None:
        await self._silence(attempt)
        attempt.begin("waiting until the topic has what the log has")
        while behind := self.log.behind_topic():
            self._go_on(attempt)
            attempt.trouble = f"{behind} records are not in the topic yet"
            await self._live(attempt)
            await self.time.sleep(LOOK_EVERY_S)
        await self._live(attempt)
        source = await self.brokers.open_topic()
        try:
            await self._compare(source, attempt)
        finally:
            await source.close()
        self._go_on(attempt)
        await self.log.move(
            attempt.standing, MigrationPhase.KAFKA, "the topic has what the log has"
        )

    async def _silence(self, attempt: Attempt) -> None:
        """Return once nobody writes any more: each living broker said so, and what others heard
        ran out.

        Invariant: a broker that is not waited for heard of an earlier phase before any node had
        applied this one, this node, too, so its lease ends within the wait.
        """
        if attempt.is_silent:
            return
        attempt.begin("waiting until no broker writes")
        wait, since = LEASE_S + CLOCKS_DIFFER_S, self.watch.since
        while True:
            self._go_on(attempt)
            live = await self._live(attempt)
            missing = sorted(live - set(self.log.acknowledged(attempt.standing.since)))
            waited = self.time.monotonic() - since
            attempt.share, attempt.trouble = min(1.0, waited / wait), _unheard(missing)
            if not missing and waited >= wait:
                attempt.is_silent = True
                return
            await self.time.sleep(LOOK_EVERY_S)

    async def _live(self, attempt: Attempt) -> set[int]:
        """The brokers that live by the word of this node's own one. RetryLater: it does not answer.
        If that lasts, another node is to go on.
        """
        acknowledged = set(self.log.acknowledged(attempt.standing.since))
        try:
            live = set(await self.brokers.live())
        except RetryLater:
            silent_s = self.time.monotonic() - attempt.answered
            may_hand_over = not (attempt.handed_over and self.has_broker)
            if silent_s >= OWN_SILENT_S and may_hand_over:
                attempt.handed_over = await self.log.hand_over(attempt.standing.since)
                self._go_on(attempt)
            raise
        attempt.answered = self.time.monotonic()
        self.watch.note(acknowledged, live)
        return live

    async def _check_known(self, attempt: Attempt) -> None:
        """Check that this node's broker knows all brokers. RetryLater: a broker that lives has not
        acknowledged; or one that has acknowledged never lived since by the word of this node's own
        broker. That one may be cut off from its controller, and lead on what the other one leads by
        now.
        """
        live = await self._live(attempt)
        acknowledged = set(self.log.acknowledged(attempt.standing.since))
        if missing := sorted(live - acknowledged):
            raise RetryLater(_unheard(missing))
        if unknown := sorted(acknowledged - live - self.watch.known):
            raise RetryLater(
                f"brokers {', '.join(map(str, unknown))} said that they write no more, and do not "
                "live by the word of this node's own broker: what it has of the topic may be old. "
                "Start them, or switch anew while they are down"
            )

    async def _import(self, source: TopicSource, attempt: Attempt) -> tuple[int, ...]:
        """Import each partition of the topic and compare it. Returns where the partitions end."""
        attempt.begin("importing")
        attempt.compared.clear()
        found, ends, since = set[TopicIdPartition](), list[int](), attempt.standing.since
        topics = Incarnations()
        for place, partition in enumerate(source.partitions):
            attempt.share = place / len(source.partitions)
            replay, read = await self._read(source, partition, attempt)
            ends.append(read.end)
            topics.note(partition, replay)
            for tip, cache in replay.caches.items():
                self._go_on(attempt)
                await self.time.sleep(0)
                await self.log.bring(tip, cache, since)
                found.add(tip)
            await self._check(replay, read, attempt)
        for tip in self.log.partitions():
            if tip not in found:
                await self.log.bring(tip, None, since)
        for newest in topics.misjudged(self.log.newest_topic):
            await self._bring_last(source, newest, attempt)
        return tuple(ends)

    async def _bring_last(self, source: TopicSource, newest: Newest, attempt: Attempt) -> None:
        """Import a topic anew, so that the log meets it behind older ones of its name."""

        def is_of_it(tip: TopicIdPartition) -> bool:
            return (tip.topic, tip.topic_id) == (newest.topic, newest.topic_id)

        # All of them first: a partition that is left keeps the time at which the topic was met.
        for tip in filter(is_of_it, self.log.partitions()):
            await self.log.bring(tip, None, attempt.standing.since)
        for partition in newest.metadata_partitions:
            replay, _ = await self._read(source, partition, attempt)
            for tip in filter(is_of_it, replay.caches):
                self._go_on(attempt)
                await self.log.bring(tip, replay.caches[tip], attempt.standing.since)
                await self._check_one(tip, replay.caches[tip])

    async def _compare(self, source: TopicSource, attempt: Attempt) -> None:
        attempt.begin("comparing")
        attempt.compared.clear()
        found = set[TopicIdPartition]()
        for place, partition in enumerate(source.partitions):
            attempt.share = place / len(source.partitions)
            replay, read = await self._read(source, partition, attempt)
            if read.ends_with_marker:
                raise RetryLater(
                    f"partition {partition} of the topic ends with a transaction marker, behind "
                    "which Kafka's own manager needs a record: it is on its way"
                )
            await self._check(replay, read, attempt)
            found.update(replay.caches)
        for tip in self.log.partitions():
            if tip not in found:
                self._go_on(attempt)
                await self._check_one(tip, None)

    async def _read(
        self, source: TopicSource, partition: int, attempt: Attempt
    ) -> tuple[TopicReplay, PartitionRead]:
        def progress(_read: int, _of: int) -> None:
            self._go_on(attempt)

        replay, read = await source.read(partition, progress)
        if read.error is not None:
            raise RetryLater(f"partition {partition} of the topic: {read.error}")
        wrong = [f"{each.name}: {each.detail}" for each in check_reads([read]) if not each.ok]
        if wrong:
            raise DifferenceError(_told(wrong))
        return replay, read

    async def _check(self, replay: TopicReplay, read: PartitionRead, attempt: Attempt) -> None:
        for tip, cache in replay.caches.items():
            await self._check_one(tip, cache)
        counts = await asyncio.to_thread(counted, read.partition, read.end, replay)
        attempt.compared.append(counts)

    async def _check_one(self, tip: TopicIdPartition, cache: KafkaCache | None) -> None:
        wrong = await self.log.differences(tip, cache)
        if wrong:
            raise DifferenceError(f"{_name(tip)}: {_told(wrong)}")


def _unheard(missing: Sequence[int]) -> str:
    if not missing:
        return ""
    ids = ", ".join(map(str, missing))
    return (
        f"brokers {ids} live and have not said that they write no more: each needs the bridge "
        "(MigratingMetadataManager), and the node beside it"
    )


def _name(tip: TopicIdPartition) -> str:
    return f"{tip.topic}-{tip.partition}"


def _told(sentences: Iterable[str]) -> str:
    """The first few, so that the reason of the next phase holds them."""
    return "; ".join(islice(sentences, DIFFERENCES_TOLD_MAX))
