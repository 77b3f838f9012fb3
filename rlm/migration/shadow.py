"""Keeps Kafka's own metadata topic up to date with the metadata log after a move, for a way back.

Every node has this task, but only that of the quorum's leader works, in the phases QUORUM and BACK.
A deposed leader that still writes does no harm, see `shadow_writer.py`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace

from kafka_formats.errors import Conflict, Fenced, RetryLater
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.migration.shadow_plan import TransactionLimits
from rlm.migration.shadow_writer import ShadowTopic, ShadowWriter
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.metadata_shadow import OutboxRow, Shadow, TopicPosition
from rlmm.migration_phase import MigrationPhase
from rlmm.records.control_records import ShadowWritten
from rlmm.records.kafkas_records import partition_of_value

logger = logging.getLogger(__name__)

WORK = "keeping Kafka's metadata topic up to date with the metadata log"
OVER = "the move is DONE"


@dataclass(frozen=True, slots=True)
class ShadowLimits:
    """The timing of the task. `poll_s`: pause between two rounds while this node writes; `idle_s`:
    pause otherwise. `look_after_s` after a change, and every `look_every_s`, the topic is read to
    its end and the written changes are reported; at once if so many are unreported that further
    ones are not seen. `deadline_s`: limit of a round. `retry_s`: pause after a failed round;
    `fenced_s`: pause after the writer of a different node fenced this one. `told_after_s`: a
    failure that lasts longer is a problem. `hand_over_after_s`: a failure that lasts longer makes
    the node hand over, again every `hand_over_every_s`, or every `hand_over_retry_s` while no node
    can take over. `transaction` limits the work at a time on the event loop, `transactions_max` the
    transactions of a round.
    """

    poll_s: float = 0.1
    idle_s: float = 1.0
    look_after_s: float = 1.0
    look_every_s: float = 10.0
    deadline_s: float = 300.0
    retry_s: float = 1.0
    fenced_s: float = 10.0
    told_after_s: float = 30.0
    hand_over_after_s: float = 30.0
    hand_over_every_s: float = 600.0
    hand_over_retry_s: float = 10.0
    transactions_max: int = 50
    transaction: TransactionLimits = field(
        default_factory=lambda: TransactionLimits(rows_max=100, looked_at_max=500)
    )


@dataclass(slots=True)
class ShadowTask:
    """The task that keeps the topic up to date; one per node. `new_topic` makes the port to the
    topic when it is needed. `hand_over` transfers the leadership to a node beside a broker that
    acknowledged a phase since the given metadata offset; False if none can lead.
    """

    metadata: RemoteLogMetadataManager
    new_topic: Callable[[], ShadowTopic]
    around: Surroundings
    hand_over: Callable[[int], Awaitable[bool]]
    _: KW_ONLY
    limits: ShadowLimits = field(default_factory=ShadowLimits)
    _writer: ShadowWriter | None = field(default=None, init=False)
    _next_look_at: float = field(default=0.0, init=False)
    _next_try_at: float = field(default=0.0, init=False)
    _next_hand_over_at: float = field(default=0.0, init=False)
    _trouble: str = field(default="", init=False)
    _trouble_since: float = field(default=0.0, init=False)
    _log: ProblemLog = field(default_factory=lambda: ProblemLog(logger), init=False)

    async def run(self) -> None:
        """Work as long as the node runs; a failed round is logged and repeated."""
        try:
            while True:
                await self.around.ambient.sleep(await self.round())
        finally:
            await self._stop()

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problems in one line: there is no way back any more, a foreign writer writes to the
        topic, or this node can't keep it up to date.
        """
        told: list[str] = []
        with suppress(RetryLater):  # while a snapshot replaces the view
            shadow = self.metadata.shadow()
            if shadow is not None and self.metadata.migration().phase is not MigrationPhase.DONE:
                told += _of_state(shadow)
        standing = self.around.ambient.monotonic() - self._trouble_since
        if self._trouble and standing >= self.limits.told_after_s:
            told.append(f"Kafka's metadata topic is not kept up to date: {self._trouble}")
        return (NodeProblem(ProblemArea.MIGRATION, None, "; ".join(told)),) if told else ()

    async def round(self) -> float:
        """Do one round; returns the pause before the next one, in seconds."""
        try:
            return await self._round()
        except RetryLater as error:  # the view, while a snapshot replaces it
            self._log.failed(WORK, error)
            return self.limits.idle_s

    async def _round(self) -> float:
        node_id = self.around.identity.incarnation.node_id
        log = _Log(self.metadata)
        if log.shadow() is None or self.metadata.describe().leader_id != node_id:
            await self._stop()
            self._trouble = ""
            return self.limits.idle_s
        now = self.around.ambient.monotonic()
        if now < self._next_try_at:
            return min(self._next_try_at - now, self.limits.idle_s)
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                await self._step(log, now)
        except Exception as error:  # noqa: BLE001 - it is logged, and the round repeated
            pause = self._failed(error)
            await self._let_another(error)
            return pause
        self._trouble = ""
        self._log.works(WORK)
        return self.limits.poll_s

    async def _step(self, log: _Log, now: float) -> None:
        if self._writer is None:
            self._writer = ShadowWriter(
                self.new_topic(),
                log,
                partition_of_value,
                self.around.ambient.monotonic,
                limits=self.limits.transaction,
            )
        wrote = False
        for _ in range(self.limits.transactions_max):
            if await self._writer.step():
                wrote = True
            elif self._writer.needs_look:
                await self._writer.look()
                wrote = False
                self._next_look_at = now + self.limits.look_every_s
            else:
                break
            await self.around.ambient.sleep(0)
        if wrote:
            self._next_look_at = min(self._next_look_at, now + self.limits.look_after_s)
        if now >= self._next_look_at:
            await self._writer.look()
            self._next_look_at = now + self.limits.look_every_s

    def _failed(self, error: Exception) -> float:
        now = self.around.ambient.monotonic()
        text = str(error) or f"it took longer than {self.limits.deadline_s:g} s"
        if not self._trouble:
            self._trouble_since = now
        self._trouble = text
        pause = self.limits.retry_s
        if isinstance(error, Fenced):
            # The node that fenced this one may be the leader by now.
            pause = self.limits.fenced_s
        elif not isinstance(error, Conflict):
            self._log.failed(WORK, error)
        self._next_try_at = now + pause
        return min(pause, self.limits.idle_s)

    async def _let_another(self, error: Exception) -> None:
        """Hand over to a node whose broker may answer, or whose user may have the missing rights.
        In BACK the attempt does this. After fencing or a lost way back it would not help.
        """
        shadow, phase = self.metadata.shadow(), self.metadata.migration().phase
        if shadow is None or phase is not MigrationPhase.QUORUM:
            return
        if isinstance(error, Fenced | Conflict):
            return
        patient_until = self._trouble_since + self.limits.hand_over_after_s
        if self.around.ambient.monotonic() < max(patient_until, self._next_hand_over_at):
            return
        done = await self.hand_over(shadow.begun)
        pause = self.limits.hand_over_every_s if done else self.limits.hand_over_retry_s
        self._next_hand_over_at = self.around.ambient.monotonic() + pause

    async def _stop(self) -> None:
        writer, self._writer = self._writer, None
        self._next_look_at = 0.0
        if writer is not None:
            await writer.close()


def _of_state(shadow: Shadow) -> Iterator[str]:
    if shadow.foreign:
        yield (
            f"no segment is deleted: {shadow.foreign}. Stop it; then run `strandline migrate "
            "back`, which compares topic and log, or `strandline migrate finish`"
        )
    if shadow.incomplete:
        yield (
            "there is no way back to Kafka's metadata topic, which lacks changes for good: "
            f"{shadow.incomplete}. The metadata log is whole: run `strandline migrate finish`"
        )


@dataclass(frozen=True, slots=True)
class _Log:
    """`ShadowLog` over the manager."""

    metadata: RemoteLogMetadataManager

    def shadow(self) -> Shadow | None:
        shadow, phase = self.metadata.shadow(), self.metadata.migration().phase
        if shadow is None or phase in (MigrationPhase.QUORUM, MigrationPhase.BACK):
            return shadow
        if phase is MigrationPhase.DONE:
            return replace(shadow, incomplete=OVER)  # the unwritten changes are dropped
        return None

    def positions(self) -> Iterable[TopicPosition]:
        return self.metadata.topic_positions()

    def outbox(self) -> Iterator[OutboxRow]:
        return self.metadata.outbox()

    def outbox_value(self, offset: int) -> bytes | None:
        row = self.metadata.outbox_row(offset)
        return None if row is None else row.value

    def applied_offset(self) -> int:
        return self.metadata.applied_offset

    async def catch_up(self) -> None:
        await self.metadata.catch_up()

    async def report(self, report: ShadowWritten) -> None:
        await self.metadata.record_move(report)
