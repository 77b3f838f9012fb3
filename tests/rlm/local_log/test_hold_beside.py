"""The hold directory that a log directory has where no setting names one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rlm.local_log.hold_beside import DIRECTORY_NAME, find_beside
from tests.rlm.kafka_logs import new_log_dir


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return new_log_dir(tmp_path / "disk" / "data")


def why(*log_dirs: Path) -> str:
    """The reason for the last of them, which has none."""
    return find_beside(log_dirs).not_held[log_dirs[-1]]


def test_it_lies_beside_the_first_log_directory_of_a_mount_and_nothing_is_made(
    tmp_path: Path, log_dir: Path
) -> None:
    other = new_log_dir(tmp_path / "data2")
    found = find_beside([log_dir, other])
    assert found.paths == {log_dir.parent / DIRECTORY_NAME: [log_dir, other]}
    assert found.not_held == {}
    assert os.listdir(log_dir.parent) == ["data"]
    assert os.listdir(log_dir) == ["meta.properties"]


def test_of_a_link_to_a_log_directory_it_lies_on_the_disk_linked_to(
    tmp_path: Path, log_dir: Path
) -> None:
    (tmp_path / "link").symlink_to(log_dir)
    found = find_beside([tmp_path / "link"])
    assert found.paths == {log_dir.parent / DIRECTORY_NAME: [tmp_path / "link"]}


def test_a_log_directory_that_is_not_there_has_none_and_no_reason(tmp_path: Path) -> None:
    found = find_beside([tmp_path / "away"])
    assert (found.paths, found.not_held) == ({}, {})


def test_it_never_lies_in_another_log_directory(log_dir: Path) -> None:
    inner = new_log_dir(log_dir / "inner")
    found = find_beside([inner, log_dir])
    assert found.paths == {log_dir.parent / DIRECTORY_NAME: [inner, log_dir]}
    (log_dir.parent / DIRECTORY_NAME).write_text("taken")
    assert f"would lie in the log directory {log_dir}; set hold.dirs" in why(log_dir, inner)
    (log_dir.parent / DIRECTORY_NAME).unlink()
    (log_dir.parent / DIRECTORY_NAME).symlink_to(log_dir)
    assert f"would lie in the log directory {log_dir};" in why(log_dir)


def test_where_it_cannot_be_made_that_is_said(log_dir: Path) -> None:
    (log_dir.parent / DIRECTORY_NAME).write_text("taken")
    text = why(log_dir)
    assert text.startswith(f"no segment of {log_dir} is held")
    assert f"{log_dir.parent / DIRECTORY_NAME} cannot be made or written to" in text
    assert text.endswith("If they may be lost, set hold.dirs = []")


def test_where_the_parent_cannot_be_written_to_a_sibling_on_the_same_mount_is_taken(
    tmp_path: Path, log_dir: Path
) -> None:
    (log_dir.parent / DIRECTORY_NAME).write_text("taken")
    other = new_log_dir(tmp_path / "data2")
    assert find_beside([log_dir, other]).paths == {tmp_path / DIRECTORY_NAME: [log_dir, other]}


@pytest.mark.parametrize(
    ("code", "said"), [(errno.EPERM, "CAP_FOWNER"), (errno.EXDEV, "one directory higher")]
)
def test_a_link_that_the_kernel_refuses_is_said_and_nothing_stays(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str
) -> None:
    def refuse(source: Path, _: Path) -> None:
        raise OSError(code, os.strerror(code), str(source))

    monkeypatch.setattr(os, "link", refuse)
    assert said in why(log_dir)
    assert os.listdir(log_dir.parent) == ["data"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_on_a_full_disk_one_that_is_there_is_used(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """The broker deletes what was not copied as soon as it is there again: held it has to be then,
    and a node that had no hold at its start has none before the next one.
    """

    def is_full(path: str, _: int = 0o777) -> None:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(os, "mkdir", is_full)
    assert os.strerror(code) in why(log_dir), "no room for a directory"
    monkeypatch.undo()
    (log_dir.parent / DIRECTORY_NAME).mkdir()
    monkeypatch.setattr(os, "mkdir", is_full)
    found = find_beside([log_dir])
    assert (found.paths, found.not_held) == ({log_dir.parent / DIRECTORY_NAME: [log_dir]}, {})
    assert os.listdir(log_dir.parent / DIRECTORY_NAME) == []

    def refuse(source: Path, _: Path) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), str(source))

    monkeypatch.setattr(os, "link", refuse)
    assert "CAP_FOWNER" in why(log_dir)
