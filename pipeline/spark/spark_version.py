"""The supported versions of Spark. Imported in every worker, so it needs no session and no Java."""

from __future__ import annotations

import pyspark

from kafka_formats.errors import InvalidRequest

SPARK_SUPPORTED = ((4, 1), (4, 4))
"""The supported versions (major, minor), from the first to before the second: 4.1 brought filter
push-down.
"""


def check_spark_version(version: str | None = None) -> None:
    """Raise InvalidRequest for a version of Spark with a different interface of Python data
    sources. `version` None: the installed one.
    """
    version = pyspark.__version__ if version is None else version
    lowest, end = SPARK_SUPPORTED
    found = tuple(int(part) for part in version.split(".")[:2])
    if not lowest <= found < end:
        raise InvalidRequest(
            f"Spark {version} is not supported: install pyspark>={lowest[0]}.{lowest[1]},"
            f"<{end[0]}.{end[1]}, the same version on the driver and the cluster"
        )
