"""The part of each node in a move: it records its broker's acknowledgement, and the quorum's leader
carries out the attempt in progress.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_formats.errors import StrandlineError
from rlm.control.node_problem import NodeProblem, ProblemArea, ProblemLog
from rlm.control.surroundings import Surroundings
from rlm.control.task_watch import Loop
from rlm.migration.acknowledgements import Acknowledgement
from rlm.migration.switching import Attempt, BrokersPort, LogPort, Switching, Time
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.migration_phase import FROZEN_PHASES
from rlmm.records.control_records import MigrationAcknowledged

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 0.25
PAUSE_TOLD_AFTER_S = 30.0
"""Time after which a switch, which pauses copying, is reported as a problem, in seconds."""
ACKNOWLEDGING = "acknowledging the phase of the move"
CARRYING_OUT = "carrying the move out"


@dataclass(slots=True)
class Moving:
    """The tasks of a move; one per node. `last` returns the last call of its broker's bridge. A
    node without a broker records no acknowledgement, and hands an attempt over to a node that did.
    `ended` is the last attempt that this node carried out.
    """

    metadata: RemoteLogMetadataManager
    around: Surroundings
    last: Callable[[], Acknowledgement | None]
    log: LogPort
    brokers: BrokersPort
    deadline_s: float
    has_broker: bool = True
    attempt: Attempt | None = None
    ended: Attempt | None = None
    _log: ProblemLog = field(default_factory=lambda: ProblemLog(logger), init=False)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The loops, which run as long as the node."""
        carry_out = Loop("carry a move out", self.carry_out, self.problems)
        if not self.has_broker:
            return (carry_out,)
        return (Loop("acknowledge the phases of a move", self.acknowledge), carry_out)

    async def acknowledge(self) -> None:
        """Record that the broker has stopped writing whenever its bridge reports it; runs for
        ever.
        """
        while True:
            try:
                await self._acknowledge()
                self._log.works(ACKNOWLEDGING)
            except StrandlineError as error:
                self._log.failed(ACKNOWLEDGING, error)
            await self.around.ambient.sleep(LOOK_EVERY_S)

    async def _acknowledge(self) -> None:
        stands, last = self.metadata.migration(), self.last()
        if stands.phase not in FROZEN_PHASES or last is None or not last.confirms(stands):
            return
        if last.broker_id not in self.metadata.migration_acknowledged(stands.since):
            await self.metadata.record_move(MigrationAcknowledged(last.broker_id, stands.since))

    async def carry_out(self) -> None:
        """Carry out each attempt while this node leads the quorum; runs for ever."""
        ambient = self.around.ambient
        switching = Switching(
            self.log, self.brokers, Time(ambient.monotonic, ambient.sleep), self.deadline_s,
            self.has_broker,
        )  # fmt: skip
        while True:
            try:
                await self._carry_out(switching)
            except StrandlineError as error:  # such as while a snapshot replaces the view
                self._log.failed(CARRYING_OUT, error)
            await ambient.sleep(LOOK_EVERY_S)

    async def _carry_out(self, switching: Switching) -> None:
        self.attempt = switching.begin(self.ended)
        if self.attempt is None:
            await switching.look_on()
            return
        self.ended = self.attempt
        logger.info("the move: this node carries out %s", self.attempt.standing.phase.name)
        try:
            await switching.run(self.attempt)
            self._log.works(CARRYING_OUT)
        except Exception as error:  # noqa: BLE001 - logged, and the attempt begins again
            self._log.failed(CARRYING_OUT, error)
            self.attempt.trouble = f"{type(error).__name__}: {error}"
        stands = self.metadata.migration()
        logger.info("the move is in phase %s: %s", stands.phase.name, stands.why)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problem that an attempt takes longer than PAUSE_TOLD_AFTER_S."""
        attempt = self.attempt
        if attempt is None:
            return ()
        waited = self.around.ambient.monotonic() - attempt.begun
        if waited < PAUSE_TOLD_AFTER_S:
            return ()
        text = f"{attempt.standing.phase.name} for {waited:.0f} s, {attempt.step}"
        trouble = f": {attempt.trouble}" if attempt.trouble else ""
        return (NodeProblem(ProblemArea.MIGRATION, None, text + trouble),)
