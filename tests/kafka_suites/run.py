"""`python -m tests.kafka_suites.run [--kafka VERSION] [--managers ours|kafka]
[--store minio|folder] [CLASS[#METHOD]...]`: Kafka's test classes, one JVM each, and how many tests
of each ran, passed and failed. All classes of that version where none is named.

A class that ran fewer tests than it has counts as failed: a set-up that finds no test reports no
failure either.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree

from tests.e2e.bucket import store_settings
from tests.real.broker_plugin import fetch_packages, plugin_jar
from tests.real.maven import require_java
from tests.real.minio import MinioServer
from tests.real.toolbox import REPOSITORY, require_program

PROJECT = REPOSITORY / "tests" / "kafka_suites"
CLASS_DEADLINE_S = 5_400
VERSIONS = ("4.3.0", "4.0.2", "3.9.2")
STORES = ("minio", "folder")
TESTS = {
    "TransactionsWithTieredStoreTest": (42, 41, 57),
    "OffloadAndConsumeFromLeaderTest": (2, 2, 2),
    "DeleteTopicTest": (2, 2, 2),
    "ListOffsetsTest": (2, 2, 0),
    "ReassignReplicaExpandTest": (2, 2, 2),
    "ReassignReplicaMoveTest": (2, 2, 2),
    "ReassignReplicaShrinkTest": (2, 2, 2),
    "EnableRemoteLogOnTopicTest": (2, 2, 2),
    "DisableRemoteLogOnTopicTest": (2, 2, 1),
    "RollAndOffloadActiveSegmentTest": (2, 2, 2),
    "PartitionsExpandTest": (2, 2, 2),
    "FetchFromLeaderWithCorruptedCheckpointTest": (2, 2, 2),
    "AlterLogDirTest": (2, 2, 2),
    "DeleteSegmentsByRetentionTimeTest": (2, 2, 2),
    "DeleteSegmentsByRetentionSizeTest": (2, 2, 2),
    "DeleteSegmentsDueToLogStartOffsetBreachTest": (2, 2, 2),
    "OffloadAndTxnConsumeFromLeaderTest": (2, 2, 0),
    "RemoteLogMetadataManagerTest": (4, 4, 6),
    "RemoteLogSegmentLifecycleTest": (12, 12, 18),
}
"""Each class, and how many tests it has in each of the versions."""


@dataclass(frozen=True, slots=True)
class Setup:
    """The version of Kafka; the managers: the plug-in's jar, or None for Kafka's own; the nodes'
    store.
    """

    kafka: str
    plugin: Path | None
    store: str

    def due(self, name: str) -> int:
        """How many tests of a class have to run; of a part of one, any."""
        return 1 if "#" in name else TESTS[name][VERSIONS.index(self.kafka)]


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one class."""

    ran: int
    failed: tuple[str, ...]
    left_out: int
    took_s: float

    @property
    def passed(self) -> int:
        """All that ran, and neither failed nor were left out."""
        return self.ran - len(self.failed) - self.left_out


def main() -> int:
    """See the module; 1 where anything failed or did not run."""
    parser = argparse.ArgumentParser(
        description="Kafka's own tests of tiered storage, with both managers ours.",
        epilog="Example: --kafka 4.0.2 DeleteTopicTest "
        "'TransactionsWithTieredStoreTest#testBasicTransactions*'",
    )
    parser.add_argument("--kafka", choices=VERSIONS, default=VERSIONS[0], help="whose tests")
    parser.add_argument(
        "--managers", choices=("ours", "kafka"), default="ours", help="kafka: to compare with"
    )
    parser.add_argument(
        "--store", choices=STORES, default=STORES[0], help="the nodes' store; a folder is quicker"
    )
    parser.add_argument("classes", nargs="*", help="CLASS or CLASS#METHOD; all of the version's")
    chosen = parser.parse_args()
    unknown = [each for each in chosen.classes if each.partition("#")[0] not in TESTS]
    if unknown:
        parser.error(f"there is no class {', '.join(unknown)}; there are {', '.join(TESTS)}")
    require_java()
    plugin = plugin_jar() if chosen.managers == "ours" else None
    setup = Setup(chosen.kafka, plugin, chosen.store)
    well = True
    for name in chosen.classes or [each for each in TESTS if setup.due(each)]:
        counts = run(name, setup)
        due = setup.due(name)
        well = well and counts.ran >= due and not counts.failed
        left_out = f", {counts.left_out} left out" if counts.left_out else ""
        print(
            f"{name}: {counts.passed} of {max(due, counts.ran)} passed{left_out}, "
            f"{counts.took_s:.0f} s"
        )
        for failure in counts.failed:
            print(f"  {failure}")
        sys.stdout.flush()
    return 0 if well else 1


def fetch_suites() -> None:
    """Have Maven fetch what the newest version's tests need, by running a small one."""
    small = ("-Dtest=RemoteLogSegmentMetadataTransformTest", "-Dstrandline.plugin=")
    tmp = f"-Dstrandline.tmp={tempfile.gettempdir()}"
    fetch_packages(PROJECT, "kafka-suites", "test", *small, tmp)


def run(name: str, setup: Setup) -> Counts:
    """One class, or some of its methods, in a JVM with a folder of its own."""
    reports = PROJECT / "target" / setup.kafka / "surefire-reports"
    for report in reports.glob("TEST-*.xml"):
        report.unlink()
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix="kafka-suites-") as folder, ExitStack() as stack:
        settings, objects = store_in(Path(folder) / "store", setup.store, stack)
        properties = {
            "test": name,
            "kafka.version": setup.kafka,
            "strandline.nodes": f"{sys.executable} -m tests.kafka_suites.nodes {settings}",
            "strandline.store": objects,
            "strandline.repository": REPOSITORY,
            "strandline.plugin": setup.plugin or "",
            "strandline.tmp": folder,
        }
        # Nodes are Python processes by the dozen: each would compile all of ours anew.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        done = subprocess.run(
            [
                *(require_program("mvn"), "-q", "-B", "-Dstyle.color=never", "test"),
                *(f"-D{key}={value}" for key, value in properties.items()),
            ],
            cwd=PROJECT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=CLASS_DEADLINE_S,
        )
    ran, failed, left_out = reported(reports)
    if ran == 0:
        print(done.stdout[-4_000:])
    return Counts(ran, failed, left_out, perf_counter() - began)


def store_in(home: Path, kind: str, stack: ExitStack) -> tuple[Path, Path]:
    """A store for the nodes of all tests of a class: the file with a node's settings for it, and
    the folder of its objects. `stack` ends it.
    """
    home.mkdir()
    if kind == "minio":
        config = stack.enter_context(MinioServer(home)).store_config
        settings, objects = store_settings(home, config), home / "data" / config.bucket
    else:
        objects = home / "objects"
        objects.mkdir()
        settings = {"kind": "filesystem", "path": str(objects)}
    told = home / "settings.json"
    told.write_text(json.dumps(settings))
    return told, objects


def reported(reports: Path) -> tuple[int, tuple[str, ...], int]:
    """Surefire's reports: how many tests ran, each that failed, how many left themselves out."""
    ran, failed, left_out = 0, [], 0
    for report in reports.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            ran += 1
            left_out += case.find("skipped") is not None
            for kind in ("failure", "error"):
                if (found := case.find(kind)) is not None:
                    words = found.get("message") or found.get("type") or kind
                    failed.append(f"{case.get('name')}: {words.splitlines()[0][:200]}")
                    break
    return ran, tuple(failed), left_out


if __name__ == "__main__":
    sys.exit(main())
