"""The broker's plug-in, built from `broker_plugin/` once for the same sources on a machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path

import pytest

from tests.real.maven import require_java
from tests.real.spark_jvm import PLAIN_OPTIONS
from tests.real.toolbox import REPOSITORY, missing, only_one, require_program, tools_dir

PROJECT = REPOSITORY / "broker_plugin"
GOLDEN = Path("tests", "golden", "broker_protocol")
JAR = Path("target", "strandline-broker-plugin.jar")
BRIDGE_JAR = Path("target", "strandline-broker-plugin-bridge.jar")
"""The bridge of a move from Kafka's metadata topic; it needs the classes of the first one."""
BUILD_DEADLINE_S = 600
KEPT_BUILDS_MAX = 8
_CANT_BE_HAD = ("Could not resolve", "Could not transfer", "PluginResolutionException")


def plugin_jar() -> Path:
    """The jar, or `missing` without Maven."""
    return plugin_jars() / JAR.name


def bridge_class_path() -> str:
    """A broker's class path for the bridge, of today's jars."""
    return f"{plugin_jars() / JAR.name}:{plugin_jars() / BRIDGE_JAR.name}"


@cache
def plugin_jars() -> Path:
    """The folder of the jars of today's sources, in the tools folder: other clones have the same,
    and `test_plugin_build.py` compares them with a build of its own.
    """
    sources = sorted(path for path in (PROJECT / "src" / "main").rglob("*") if path.is_file())
    hashed = hashlib.sha256()
    for path in (REPOSITORY / "LICENSE", PROJECT / "pom.xml", *sources):
        data = path.read_bytes()
        hashed.update(f"{path.relative_to(REPOSITORY)}\0{len(data)}\0".encode() + data)
    with only_one("broker-plugin"):
        folder = tools_dir() / "broker-plugin-jars"
        folder.mkdir(exist_ok=True)
        kept = folder / hashed.hexdigest()[:32]
        if not kept.is_dir():
            with tempfile.TemporaryDirectory(dir=tools_dir()) as scratch:
                project = copy_of_project(Path(scratch))
                maven(project, "package", "-DskipTests")
                jars = Path(scratch, "jars")
                jars.mkdir()
                for jar in (JAR, BRIDGE_JAR):
                    shutil.copy(project / jar, jars)
                jars.rename(kept)
        os.utime(kept)
        builds = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
        for stale in builds[:-KEPT_BUILDS_MAX]:
            shutil.rmtree(stale)
    return kept


def jar_of(commit: str, folder: Path) -> Path:
    """The jar as the sources were at a commit, built in a new folder. Skips the test in a clone
    without that commit.
    """
    folder.mkdir()
    parts = ("LICENSE", str(GOLDEN), PROJECT.name)
    command = ["git", "archive", "--output", str(folder / "sources.tar"), commit, *parts]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"needs commit {commit} of the history: {done.stderr.strip()}")
    with tarfile.open(folder / "sources.tar") as sources:
        sources.extractall(folder, filter="data")
    maven(folder / PROJECT.name, "package", "-DskipTests")
    return folder / PROJECT.name / JAR


def fetch_plugin_packages() -> None:
    """What the plug-in's build and its tests need."""
    fetch_packages(
        PROJECT, "broker-plugin", "verify", "-Dtest=BrokerApiTest#whatTheVersionHasIsFound"
    )


def fetch_packages(project: Path, name: str, *arguments: str) -> None:
    """Have Maven fetch all that these goals of a project need, once for each state of its file."""
    digest = hashlib.sha256((project / "pom.xml").read_bytes()).hexdigest()[:16]
    done = tools_dir() / f"{name}-packages-{digest}"
    if not done.exists():
        with only_one(name):
            maven(project, *arguments)
        done.touch()


def copy_of_project(target: Path) -> Path:
    """The plug-in's sources in another folder, with all that its build reads beside them: brokers
    may run on the jar of the first meanwhile.
    """
    shutil.copy(REPOSITORY / "LICENSE", target / "LICENSE")
    shutil.copytree(REPOSITORY / GOLDEN, target / GOLDEN)
    without_target = shutil.ignore_patterns("target")
    return shutil.copytree(PROJECT, target / PROJECT.name, ignore=without_target)


def maven(folder: Path, *arguments: str) -> None:
    """Run Maven; packages that can't be had are a missing tool, all else fails the test."""
    require_java()
    done = subprocess.run(
        [require_program("mvn"), "-q", "-B", f"-DargLine={PLAIN_OPTIONS}", *arguments],
        cwd=folder,
        env={**os.environ, "MAVEN_OPTS": PLAIN_OPTIONS},
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_S,
    )
    if done.returncode != 0:
        said = done.stdout[-6_000:]
        if any(each in said for each in _CANT_BE_HAD):
            missing(f"the packages of {folder.name}/pom.xml from Maven ({said[-1_000:]})")
        pytest.fail(f"Maven says:\n{said}")
