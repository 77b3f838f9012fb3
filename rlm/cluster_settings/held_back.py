"""The reasons why a node must not copy or delete a topic's data now, whatever its plans decide."""

from __future__ import annotations

from dataclasses import dataclass

from rlm.cluster_settings.in_force import SettingsInForce
from rlm.cluster_settings.move_hold import MoveHold
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.node_files.kill_switches import KillSwitches, Switch
from rlm.stores.clock_check import ClockCheck
from rlmm.manager.manager import RemoteLogMetadataManager

NOT_RECONCILED = (
    "the metadata was restarted from a snapshot and not compared with the store yet: run "
    "`strandline reconcile`"
)
NOT_CAUGHT_UP = (
    "this node has not caught up with the metadata log since its start, and deleting may have been "
    "paused meanwhile: it waits for a quorum leader"
)


@dataclass(frozen=True, slots=True)
class HeldBack:
    """Checked before each copy and delete. Each method returns the reason to wait in a sentence;
    None if the step is allowed.
    """

    metadata: RemoteLogMetadataManager
    switches: KillSwitches
    clock: ClockCheck
    settings: SettingsInForce

    @property
    def move(self) -> MoveHold:
        """The hold on delegated topics in some phases of the move from Kafka's own
        metadata topic.
        """
        return MoveHold(self.metadata)

    def copying(self, topic: str) -> str | None:
        """The reason why the topic must not be copied: a pause by its policy, the node's switch or
        the cluster's settings, or a phase of the move.
        """
        if self.metadata.topic_policy(topic).copy_paused:
            return (
                f"copying of {topic} is paused by its policy; `strandline resume copying --topic "
                f"{topic}` ends that"
            )
        return self._paused(Switch.COPYING) or self.move.topic(topic)

    def deleting(self, topic: str) -> str | None:
        """The reason why the topic's data must not be deleted, the first of: a view that has not
        caught up since the start, a phase of the move, a restart from a snapshot that is not
        reconciled, foreign writes to Kafka's metadata topic, a clock in doubt, a pause of deletes.
        """
        if not self.metadata.is_caught_up():
            return NOT_CAUGHT_UP
        held = self.move.topic(topic)
        if held is not None:
            return held
        if self._not_reconciled():
            return NOT_RECONCILED
        shadow = self.metadata.shadow()
        if shadow is not None and shadow.foreign:
            return f"a foreign program writes to Kafka's metadata topic: {shadow.foreign}"
        return self.clock.trouble() or self.clock.set_ahead() or self.deleting_paused(topic)

    def deleting_paused(self, topic: str) -> str | None:
        """The reason of a pause by the node's switch, the cluster's settings or the
        topic's policy.
        """
        paused = self._paused(Switch.DELETING)
        if paused is None and self.metadata.topic_policy(topic).delete_paused:
            return (
                f"deleting of {topic} is paused by its policy; `strandline resume deleting --topic "
                f"{topic}` ends that"
            )
        return paused

    def _paused(self, switch: Switch) -> str | None:
        return self.switches.text(switch) or self.settings.pause_text(switch)

    def problems(self) -> tuple[NodeProblem, ...]:
        """Reasons that concern more than a topic; the switches report their own."""
        found = [*self.settings.problems(), *self.move.problems()]
        clock_trouble = self.clock.trouble() or self.clock.set_ahead()
        if clock_trouble is not None:
            found.append(NodeProblem(ProblemArea.CLOCK, None, clock_trouble))
        if self._not_reconciled():
            text = f"nothing is deleted: {NOT_RECONCILED}"
            found.append(NodeProblem(ProblemArea.DELETION, None, text))
        return tuple(found)

    def _not_reconciled(self) -> bool:
        restart = self.metadata.restart()
        return restart is not None and not restart.is_reconciled
