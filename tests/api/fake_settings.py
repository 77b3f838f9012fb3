"""The cluster's settings of a node's fake metadata, by the rules of the real one; fake disks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from rlm.cluster_settings.in_force import SettingsInForce
from rlm.copy.work_table import LocalTopic
from rlm.leadership.topic_filter import TopicFilter
from rlmm.apply.apply import apply
from rlmm.apply.outcome import raise_unless_done
from rlmm.metadata_log import CommittedRecord
from rlmm.records.control_records import ClusterSetting
from rlmm.records.records import encode
from rlmm.rows.cluster_settings import SettingRow, all_settings
from rlmm.rows.rows import MemoryRows

SET_MS = 1_700_000_000_000


@dataclass(kw_only=True)
class FakeSettings:
    """`never_applies`: no change is ever answered."""

    applied_offset: int = 41
    never_applies: bool = False
    settings_rows: MemoryRows = field(default_factory=MemoryRows)

    def cluster_settings(self) -> tuple[SettingRow, ...]:
        return all_settings(self.settings_rows)

    async def set_cluster_setting(self, record: ClusterSetting, *, deadline_s: float = 0) -> int:
        if self.never_applies:
            await asyncio.Event().wait()
        self.applied_offset += 1
        proposal = encode(record)
        committed = CommittedRecord(
            self.applied_offset, 1, SET_MS, proposal.control_type, proposal.value
        )
        applied = apply(self.settings_rows, committed)
        self.settings_rows.write(applied.writes)
        raise_unless_done(applied.outcome, self.applied_offset)
        return self.applied_offset

    def shadow(self) -> None:
        """No move was begun."""

    def shadow_lag(self) -> None:
        """There is none without a move."""


def in_force(metadata: FakeSettings) -> SettingsInForce:
    """On node 1, whose file names payments."""
    return SettingsInForce(metadata.cluster_settings, 1, TopicFilter(("payments",)))


class FakeDisks:
    """The log directories of a fake node."""

    def local_topics(self) -> Sequence[LocalTopic]:
        return [LocalTopic("logs.web", 3, 7, 7_000), LocalTopic("payments", 1, 2, 900)]
