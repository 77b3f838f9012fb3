"""Two nodes for the routes: one that lives, and one that is silent."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from kafka_formats.kafka_uuid import Uuid
from rlmm.migration_phase import NO_MIGRATION, Migration
from rlmm.records.control_records import NodeRecord, NodeRemoved
from rlmm.records.node_facts import NodeFacts, Program, ReadAddress
from rlmm.rows.nodes import Liveness, RegisteredNode

LIVE_NODE = RegisteredNode(
    1, Uuid(b"directory-one..."), 3, 40, 60, 1_700_000_000_000,
    facts=NodeFacts(
        ReadAddress("n1", 19_092, "zone-a"), Program("0.1.0", 1, 1), "https://n1:9480", "n1:9481", 2
    ),
)  # fmt: skip
FENCED_NODE = RegisteredNode(
    7, Uuid(b"directory-seven."), 1, 50, 50, 1_700_000_000_500, liveness=Liveness.FENCED,
    liveness_ms=1_700_000_009_000,
)  # fmt: skip


@dataclass
class FakeNodes:
    """The registered nodes of a metadata manager, and the quorum's leader among them; `not_removed`
    refuses to remove one.
    """

    nodes: tuple[RegisteredNode, ...] = (LIVE_NODE, FENCED_NODE)
    removed: list[NodeRemoved] = field(default_factory=list)
    not_removed: Exception | None = None
    leader_id: int = 1
    move: Migration = NO_MIGRATION

    def migration(self) -> Migration:
        return self.move

    def registered_nodes(self) -> tuple[RegisteredNode, ...]:
        return self.nodes

    def registered_node(self, node_id: int, /) -> RegisteredNode | None:
        return next((each for each in self.nodes if each.node_id == node_id), None)

    async def record_node(self, record: NodeRecord, /, *, deadline_s: float = 1.0) -> int:
        assert isinstance(record, NodeRemoved)
        if self.not_removed is not None:
            raise self.not_removed
        self.removed.append(record)
        self.nodes = tuple(
            replace(each, liveness=Liveness.REMOVED) if each.node_id == record.node_id else each
            for each in self.nodes
        )
        return 1
