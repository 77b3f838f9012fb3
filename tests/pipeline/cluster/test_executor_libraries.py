"""What runs in tasks needs no library that an executor is not told to have."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import packages_distributions

from tests.real.toolbox import REPOSITORY

IN_TASKS = (
    "pyspark_strandline",
    "pipeline.export.export_task",
    "pipeline.export.value_decoding",
    "pipeline.jobs.scrub",
    "pipeline.listing.listed_objects",
    "pipeline.rebuild.manifest_rows",
    "pipeline.rebuild.partition_group",
    "pipeline.reconcile.judged_objects",
    "pipeline.reconcile.known_rows",
    "pipeline.reconcile.tally",
    "pipeline.reconcile.uploads",
    "pipeline.restore.produce",
    "pipeline.source.batch_reader",
    "pipeline.source.data_source",
    "pipeline.source.stream_reader",
    "rsm_backends.s3",
    "rsm_backends.s3_blocking",
)
IMPORTING = """
import importlib, sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in WITHOUT:
            raise ImportError(f"executors do not have {name}")

WITHOUT = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Without())
for name in sys.argv[2].split(","):
    importlib.import_module(name)
"""


def names(requirements: Iterable[str]) -> set[str]:
    """Of distributions, as they are compared."""
    found = (re.match(r"[A-Za-z0-9._-]+", each) for each in requirements)
    return {each[0].lower().replace("_", "-") for each in found if each is not None}


def test_modules_of_tasks_import_with_the_executors_libraries_alone() -> None:
    whole = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    executors = tomllib.loads((REPOSITORY / "executors" / "pyproject.toml").read_text())
    ours = names([*whole["dependencies"], *whole["optional-dependencies"]["pipeline"]])
    lacking = ours - names(executors["project"]["dependencies"]) - {"pyspark"}
    modules = {
        module
        for module, distributions in packages_distributions().items()
        if all(each.lower().replace("_", "-") in lacking for each in distributions)
    }
    assert {"rocksdict", "fastapi", "deltalake"} <= modules
    done = subprocess.run(
        [sys.executable, "-c", IMPORTING, ",".join(modules), ",".join(IN_TASKS)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
