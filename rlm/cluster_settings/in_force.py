"""The settings in force on this node: those of the metadata log, over the node's own file. Read
anew each time, so a change is in force with its record, and after a restart from the view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rlm.cluster_settings.known_settings import PAUSES, Setting
from rlm.cluster_settings.resolver import Resolver
from rlm.control.node_problem import NodeProblem, ProblemArea
from rlm.leadership.topic_filter import TopicFilter, is_internal
from rlm.node_files.kill_switches import Switch
from rlm.quota.flow_limits import FlowLimits
from rlmm.records.setting_scope import ScopeKind, SettingScope
from rlmm.rows.cluster_settings import SettingRow

NEWEST = 2**63 - 1
"""An offset after all others."""

Rows = tuple[SettingRow, ...]


@dataclass(slots=True)
class SettingsInForce:
    """The settings in force on a node. `rows` returns the settings in the log: the same tuple until
    one changes. `topics` are those of the node's own file.
    """

    rows: Callable[[], Rows]
    node_id: int
    topics: TopicFilter
    _resolved: tuple[Rows, Resolver] = field(default_factory=lambda: ((), Resolver(())))

    @property
    def resolver(self) -> Resolver:
        """The resolver of the rows that are in force now."""
        rows = self.rows()
        if rows is not self._resolved[0]:
            self._resolved = rows, Resolver(rows)
        return self._resolved[1]

    def row(self, setting: Setting, topic: str | None = None) -> SettingRow | None:
        """The row of the log that wins here; None: the node's own file decides."""
        return self.resolver.row(setting, self.node_id, topic)

    def why_left_out(self, topic: str) -> str | None:
        """A sentence that says what to change; None if the topic is tiered."""
        row = self.row(Setting.TIERED, topic)
        return self.why_left_out_by(row, topic)

    def why_left_out_by(self, row: SettingRow | None, topic: str) -> str | None:
        """A sentence that says what would have to change if `row` won; None if the topic would be
        tiered.
        """
        if row is None or is_internal(topic):
            return self.topics.why_left_out(topic)
        if row.value == "true":
            return None
        return (
            f"tiering of {topic} was disabled for {row.scope} {_by(row)}; `strandline topics "
            f"enable {topic}` begins it"
        )

    def why_disabled(self, topic: str) -> str | None:
        """A sentence if a setting of the log ends the topic's tiering, on all nodes; else None. The
        own file is not asked: it does not say which topics other nodes tier.
        """
        row = self.row(Setting.TIERED, topic)
        return None if row is None else self.why_left_out_by(row, topic)

    def limits(self, own: FlowLimits) -> FlowLimits:
        """The rate limits here, over the node's own."""
        return self.resolver.limits(own, self.node_id)

    def pause_text(self, switch: Switch) -> str | None:
        """The reason why this work waits on this node, and what ends the pause; None if it does not
        wait.
        """
        row = self.row(PAUSES[switch])
        if row is None or row.value != "true":
            return None
        return (
            f"{switch} is paused for {_words(row.scope)} {_by(row)}; `strandline resume {switch} "
            f"{_option(row.scope)}` ends the pause"
        )

    def problems(self) -> Iterator[NodeProblem]:
        """The pauses, so that none is forgotten."""
        for switch in Switch:
            text = self.pause_text(switch)
            if text is not None:
                yield NodeProblem(ProblemArea.PAUSED, f"{switch} (cluster settings)", text)


def tiered_with(
    settings: SettingsInForce, scope: SettingScope, value: bool | None
) -> Callable[[str], bool]:
    """True for topics that would be tiered if `topics.tiered` were set so for the scope; None: not
    set there.
    """
    others = [row for row in settings.rows() if (row.key, row.scope) != (Setting.TIERED, scope)]
    if value is not None:
        text = "true" if value else "false"
        others.append(SettingRow(scope, Setting.TIERED, text, "", "", NEWEST, -1))
    resolver = Resolver(others)

    def is_tiered(topic: str) -> bool:
        row = resolver.row(Setting.TIERED, settings.node_id, topic)
        return settings.why_left_out_by(row, topic) is None

    return is_tiered


def _by(row: SettingRow) -> str:
    return f"by {row.who}{f' ({row.why})' if row.why else ''}"


def _words(scope: SettingScope) -> str:
    return "the cluster" if scope.kind is ScopeKind.CLUSTER else str(scope)


def _option(scope: SettingScope) -> str:
    return "--cluster" if scope.kind is ScopeKind.CLUSTER else f"--node {scope.name}"
