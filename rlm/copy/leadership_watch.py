"""Asks the node's own broker often for its leadership, and acts at once on changes.

The log directories are scanned every few seconds, but a move of the leadership must be noticed
sooner: a copy that lost its leadership is cancelled, and a newly led partition is scanned, claimed
and copied. The offset in the broker's answer is not used here: only a scan reads the directory's
topic id before and after the answer, so that an offset never belongs to a different topic of the
same name.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_formats.errors import InvalidRequest
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Ambient
from rlm.copy.partition_work import PartitionWork
from rlm.copy.scanner import BrokerPort
from rlm.leadership.announced import Announced, NoPlugin
from rlm.leadership.leadership import BrokerWord, Leads, NotLeading

PARTITIONS_PER_QUESTION = 250
"""Limit of the partitions in a request: it is encoded and decoded in about a millisecond on the
event loop.
"""

PAUSE_TIMES_PASS = 10
"""Factor of the pause: at least this many times the duration of the pass before, so that many
partitions do not load the broker.
"""

LOOKS_AFTER_GAIN = 8
"""Limit of the early scans for a newly led partition; then it waits for the regular ones."""

CLOCK_S = 0.001
"""The shortest pause: clocks and timers round."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Gained:
    """A partition newly led at this epoch; `looks` more early scans are made for it."""

    leader_epoch: int
    looks: int = LOOKS_AFTER_GAIN


@dataclass(slots=True)
class LeadershipWatch:
    """`works` are this node's partitions; `cancel_if_lost` ends a copy that is no longer allowed;
    `look` scans all partitions at once, also those that the broker's plug-in has just announced.
    """

    broker: BrokerPort | None
    works: Callable[[], Iterable[PartitionWork]]
    cancel_if_lost: Callable[[PartitionWork], None]
    look: Callable[[], Awaitable[None]]
    ambient: Ambient
    interval_s: float
    announced: Announced = field(default_factory=NoPlugin)
    _gained: dict[TopicIdPartition, _Gained] = field(default_factory=dict)

    async def run(self) -> None:
        """Run until cancelled. A failed pass is logged; the regular scans continue. Without a
        broker the leadership never moves, so only announcements of a plug-in are followed.
        """
        while True:
            took_s = 0.0
            if self.broker is not None:
                took_s = await self._timed(partial(self.run_pass, self.broker))
            await self._pause(max(self.interval_s, PAUSE_TIMES_PASS * took_s))

    async def _pause(self, pause_s: float) -> None:
        """Wait for the next pass. Partitions announced meanwhile are scanned at once, since
        nothing was read of them before.
        """
        until_s, pause_s = self.ambient.monotonic() + pause_s, self._until_news(pause_s, 0.0)
        while pause_s > 0:
            await self.ambient.sleep(pause_s)
            looked_s = 0.0
            if self.announced.take_news():
                looked_s = await self._timed(self.look)
            pause_s = self._until_news(until_s - self.ambient.monotonic(), looked_s)

    def _until_news(self, left_s: float, looked_s: float) -> float:
        """The time until announcements are checked: the whole pause if there is no plug-in; 0 at
        its end. After a scan that took `looked_s` it is at least as long as that.
        """
        if left_s < CLOCK_S:
            return 0.0
        has_plugin = len(self.announced.leaders) > 0
        return min(left_s, max(self.interval_s, looked_s)) if has_plugin else left_s

    async def _timed(self, work: Callable[[], Awaitable[None]]) -> float:
        """Run `work`; returns its duration in seconds, also if it failed."""
        started = self.ambient.monotonic()
        try:
            await work()
        except InvalidRequest as error:  # a missing disk: the scans report it as a problem
            logger.warning("the leadership is followed again later: %s", error)
        except Exception:
            logger.exception("following the leadership failed; it is tried again")
        return self.ambient.monotonic() - started

    async def run_pass(self, broker: BrokerPort) -> None:
        """Ask for every partition on this node's disks, and act on changes."""
        watched = [work for work in self.works() if _is_watched(work)]
        for first in range(0, len(watched), PARTITIONS_PER_QUESTION):
            await self._ask(broker, watched[first : first + PARTITIONS_PER_QUESTION])
        for work in watched:
            if work.task is not None and not work.task.done():
                self.cancel_if_lost(work)  # a different node's claim in the log ends it as well
        self._forget_what_is_claimed(watched)
        if self._looks_left() or self.announced.take_news():
            await self.look()

    def _looks_left(self) -> bool:
        """True if an early scan is due. They are counted, since the claim may fail for a different
        reason.
        """
        wanted = any(gained.looks for gained in self._gained.values())
        self._gained = {
            partition: replace(gained, looks=max(0, gained.looks - 1))
            for partition, gained in self._gained.items()
        }
        return wanted

    async def _ask(self, broker: BrokerPort, works: Sequence[PartitionWork]) -> None:
        names = [(work.partition.topic, work.partition.partition) for work in works]
        answers = await broker.leadership(names)
        for name, work in zip(names, works, strict=True):
            self._hear(work, answers.get(name))

    def _hear(self, work: PartitionWork, word: BrokerWord | None) -> None:
        """Take the broker's answer. A missing answer changes nothing here: the claim fences, and
        the next scan reports it.
        """
        if isinstance(word, NotLeading) and isinstance(work.word, Leads):
            work.word = word
            self._gained.pop(work.partition, None)
            self.cancel_if_lost(work)
        elif isinstance(word, Leads) and _is_news(work, word):
            known = self._gained.get(work.partition)
            if known is None or known.leader_epoch != word.leader_epoch:
                self._gained[work.partition] = _Gained(word.leader_epoch)

    def _forget_what_is_claimed(self, watched: Iterable[PartitionWork]) -> None:
        here = {work.partition: work for work in watched}
        self._gained = {
            partition: gained
            for partition, gained in self._gained.items()
            if partition in here and not _is_claimed(here[partition], gained)
        }


def _is_watched(work: PartitionWork) -> bool:
    return work.local is not None and work.left_out is None and work.unusable is None


def _is_news(work: PartitionWork, word: Leads) -> bool:
    """True for a different leadership than the last scan found."""
    before = work.word
    return not isinstance(before, Leads) or before.leader_epoch != word.leader_epoch


def _is_claimed(work: PartitionWork, gained: _Gained) -> bool:
    """True if a scan found the new leadership, and this node holds its claim."""
    return (
        isinstance(work.word, Leads)
        and work.word.leader_epoch >= gained.leader_epoch
        and work.claim is not None
        and work.claim.leader_epoch >= gained.leader_epoch
    )
