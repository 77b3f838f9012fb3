"""The trash of the one partition that fake nodes know."""

from __future__ import annotations

from dataclasses import dataclass

from rlmm.partition_state import NOTHING_EXPIRES, Expiry, ExpiryHold
from rlmm.records.control_records import ExpiryTakenBack


@dataclass(kw_only=True)
class FakeTrash:
    """Takes back what `expiry` has."""

    expiry: Expiry = NOTHING_EXPIRES

    async def take_expiry_back(self, record: ExpiryTakenBack, *, deadline_s: float = 0) -> int:
        assert record.replaces_offset == self.expiry.offset
        hold = ExpiryHold(-1, record.who, record.why, 1_000) if record.hold else None
        self.expiry = Expiry((), hold, 50)
        return 50
