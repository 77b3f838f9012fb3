"""The scope of a setting within a cluster, and the bounds of settings in the log. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ScopeKind(IntEnum):
    """The kind of a scope. The numbers are in the log and in keys, and never reused."""

    CLUSTER = 0
    NODE = 1
    TOPIC = 2


@dataclass(frozen=True, slots=True)
class SettingScope:
    """The scope of a setting. `name` is empty for the cluster, the node id in decimal for a node,
    and a name or a shell pattern for topics.
    """

    kind: ScopeKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.name}".rstrip()


CLUSTER = SettingScope(ScopeKind.CLUSTER)


def of_node(node_id: int) -> SettingScope:
    return SettingScope(ScopeKind.NODE, str(node_id))


def of_topic(name_or_pattern: str) -> SettingScope:
    return SettingScope(ScopeKind.TOPIC, name_or_pattern)


SETTINGS_MAX = 2_000
KEY_CHARACTERS_MAX = 64
VALUE_CHARACTERS_MAX = 200
WHO_CHARACTERS_MAX = 200
