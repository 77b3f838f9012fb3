"""The settings of the cluster that this program knows, and what each may be set to. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

from kafka_formats.errors import InvalidRequest
from kafka_formats.log_names import check_topic_name
from rlm.leadership.topic_filter import is_internal
from rlm.node_files.kill_switches import Switch
from rlm.quota.flow_limits import Flow
from rlmm.records.setting_scope import ScopeKind, SettingScope, of_topic

_PATTERN = re.compile(r"[*?\[]")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,15}")
_FLAGS = {"true": True, "false": False}


class Setting(StrEnum):
    """The settings of a cluster. Their values are stable: records of the log contain them."""

    TIERED = "topics.tiered"
    COPYING_PAUSED = "copying.paused"
    DELETING_PAUSED = "deleting.paused"
    COPY_RATE = "limits.copy_bytes_per_s"
    READ_RATE = "limits.read_bytes_per_s"


PAUSES = {Switch.COPYING: Setting.COPYING_PAUSED, Switch.DELETING: Setting.DELETING_PAUSED}
RATES = {Flow.COPY: Setting.COPY_RATE, Flow.READ: Setting.READ_RATE}
SCOPES = {
    Setting.TIERED: frozenset({ScopeKind.TOPIC}),
    **dict.fromkeys(PAUSES.values(), frozenset({ScopeKind.CLUSTER, ScopeKind.NODE})),
    **dict.fromkeys(RATES.values(), frozenset(ScopeKind)),
}
"""The scopes that each setting may have. A topic's own pause is in its policy; it applies whatever
these settings are.
"""


def is_for(setting: Setting, scope: SettingScope) -> bool:
    """True if the setting can be set for such a scope; patterns are for `topics.tiered` alone."""
    by_pattern = scope.kind is ScopeKind.TOPIC and is_pattern(scope.name)
    return scope.kind in SCOPES[setting] and (setting is Setting.TIERED or not by_pattern)


def is_pattern(name: str) -> bool:
    """True for a shell pattern; no topic name has such characters."""
    return _PATTERN.search(name) is not None


def parse_value(setting: Setting, text: str) -> bool | int | None:
    """The value: a rate in bytes a second (0: no limit), or a flag; None if it is invalid."""
    if setting in RATES.values():
        return int(text) if _NUMBER.fullmatch(text) else None
    return _FLAGS.get(text)


def check_setting(setting: Setting, scope: SettingScope, value: str | None) -> None:
    """Check a setting before it is recorded. InvalidRequest if it is not for such a scope, or takes
    no such value.
    """
    if scope.kind not in SCOPES[setting]:
        kinds = " or ".join(sorted(kind.name.lower() for kind in SCOPES[setting]))
        raise InvalidRequest(f"{setting} is set for a {kinds}", field="scope")
    if scope.kind is ScopeKind.TOPIC:
        _check_topic(setting, scope.name)
    if value is not None and parse_value(setting, value) is None:
        known = "bytes a second, 0 for no limit" if setting in RATES.values() else "true or false"
        raise InvalidRequest(f"{setting} is {known}, not {value[:40]!r}", field="value")


def _check_topic(setting: Setting, name: str) -> None:
    if is_pattern(name):
        if not is_for(setting, of_topic(name)):
            raise InvalidRequest(f"{setting} is for one topic by name", field="scope")
        return
    check_topic_name(name)
    if is_internal(name):
        raise InvalidRequest(
            f"{name} is an internal topic; internal topics are never tiered", field="scope"
        )
