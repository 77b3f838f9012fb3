"""Administrators who set settings of the cluster at any node, and the check that all nodes read
them alike.

Draws from a generator of its own, so that seeds without it run as before.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from kafka_formats.errors import StrandlineError
from rlm.cluster_settings.known_settings import PAUSES, Setting, is_for, parse_value
from rlmm.partition_state import UNKNOWN_OFFSET
from rlmm.records.control_records import ClusterSetting
from rlmm.records.setting_scope import CLUSTER, ScopeKind, SettingScope, of_node, of_topic
from rlmm.rows.cluster_settings import SettingRow, all_settings

if TYPE_CHECKING:
    from sim.tier.machine import Process
    from sim.tier.world import World

PERIOD_MS = 8_000
DEADLINE_S = 10.0
Rows = tuple[SettingRow, ...]


class ClusterSettings:
    """Settings of a world, and what stood at each metadata offset."""

    def __init__(self, world: World, *, is_on: bool) -> None:
        self._world = world
        self._random = Random(f"settings {world.seed}")
        self._goes_on = self.is_on = is_on
        self._since: list[int] = [-1]
        self._stood: list[Rows] = [()]
        self.checked = 0

    def begin(self) -> None:
        """Change one now and then."""
        if not self._goes_on:
            return
        ups = [machine.up for machine in self._world.machines if machine.up is not None]
        if ups:
            self._spawn(self._random.choice(ups), *self._drawn())
        self._world.schedule.after(1 + self._random.randrange(2 * PERIOD_MS), self.begin)

    def stop(self) -> None:
        """Nothing more is set."""
        self._goes_on = False

    def heal(self, process: Process) -> None:
        """Remove all of them."""
        for row in self._stood[-1]:
            self._spawn(process, Setting(row.key), row.scope, None)

    def committed(self, offset: int) -> None:
        """Remember what stands behind the record at `offset`, which set a setting."""
        self._since.append(offset)
        self._stood.append(all_settings(self._world.auditor.reference.rows))

    def applied(self, process: Process) -> None:
        """Look at what a node reads once it has gone on behind a commit of its view."""
        if self.is_on:
            self._world.schedule.after(0, partial(self._look, process))

    def _look(self, process: Process) -> None:
        if not process.life.alive or process.parts is None or process.view is None:
            return
        offset, settings = process.view.applied_offset, process.parts.settings
        rows = self._stood[bisect_right(self._since, offset) - 1]
        node_id = process.machine.node_id
        topics: list[str | None] = [None, *sorted(self._topics())]
        for topic in topics:
            for setting in (Setting.TIERED, *PAUSES.values()):
                found, wanted = settings.row(setting, topic), winner(rows, setting, node_id, topic)
                self.checked += 1
                self._world.auditor.check(
                    found == wanted,
                    "settings_read_alike",
                    f"{process.machine.name} at metadata offset {offset} reads {setting} of "
                    f"{topic} by {found}, and the rule says {wanted}",
                )

    def _topics(self) -> set[str]:
        return {each.tip.topic for each in self._world.brokers.partitions}

    def _drawn(self) -> tuple[Setting, SettingScope, bool | None]:
        choose = self._random.choice
        setting = choose((Setting.TIERED, Setting.TIERED, *PAUSES.values()))
        topic = choose(sorted(self._topics()))
        scope = choose((CLUSTER, of_node(choose(self._world.machines).node_id)))
        if setting is Setting.TIERED:
            scope = of_topic(choose((topic, f"{topic[:2]}*", "*", f"*{topic[-1:]}")))
        return setting, scope, choose((True, False, None))

    def _spawn(
        self, process: Process, setting: Setting, scope: SettingScope, value: bool | None
    ) -> None:
        self._world.loop.spawn(process.life, self._set(process, setting, scope, value))

    async def _set(
        self, process: Process, setting: Setting, scope: SettingScope, value: bool | None
    ) -> None:
        manager = process.manager
        assert manager is not None
        standing = [
            row.offset
            for row in manager.cluster_settings()
            if (row.key, row.scope) == (setting, scope)
        ]
        text = None if value is None else str(value).lower()
        change = ClusterSetting(
            scope, setting, text, "an admin", "", standing[0] if standing else UNKNOWN_OFFSET
        )
        self._world.note(f"{setting} for {scope} is to be {text}, by {process.machine.name}")
        try:
            await manager.set_cluster_setting(change, deadline_s=DEADLINE_S)
        except StrandlineError as error:
            self._world.note(f"an admin is told {type(error).__name__}")


def winner(
    rows: Iterable[SettingRow], setting: Setting, node_id: int, topic: str | None
) -> SettingRow | None:
    """The row that wins by the words of docs/OPERATIONS.md, without an index."""

    def rank(each: SettingRow) -> tuple[int, int, int]:
        scope = each.scope
        is_of_topic = scope.kind is ScopeKind.TOPIC
        is_name = is_of_topic and scope.name == topic
        return scope.kind + is_name, len(scope.name) if is_of_topic else 0, each.offset

    def is_about(each: SettingRow) -> bool:
        if each.key != setting or not is_for(setting, each.scope):
            return False
        if parse_value(setting, each.value) is None:
            return False
        if each.scope.kind is ScopeKind.TOPIC:
            return topic is not None and fnmatchcase(topic, each.scope.name)
        return each.scope in (CLUSTER, of_node(node_id))

    return max(filter(is_about, rows), key=rank, default=None)
