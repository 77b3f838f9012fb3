"""How the short-lived JVMs of Spark are set in tests: what a JVM does to be fast after minutes
takes a fifth of a test's time and more, and loading Spark's classes half of what is left.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import pyspark

from tests.real.class_data import class_data, class_options

SPARK_HOME = Path(pyspark.__file__).parent
TRAINING = Path(__file__).with_name("spark_training.py")
TRAINING_HOME = Path(sys.prefix, "spark-home")
"""Stays: where the jars were that an archive was made of is looked at whenever it is opened."""

TRAINING_DEADLINE_S = 110
PLAIN_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@cache
def spark_class_data() -> Path:
    """The archive of Spark's classes, in the environment that Spark is in."""
    return class_data("spark", Path(sys.prefix), SPARK_HOME / "jars", _train)


def java_options() -> str:
    """Of any JVM of Spark."""
    return " ".join((PLAIN_OPTIONS, *class_options(spark_class_data())))


def quick_start() -> dict[str, str]:
    """Settings of a session."""
    options = java_options()
    return {"spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}


def linked_spark_home(folder: Path) -> Path:
    """PySpark's own, but what a local cluster writes into it stays here, and without the zip of its
    Python files, which each process would compile anew: they are installed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path in SPARK_HOME.iterdir():
        if path.name not in ("work", "python"):
            (folder / path.name).symlink_to(path)
    return folder


def _train(option: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = linked_spark_home(TRAINING_HOME)
        subprocess.run(
            [
                *(str(home / "bin" / "spark-submit"), "--master", "local-cluster[1,1,512]"),
                f"--conf=spark.driver.extraJavaOptions={PLAIN_OPTIONS} {option}",
                f"--conf=spark.executor.extraJavaOptions={PLAIN_OPTIONS}",
                *("--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"),
                *(str(TRAINING), folder),
            ],
            env=os.environ
            | {
                "SPARK_HOME": str(home),
                "SPARK_LOCAL_DIRS": f"{folder}/local",
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYSPARK_PYTHON": sys.executable,
            },
            cwd=folder,
            check=True,
            capture_output=True,
            timeout=TRAINING_DEADLINE_S,
        )
