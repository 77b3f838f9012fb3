"""Asks a broker for the facts that a claim needs about a replica on a disk this node does not see.

The leader epochs are those that a follower could ask for. OffsetsForLeaderEpoch answers with the
largest epoch up to the given one, and the offset where the next begins, so the chain is walked from
the present epoch down to that of the log start. Each answer is valid for the leadership named in
the request, or is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kafka_formats.kafka_uuid import Uuid
from kafka_formats.leader_epoch_checkpoint import EpochEntry, Epochs, truncate_from_start
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.leadership.leadership import Leads, LocalLogStart, NoAnswer, NotLeading

TopicPartition = tuple[str, int]
EPOCHS_MAX = 10_000
"""The most leader epochs of one partition: each takes a request."""


@dataclass(frozen=True, slots=True)
class EpochAt:
    """A leader epoch, and an offset in it, or the offset where it ends (exclusive)."""

    leader_epoch: int
    offset: int


class UnseenDisk(Protocol):
    """A broker that reports on its disk (`rlm.leadership.broker_view.BrokerView`)."""

    async def log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        """The log start, its tier included, and the leader epoch of that offset."""

    async def local_log_start(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, LocalLogStart | NotLeading | NoAnswer]:
        """The first offset on the broker's disk, if it leads."""

    async def epoch_ends(
        self, asked: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochAt | NotLeading | NoAnswer]:
        """Ask for the ends of epochs. For each (present epoch, epoch): the largest epoch up to the
        latter, inclusive, and the offset where the next one begins.
        """

    async def knows_topic(self, topic_id: Uuid) -> bool | NoAnswer:
        """True if the broker's metadata has this topic id; False if not, or not any more."""


@dataclass(frozen=True, slots=True)
class ReportedReplica:
    """A replica as its broker reports it: its leader epochs, its log start (the tier included), and
    the first offset on its disk.
    """

    leader_epochs: Epochs
    log_start_offset: int
    local_log_start_offset: int


@dataclass(slots=True)
class EpochWalk:
    """Finds the epochs from the present one down to `first`, the epoch of `log_start`. Pure.

    `starts` are the (epoch, start) found so far, descending.
    """

    current: int
    first: int
    log_start: int
    starts: list[EpochEntry] = field(default_factory=list)
    upper: int = field(init=False)

    def __post_init__(self) -> None:
        self.upper = self.current

    @property
    def question(self) -> tuple[int, int] | None:
        """The next request, as (present epoch, epoch); None once `epochs` are complete."""
        return (self.current, self.upper - 1) if self.upper > self.first else None

    @property
    def epochs(self) -> Epochs:
        """All entries, ascending."""
        return (EpochEntry(self.first, self.log_start), *reversed(self.starts))

    def hear(self, answer: EpochAt) -> str | None:
        """Take an answer; returns the reason if it fits no log, else None."""
        below = self.starts[-1].start_offset if self.starts else None
        is_lower = below is None or answer.offset < below
        if not self.first <= answer.leader_epoch < self.upper or not is_lower:
            return "its leader epochs changed while they were asked for"
        if answer.offset <= self.log_start:
            return "its log start moved while its leader epochs were asked for"
        if len(self.starts) >= EPOCHS_MAX:
            return f"it has more than {EPOCHS_MAX} leader epochs"
        self.starts.append(EpochEntry(self.upper, answer.offset))
        self.upper = answer.leader_epoch
        return None


async def ask_epochs(
    disk: UnseenDisk, leads: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, EpochAt]
) -> dict[TopicPartition, Epochs | NoAnswer]:
    """The leader epochs of partitions that the broker leads at the epochs of `leads`."""
    walks = {
        each: EpochWalk(epoch, starts[each].leader_epoch, starts[each].offset)
        for each, epoch in leads.items()
    }
    found: dict[TopicPartition, Epochs | NoAnswer] = {}
    while walks:
        asked = {each: walk.question for each, walk in walks.items()}
        found |= {each: walks[each].epochs for each, question in asked.items() if question is None}
        questions = {each: question for each, question in asked.items() if question is not None}
        answers = await disk.epoch_ends(questions) if questions else {}
        for each in questions:
            trouble = _take(walks[each], answers.get(each))
            if trouble is not None:
                found[each] = NoAnswer(trouble)
        walks = {each: walk for each, walk in walks.items() if each not in found}
    return found


def _take(walk: EpochWalk, answer: EpochAt | NotLeading | NoAnswer | None) -> str | None:
    if isinstance(answer, EpochAt):
        return walk.hear(answer)
    if isinstance(answer, NoAnswer):
        return answer.reason
    return "the broker does not report its leader epochs: it may not lead the partition any more"


@dataclass(slots=True)
class ReportedReplicas:
    """Asks for the replicas at each look; for their epochs once in a leadership.

    `_epochs`: the epochs of the last look, with the leader epoch at which they were asked for.
    """

    disk: UnseenDisk
    _epochs: dict[TopicIdPartition, tuple[int, Epochs]] = field(default_factory=dict)

    async def ask(
        self, words: Mapping[TopicIdPartition, Leads]
    ) -> dict[TopicIdPartition, ReportedReplica | NoAnswer]:
        """Each replica as the broker reports it now."""
        names = {tip: (tip.topic, tip.partition) for tip in words}
        starts = await self.disk.log_start([*names.values()]) if names else {}
        local = await self.disk.local_log_start([*names.values()]) if names else {}
        known = {each: start for each, start in starts.items() if isinstance(start, EpochAt)}
        new = {
            names[tip]: word.leader_epoch
            for tip, word in words.items()
            if names[tip] in known and self._known(tip, word, known[names[tip]]) is None
        }
        asked = await ask_epochs(self.disk, new, known)
        told: dict[TopicIdPartition, ReportedReplica | NoAnswer] = {}
        kept = {}
        for tip, word in words.items():
            start, first = known.get(names[tip]), local.get(names[tip])
            if start is None or not isinstance(first, LocalLogStart):
                told[tip] = _why(starts.get(names[tip]), first)
                continue
            epochs = asked.get(names[tip]) or self._known(tip, word, start)
            assert epochs is not None, "the epochs are known, or were asked for"
            if isinstance(epochs, NoAnswer):
                told[tip] = epochs
                continue
            kept[tip] = word.leader_epoch, epochs
            told[tip] = ReportedReplica(epochs, start.offset, max(first.offset, start.offset))
        self._epochs = kept
        return told

    def forget(self, tip: TopicIdPartition) -> None:
        """Ask anew: the answers may be about a deleted topic of the same name."""
        self._epochs.pop(tip, None)

    def _known(self, tip: TopicIdPartition, word: Leads, start: EpochAt) -> Epochs | None:
        """The epochs of the last look, less those that retention has removed since."""
        epoch, epochs = self._epochs.get(tip, (-1, ()))
        if epoch != word.leader_epoch:
            return None
        left = truncate_from_start(epochs, start.offset)
        fits = left and left[0] == EpochEntry(start.leader_epoch, start.offset)
        return left if fits else None


def _why(*answers: EpochAt | LocalLogStart | NotLeading | NoAnswer | None) -> NoAnswer:
    for each in answers:
        if isinstance(each, NoAnswer):
            return each
    return NoAnswer("the broker does not report its log start: it may not lead the partition now")
