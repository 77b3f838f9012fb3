"""Which versions of Spark this runs on. Imported in every worker: no session, nothing of Java."""

from __future__ import annotations

import pyspark

from kafka_formats.errors import InvalidRequest

SPARK_SUPPORTED = ((4, 1), (4, 4))
"""From the first to before the second (major, minor): 4.1 brought filter push-down."""


def check_spark_version(version: str | None = None) -> None:
    """InvalidRequest for a Spark whose Python data sources are another interface. None: this one's
    version.
    """
    version = pyspark.__version__ if version is None else version
    lowest, end = SPARK_SUPPORTED
    found = tuple(int(part) for part in version.split(".")[:2])
    if not lowest <= found < end:
        raise InvalidRequest(
            f"Spark {version} is not supported: install pyspark>={lowest[0]}.{lowest[1]},"
            f"<{end[0]}.{end[1]}, the same version on the driver and the cluster"
        )
