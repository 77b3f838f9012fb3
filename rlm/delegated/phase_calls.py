"""Answers the bridge of this node's broker, which asks for the phase of the move (`phase` in
docs/BROKER_PROTOCOL.md), and remembers its last question.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.control.surroundings import Surroundings
from rlm.delegated.phase_bodies import decode_phase_asked, encode_phase
from rlm.delegated.plugin import Plugin
from rlm.delegated.sessions import Expected, SessionRefused, check_broker
from rlm.migration.acknowledgements import Acknowledgement
from rlmm.manager.manager import RemoteLogMetadataManager
from rlmm.migration_phase import Migration, MigrationPhase
from rlmm.partition_state import Mode

CATCH_UP_DEADLINE_S = 2.0
LOOK_EVERY_S = 30.0
"""The shortest pause between two searches for a delegated partition, while there is no move."""
_TOPICS = frozenset({MigrationPhase.NONE, MigrationPhase.KAFKA})


@dataclass(slots=True)
class PhaseCalls:
    """The answers to a broker's bridge. `last` is its last request; None: it has sent none."""

    plugin: Plugin
    metadata: RemoteLogMetadataManager
    around: Surroundings
    last: Acknowledgement | None = None
    _looked: tuple[float, str | None] | None = None

    async def answer(self, body: bytes) -> bytes:
        """Answer the phase in force. RetryLater: no barrier of the metadata log confirms that this
        view is current; by an outdated phase the broker would still write to Kafka's topic after a
        switch. SessionRefused: not this node's broker, or no move has begun although a partition is
        delegated, which Kafka's topic has no records of.
        """
        asked = decode_phase_asked(body)
        check_broker(asked.kafka_cluster_id, asked.broker_id, self.plugin.expected)
        stands, session = self.metadata.migration(), self.plugin.session
        self.last = Acknowledgement(
            asked.broker_id, "" if session is None else session.plugin_version, asked.seen,
            asked.outstanding, stands.since, self.around.ambient.monotonic(),
        )  # fmt: skip
        if stands.phase in _TOPICS:
            await self.metadata.catch_up(deadline_s=CATCH_UP_DEADLINE_S)
            stands = self.metadata.migration()
        self._check_move(stands, asked.kafka_cluster_id)
        phase = max(stands.phase, MigrationPhase.KAFKA)
        return encode_phase(self.metadata.applied_offset, phase, stands.since)

    def _check_move(self, stands: Migration, kafka_cluster_id: str) -> None:
        if stands.phase is not MigrationPhase.NONE:
            move_of = Expected(stands.kafka_cluster_id, self.plugin.expected.node_id)
            check_broker(kafka_cluster_id, move_of.node_id, move_of)
            return
        tip = self._delegated()
        if tip is not None:
            raise SessionRefused(
                f"{tip} is delegated, and no move from Kafka's metadata topic has begun: that "
                "topic has no records of it. Use StrandlineMetadataManager, without the bridge",
                reason="DELEGATED",
            )

    def _delegated(self) -> str | None:
        """A delegated partition's name, as of the last search; None: there was none."""
        now_s = self.around.ambient.monotonic()
        if self._looked is None or now_s - self._looked[0] >= LOOK_EVERY_S:
            found = (tip for tip in self.metadata.partitions() if self._is_delegated(tip))
            self._looked = now_s, next(map(str, found), None)
        return self._looked[1]

    def _is_delegated(self, tip: TopicIdPartition) -> bool:
        state = self.metadata.partition_state(tip)
        return state is not None and state.mode is Mode.DELEGATED
