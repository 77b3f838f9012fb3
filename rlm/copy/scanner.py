"""Scans the log directories, the broker's leaderships and topic configs. Decides nothing about
copying: it reports which partitions exist, which are left out, and which the broker leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from kafka_formats.errors import RetryLater
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.log_names import PARTITION_METADATA_FILE
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.why_not import Wait, WhyNot
from rlm.copy.told_partitions import ToldPartitions, wrong_ids
from rlm.leadership.announced import Announced, NoPlugin
from rlm.leadership.leadership import (
    CLEANUP_POLICIES,
    BrokerWord,
    Leads,
    LocalLogStart,
    NoAnswer,
    NotLeading,
    TopicConfig,
)
from rlm.leadership.unseen_disk import EpochAt
from rlm.local_log.log_dir import LocalPartition, LogDirProblem, LogDirScan, find_partitions
from rlm.local_log.replica_directory import why_another
from rlm.local_log.replica_memory import ReplicaMemory
from rlmm.partition_state import Mode

Read = TypeVar("Read")
TopicPartition = tuple[str, int]


class TopicChoice(Protocol):
    """The setting that chooses the tiered topics."""

    def why_left_out(self, topic: str) -> str | None:
        """A sentence that says what to change; None if the topic is tiered."""


class BrokerPort(Protocol):
    """The node's own broker (`rlm.leadership.broker_view.BrokerView`)."""

    async def leadership(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, BrokerWord]:
        """The leadership of each, or why it is unknown."""

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        """The first offset on the broker's disk, for each partition that it leads."""

    async def log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        """The log start, tier included, and the leader epoch there, for each partition that it
        leads.
        """

    async def highest_tiered(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | NotLeading | NoAnswer]:
        """The highest offset that the broker takes for copied, if it leads; -1: none."""

    async def topic_configs(self, topics: Sequence[str]) -> dict[str, TopicConfig | NoAnswer]: ...

    async def topic_ids(self, topics: Sequence[str]) -> dict[str, Uuid | NoAnswer]:
        """The broker's topic id of each topic; empty if the broker has no topic ids."""

    async def knows_topic(self, topic_id: Uuid) -> bool | NoAnswer:
        """True if the broker's metadata has such a topic; False if it has none (any more)."""

    async def knows_later_epoch(
        self, partition: TopicPartition, leader_epoch: int
    ) -> bool | NoAnswer:
        """True if the broker's replica leads, or follows a leader, at a later epoch."""


@dataclass(frozen=True, slots=True)
class Found:
    """A partition on this node's disks. `word`: the broker's answer about its leadership.
    `left_out` says why it is never claimed; `mode` is the mode that it should have.
    """

    local: LocalPartition
    word: BrokerWord
    left_out: Wait | None
    mode: Mode = Mode.SIDECAR


@dataclass(frozen=True, slots=True)
class Look:
    """The result of a scan. `left_out_topics`: names, each with a sentence why. `untold`: announced
    partitions whose present leader epochs are not known, because the disk is not visible here and
    the broker did not report them, or the broker did not report the epoch that it leads, or the
    checkpoint does not have that epoch yet, or the directory can't be read.
    """

    found: tuple[Found, ...]
    problems: tuple[LogDirProblem, ...]
    left_out_topics: tuple[tuple[str, str], ...]
    untold: frozenset[TopicIdPartition] = frozenset()

    def told_of(self, asked: Collection[TopicIdPartition]) -> tuple[Found, ...]:
        """The announced partitions among `asked` that the broker leads and whose leader epochs
        include that leadership. The scan did not find out enough about the other ones.
        """
        return tuple(
            each
            for each in self.found
            if each.mode is Mode.DELEGATED
            and each.left_out is None
            and isinstance(each.word, Leads)
            and each.local.partition in asked
            and each.local.partition not in self.untold
        )


PARTITIONS_PER_BREATH = 16
"""Limit of the look-ups in the view before other tasks run: about a millisecond on the event
loop.
"""

LEFT_OUT = NoAnswer("the broker's response has no entry for this partition")

Breathe = Callable[[], Awaitable[None]]
"""Lets other tasks run, then returns at once."""


@dataclass(slots=True)
class Scanner:
    """Runs one scan at a time. `told`: the partitions of a broker whose disk is not visible here.
    `only`: the announced partitions to scan; None: all partitions. `_leads`: answers of the last
    scan for partitions whose directory still had the same topic id afterwards. `_known_ids`: topics
    whose id at the broker is that of their directories.
    """

    log_dirs: tuple[Path, ...]
    kafka_cluster_id: str | None
    broker: BrokerPort | None
    topics: TopicChoice
    breathe: Breathe
    deadline_s: float
    announced: Announced = field(default_factory=NoPlugin)
    told: ToldPartitions | None = None
    only: tuple[TopicIdPartition, ...] | None = None
    _reading: asyncio.Future[Any] | None = None
    _memory: ReplicaMemory = field(default_factory=ReplicaMemory)
    _leads: Mapping[TopicIdPartition, Leads] = field(default_factory=dict)
    _known_ids: frozenset[tuple[str, Uuid]] = frozenset()

    def of(self, only: Sequence[TopicIdPartition], before: Scanner | None) -> Scanner:
        """A scanner for one look at the announced partitions `only`, beside the scans of all. It
        shares no remembered answers with other scans, since they may be outdated, but a blocking
        read of `before`, the last such scanner, that still hangs.
        """
        return Scanner(
            self.log_dirs, self.kafka_cluster_id, self.broker, self.topics, self.breathe,
            self.deadline_s, self.announced,
            None if self.told is None else ToldPartitions(self.told.disk),
            tuple(only),
            None if before is None else before._reading,
        )  # fmt: skip

    async def look(self) -> Look:
        """Scan the log directories. InvalidRequest if no path is a log directory; Refused if one
        belongs to a different cluster; RetryLater if a disk does not answer in time.
        """
        scan = await self._settled(await self._in_time(self._find))
        delegated = [each for each in scan.partitions if self.announced.has(each.partition)]
        contradicted = await self._contradicted({each.partition.topic for each in delegated})
        if self.announced.is_silent:  # the broker may run without its plug-in now
            delegated = [each for each in delegated if each.partition.topic not in contradicted]
        by_broker = frozenset(each.partition for each in delegated)
        others = [each for each in scan.partitions if each.partition not in by_broker]
        left_out = self._by_name(others)
        candidates = [each for each in others if each.partition.topic not in left_out]
        by_config, unknown = await self._by_config(candidates)
        left_out |= by_config
        chosen = [each for each in candidates if each.partition.topic not in left_out]
        asked = [each for each in chosen if each.partition.topic not in unknown]
        words = await self._words([*delegated, *asked])
        told = await self._told()
        return Look(
            told
            + tuple(
                Found(
                    each,
                    words.get(each.partition) or _no_word(each.partition.topic, unknown),
                    (contradicted if each.partition in by_broker else left_out).get(
                        each.partition.topic
                    ),
                    Mode.DELEGATED if each.partition in by_broker else Mode.SIDECAR,
                )
                for each in scan.partitions
            ),
            scan.problems,
            tuple(sorted((topic, wait.text) for topic, wait in left_out.items())),
            self._untold(told, words) | _behind(delegated, words),
        )

    async def _settled(self, scan: LogDirScan) -> LogDirScan:
        """The scan, of replicas of one name with those of the topic that the broker has: a deleted
        topic's stays in a log directory that is offline, and the topic may be made again.
        """
        if self.broker is None or not scan.rivals:
            return scan
        names = sorted({each.partition.topic for each in scan.rivals})
        return scan.with_topics(await self.broker.topic_ids(names))

    def _untold(
        self, told: Sequence[Found], words: Mapping[TopicIdPartition, BrokerWord]
    ) -> frozenset[TopicIdPartition]:
        # A partition without a readable directory has no entry in `words`. If the broker does not
        # report its epoch, the checkpoint may be the earlier leader's: a new leader answers a
        # moment later.
        known = {tip for tip, word in words.items() if isinstance(word, Leads)}
        known |= {each.local.partition for each in told if isinstance(each.word, Leads)}
        return frozenset(self._leaders) - known

    @property
    def _leaders(self) -> tuple[TopicIdPartition, ...]:
        leaders = self.announced.leaders
        return tuple(leaders if self.only is None else (tip for tip in self.only if tip in leaders))

    async def _told(self) -> tuple[Found, ...]:
        """The partitions that the broker leads and tiers, if this node does not see its disk."""
        leaders = self._leaders
        if self.told is None or self.broker is None or not leaders:
            return ()
        try:
            async with asyncio.timeout(self.deadline_s):
                return await self._ask_about(leaders, self.broker, self.told)
        except TimeoutError:
            raise RetryLater(
                f"the broker did not report its partitions within {self.deadline_s:g} s"
            ) from None

    async def _ask_about(
        self, leaders: Sequence[TopicIdPartition], broker: BrokerPort, told: ToldPartitions
    ) -> tuple[Found, ...]:
        topics = {tip.topic for tip in leaders}
        contradicted = await self._contradicted(topics)
        if self.announced.is_silent:  # it may run without its plug-in now
            leaders = [tip for tip in leaders if tip.topic not in contradicted]
        heard = await broker.leadership([(tip.topic, tip.partition) for tip in leaders])
        words = {tip: heard.get((tip.topic, tip.partition), LEFT_OUT) for tip in leaders}
        found = await told.ask(leaders, words)
        # The ids are read last: if they still match, the answers before were about these topics.
        ids = await broker.topic_ids(sorted(topics))
        wrong = wrong_ids(leaders, ids)
        for tip in wrong:
            if not isinstance(ids.get(tip.topic), NoAnswer):
                told.forget(tip)
        return tuple(
            Found(
                local,
                wrong.get(local.partition, word) if isinstance(word, Leads) else word,
                contradicted.get(local.partition.topic),
                Mode.DELEGATED,
            )
            for local, word in found
        )

    async def is_deleted(self, local: LocalPartition | None, topic_id: Uuid) -> bool:
        """True if the topic is deleted according to both the broker's disk and its metadata: a
        replica that moves to another broker leaves the disk too. False if the metadata cannot be
        read now.
        """
        if self.told is not None:
            return await self.told.is_deleted(topic_id)
        if local is not None and await asyncio.to_thread(local.directory.is_dir):
            return False
        return self.broker is None or await self.broker.knows_topic(topic_id) is False

    async def _contradicted(self, delegated: set[str]) -> dict[str, Wait]:
        """Topics that the plug-in announces but the broker's configs do not tier: one of the two is
        outdated, and a partition must never be copied by two.
        """
        if self.broker is None or not delegated:
            return {}
        configs = await self.broker.topic_configs(sorted(delegated))
        return {
            topic: Wait(
                WhyNot.MODE,
                f"the broker's plug-in announces {topic}, but its configs have "
                "remote.storage.enable=false: nothing is copied until they agree",
            )
            for topic, config in configs.items()
            if isinstance(config, TopicConfig) and not config.remote_storage_enable
        }

    async def _in_time(self, read: Callable[[], Read]) -> Read:
        """Run a blocking read, after an earlier one that still hangs has ended: each would hold a
        thread, and threads are few. The late result of the earlier one is outdated and dropped.
        """
        if self._reading is not None:
            await self._wait_for(self._reading)
        self._reading = reading = asyncio.ensure_future(asyncio.to_thread(read))
        await self._wait_for(reading)
        self._reading = None
        return reading.result()

    async def _wait_for(self, reading: asyncio.Future[Any]) -> None:
        done, _ = await asyncio.wait({reading}, timeout=self.deadline_s)
        if not done:
            raise RetryLater(
                f"the scan of {', '.join(map(str, self.log_dirs))} takes longer than "
                f"{self.deadline_s:g} s: check whether a disk hangs"
            )
        if not reading.cancelled():
            reading.exception()  # read, so that it is not reported a second time

    def _find(self) -> LogDirScan:
        if not self.log_dirs:  # a node without a broker's directory keeps metadata and answers
            return LogDirScan((), (), None, None)
        only = None if self.only is None else {(tip.topic, tip.partition) for tip in self.only}
        return find_partitions(
            self.log_dirs, kafka_cluster_id=self.kafka_cluster_id, memory=self._memory, only=only
        )

    def _by_name(self, partitions: Sequence[LocalPartition]) -> dict[str, Wait]:
        topics = {each.partition.topic for each in partitions}
        why = {topic: self.topics.why_left_out(topic) for topic in topics}
        return {
            topic: Wait(WhyNot.NOT_INCLUDED, text)
            for topic, text in why.items()
            if text is not None
        }

    async def _by_config(
        self, partitions: Sequence[LocalPartition]
    ) -> tuple[dict[str, Wait], dict[str, str]]:
        """Topics left out for their configs, and topics with unknown configs. Without a broker no
        config is known, and the user's `topics.include` decides.
        """
        left_out: dict[str, Wait] = {}
        unknown: dict[str, str] = {}
        if self.broker is None:
            return left_out, unknown
        topics = sorted({each.partition.topic for each in partitions})
        configs = await self.broker.topic_configs(topics)
        for topic in topics:
            config = configs.get(topic, NoAnswer(f"the broker sent no configuration of {topic}"))
            if isinstance(config, NoAnswer):
                unknown[topic] = config.reason
                continue
            wait = why_config_forbids(topic, config)
            if wait is not None:
                left_out[topic] = wait
        return left_out, unknown

    async def _words(
        self, partitions: Sequence[LocalPartition]
    ) -> dict[TopicIdPartition, BrokerWord]:
        if self.broker is None:
            return {each.partition: standalone_word(each) for each in partitions}
        asked = [(each.partition.topic, each.partition.partition) for each in partitions]
        answers = await self.broker.leadership(asked)
        words = {
            each.partition: answers.get((each.partition.topic, each.partition.partition), LEFT_OUT)
            for each in partitions
        }
        words |= await self._under_wrong_ids(
            [each for each in partitions if isinstance(words[each.partition], Leads)]
        )
        leads = {tip: word for tip, word in words.items() if isinstance(word, Leads)}
        # An unchanged answer was checked before: idle partitions need no second check.
        news = [
            each
            for each in partitions
            if (word := leads.get(each.partition)) is not None
            and word != self._leads.get(each.partition)
        ]
        others = await self._in_time(partial(_of_other_topics, news)) if news else {}
        self._leads = {tip: word for tip, word in leads.items() if tip not in others}
        return words | others

    async def _under_wrong_ids(
        self, partitions: Sequence[LocalPartition]
    ) -> dict[TopicIdPartition, NoAnswer]:
        """Partitions whose partition.metadata, which has no checksum, has a different topic id than
        the broker: copied under it, the records would belong to a different topic. Each id is
        requested once.
        """
        assert self.broker is not None, "only called after the broker's answers"
        ids = {(each.partition.topic, each.partition.topic_id) for each in partitions}
        new = sorted(topic for topic, _ in ids - self._known_ids)
        answers = await self.broker.topic_ids(new) if new else {}
        known = {each for each in ids if answers.get(each[0], each[1]) == each[1]}
        self._known_ids = frozenset(ids & (known | self._known_ids))
        wrong: dict[TopicIdPartition, NoAnswer] = {}
        for each in partitions:
            tip = each.partition
            if (tip.topic, tip.topic_id) in self._known_ids:
                continue
            answer = answers[tip.topic]
            wrong[tip] = answer if isinstance(answer, NoAnswer) else NoAnswer(
                f"{each.directory / PARTITION_METADATA_FILE} has the topic id {tip.topic_id}, but "
                f"the broker has {answer} for {tip.topic}: correct the file while the broker is "
                "down, unless the topic was just made again"
            )  # fmt: skip
        return wrong


def _behind(
    partitions: Sequence[LocalPartition], words: Mapping[TopicIdPartition, BrokerWord]
) -> frozenset[TopicIdPartition]:
    """Partitions whose checkpoint does not have the led epoch yet: the broker writes it later."""
    leads = {tip: word.leader_epoch for tip, word in words.items() if isinstance(word, Leads)}
    return frozenset(
        each.partition
        for each in partitions
        if each.partition in leads
        and (not each.leader_epochs or each.leader_epochs[-1].epoch < leads[each.partition])
    )


def _of_other_topics(replicas: Sequence[LocalPartition]) -> dict[TopicIdPartition, NoAnswer]:
    """Partitions whose topic may have been deleted and made again since the scan, so that the
    directory belongs to the new topic: the broker, which is asked by name, may have answered for
    the new one. Blocks.
    """
    why = {
        each.partition: why_another(each.directory, each.partition.topic_id) for each in replicas
    }
    return {tip: NoAnswer(text) for tip, text in why.items() if text is not None}


def _no_word(topic: str, unknown: Mapping[str, str]) -> NoAnswer:
    """The answer for a partition that was not asked about: a topic with unknown configs may be
    compacted, so it is not copied.
    """
    return NoAnswer(unknown.get(topic, "not asked: the topic is left out"))


def why_config_forbids(topic: str, config: TopicConfig) -> Wait | None:
    """The reason to leave out a compacted topic, or one that a broker tiers itself; else None."""
    if config.cleanup_policy not in CLEANUP_POLICIES:
        return Wait(
            WhyNot.COMPACTED,
            f"{topic} has cleanup.policy={config.cleanup_policy}; only topics with "
            "cleanup.policy=delete, or an empty one, are tiered",
        )
    if config.remote_storage_enable:
        return Wait(
            WhyNot.MODE,
            f"{topic} has remote.storage.enable=true, so its brokers tier it themselves, and this "
            "broker's plug-in does not announce the partition to this node",
        )
    return None


def standalone_word(local: LocalPartition) -> BrokerWord:
    """The leadership for a node without a broker: leader at the last epoch on disk, with the lower
    bound of the last stable offset that the files prove.
    """
    if not local.leader_epochs:
        return NoAnswer("its leader-epoch-checkpoint has no entry")
    return Leads(local.leader_epochs[-1].epoch, local.last_stable_offset_bound)
