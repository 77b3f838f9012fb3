"""The rule by which one setting wins over others. Pure, and the one place for it: all readers of
all nodes read alike.

A topic's setting wins over its node's, that over the cluster's, and all of them over the node's own
file. Of those for topics the exact name wins, then the longest pattern, then the one set last. A
setting that this program does not know, or whose value or scope it does not take, counts as not
set.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate

from rlm.cluster_settings.known_settings import RATES, Setting, is_for, is_pattern, parse_value
from rlm.quota.flow_limits import NO_LIMIT, Flow, FlowLimits, Rates
from rlmm.records.setting_scope import ScopeKind
from rlmm.rows.cluster_settings import SettingRow


@dataclass(slots=True)
class _OfSetting:
    """The rows of one setting, by scope; patterns in the order in which they win."""

    cluster: SettingRow | None = None
    nodes: dict[str, SettingRow] = field(default_factory=dict)
    topics: dict[str, SettingRow] = field(default_factory=dict)
    patterns: list[tuple[re.Pattern[str], SettingRow]] = field(default_factory=list)


class Resolver:
    """Finds the setting that applies, among the rows in force at one metadata offset."""

    def __init__(self, rows: Iterable[SettingRow]) -> None:
        self._by_setting = {setting: _OfSetting() for setting in Setting}
        counted = [row for row in rows if _counts(row)]
        for row in sorted(counted, key=lambda row: (-len(row.scope.name), -row.offset)):
            of, name = self._by_setting[Setting(row.key)], row.scope.name
            if row.scope.kind is ScopeKind.CLUSTER:
                of.cluster = row
            elif row.scope.kind is ScopeKind.NODE:
                of.nodes[name] = row
            elif is_pattern(name):
                of.patterns.append((re.compile(translate(name)), row))
            else:
                of.topics[name] = row

    def row(self, setting: Setting, node_id: int, topic: str | None = None) -> SettingRow | None:
        """The row that applies; None: the node's own file decides. Without a topic, rows for topics
        are ignored.
        """
        of = self._by_setting[setting]
        if topic is not None:
            exact = of.topics.get(topic)
            if exact is not None:
                return exact
            for pattern, row in of.patterns:
                if pattern.match(topic):
                    return row
        return of.nodes.get(str(node_id)) or of.cluster

    def limits(self, own: FlowLimits, node_id: int) -> FlowLimits:
        """`own`, of the node's file, with the limits that win over them. A topic's limit holds
        within the node's, so the two do not replace each other.
        """
        names = set(own.topics)
        for setting in RATES.values():
            names |= self._by_setting[setting].topics.keys()
        topics = {
            name: self._over(own.topics.get(name, NO_LIMIT), node_id, name)
            for name in sorted(names)
        }
        return FlowLimits(
            self._over(own.node, node_id, None),
            {name: rates for name, rates in topics.items() if rates != NO_LIMIT},
        )

    def rate_row(self, setting: Setting, node_id: int, topic: str | None) -> SettingRow | None:
        """The row that wins for the node's limit, or for the topic's own within it."""
        if topic is None:
            return self.row(setting, node_id)
        return self._by_setting[setting].topics.get(topic)

    def _over(self, own: Rates, node_id: int, topic: str | None) -> Rates:
        def rate(flow: Flow) -> int | None:
            row = self.rate_row(RATES[flow], node_id, topic)
            return own.of(flow) if row is None else int(row.value) or None

        return Rates(rate(Flow.COPY), rate(Flow.READ))


def _counts(row: SettingRow) -> bool:
    try:
        setting = Setting(row.key)
    except ValueError:
        return False
    return is_for(setting, row.scope) and parse_value(setting, row.value) is not None
