"""The broker's plug-in, built from `broker_plugin/` when its sources are newer than its jar."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.real.toolbox import REPOSITORY, only_one, require_program

PROJECT = REPOSITORY / "broker_plugin"
JAR = PROJECT / "target" / "strandline-broker-plugin.jar"
BUILD_DEADLINE_S = 300


def plugin_jar() -> Path:
    """The jar, or `missing` without Maven."""
    with only_one("broker-plugin"):
        sources = [PROJECT / "pom.xml", *(PROJECT / "src" / "main").rglob("*.java")]
        newest = max(path.stat().st_mtime for path in sources)
        if not JAR.is_file() or JAR.stat().st_mtime < newest:
            maven = require_program("mvn")
            subprocess.run(
                [maven, "-q", "-B", "package", "-DskipTests"],
                cwd=PROJECT,
                check=True,
                timeout=BUILD_DEADLINE_S,
            )
    return JAR
