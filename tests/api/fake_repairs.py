"""Repairs that end at once."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_formats.errors import Conflict, NotFound
from kafka_formats.kafka_uuid import Uuid
from kafka_formats.topic_id_partition import TopicIdPartition
from rlm.repair.repair_plan import RepairAction
from rlm.repair.repair_run import (
    DamagedSegmentRepair,
    Outcome,
    RepairRequest,
    RepairRun,
    RepairState,
)
from rlm.repair.repairs import Repairs
from rlmm.segment import RemoteLogSegmentId
from tests.api.fake_collector import JOB_ID
from tests.api.fake_collector import FakeCollector as FakeCollector

REPAIR_ID = JOB_ID
DAMAGED = RemoteLogSegmentId(
    TopicIdPartition("orders", Uuid(b"topic-id-16bytes"), 0), Uuid(b"damaged-segment-")
)


@dataclass
class FakeRepairs(Repairs):
    """As `rlm.repair.repairs.Repairs`."""

    last: RepairRun | None = None
    runs: bool = False

    def start(self, request: RepairRequest, by: str, /) -> RepairRun:
        if self.runs:
            raise Conflict("a repair is under way", reason="RUNNING")
        self.last = RepairRun(REPAIR_ID, request, by, 1_000, RepairState.FINISHED, 2_000)
        self.last.add(
            DamagedSegmentRepair(
                DAMAGED, 10, 19, 100, ".log is gone", RepairAction.COPY_ANEW, Outcome.WOULD,
                "it serves 10 to 19", "the broker's segments",
            )
        )  # fmt: skip
        self.last.checked = 3
        return self.last

    def run_of(self, id_: Uuid, /) -> RepairRun:
        if self.last is None or self.last.id != id_:
            raise NotFound(f"no repair {id_}")
        return self.last
