"""The limits of the rules: nodes with different ones would get different rows from one log."""

from __future__ import annotations

import importlib

import pytest

HOUR_MS = 3_600_000

LIMITS: dict[str, dict[str, int]] = {
    "apply.claims": {
        "LINEAGE_CUT_OFFSETS_MAX": 100_000,
        "LINEAGE_EPOCHS_MAX": 100_000,
        "EPOCH_MAX": 2_147_483_647,
    },
    "apply.expiry": {
        "MARKS_MAX": 64,
        "TRASH_MS_MAX": 316_224_000_000,
        "COUNT_MAX": 1_152_921_504_606_846_976,
    },
    "apply.imports": {"IMPORTED_MAX": 200},
    "apply.nodes": {"PAST_DIRECTORIES_MAX": 8},
    "apply.purge": {
        "RECORD_TIME_STEP_MS_MAX": HOUR_MS,
        "TIME_STEP_MS_MAX": 600_000,
        "TOMBSTONE_KEPT_MS": 720 * HOUR_MS,
        "PURGES_PER_APPLY_MAX": 16,
        "_TIME_MS_MAX": 4_611_686_018_427_387_904,
    },
    "apply.segments": {"SEGMENT_EPOCHS_MAX": 10_000, "CUSTOM_METADATA_BYTES_MAX": 4_096},
    "apply.settings": {"_NODE_ID_MAX": 2_147_483_647},
    "records.setting_scope": {
        "SETTINGS_MAX": 2_000,
        "KEY_CHARACTERS_MAX": 64,
        "VALUE_CHARACTERS_MAX": 200,
        "WHO_CHARACTERS_MAX": 200,
    },
    "rows.feature_level": {"DELEGATED_LOSS_LEVEL": 2, "REJOINING_LEVEL": 2},
    "rows.reads": {"FIRST_FEATURE_LEVEL": 1},
}


@pytest.mark.parametrize("module", LIMITS)
def test_a_limit_changes_with_a_feature_level_only(module: str) -> None:
    found = importlib.import_module(f"rlmm.{module}")
    assert {name: getattr(found, name) for name in LIMITS[module]} == LIMITS[module]
