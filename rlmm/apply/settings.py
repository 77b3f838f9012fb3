"""An admin's settings: those of the cluster, topic policies and the feature level."""

from __future__ import annotations

import re
from dataclasses import replace

from kafka_formats.errors import InvalidRequest
from kafka_formats.kafka_uuid import ZERO_UUID
from kafka_formats.log_names import TOPIC_NAME_CHARACTERS_MAX, check_topic_name
from rlmm.apply.outcome import ACCEPTED, NO_EFFECT, Draft, Outcome, conflict, invalid
from rlmm.partition_state import UNKNOWN_OFFSET, UNLIMITED
from rlmm.records.control_records import ClusterSetting, FeatureLevel, TopicPolicyChange
from rlmm.records.setting_scope import (
    KEY_CHARACTERS_MAX,
    SETTINGS_MAX,
    VALUE_CHARACTERS_MAX,
    WHO_CHARACTERS_MAX,
    ScopeKind,
    SettingScope,
)
from rlmm.rows import keys, values
from rlmm.rows.cluster_settings import (
    SettingRow,
    encode_setting,
    find_setting,
    number_of_settings,
    setting_key,
)
from rlmm.rows.queries import newest_topic_id, partitions_of_topic
from rlmm.rows.reads import FIRST_FEATURE_LEVEL, read_feature_level, read_policy

_KEY = re.compile(rf"[a-z][a-z0-9_.]{{0,{KEY_CHARACTERS_MAX - 1}}}")
_NAMES = {
    ScopeKind.CLUSTER: re.compile(""),
    ScopeKind.NODE: re.compile("0|[1-9][0-9]{0,9}"),
    ScopeKind.TOPIC: re.compile(rf"[a-zA-Z0-9._*?!\[\]-]{{1,{TOPIC_NAME_CHARACTERS_MAX}}}"),
}
_NODE_ID_MAX = 2**31 - 1


def apply_cluster_setting(draft: Draft, change: ClusterSetting) -> Outcome:
    """Accept a change that names the setting it replaces, so that two admins do not overwrite each
    other. The value is not interpreted here but by its readers (`rlm/cluster_settings`), so that
    all releases reach the same state.
    """
    wrong = _wrong_of_setting(change)
    if wrong is not None:
        return invalid(wrong)
    before = find_setting(draft.rows, change.key, change.scope)
    if change.value == (None if before is None else before.value):
        return NO_EFFECT
    standing = UNKNOWN_OFFSET if before is None else before.offset
    if standing != change.replaces_offset:
        return conflict(
            f"{change.key} for {change.scope} was set at metadata offset {standing}, not at "
            f"{change.replaces_offset}: read it again, then decide"
        )
    key = setting_key(change.key, change.scope)
    if change.value is None:
        draft.rows.delete(key)
        return ACCEPTED
    if before is None and number_of_settings(draft.rows) >= SETTINGS_MAX:
        return conflict(f"there are {SETTINGS_MAX} settings, the most allowed: remove some first")
    row = SettingRow(
        change.scope, change.key, change.value, change.who, change.why, draft.offset,
        draft.record_time_ms, change.unknown_tags,
    )  # fmt: skip
    draft.rows.put(key, encode_setting(row))
    return ACCEPTED


def _wrong_of_setting(change: ClusterSetting) -> str | None:
    if _KEY.fullmatch(change.key) is None:
        return f"{change.key!r} is not the name of a setting"
    if not _is_name(change.scope):
        return f"{change.scope} is not a cluster, a node id, a topic name or a pattern of those"
    for field, text, most in (
        ("value", change.value or "", VALUE_CHARACTERS_MAX),
        ("who", change.who, WHO_CHARACTERS_MAX),
    ):
        if len(text) > most:
            return f"{field} of a setting has at most {most} characters, but this has {len(text)}"
    return None


def _is_name(scope: SettingScope) -> bool:
    if _NAMES[scope.kind].fullmatch(scope.name) is None:
        return False
    return scope.kind is not ScopeKind.NODE or int(scope.name) <= _NODE_ID_MAX


def apply_topic_policy(draft: Draft, change: TopicPolicyChange) -> Outcome:
    """Accept a change that names the policy it replaces, so that two admins do not overwrite each
    other, and its topic's id, so that it never applies to a later topic of the same name.
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
            f"the metadata has no topic {change.topic} with topic id {topic_id}: give a recorded "
            "id, or none for the newest topic"
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
    """Accept a higher level, even one that this release does not have: all releases must reach the
    same state.
    """
    if change.level < FIRST_FEATURE_LEVEL:
        return invalid(f"{change.level} is not a feature level")
    level, offset = read_feature_level(draft.rows)
    if change.level == level and offset >= 0:
        return NO_EFFECT
    if offset != change.replaces_offset or change.level < level:
        return conflict(
            f"the feature level is {level}, set at metadata offset {offset}: choose a higher one, "
            "and name that offset in the change"
        )
    draft.rows.put(keys.FEATURE_LEVEL_KEY, values.encode_feature_level(change.level, draft.offset))
    return ACCEPTED
