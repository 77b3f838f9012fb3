"""The program as it was at an earlier commit, to be run beside today's."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = (
    "api", "kafka_client", "kafka_formats", "kafka_listener", "pipeline", "pyproject.toml", "rlm",
    "rlmm", "rsm_backends", "strandline",
)  # fmt: skip


def program_of(commit: str, folder: Path) -> Path:
    """Its sources, in a new folder. Skips the test in a clone without that commit."""
    folder.mkdir()
    archive = folder / "sources.tar"
    command = ["git", "archive", "--output", str(archive), commit, *PACKAGES]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs commit {commit} of the history: {done.stderr.strip()}")
    with tarfile.open(archive) as sources:
        sources.extractall(folder, filter="data")
    return folder
