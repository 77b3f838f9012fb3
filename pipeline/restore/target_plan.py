"""Checks that a topic may take a restore, and gives the configs for a new one. Pure.

A broker deletes records older than `retention.ms`, whenever they were written: a restored history
would be gone within minutes. Compaction would remove records, LogAppendTime change timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_formats.errors import Conflict
from pipeline.restore.kafka_target import TargetTopic

NEW_TOPIC_CONFIGS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
"""Configs of a topic that a restore creates. Its owner sets the retention once it is in use."""

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
