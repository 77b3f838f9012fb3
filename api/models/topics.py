"""Topics and their policies."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictBool, StrictInt

from api.http.validation import INT64_MAX, parse_uuid
from api.models.base import EpochOrNull, NextCursor, OffsetOrNull, TopicIdText, Wire, known
from api.models.partitions import ErrorView, LagOrNull, LagView
from kafka_formats.kafka_uuid import ZERO_UUID, Uuid
from rlm.copy.lag import summed
from rlm.copy.partition_status import PartitionStatus
from rlm.node_files.kill_switches import WHY_CHARACTERS_MAX
from rlmm.partition_state import UNKNOWN_OFFSET, UNLIMITED, TopicPolicy
from rlmm.records.control_records import TopicPolicyChange


class TopicSummary(Wire):
    """A topic that this node knows. It has several topic ids if it was deleted and recreated."""

    topic: Annotated[str, Field(examples=["payments"])]
    topic_ids: list[TopicIdText]
    why_not_tiered: Annotated[
        str | None,
        Field(
            description="Why the queried node does not tier the topic because of its name, by "
            "its own file or the settings of the cluster; null: it may tier it."
        ),
    ]
    partitions: Annotated[int, Field(description="Partitions of all topic ids.", examples=[3])]
    remote_segments: int
    remote_bytes: int
    lag: Annotated[
        LagView | None,
        Field(
            description="Sum over the partitions that this node leads, with the highest age; "
            "null if it leads none."
        ),
    ]

    @classmethod
    def of_statuses(
        cls, topic: str, statuses: list[PartitionStatus], why_not_tiered: str | None
    ) -> TopicSummary:
        """Sum up the partitions of one topic."""
        lags = [status.lag for status in statuses if status.lag is not None]
        return cls(
            topic=topic,
            why_not_tiered=why_not_tiered,
            topic_ids=sorted({str(status.partition.topic_id) for status in statuses}),
            partitions=len(statuses),
            remote_segments=sum(status.remote_segments for status in statuses),
            remote_bytes=sum(status.remote_bytes for status in statuses),
            lag=LagView.of(summed(lags)) if lags else None,
        )


class TopicPage(Wire):
    """Topics by name."""

    topics: list[TopicSummary]
    next_cursor: NextCursor


class PartitionSummary(Wire):
    """One partition in a topic's list; its own route has more details."""

    partition: int
    topic_id: TopicIdText
    role: Annotated[str, Field(examples=["leader"])]
    mode: Annotated[str, Field(examples=["sidecar"])]
    leader_epoch: EpochOrNull
    log_start_offset: OffsetOrNull
    highest_copied_offset: OffsetOrNull
    next_offset: OffsetOrNull
    remote_segments: int
    remote_bytes: int
    lag: LagOrNull
    why_not_copying: Annotated[str | None, Field(examples=["no_sealed_segment"])]
    why_not_text: Annotated[
        str, Field(description="The reason in a sentence, with the last error.")
    ]
    blocked: str | None
    last_error: ErrorView | None

    @classmethod
    def of_status(cls, status: PartitionStatus) -> PartitionSummary:
        """The view of a status, without the topic."""
        return cls.of(
            status,
            partition=status.partition.partition,
            topic_id=status.partition.topic_id,
            mode=status.mode.name.lower(),
        )


class TopicView(TopicSummary):
    """A topic with a page of its partitions, by number and topic id."""

    partition_list: list[PartitionSummary]
    next_cursor: NextCursor


Milliseconds = Annotated[StrictInt, Field(ge=0, le=INT64_MAX, examples=[604_800_000])]
Bytes = Annotated[StrictInt, Field(ge=0, le=INT64_MAX, examples=[1_099_511_627_776])]


class PolicyRequest(Wire):
    """The complete new policy of a topic; a retention of null is unlimited. The retention is for
    one topic id, the switches for every topic of the name.
    """

    retention_ms: Milliseconds | None
    retention_bytes: Bytes | None
    copy_paused: StrictBool
    delete_paused: StrictBool
    follow_delete_records: Annotated[
        StrictBool,
        Field(
            description="The tier's log start follows DeleteRecords on the broker. Left out: "
            "false, even if it was true before."
        ),
    ] = False
    why: Annotated[
        str,
        Field(max_length=WHY_CHARACTERS_MAX, description="Reason, recorded in the audit only."),
    ] = ""
    replaces_offset: Annotated[
        StrictInt | None,
        Field(
            ge=0,
            le=INT64_MAX,
            description="`offset` of the policy to replace, null for the defaults: 409 if a "
            "different one is in force by then. Left out: replaces any policy.",
            examples=[5107],
        ),
    ] = None
    topic_id: Annotated[
        str | None,
        Field(
            max_length=100,
            description="Topic id that the retention is for. Null: the newest of the name, or "
            "the first one to come.",
        ),
    ] = None

    def change(self, topic: str, standing: TopicPolicy) -> TopicPolicyChange:
        """The record to propose."""
        replaces = standing.offset
        if "replaces_offset" in self.model_fields_set:
            replaces = UNKNOWN_OFFSET if self.replaces_offset is None else self.replaces_offset
        return TopicPolicyChange(
            topic=topic,
            policy=TopicPolicy(
                retention_ms=UNLIMITED if self.retention_ms is None else self.retention_ms,
                retention_bytes=(
                    UNLIMITED if self.retention_bytes is None else self.retention_bytes
                ),
                copy_paused=self.copy_paused,
                delete_paused=self.delete_paused,
                follow_delete_records=self.follow_delete_records,
                topic_id=(
                    ZERO_UUID if self.topic_id is None else parse_uuid(self.topic_id, "topic_id")
                ),
            ),
            replaces_offset=replaces,
        )


class PolicyView(Wire):
    """The part of a topic name's policy that applies to one topic id. Retention counts the remote
    part only; null is unlimited.
    """

    topic: Annotated[str, Field(examples=["payments"])]
    topic_id: Annotated[
        TopicIdText | None,
        Field(description="Topic id of this answer; null: the metadata has none yet."),
    ]
    set_for: Annotated[
        TopicIdText | None,
        Field(
            description="Topic id that the retention was set for; it applies to no other topic. "
            "Null: none was set, or it is for the first topic to come with this name."
        ),
    ]
    retention_ms: Annotated[int | None, Field(examples=[604_800_000])]
    retention_bytes: int | None
    copy_paused: bool
    delete_paused: bool
    follow_delete_records: bool
    offset: Annotated[
        int | None,
        Field(description="Metadata offset of its record; null for the defaults.", examples=[5107]),
    ]

    @classmethod
    def of_policy(cls, topic: str, topic_id: Uuid, policy: TopicPolicy) -> PolicyView:
        """The view of a policy; a topic id of zero is shown as null."""
        return cls.of(
            policy,
            topic=topic,
            topic_id=_id_text(topic_id),
            set_for=_id_text(policy.topic_id),
            retention_ms=known(policy.retention_ms),
            retention_bytes=known(policy.retention_bytes),
            offset=known(policy.offset),
        )


class PolicySet(PolicyView):
    """The policy now in force."""

    changed: Annotated[
        list[str],
        Field(
            description="Fields that differ from the replaced policy, including those that the "
            "request left out and that got their defaults.",
            examples=[["retention_ms"]],
        ),
    ]


def changed_fields(before: PolicyView, after: PolicyView) -> dict[str, int | bool | None]:
    """Fields that differ between two policies, with their earlier values."""
    names = (
        "retention_ms", "retention_bytes", "copy_paused", "delete_paused", "follow_delete_records",
    )  # fmt: skip
    return {
        name: getattr(before, name)
        for name in names
        if getattr(before, name) != getattr(after, name)
    }


def _id_text(topic_id: Uuid) -> str | None:
    return None if topic_id == ZERO_UUID else str(topic_id)
