"""Settings of the cluster, of a node and of topics in the metadata log."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StrictBool, StrictInt, StrictStr

from api.http.validation import INT64_MAX
from api.models.base import MetadataOffset, NextCursor, Wire
from api.models.cluster_parts import NodePartView
from api.models.node import Why
from rlm.cluster_settings.known_settings import Setting
from rlm.copy.work_table import LocalTopic
from rlmm.records.setting_scope import ScopeKind, SettingScope
from rlmm.rows.cluster_settings import SettingRow

_KINDS = Literal["cluster", "node", "topic"]
_FLAGS = {True: "true", False: "false"}


class ScopeView(Wire):
    """The scope of a setting: the cluster, a node, or topics."""

    kind: Annotated[_KINDS, Field(examples=["topic"])]
    name: Annotated[
        StrictStr,
        Field(
            max_length=249,
            description="Node id, or topic name; for `topics.tiered` also a glob pattern. Empty "
            "for the cluster.",
            examples=["logs.*"],
        ),
    ] = ""

    def scope(self) -> SettingScope:
        """The scope as in the metadata log."""
        return SettingScope(ScopeKind[self.kind.upper()], self.name)

    @classmethod
    def of_scope(cls, scope: SettingScope) -> Self:
        """The view of a row's scope."""
        return cls.of(scope, kind=scope.kind.name.lower())


class SettingRequest(Wire):
    """The new value of a setting in a scope; null removes the setting there."""

    scope: ScopeView
    value: Annotated[
        StrictBool | Annotated[StrictInt, Field(ge=0, le=INT64_MAX)] | None,
        Field(description="true or false; bytes per second, 0 for no limit.", examples=[True]),
    ]
    why: Why = ""
    replaces_offset: Annotated[
        StrictInt | None,
        Field(
            ge=0,
            le=INT64_MAX,
            description="`offset` of the setting to replace, null for none: 409 if a different "
            "one is in force by then. Left out: replaces any value.",
        ),
    ] = None

    @property
    def names_what_it_replaces(self) -> bool:
        """True if the request names the setting that it replaces, or that there is none."""
        return "replaces_offset" in self.model_fields_set

    @property
    def text(self) -> str | None:
        """The value as in the metadata log."""
        return _FLAGS[self.value] if isinstance(self.value, bool) else _text(self.value)


class SettingView(Wire):
    """A setting in force in the metadata log."""

    setting: Annotated[str, Field(examples=["topics.tiered"])]
    scope: ScopeView
    value: Annotated[str, Field(examples=["true"])]
    who: Annotated[str, Field(examples=["ann"])]
    why: str
    offset: Annotated[int, Field(description="Metadata offset of its record.", examples=[5107])]
    set_ms: Annotated[int, Field(description="Time of that record, by the quorum leader's clock.")]

    @classmethod
    def of_row(cls, row: SettingRow) -> Self:
        """The view of one setting in the metadata log."""
        return cls.of(row, setting=row.key, scope=ScopeView.of_scope(row.scope))


class SettingsView(Wire):
    """All settings of the cluster, by name and scope; this release may not support each of them."""

    settings: list[SettingView]
    metadata_offset: MetadataOffset


class SettingSet(Wire):
    """The setting now in force for the scope; null once it is removed."""

    setting: SettingView | None
    changed: Annotated[
        bool,
        Field(
            description="False: the value was in force already, and `setting` has its time, "
            "author and reason; the `why` of this request is only in the audit."
        ),
    ]


class SettingInForce(Wire):
    """A setting on the queried node, and the source of its value."""

    setting: Annotated[Setting, Field(examples=["limits.copy_bytes_per_s"])]
    value: Annotated[
        bool | int,
        Field(
            description="For rates: bytes per second, 0 for no limit. It is above the value of "
            "`set_by` if that is too low for the node.",
            examples=[52_428_800],
        ),
    ]
    set_by: Annotated[
        SettingView | None,
        Field(
            description="The setting of the cluster that is in force; null: the node's own file is."
        ),
    ]


class NodeSettingsView(Wire):
    """The settings in force on the queried node, for a topic if one is named."""

    node_id: Annotated[int, Field(examples=[1])]
    topic: str | None
    in_force: list[SettingInForce]
    metadata_offset: MetadataOffset


class ChangedTopic(Wire):
    """A topic on a node's disks for which tiering would start or stop."""

    topic: Annotated[str, Field(examples=["logs.web"])]
    node: Annotated[int, Field(description="The node of these disks.", examples=[3])]
    tiered: bool
    partitions: Annotated[int, Field(description="Partitions on the node's disks.", examples=[3])]
    sealed_segments: Annotated[
        int, Field(description="Sealed segments on the node's disks, copied or not.")
    ]
    sealed_bytes: int

    @classmethod
    def of_topic(cls, topic: LocalTopic, *, node: int, tiered: bool) -> Self:
        """The view of a topic on the node's disks."""
        return cls.of(topic, node=node, tiered=tiered)

    @property
    def key(self) -> tuple[str, int]:
        """The sort key of the row."""
        return self.topic, self.node


class NodeTieringEffect(Wire):
    """The topics on one node's disks that the change would affect."""

    topics: list[ChangedTopic]
    next_cursor: NextCursor


class TieringEffect(NodeTieringEffect):
    """The topics on all nodes' disks that the change would affect."""

    nodes: list[NodePartView]


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
