"""An admin's settings: topic policies and the feature level."""

from __future__ import annotations

from dataclasses import replace

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.log_names import check_topic_name
from rlmm.apply.outcome import ACCEPTED, NO_EFFECT, Draft, Outcome, conflict, invalid
from rlmm.partition_state import UNLIMITED
from rlmm.records.control_records import FeatureLevel, TopicPolicyChange
from rlmm.rows import keys, values
from rlmm.rows.queries import newest_topic_id, partitions_of_topic
from rlmm.rows.reads import FIRST_FEATURE_LEVEL, read_feature_level, read_policy


def apply_topic_policy(draft: Draft, change: TopicPolicyChange) -> Outcome:
    """Accepted if it names the policy it replaces, so that two admins do not overwrite each other,
    and its topic, so that it never counts for a later topic of the name.
    """
    try:
        check_topic_name(change.topic)
    except InvalidRequest as error:
        return invalid(str(error))
    if min(change.policy.retention_ms, change.policy.retention_bytes) < UNLIMITED:
        return invalid("retention is -1 (unlimited), 0 or more")
    before = read_policy(draft.rows, change.topic)
    topic_id = change.policy.topic_id
    if topic_id not in (ZERO_UUID, before.topic_id) and not _is_known(draft, change):
        return invalid(
            f"the metadata knows no topic {change.topic} with topic id {topic_id}: name one that "
            "is known, or none for the newest"
        )
    if topic_id == ZERO_UUID:
        topic_id = newest_topic_id(draft.rows, change.topic)
    policy = replace(change.policy, offset=before.offset, topic_id=topic_id)
    if before == policy and before.offset >= 0:
        return NO_EFFECT
    if before.offset != change.replaces_offset:
        return conflict(
            f"the policy of {change.topic} was set at metadata offset {before.offset}, not at "
            f"{change.replaces_offset}: read it again, then decide"
        )
    draft.rows.put(
        keys.topic_policy_key(change.topic),
        values.encode_policy(replace(policy, offset=draft.offset)),
    )
    return ACCEPTED


def _is_known(draft: Draft, change: TopicPolicyChange) -> bool:
    topic_id = change.policy.topic_id
    return any(each.topic_id == topic_id for each in partitions_of_topic(draft.rows, change.topic))


def apply_feature_level(draft: Draft, change: FeatureLevel) -> Outcome:
    """Accepted upwards, known here or not: all programs must come to the same state."""
    if change.level < FIRST_FEATURE_LEVEL:
        return invalid(f"{change.level} is not a feature level")
    level, offset = read_feature_level(draft.rows)
    if change.level == level and offset >= 0:
        return NO_EFFECT
    if offset != change.replaces_offset or change.level < level:
        return conflict(
            f"the feature level is {level}, set at metadata offset {offset}: it only goes up, and "
            "a change names that offset"
        )
    draft.rows.put(keys.FEATURE_LEVEL_KEY, values.encode_feature_level(change.level, draft.offset))
    return ACCEPTED
