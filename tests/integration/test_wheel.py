"""Wheels: with the compiled modules where there is a compiler, and whole without it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.real.toolbox import REPOSITORY, tools_dir

pytestmark = pytest.mark.integration


def build_wheel(folder: Path, **environment: str) -> Path:
    """With what is installed here, as `pip wheel --no-build-isolation` does, and with what make
    compiled of the same sources: tests/test_compiled_modules.py has when that is taken.
    """
    cache = {"COMPILED_MODULES_CACHE": str(tools_dir() / "compiled-modules")}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder],
        cwd=REPOSITORY,
        env={**os.environ, **cache, **environment},
        check=True,
        capture_output=True,
        timeout=100,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_a_wheel_built_with_a_compiler_carries_what_it_compiles_for_its_platform(
    tmp_path: Path,
) -> None:
    wheel = build_wheel(tmp_path)
    assert not wheel.name.endswith("-none-any.whl")
    compiled = sorted(name for name in names(wheel) if name.endswith(".so"))
    assert [name.partition(".cpython")[0] for name in compiled] == [
        "pipeline/decode/kernel",
        "pipeline/jobs/log_scan",
        "pipeline/rebuild/usual_manifest",
    ]
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    program = (
        "from pipeline.decode import kernel; from pipeline.jobs import log_scan\n"
        "from pipeline.rebuild import usual_manifest\n"
        "print(kernel.__file__, log_scan.__file__, usual_manifest.__file__)"
    )
    found = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split()
    assert found == [str(tmp_path / "installed" / name) for name in compiled]


def test_a_wheel_built_without_a_compiler_is_pure_and_lacks_nothing_else(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path, CC="/nonexistent/cc")
    assert wheel.name.endswith("-py3-none-any.whl")
    found = names(wheel)
    assert {"pipeline/decode/pure_rows.py", "pyspark_strandline/__init__.py"} <= found
    page = {name for name in found if name.startswith("api/ui/")}
    assert {name.split("/")[2] for name in page} <= {"dist"}, "the page's sources are no part of it"
    assert ("api/ui/dist/index.html" in page) is ((REPOSITORY / "api/ui/dist").is_dir())
    assert not [name for name in found if name.endswith(".so")]
