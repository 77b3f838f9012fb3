"""Who owns a hold directory."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kafka_formats.errors import Conflict, Refused
from rlm.local_log.hold_owner import become_owner, other_owner


def test_who_looks_at_the_directory_of_a_cluster_that_starts_costs_it_no_held_segment(
    tmp_path: Path,
) -> None:
    os.close(become_owner(tmp_path / "hold", "ours").descriptor)
    looks = os.open(tmp_path / ".hold.lock", os.O_RDONLY)
    fcntl.flock(looks, fcntl.LOCK_SH)
    # Not Conflict: the node would run without what is held there.
    with pytest.raises(Refused, match="start the node again"):
        become_owner(tmp_path / "hold", "ours")
    os.close(looks)


def test_the_own_clusters_doctor_takes_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owned = become_owner(tmp_path / "hold", "ours")
    os.close(owned.descriptor)

    def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(fcntl, "flock", never)
    assert other_owner(tmp_path / "hold", "ours") is None


def test_another_cluster_hears_whose_it_is(tmp_path: Path) -> None:
    owned = become_owner(tmp_path / "hold", "ours")
    with pytest.raises(Conflict, match="cluster ours"):
        become_owner(tmp_path / "hold", "theirs")
    assert other_owner(tmp_path / "hold", "theirs") == "ours"
    os.close(owned.descriptor)
    assert other_owner(tmp_path / "hold", "theirs") is None
