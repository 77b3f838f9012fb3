"""Fetch jars of Maven Central into the tools folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from xml.sax.saxutils import escape

from tests.real.toolbox import missing, only_one, require_program, tools_dir

FETCH_DEADLINE_S = 600
JAVA_VERSION_MIN = 17

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tools</groupId><artifactId>tools</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_EXCLUDE_ALL = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)


@cache
def require_java() -> str:
    """The path of a Java that is new enough, or `missing`."""
    java = require_program("java")
    text = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60).stderr
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < JAVA_VERSION_MIN:
        missing(f"Java {JAVA_VERSION_MIN} or newer")
    return java


def fetch_jars(name: str, coordinates: tuple[str, ...], *, alone: bool = False) -> Path:
    """The folder `name` of the tools folder, holding the jars of `group:artifact:version`s (a
    classifier may follow), with all they need, or `alone`, where the program that loads them brings
    the rest.

    The folder is renamed into place when it is whole, so a killed run leaves nothing half-fetched.
    """
    folder = tools_dir() / name
    if folder.is_dir():
        return folder
    maven = require_program("mvn")
    with only_one(name):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=tools_dir()) as scratch:
                entries = "".join(_entry(each, alone=alone) for each in coordinates)
                _copy_dependencies(maven, coordinates, entries, Path(scratch)).rename(folder)
    return folder


def _copy_dependencies(
    maven: str, coordinates: tuple[str, ...], entries: str, scratch: Path
) -> Path:
    (scratch / "pom.xml").write_text(_POM.format(dependencies=entries))
    jars = scratch / "jars"
    command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
    done = subprocess.run(
        command, cwd=scratch, capture_output=True, text=True, timeout=FETCH_DEADLINE_S
    )
    if done.returncode != 0:
        shutil.rmtree(jars, ignore_errors=True)
        missing(f"{coordinates} from Maven ({done.stdout[-2_000:]})")
    return jars


def _entry(coordinate: str, *, alone: bool) -> str:
    group, artifact, version, *classifier = map(escape, coordinate.split(":"))
    exclusions = _EXCLUDE_ALL if alone else ""
    classifiers = "".join(f"<classifier>{each}</classifier>" for each in classifier)
    return (
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version>{classifiers}{exclusions}</dependency>"
    )
