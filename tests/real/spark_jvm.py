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
from tests.real.toolbox import only_one, tools_dir

TRAINING = Path(__file__).with_name("spark_training.py")
PROGRAMS = ("bin", "jars")
WORK = "work"
"""What a local cluster writes into its home."""

TRAINING_DEADLINE_S = 300
PLAIN_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@cache
def spark_home() -> Path:
    """PySpark's programs, copied once a machine: an archive of classes holds for the jars that it
    was made of, where they are and as old as they are. Without the zip of PySpark's Python files,
    which each process would compile anew: they are installed.
    """
    home = tools_dir() / f"spark-{pyspark.__version__}"
    with only_one(home.name):
        if not home.exists():
            unfinished = home.with_name(f"{home.name}.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            for name in PROGRAMS:
                shutil.copytree(Path(pyspark.__file__).parent / name, unfinished / name)
            unfinished.rename(home)
    return home


@cache
def spark_class_data() -> Path:
    """The archive of Spark's classes."""
    home = spark_home()
    return class_data(home.name, home, home / "jars", _train)


def java_options() -> str:
    """Of any JVM of Spark."""
    return " ".join((PLAIN_OPTIONS, *class_options(spark_class_data())))


def quick_start() -> dict[str, str]:
    """Settings of a session."""
    options = java_options()
    return {
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": options,
        # As workers of tables have it, which are those of other tasks too then: Spark keeps Python
        # processes apart by their environment.
        "spark.executorEnv.SPARK_SIMPLIFIED_TRACEBACK": "1",
    }


def linked_spark_home(folder: Path) -> Path:
    """The same programs, but what a local cluster writes stays here."""
    folder.mkdir()
    for name in PROGRAMS:
        (folder / name).symlink_to(spark_home() / name)
    return folder


def _train(option: str) -> None:
    home = spark_home()
    with tempfile.TemporaryDirectory() as folder:
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
    shutil.rmtree(home / WORK)
