"""Carries out the switch from the topic to the metadata log, or the way back. Each step may be
repeated.

Forth (phase SWITCHING): wait until brokers stop writing, read and import, compare, then QUORUM.
Back (phase BACK): wait until brokers stop writing and until the topic has all changes of the log,
compare, then KAFKA. After a difference or its deadline an attempt returns to the phase before it,
with the reason. A node that takes an attempt over after a crash begins it again, with the same
result. A node whose own broker does not answer, or that has none, does not see the Kafka cluster,
and hands the attempt over.
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
"""Limit of the difference between a broker's clock and this node's within a lease, in seconds."""
LOOK_EVERY_S = 0.25
RETRY_AFTER_S = 1.0
OWN_SILENT_S = 4.0
"""Silence of its own broker after which a node hands the move over, in seconds. It is shorter than
the 9 s after which Kafka's controller fences a silent broker, so that the node that takes over
still sees it as live.
"""
DIFFERENCES_TOLD_MAX = 5


class _OverError(Exception):
    """The attempt is over, or a different node carries it out."""


class DifferenceError(Exception):
    """The log and the topic differ, or the topic can't be imported; a retry does not help."""


class LogPort(Protocol):
    """The metadata log. A write is applied on this node when it returns."""

    def leads(self) -> bool:
        """True while this node leads the quorum, and so carries attempts out."""

    def standing(self) -> Migration:
        """The phase in force, by the log as applied on this node."""

    def acknowledged(self, since: int) -> Collection[int]:
        """The brokers that acknowledged the phase whose record is at `since`, and so have stopped
        writing.
        """

    def partitions(self) -> Collection[TopicIdPartition]:
        """All delegated partitions in the log."""

    async def bring(self, tip: TopicIdPartition, cache: KafkaCache | None, since: int) -> None:
        """Import a partition in place of its rows; with `cache` None, remove them: the topic does
        not have it.
        """

    def newest_topic(self, name: str) -> Uuid:
        """The id of the topic that is the newest of its name for the log."""

    async def differences(self, tip: TopicIdPartition, cache: KafkaCache | None) -> Sequence[str]:
        """Sentences about all differences between log and topic that a broker would see; `cache`
        is None if the topic does not have the partition.
        """

    def behind_topic(self) -> int:
        """The number of changes that the topic does not have yet."""

    async def begin_shadow(self, since: int, topic_id: Uuid, ends: Sequence[int]) -> None:
        """Record the ends of the topic's partitions (in order, from 0), after which only this
        cluster may write.
        """

    async def move(self, before: Migration, phase: MigrationPhase, why: str) -> None:
        """Record the next phase. Raises Conflict if a different record came first."""

    async def hand_over(self, since: int) -> bool:
        """Transfer the quorum's leadership to a node beside a broker that acknowledged the phase
        whose record is at `since`. False if none can lead.
        """


class TopicSource(Protocol):
    """The metadata topic, read from its present leaders."""

    @property
    def topic_id(self) -> Uuid:
        """The present id of the topic."""

    @property
    def partitions(self) -> Sequence[int]:
        """The topic's partitions, ascending."""

    async def read(
        self, partition: int, progress: Callable[[int, int], None]
    ) -> tuple[TopicReplay, PartitionRead]:
        """Replay a partition up to its present end."""

    async def close(self) -> None:
        """Close the connections."""


class BrokersPort(Protocol):
    """The Kafka cluster."""

    async def live(self) -> Collection[int]:
        """The ids of the brokers that are live for Kafka's controller. Raises RetryLater if they
        can't be asked for.
        """

    async def open_topic(self) -> TopicSource:
        """The metadata topic. Raises RetryLater if it can't be read now."""


@dataclass(frozen=True, slots=True)
class Time:
    """A monotonic clock, and a sleep, both in seconds."""

    monotonic: Callable[[], float]
    sleep: Callable[[float], Awaitable[None]]


@dataclass(slots=True)
class Watch:
    """A phase in progress, as this node sees it, also if a different node carries it out. `since`:
    when this node saw it first. `known`: the brokers that were live for this node's own broker
    after they had acknowledged the phase. If one of them is no longer live for that broker, it got
    this from its controller since, together with the new leaders of its partitions.
    """

    standing: Migration | None = None
    since: float = 0.0
    known: set[int] = field(default_factory=set)

    def begin(self, standing: Migration, now: float) -> None:
        """Start to watch this phase, unless it is watched already."""
        if self.standing != standing:
            self.standing, self.since, self.known = standing, now, set()

    def note(self, acknowledged: Collection[int], live: Collection[int]) -> None:
        """Add brokers that are acknowledged and live; `live` must be newer than `acknowledged`."""
        self.known.update(set(acknowledged) & set(live))


@dataclass(slots=True)
class Attempt:
    """An attempt and its progress: the `share` of the `step` that is done, 0 to 1, and the
    `trouble` for which it waits. `is_silent`: all brokers have stopped writing, which lasts as long
    as the phase. `given_up`: the reason why it returns, if it does. `answered`: the time of the
    last answer of this node's own broker. `compared`: the partitions found equal since the topic's
    last read began.
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
    """The attempts of one node. `deadline_s` limits an attempt, from its begin on this node. If the
    node `has_broker`, it waits OWN_SILENT_S for it, and hands an attempt over at most once.
    """

    log: LogPort
    brokers: BrokersPort
    time: Time
    deadline_s: float
    has_broker: bool = True
    watch: Watch = field(default_factory=Watch)

    def begin(self, before: Attempt | None = None) -> Attempt | None:
        """The attempt in progress, if this node has to carry it out. If it is `before` again, such
        as after an unexpected error, its deadline stays that of `before`.
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
        """Watch the brokers while a different node carries an attempt out, since this node may take
        over.
        """
        standing = self.log.standing()
        if standing.phase not in RETURNS_TO:
            return
        self.watch.begin(standing, self.time.monotonic())
        with suppress(RetryLater):
            acknowledged = set(self.log.acknowledged(standing.since))
            self.watch.note(acknowledged, await self.brokers.live())

    async def run(self, attempt: Attempt) -> None:
        """Carry the attempt to its end, or until a different node does."""
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
                late = f"it took longer than {self.deadline_s:g} s, while {attempt.step}"
                await self._return(attempt, f"{late}: {attempt.trouble}".removesuffix(": "))
            except StrandlineError as error:
                attempt.trouble = str(error)
                await self.time.sleep(RETRY_AFTER_S)

    def _go_on(self, attempt: Attempt) -> None:
        """Raise _OverError if the attempt is over or this node no longer leads the quorum,
        TimeoutError after the deadline.
        """
        if self.log.standing() != attempt.standing or not self.log.leads():
            raise _OverError
        if self.time.monotonic() - attempt.begun >= self.deadline_s:
            raise TimeoutError

    async def _return(self, attempt: Attempt, why: str) -> None:
        before, attempt.given_up = attempt.standing, attempt.given_up or why[:WHY_CHARACTERS_MAX]
        try:
            await self.log.move(before, RETURNS_TO[before.phase], attempt.given_up)
        except StrandlineError as error:
            attempt.trouble = f"{attempt.given_up}; recording this failed: {error}"
            await self.time.sleep(RETRY_AFTER_S)

    async def _forth(self, attempt: Attempt) -> None:
        await self._silence(attempt)
        await self._check_known(attempt)
        standing, source = attempt.standing, await self.brokers.open_topic()
        try:
            ends = await self._import(source, attempt)
            await self._check_known(attempt)  # again: brokers may have appeared meanwhile
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
        """Wait until all brokers have stopped writing: each live broker has acknowledged the phase,
        and the leases of the other brokers have ended.

        Invariant: a broker that is not waited for got its last answer with an earlier phase before
        this node applied this phase, so its lease ends within the wait.
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
        """The brokers that are live for this node's own broker. Raises RetryLater if that does not
        answer; if it has not for OWN_SILENT_S, the attempt is handed over first.
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
        """Check that this node's broker knows all brokers. Raises RetryLater if a live broker has
        not acknowledged, or if a broker that has acknowledged was never live for this node's own
        broker since. Then the own broker may be cut off from its controller, and still count as
        leader of partitions that the other broker leads by now.
        """
        live = await self._live(attempt)
        acknowledged = set(self.log.acknowledged(attempt.standing.since))
        if missing := sorted(live - acknowledged):
            raise RetryLater(_unheard(missing))
        if unknown := sorted(acknowledged - live - self.watch.known):
            raise RetryLater(
                f"brokers {', '.join(map(str, unknown))} have stopped writing, but are not live "
                "for this node's own broker, so its metadata of the topic may be old. Start them, "
                "or begin the switch again while they are down"
            )

    async def _import(self, source: TopicSource, attempt: Attempt) -> tuple[int, ...]:
        """Import and compare each partition of the topic. Returns the ends of the partitions."""
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
        """Import a topic again, so that it is recorded after older topics of its name."""

        def is_of_it(tip: TopicIdPartition) -> bool:
            return (tip.topic, tip.topic_id) == (newest.topic, newest.topic_id)

        # Remove all its partitions first: with one left, the topic keeps its time of recording.
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
                    f"partition {partition} of the topic ends with a transaction marker, after "
                    "which Kafka's own manager needs a record: this node will write one"
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
        f"brokers {ids} are live but have not acknowledged the phase: each needs the bridge "
        "(MigratingMetadataManager), and a running node beside it"
    )


def _name(tip: TopicIdPartition) -> str:
    return f"{tip.topic}-{tip.partition}"


def _told(sentences: Iterable[str]) -> str:
    """The first few sentences, so that they fit into the reason of the next phase."""
    return "; ".join(islice(sentences, DIFFERENCES_TOLD_MAX))
