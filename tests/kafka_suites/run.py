"""`python -m tests.kafka_suites.run [CLASS[#METHOD]...]`: Kafka's test classes, one JVM each, and
how many tests of each ran, passed and failed. All classes where none is named.

A class that ran fewer tests than it has counts as failed: a set-up that finds no test reports no
failure either.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree

from tests.real.broker_plugin import plugin_jar
from tests.real.maven import require_java
from tests.real.toolbox import REPOSITORY, require_program

PROJECT = REPOSITORY / "tests" / "kafka_suites"
REPORTS = PROJECT / "target" / "surefire-reports"
CLASS_DEADLINE_S = 5_400
TESTS = {
    "TransactionsWithTieredStoreTest": 42,
    "OffloadAndConsumeFromLeaderTest": 2,
    "DeleteTopicTest": 2,
    "ListOffsetsTest": 2,
    "ReassignReplicaExpandTest": 2,
    "ReassignReplicaMoveTest": 2,
    "ReassignReplicaShrinkTest": 2,
    "EnableRemoteLogOnTopicTest": 2,
    "DisableRemoteLogOnTopicTest": 2,
    "RollAndOffloadActiveSegmentTest": 2,
    "PartitionsExpandTest": 2,
    "FetchFromLeaderWithCorruptedCheckpointTest": 2,
    "AlterLogDirTest": 2,
    "DeleteSegmentsByRetentionTimeTest": 2,
    "DeleteSegmentsByRetentionSizeTest": 2,
    "DeleteSegmentsDueToLogStartOffsetBreachTest": 2,
    "OffloadAndTxnConsumeFromLeaderTest": 2,
}
"""Of Kafka 4.3.0: each class, and how many tests it has."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Of one class."""

    ran: int
    failed: tuple[str, ...]
    took_s: float

    @property
    def passed(self) -> int:
        """All that ran and neither failed nor were skipped."""
        return self.ran - len(self.failed)


def main() -> int:
    """See the module; 1 where anything failed or did not run."""
    require_java()
    jar = plugin_jar()
    well = True
    for name in sys.argv[1:] or list(TESTS):
        counts = run(name, jar)
        # A part of a class is as many tests as its methods have: two at least.
        due = 1 if "#" in name else TESTS[name]
        well = well and counts.ran >= due and not counts.failed
        print(f"{name}: {counts.passed} of {max(due, counts.ran)} passed, {counts.took_s:.0f} s")
        for failure in counts.failed:
            print(f"  {failure}")
        sys.stdout.flush()
    return 0 if well else 1


def run(name: str, jar: Path) -> Counts:
    """One class, or some of its methods, in a JVM with a folder of its own."""
    for report in REPORTS.glob("TEST-*.xml"):
        report.unlink()
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix="kafka-suites-") as folder:
        properties = {
            "test": name,
            "strandline.nodes": f"{sys.executable} -m tests.kafka_suites.nodes",
            "strandline.repository": REPOSITORY,
            "strandline.plugin": jar,
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
    ran, failed = reported()
    if ran == 0:
        print(done.stdout[-4_000:])
    return Counts(ran, failed, perf_counter() - began)


def reported() -> tuple[int, tuple[str, ...]]:
    """How many tests ran by Surefire's reports, and each that did not pass."""
    ran, failed = 0, []
    for report in REPORTS.glob("TEST-*.xml"):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            ran += 1
            for kind in ("failure", "error", "skipped"):
                if (found := case.find(kind)) is not None:
                    words = found.get("message") or found.get("type") or kind
                    failed.append(f"{case.get('name')}: {words.splitlines()[0][:200]}")
                    break
    return ran, tuple(failed)


if __name__ == "__main__":
    sys.exit(main())
