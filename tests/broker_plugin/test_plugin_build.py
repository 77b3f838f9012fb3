"""The plug-in's own build: its tests on four versions of Kafka's interface, and the jar."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.real.broker_plugin import (
    BRIDGE_JAR,
    BUILD_DEADLINE_S,
    JAR,
    copy_of_project,
    maven,
    plugin_jars,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(BUILD_DEADLINE_S + 60)]

JAR_BYTES_MAX = 100 * 1024
BRIDGE_BYTES_MAX = 30 * 1024
NEWER_VERSIONS = ("4.0.2", "4.3.0", "4.4.0")
"""The oldest one's reports have no suffix."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project in a folder of its own, built and verified once."""
    project = copy_of_project(tmp_path_factory.mktemp("plugin"))
    maven(project, "verify")
    return project


def test_its_tests_pass_on_each_version(built: Path) -> None:
    counts = dict.fromkeys(("", *NEWER_VERSIONS), 0)
    for report in (built / "target" / "surefire-reports").glob("TEST-*.xml"):
        suite = ElementTree.parse(report).getroot()
        version = next((each for each in NEWER_VERSIONS if report.stem.endswith(each)), "")
        counts[version] += int(suite.attrib["tests"])
        assert (suite.attrib["failures"], suite.attrib["errors"]) == ("0", "0"), report.name
        assert suite.attrib["skipped"] == "0", report.name
    assert min(counts.values()) > 100, counts


def test_the_jar_is_small_and_has_no_classes_of_others(built: Path) -> None:
    jar = built / JAR
    assert jar.stat().st_size < JAR_BYTES_MAX
    with zipfile.ZipFile(jar) as opened:
        names = {name for name in opened.namelist() if not name.endswith("/")}
    others = {name for name in names if not name.startswith("io/strandline/broker/")}
    assert others == {"META-INF/MANIFEST.MF", "META-INF/LICENSE"}


def test_the_bridge_is_a_small_jar_with_none_of_the_plug_ins_classes(built: Path) -> None:
    jar = built / BRIDGE_JAR
    assert jar.stat().st_size < BRIDGE_BYTES_MAX
    with zipfile.ZipFile(jar) as opened, zipfile.ZipFile(built / JAR) as plugin:
        names = {name for name in opened.namelist() if name.endswith(".class")}
        assert names.isdisjoint(plugin.namelist())
    assert "io/strandline/broker/MigratingMetadataManager.class" in names


def test_the_same_sources_make_the_same_jars(built: Path) -> None:
    assert (built / JAR).read_bytes() == (plugin_jars() / JAR.name).read_bytes()
    assert (built / BRIDGE_JAR).read_bytes() == (plugin_jars() / BRIDGE_JAR.name).read_bytes()
