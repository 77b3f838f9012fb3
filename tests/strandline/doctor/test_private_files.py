"""Doctor names the users that may read a file with a secret in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from strandline.doctor.private_files import check_private_files
from strandline.settings.settings import QuorumSettings, Settings


def is_private(path: Path) -> bool:
    (finding,) = check_private_files(Settings(quorum=QuorumSettings(secret_file=path)))
    return finding.ok


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "quorum-secret"
    path.write_text("what only the nodes know")
    return path


@pytest.mark.parametrize(
    ("mode", "private"), [(0o600, True), (0o400, True), (0o640, False), (0o604, False)]
)
def test_a_file_of_the_nodes_user_is_for_nobody_else(
    secret: Path, mode: int, private: bool
) -> None:
    secret.chmod(mode)
    assert is_private(secret) is private


@pytest.mark.parametrize(
    ("mode", "private"), [(0o440, True), (0o640, True), (0o660, False), (0o444, False)]
)
def test_a_file_of_another_user_may_be_handed_over_by_a_group(
    secret: Path, mode: int, private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: secret.stat().st_uid + 1)
    assert is_private(secret) is private


def test_a_group_that_the_node_is_not_in_hands_nothing_over(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret.chmod(0o440)
    other = secret.stat().st_gid + 1
    monkeypatch.setattr(os, "geteuid", lambda: secret.stat().st_uid + 1)
    monkeypatch.setattr(os, "getegid", lambda: other)
    monkeypatch.setattr(os, "getgroups", lambda: [other])
    assert not is_private(secret)
