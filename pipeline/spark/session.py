"""The Spark session of a job, with only those settings that Strandline needs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pipeline.spark.spark_version import check_spark_version
from pipeline.spark.worker_sockets import worker_sockets

DEFAULT_MASTER = "local[*,4]"
"""All cores; a task that fails is tried four times, as on a cluster (`local[*]` tries once)."""

SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"
SPARKS_OWN = 200
PER_CORE = 8
"""Partitions of a shuffle for each core of one machine: each of Spark's own 200 takes 60 to 80 ms,
even if it is nearly empty.
"""


def open_session(
    name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a session, or take the running one. `master` None: spark-submit's master, or all cores
    of this machine. `conf` wins over our defaults.
    """
    check_spark_version()
    # Spark would take the first python3 on the path, which may not have Strandline installed.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(f"strandline {name}")
    defaults = {
        "spark.ui.showConsoleProgress": "false",  # the job draws its own
        "spark.sql.session.timeZone": "UTC",
        "spark.python.worker.faulthandler.enabled": "true",
        "spark.log.level": "WARN",
    }
    said = dict(conf or {})
    if master is not None:
        said["spark.master"] = master
    elif "spark.master" not in said and not master_was_said(os.environ):
        said["spark.master"] = DEFAULT_MASTER
    # In a running session the number of shuffle partitions is up to its user, and the sockets of
    # its workers are set already.
    is_ours = SparkContext._active_spark_context is None
    if is_ours:
        defaults |= worker_sockets(said.get("spark.master", ""))
    for key, value in (defaults | said).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    if is_ours:
        fit_shuffles(spark)
    return spark


def fit_shuffles(spark: SparkSession) -> None:
    """Set the shuffle partitions by the cores of a session that has just started, unless its
    configuration sets them.
    """
    context = spark.sparkContext
    parts = shuffle_partitions(context.master or "", context.defaultParallelism)
    if parts is not None and not context.getConf().contains(SHUFFLE_PARTITIONS):
        spark.conf.set(SHUFFLE_PARTITIONS, parts)


def shuffle_partitions(master: str, cores: int) -> str | None:
    """The number of shuffle partitions on one machine; None on a cluster: Spark's own number."""
    if not master.startswith("local"):
        return None
    return str(min(PER_CORE * cores, SPARKS_OWN))


def speculates(spark: SparkSession) -> bool:
    """True if Spark may run a task twice at once. It reads the setting in any case of letters."""
    said = spark.conf.get("spark.speculation", "false") or ""
    return said.strip().lower() == "true"


def master_was_said(environment: Mapping[str, str]) -> bool:
    """True if spark-submit started this process (it passes the port of its gateway), or if
    PYSPARK_SUBMIT_ARGS names a master.
    """
    arguments = environment.get("PYSPARK_SUBMIT_ARGS", "")
    return "PYSPARK_GATEWAY_PORT" in environment or "--master" in arguments.split()
