"""Whether a topic may take what is restored, and what one is made with. Pure.

A broker deletes what is older than `retention.ms` whenever it was written: a restored history would
be gone within minutes. Compaction would take records, LogAppendTime the timestamps.
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
"""Of a topic that a restore makes. Its owner sets the retention once it is in use."""

_MUST_BE: Mapping[str, tuple[str, str]] = {
    "retention.ms": ("-1", "the broker would delete old records as soon as they are written"),
    "retention.bytes": ("-1", "the broker would delete the oldest records while it is written"),
    "message.timestamp.type": ("CreateTime", "the records would get new timestamps"),
    "cleanup.policy": ("delete", "compaction would remove records"),
}


def check_target(target: TargetTopic, partitions_needed: int, *, topic: str) -> None:
    """Conflict that names what has to be changed; nothing was written."""
    if target.partitions < partitions_needed:
        raise Conflict(
            f"{target.name} of the target has {target.partitions} partitions, {topic} has "
            f"{partitions_needed}: a key would not be where its readers look. Make it with "
            f"{partitions_needed}",
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
    """`wanted` beside what a restore needs, which it may not undo."""
    return {**wanted, **NEW_TOPIC_CONFIGS}
