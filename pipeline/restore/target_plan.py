"""Checks that a topic may take a restore, and gives the configs for a new one. Pure.

A broker deletes records older than `retention.ms`, even if they were written just now: a restored
history would be gone within minutes. Compaction would remove records, LogAppendTime change
timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_formats.errors import Conflict
from pipeline.restore.kafka_target import TargetTopic

ANY_TIMESTAMP_MS = str(2**63 - 1)

NEW_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.after.max.ms": ANY_TIMESTAMP_MS,  # an hour by default, from 4.0 on
    "message.timestamp.before.max.ms": ANY_TIMESTAMP_MS,
}
"""Configs of a topic that a restore creates. Its owner sets the retention once it is in use."""

_BEFORE_3_6 = {"message.timestamp.difference.max.ms": ANY_TIMESTAMP_MS}
_FROM_3_6_ON = ("message.timestamp.after.max.ms", "message.timestamp.before.max.ms")
"""Kafka 3.6 has these two in place of the one, which 4.0 no longer knows (KIP-937)."""

_MUST_BE: Mapping[str, tuple[str, str]] = {
    "retention.ms": ("-1", "the broker would delete old records as soon as they are written"),
    "retention.bytes": ("-1", "the broker would delete the oldest records while it is written"),
    "message.timestamp.type": ("CreateTime", "the records would get new timestamps"),
    "cleanup.policy": ("delete", "compaction would remove records"),
}


def check_target(target: TargetTopic, partitions_needed: int, *, topic: str) -> None:
    """Raise Conflict that names the change needed in the target; nothing was written."""
    if target.partitions < partitions_needed:
        raise Conflict(
            f"{target.name} of the target has {target.partitions} partitions, but {topic} has "
            f"{partitions_needed}, so keys would be in other partitions than their readers expect: "
            f"create it with {partitions_needed}",
            reason="PARTITIONS",
        )
    for config, (wanted, why) in _MUST_BE.items():
        found = target.configs.get(config)
        if found != wanted:
            raise Conflict(
                f"{target.name} of the target has {config} = {found}, with which {why}: set it to "
                f"{wanted} until the restore has ended",
                reason="TARGET_CONFIG",
            )


def new_topic_configs(wanted: Mapping[str, str]) -> dict[str, str]:
    """The configs of a new topic: `wanted`, overridden by those that a restore needs."""
    return {**wanted, **NEW_TOPIC_CONFIGS}


def older_topic_configs(configs: Mapping[str, str], refusal: str) -> dict[str, str] | None:
    """The configs for brokers before 3.6, if the broker's `refusal` says that it is one."""
    if not any(name in refusal for name in _FROM_3_6_ON):
        return None
    kept = {name: value for name, value in configs.items() if name not in _FROM_3_6_ON}
    return {**kept, **_BEFORE_3_6}
