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
    """The part of the cluster that a setting is for."""

    kind: Annotated[_KINDS, Field(examples=["topic"])]
    name: Annotated[
        StrictStr,
        Field(
            max_length=249,
            description="Node id, or topic name; for `topics.tiered` a shell pattern, too. Empty "
            "for the cluster.",
            examples=["logs.*"],
        ),
    ] = ""

    def scope(self) -> SettingScope:
        """The scope as the log has it."""
        return SettingScope(ScopeKind[self.kind.upper()], self.name)

    @classmethod
    def of_scope(cls, scope: SettingScope) -> Self:
        """The scope of a row."""
        return cls.of(scope, kind=scope.kind.name.lower())


class SettingRequest(Wire):
    """The value that a setting is to have in a scope; null removes it there."""

    scope: ScopeView
    value: Annotated[
        StrictBool | Annotated[StrictInt, Field(ge=0, le=INT64_MAX)] | None,
        Field(description="true or false; bytes a second, 0 for no limit.", examples=[True]),
    ]
    why: Why = ""
    replaces_offset: Annotated[
        StrictInt | None,
        Field(
            ge=0,
            le=INT64_MAX,
            description="`offset` of the setting that it replaces, null for none: 409 when another "
            "one stands by then. Left out: whichever stands.",
        ),
    ] = None

    @property
    def names_what_it_replaces(self) -> bool:
        """True if it says which setting stands, or that none does."""
        return "replaces_offset" in self.model_fields_set

    @property
    def text(self) -> str | None:
        """The value as the log has it."""
        return _FLAGS[self.value] if isinstance(self.value, bool) else _text(self.value)


class SettingView(Wire):
    """A setting that stands in the metadata log."""

    setting: Annotated[str, Field(examples=["topics.tiered"])]
    scope: ScopeView
    value: Annotated[str, Field(examples=["true"])]
    who: Annotated[str, Field(examples=["ann"])]
    why: str
    offset: Annotated[int, Field(description="Metadata offset that set it.", examples=[5107])]
    set_ms: Annotated[int, Field(description="Time of that, by the quorum's leader.")]

    @classmethod
    def of_row(cls, row: SettingRow) -> Self:
        """One row of the log."""
        return cls.of(row, setting=row.key, scope=ScopeView.of_scope(row.scope))


class SettingsView(Wire):
    """All settings of the cluster, by name and scope; this release may not know each of them."""

    settings: list[SettingView]
    metadata_offset: MetadataOffset


class SettingSet(Wire):
    """The setting now in force for the scope; null once it is removed."""

    setting: SettingView | None
    changed: Annotated[
        bool,
        Field(
            description="False: it stood so already, and `setting` says since when, by whom and "
            "why; the request's `why` is in the audit alone."
        ),
    ]


class SettingInForce(Wire):
    """A setting on the node asked, and where its value comes from."""

    setting: Annotated[Setting, Field(examples=["limits.copy_bytes_per_s"])]
    value: Annotated[
        bool | int,
        Field(
            description="Bytes a second, 0 for no limit; more than `set_by` says where that is "
            "less than the node can keep.",
            examples=[52_428_800],
        ),
    ]
    set_by: Annotated[
        SettingView | None,
        Field(description="The setting of the cluster that wins; null: the node's own file."),
    ]


class NodeSettingsView(Wire):
    """The settings of the cluster as they hold on the node asked, for a topic if one is named."""

    node_id: Annotated[int, Field(examples=[1])]
    topic: str | None
    in_force: list[SettingInForce]
    metadata_offset: MetadataOffset


class ChangedTopic(Wire):
    """A topic on a node's disks that would be tiered, or no more."""

    topic: Annotated[str, Field(examples=["logs.web"])]
    node: Annotated[int, Field(description="The node beside these disks.", examples=[3])]
    tiered: bool
    partitions: Annotated[int, Field(description="On the node's disks.", examples=[3])]
    sealed_segments: Annotated[int, Field(description="On the node's disks, copied or not.")]
    sealed_bytes: int

    @classmethod
    def of_topic(cls, topic: LocalTopic, *, node: int, tiered: bool) -> Self:
        """The view of a topic as it lies on the node's disks."""
        return cls.of(topic, node=node, tiered=tiered)

    @property
    def key(self) -> tuple[str, int]:
        """The row's place in the list."""
        return self.topic, self.node


class NodeTieringEffect(Wire):
    """The topics of one node's disks that the change would concern."""

    topics: list[ChangedTopic]
    next_cursor: NextCursor


class TieringEffect(NodeTieringEffect):
    """The topics of all nodes' disks that the change would concern."""

    nodes: list[NodePartView]


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)
