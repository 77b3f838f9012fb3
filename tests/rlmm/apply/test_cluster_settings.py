"""Settings of the cluster in the log: which are taken, and what stands then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_formats.errors import CorruptData
from rlmm.apply.outcome import Verdict
from rlmm.records.control_records import ClusterSetting
from rlmm.records.setting_scope import (
    CLUSTER,
    KEY_CHARACTERS_MAX,
    SETTINGS_MAX,
    VALUE_CHARACTERS_MAX,
    WHO_CHARACTERS_MAX,
    ScopeKind,
    SettingScope,
    of_node,
    of_topic,
)
from rlmm.rows.cluster_settings import (
    all_settings,
    decode_setting,
    encode_setting,
    find_setting,
    setting_key,
)
from tests.rlmm.state_world import START_MS, World

TIERED = "topics.tiered"
ENABLED = ClusterSetting(of_topic("logs.*"), TIERED, "true", "ann", "the audit asks", -1)


@pytest.fixture
def world() -> World:
    return World()


def test_a_setting_names_the_one_that_it_replaces(world: World) -> None:
    world.accept(ENABLED)
    (row,) = all_settings(world.rows)
    assert (row.scope, row.value, row.who, row.why) == (
        of_topic("logs.*"), "true", "ann", "the audit asks"
    )  # fmt: skip
    assert (row.offset, row.set_ms) == (0, START_MS)
    assert world.verdict(replace(ENABLED, who="bob")) is Verdict.NO_EFFECT, "it is so already"
    disabled = replace(ENABLED, value="false", who="bob")
    assert world.verdict(disabled) is Verdict.CONFLICT
    world.accept(replace(disabled, replaces_offset=0))
    assert [each.who for each in all_settings(world.rows)] == ["bob"]


def test_a_removed_setting_leaves_nothing(world: World) -> None:
    before = dict(world.rows.scan(b"\x10", b"\x20"))
    world.accept(ENABLED)
    removed = replace(ENABLED, value=None)
    assert world.verdict(removed) is Verdict.CONFLICT, "it names no setting"
    world.accept(replace(removed, replaces_offset=0))
    assert dict(world.rows.scan(b"\x10", b"\x20")) == before
    assert world.verdict(removed) is Verdict.NO_EFFECT
    assert world.verdict(replace(ENABLED, replaces_offset=0)) is Verdict.CONFLICT


def test_scopes_stand_side_by_side(world: World) -> None:
    scopes = (CLUSTER, of_node(1), of_node(2), of_topic("logs"), of_topic("1"))
    for scope in scopes:
        world.accept(replace(ENABLED, scope=scope, key="copying.paused"))
    found = {each.scope for each in all_settings(world.rows)}
    assert found == set(scopes)
    row = find_setting(world.rows, "copying.paused", of_node(1))
    assert row is not None
    assert row.offset == 1
    assert find_setting(world.rows, "copying.paused", of_node(3)) is None


def test_settings_and_values_of_newer_programs_are_kept(world: World) -> None:
    newer = replace(ENABLED, key="trash.keep_s", value="86400", unknown_tags=((3, b"new"),))
    world.accept(newer)
    (row,) = all_settings(world.rows)
    key = setting_key(row.key, row.scope)
    assert (row.value, row.unknown_tags) == ("86400", ((3, b"new"),))
    assert decode_setting(key, encode_setting(row)) == row


@pytest.mark.parametrize(
    "change",
    [
        replace(ENABLED, key=""),
        replace(ENABLED, key="Topics"),
        replace(ENABLED, key="a\0b"),
        replace(ENABLED, key="a" * (KEY_CHARACTERS_MAX + 1)),
        replace(ENABLED, value="v" * (VALUE_CHARACTERS_MAX + 1)),
        replace(ENABLED, who="w" * (WHO_CHARACTERS_MAX + 1)),
        replace(ENABLED, scope=SettingScope(ScopeKind.CLUSTER, "x")),
        replace(ENABLED, scope=SettingScope(ScopeKind.NODE, "")),
        replace(ENABLED, scope=SettingScope(ScopeKind.NODE, "01")),
        replace(ENABLED, scope=SettingScope(ScopeKind.NODE, "-1")),
        replace(ENABLED, scope=SettingScope(ScopeKind.NODE, "2147483648")),
        replace(ENABLED, scope=of_topic("")),
        replace(ENABLED, scope=of_topic("a/b")),
        replace(ENABLED, scope=of_topic("a\0b")),
        replace(ENABLED, scope=of_topic("t" * 250)),
    ],
)
def test_settings_that_mean_nothing_are_invalid(world: World, change: ClusterSetting) -> None:
    assert not world.changed_by(change)
    assert world.verdict(change) is Verdict.INVALID


def test_their_number_is_bounded(world: World) -> None:
    for number in range(SETTINGS_MAX):
        world.accept(replace(ENABLED, scope=of_topic(f"t{number}")))
    assert world.verdict(ENABLED) is Verdict.CONFLICT
    standing = find_setting(world.rows, TIERED, of_topic("t7"))
    assert standing is not None
    world.accept(
        replace(ENABLED, scope=standing.scope, value="false", replaces_offset=standing.offset)
    )
    world.accept(
        replace(ENABLED, scope=standing.scope, value=None, replaces_offset=world.offset), ENABLED
    )


def test_a_row_with_a_wrong_key_or_value_is_corrupt(world: World) -> None:
    world.accept(ENABLED)
    (row,) = all_settings(world.rows)
    key, value = setting_key(row.key, row.scope), encode_setting(row)
    for damaged in (key[:4], key.replace(b"\0\2", b"\0\7"), key + b"\xff"):
        with pytest.raises(CorruptData):
            decode_setting(damaged, value)
    with pytest.raises(CorruptData):
        decode_setting(key, b"\0\7" + value[2:])
