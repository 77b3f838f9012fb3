"""A broker's remote log manager as real ones behave, against a node over HTTP.

It believes what it is told: an empty list moves its log start to its first local offset, what lies
below that is deleted from the tier, what counts as copied is deleted locally, and a look-up without
a segment resets the consumer. So a node that says "nothing there" wrongly loses records, and `lost`
says which.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from rlm.delegated import wire
from rlm.leadership.unseen_disk import EpochAt
from rlmm.segment import RemoteLogSegmentMetadata, SegmentState
from tests.rlm.delegated.delegating import COUNTED
from tests.rlm.delegated.plugin_client import PluginClient, ToldError, files_of, segment
from tests.rlm.fake_broker import FakeBroker
from tests.rlm.kafka_logs import KafkaLog

SEGMENT = 10
LOCAL_SEGMENTS = 2
"""Sealed segments that local retention keeps."""
TOTAL_SEGMENTS = 8
"""Sealed segments that retention keeps, the tier's included."""
USUAL = frozenset({"retry_later", "fenced", "conflict", "outcome_unknown"})
TIERED = (SegmentState.COPY_SEGMENT_FINISHED,)


@dataclass(slots=True)
class BrokerModel:
    """A leader of one partition, which answers its node as `answers`. `expired`: the offset that
    retention may have come to. `copied` is what it takes for copied; it asks once in a life.
    """

    log: KafkaLog
    chance: Random
    answers: FakeBroker
    end: int = 0
    log_start: int = 0
    local_start: int = 0
    expired: int = 0
    session: int = 1
    segments: int = 0
    is_new_leader: bool = True
    copied: int = -1
    written: dict[int, bytes] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    async def call(self, plugin: PluginClient, task: str) -> None:
        """Run a task as a thread of the broker does: an error ends this run of it."""
        try:
            await getattr(self, task)(plugin)
        except ToldError as told:
            if told.reason == "ANNOUNCE":
                plugin.session = self.session
                await plugin.announce(self.log.partition)
            if told.kind not in USUAL:
                raise

    def write(self) -> None:
        """Roll a segment."""
        base = self.end
        self.end += SEGMENT
        self.log.write(base, self.end, end=self.end + 1)
        self.written[base] = self.log.log_bytes(base)

    def answer_by(self, broker: FakeBroker) -> None:
        """Answer the node as this broker from now on."""
        self.answers = broker
        broker.config = COUNTED
        self._start_at(self.log_start)
        self._takes_for_copied(self.copied)

    def restart(self) -> None:
        """The log stays; the session and what was copied are asked anew."""
        self.session += 1
        self.is_new_leader = True
        self._takes_for_copied(-1)

    async def copy(self, plugin: PluginClient) -> None:
        """RLMCopyTask: log start of a new leader, then every sealed segment above the highest."""
        tip = self.log.partition
        if not (await plugin.ready(tip))[0]:
            return
        if self.is_new_leader:
            await self._find_log_start(plugin)
            self.is_new_leader = False
        highest = await plugin.highest(tip, 0)
        following = self.local_start if highest is None else highest + 1
        self._takes_for_copied(-1 if highest is None else highest)
        for base in range(max(following, self.local_start), self.end, SEGMENT):
            self.segments += 1
            row = segment(tip, 1_000 + self.segments, base, base + SEGMENT - 1)
            row = replace(row, size_bytes=len(self.written[base]))
            await plugin.add(row)
            if self.chance.random() < 0.1:
                return  # the task was cancelled: its next run begins anew
            custom = await plugin.copy(files_of(self.log, row))
            await plugin.update(row, SegmentState.COPY_SEGMENT_FINISHED, custom)
            self._takes_for_copied(row.end_offset)

    async def _find_log_start(self, plugin: PluginClient) -> None:
        rows = await self._list(plugin, 0)
        first = rows[0].start_offset if rows else self.local_start
        self._start_at(first)

    async def retain_locally(self, _plugin: PluginClient) -> None:
        """Local retention: only what counts as copied goes."""
        while (
            self.local_start + SEGMENT - 1 <= self.copied
            and self.local_start + LOCAL_SEGMENTS * SEGMENT < self.end
        ):
            self.log.delete_segment(self.local_start)
            self.log.set_epochs((0, 0))  # with a tier the epochs stay from the log start on
            self.local_start += SEGMENT

    async def expire(self, plugin: PluginClient) -> None:
        """RLMExpirationTask: breach of log start, then retention by size, in segments."""
        if not (await plugin.ready(self.log.partition))[0]:
            return
        rows = await self._list(plugin)
        self.expired = max(self.expired, self.end - TOTAL_SEGMENTS * SEGMENT)
        local = (self.end - max(self.copied + 1, self.local_start)) // SEGMENT
        breached = local + sum(row.state in TIERED for row in rows) - TOTAL_SEGMENTS
        going, log_start = [], self.log_start
        for row in rows:
            passed = row.end_offset < self.log_start
            if row.state in TIERED and not passed:
                if breached <= 0:
                    break
                breached -= 1
                log_start = max(log_start, row.end_offset + 1)
            if row.state in TIERED or row.state is SegmentState.DELETE_SEGMENT_STARTED:
                going.append(row)
        self._start_at(log_start)
        for row in going:
            if self.chance.random() < 0.1:
                return  # the task was cancelled: its next run begins anew
            await plugin.update(row, SegmentState.DELETE_SEGMENT_STARTED)
            await plugin.delete(row)
            await plugin.update(row, SegmentState.DELETE_SEGMENT_FINISHED)

    def _takes_for_copied(self, offset: int) -> None:
        self.copied = self.answers.copied = offset

    def _start_at(self, log_start: int) -> None:
        self.log_start = max(self.log_start, log_start)
        self.answers.tiered_start = EpochAt(0, self.log_start)

    async def _list(
        self, plugin: PluginClient, epoch: int = wire.ALL_EPOCHS
    ) -> list[RemoteLogSegmentMetadata]:
        """All rows of one tag."""
        while True:
            tag, rows, cursor = await plugin.page(self.log.partition, epoch)
            found, tags = list(rows or ()), {tag}
            while cursor is not None:
                tag, rows, cursor = await plugin.page(self.log.partition, epoch, cursor=cursor)
                found += rows or ()
                tags.add(tag)
            if len(tags) == 1:
                return found

    async def consume(self, plugin: PluginClient) -> None:
        """A consumer at a random offset of the log, and a read_committed one."""
        if self.log_start > self.expired:
            self.lost.append(f"log start {self.log_start}, retention comes to {self.expired}")
        bases = range(self.log_start, self.end, SEGMENT)
        if not bases:
            return
        base = self.chance.choice(bases)
        if base >= self.local_start:
            return
        tip = self.log.partition
        row = await plugin.look_up(tip, 0, base + self.chance.randrange(SEGMENT))
        if row is None:
            self.lost.append(f"no segment serves {base}")
            return
        if await plugin.look_up(tip, 0, base, with_txn_index=True) is None:
            self.lost.append(f"no transaction index from {base} on")
        data = await plugin.fetch(row, 0, row.size_bytes)
        if data != self.written[base]:
            self.lost.append(f"the bytes at {base} are others")


TASKS = ("copy", "copy", "retain_locally", "expire", "consume", "consume")
