"""The page's build: done once for the same sources, and missed by nothing that has no Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.toolbox import REPOSITORY

UI = REPOSITORY / "api" / "ui"
NPM = """#!/bin/sh
echo "$*" >> calls
[ "$1" = ci ] || { mkdir -p dist && echo built > dist/index.html; }
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Of the sources, with an npm that only notes how it is called."""
    folder = tmp_path / "ui"
    shutil.copytree(UI, folder, ignore=shutil.ignore_patterns("node_modules", "dist"))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "npm").write_text(NPM)
    (tmp_path / "bin" / "npm").chmod(0o755)
    return folder


def build(copy: Path, *, npm: bool = True, required: bool = False) -> tuple[int, str]:
    path = f"{copy.parent / 'bin'}:/usr/bin:/bin" if npm else f"{copy.parent}"
    environment = {"PATH": path, "STRANDLINE_REQUIRE_TOOLS": "1" if required else "0"}
    done = subprocess.run(
        [sys.executable, copy / "build.py"],
        env={**os.environ, **environment}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stderr


def test_the_same_sources_are_built_once_and_others_again(copy: Path) -> None:
    for _ in range(2):
        assert build(copy)[0] == 0
    calls = ["ci", "run --silent build"]
    assert (copy / "calls").read_text().splitlines() == calls
    (copy / "src" / "new.ts").write_text("export {};")
    assert build(copy)[0] == 0
    assert (copy / "calls").read_text().splitlines() == calls * 2


def test_without_npm_all_else_goes_on_unless_everything_is_required(copy: Path) -> None:
    code, said = build(copy, npm=False)
    assert code == 0
    assert "npm is not installed: install Node.js 20.19 or newer" in said
    assert build(copy, npm=False, required=True)[0] == 1
    assert not (copy / "dist").exists()


def test_packages_are_locked_and_come_from_whatever_registry_npm_is_told_of() -> None:
    lock = json.loads((UI / "package-lock.json").read_text())
    packages = {name: each for name, each in lock["packages"].items() if name}
    assert packages
    assert [name for name, each in packages.items() if "integrity" not in each] == []
    assert [name for name, each in packages.items() if "resolved" in each] == []
