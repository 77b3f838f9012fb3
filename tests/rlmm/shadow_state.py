"""A second node: it starts from a snapshot, applies in steps of its own, and must agree."""

from __future__ import annotations

from random import Random

from rlmm.apply.apply import apply
from rlmm.apply.usual_adds import judged
from rlmm.metadata_log import CommittedRecord
from rlmm.rows.rows import MemoryRows, OverlayRows
from rlmm.rows.snapshot_rows import from_proposals, to_proposals
from rlmm.view.view import DIGEST_BYTES, digest_of, row_digest
from tests.rlmm.state_world import World

NAME = "same_offset_same_state"


class ShadowState:
    """`follow` after every record of the world."""

    def __init__(self, world: World, random: Random) -> None:
        """The world's records lead on from its rows as they are now."""
        self.world = world
        self.random = random
        self.base = world.rows.items()
        self.rows = MemoryRows(self.base)
        self.applied = len(world.records)
        self.digest = sum(row_digest(*row) for row in self.base)

    def follow(self) -> None:
        """Now and then: apply what came since, in one step as a node does, and compare."""
        if self.random.random() < 0.8:
            return
        self._apply(self.world.records[self.applied :])
        self.applied = len(self.world.records)
        self.compare(self.rows)
        found = (self.digest % 2**128).to_bytes(DIGEST_BYTES, "big")
        assert found == digest_of(self.rows.items()), f"{NAME}: the digest as it is kept"
        if self.random.random() < 0.2:
            self.rows = MemoryRows(from_proposals(to_proposals(self.world.rows.items())))

    def _apply(self, records: list[CommittedRecord]) -> None:
        overlay = OverlayRows(self.rows)
        for _ in judged(overlay, records):
            pass
        for key, old, value in overlay.changes():
            assert old == self.rows.get(key), NAME
            self.digest -= 0 if old is None else row_digest(key, old)
            self.digest += 0 if value is None else row_digest(key, value)
        self.rows.write(overlay.writes())

    def compare(self, rows: MemoryRows) -> None:
        assert digest_of(rows.items()) == digest_of(self.world.rows.items()), NAME

    def check_replay(self) -> None:
        """From the first record on."""
        rows = MemoryRows(self.base)
        for record in self.world.records:
            rows.write(apply(rows, record).writes)
        self.compare(rows)
