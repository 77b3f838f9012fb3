"""Calls that hang in a store's file system are told by store, before they are four."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlm.stores import store_watch
from rlm.stores.store_watch import HungCalls
from rsm_backends.store_config import StoreConfig

CONFIGS = {
    "main": StoreConfig(name="main", kind="filesystem", path=Path("/mnt/tier")),
    "other": StoreConfig(name="other", kind="filesystem", path=Path("/mnt/other")),
    "quick": StoreConfig(name="quick", kind="memory"),
}


def test_none_hang() -> None:
    assert HungCalls(CONFIGS, dict).texts() == {}


def test_those_of_this_process_and_of_the_workers_are_added_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(store_watch, "hanging_calls", lambda: {"/mnt/tier": 1})
    found = HungCalls(CONFIGS, lambda: {"/mnt/tier": 2, "/mnt/other": 1}).texts()
    assert found.keys() == {"main", "other"}
    assert found["main"].startswith("3 calls hang in the file system of /mnt/tier:")
    assert found["other"].startswith("1 call hangs in the file system of /mnt/other:")
