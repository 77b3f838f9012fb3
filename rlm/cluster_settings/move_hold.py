"""Holds delegated topics while the truth about them is in Kafka's own metadata topic, or frozen.

The one rule of that for a node's plans; records are judged by `held_by_move` in
`rlmm/apply/outcome.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.control.why_not import WhyNot
from rlm.leadership.leadership import StandBy
from rlmm.manager.metadata_reads import MetadataReads
from rlmm.migration_phase import MigrationPhase
from rlmm.partition_state import Mode

MOVE = "move"
_PHASES = {
    MigrationPhase.KAFKA: "Kafka's own metadata topic has the truth",
    MigrationPhase.SWITCHING: "Kafka's own metadata topic is being imported",
    MigrationPhase.BACK: "the metadata log is frozen until Kafka's own topic has all of it",
}


@dataclass(frozen=True, slots=True)
class MoveHold:
    """The hold on delegated topics during a move. Methods return its reason, or None
    without one.
    """

    metadata: MetadataReads

    def all_delegated(self) -> str | None:
        """The reason why nothing of a delegated topic is claimed, copied or deleted now."""
        migration = self.metadata.migration()
        if not migration.is_held:
            return None
        return (
            f"delegated topics are held: the move is in phase {migration.phase.name}, where "
            f"{_PHASES[migration.phase]}; `strandline migrate status` shows more"
        )

    def topic(self, name: str) -> str | None:
        """`all_delegated`, if a partition of the topic is delegated."""
        held = self.all_delegated()
        if held is None:
            return None
        partitions = (met.partition for met in self.metadata.met_partitions(name))
        states = map(self.metadata.partition_state, partitions)
        delegated = any(state is not None and state.mode is Mode.DELEGATED for state in states)
        return held if delegated else None

    def stand_by(self) -> StandBy | None:
        """The decision to stand by for a delegated partition; None without a hold. In phase BACK
        copies under way may finish, since the claims stay and only the rows are frozen.
        """
        held = self.all_delegated()
        if held is None:
            return None
        frozen = self.metadata.migration().phase is MigrationPhase.BACK
        return StandBy(WhyNot.DELEGATED, held, cancel=not frozen)

    def problems(self) -> tuple[NodeProblem, ...]:
        """The problem that delegated topics are held; a switch ends within half a minute."""
        held = self.all_delegated()
        return () if held is None else (NodeProblem(ProblemArea.PLUGIN, MOVE, held),)
