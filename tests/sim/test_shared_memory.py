"""Worlds and tests lie in memory only where that has room for them and for everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.ground import shared_memory as module
from sim.ground.shared_memory import shared_memory


def test_a_place_with_room_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREE_BYTES_MIN", 1)
    assert shared_memory(tmp_path) == tmp_path


def test_a_full_one_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FREE_BYTES_MIN", 1 << 62)
    assert shared_memory(tmp_path) is None


def test_without_one_the_usual_place_is_used(tmp_path: Path) -> None:
    assert shared_memory(tmp_path / "none") is None
