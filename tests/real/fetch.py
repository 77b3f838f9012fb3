"""`python -m tests.real.fetch`: fetch and build what tests against real servers run, before them.

Building MinIO takes longer than a test may; `make` does it first, once a machine. What can't be had
is said here, and then the tests that need it say so again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from subprocess import SubprocessError
from time import perf_counter

import pytest

from tests.kafka_suites.run import fetch_suites
from tests.real.broker_plugin import fetch_plugin_packages
from tests.real.chromium import chromium
from tests.real.image_build import build_image
from tests.real.kafka import KAFKA_VERSION, kafka_class_data, kafka_jars
from tests.real.kcat import kcat_folder
from tests.real.kustomize import KUSTOMIZE_VERSION, kustomize_program
from tests.real.localstack import install_localstack
from tests.real.minio import MINIO_VERSION, minio_program
from tests.real.rclone import packaged_rclone
from tests.real.spark_jvm import spark_class_data
from tests.real.spark_kafka import CONNECTOR_VERSION, spark_kafka_jars

WORTH_TELLING_S = 2.0

TOOLS: dict[str, Callable[[], object]] = {
    f"MinIO {MINIO_VERSION}, built from its Go module (some minutes, once)": minio_program,
    f"Kafka {KAFKA_VERSION}": kafka_jars,
    "Kafka's classes for quick starts": kafka_class_data,
    "Spark's classes for quick starts": spark_class_data,
    f"Spark's Kafka source {CONNECTOR_VERSION}": spark_kafka_jars,
    "what Maven builds the broker's plug-in with": fetch_plugin_packages,
    "Kafka's own tests": fetch_suites,
    "kcat": kcat_folder,
    "Debian's rclone": packaged_rclone,
    f"kustomize {KUSTOMIZE_VERSION}, built from its Go module": kustomize_program,
    "LocalStack": install_localstack,
    "Chromium": chromium,
    "a clean Debian root, and the image's layers in it": build_image,
}


def main() -> None:
    """Fetch one after the other; what is there already costs nothing."""
    for name, fetch in TOOLS.items():
        sys.stdout.write(f"{name}: ")
        sys.stdout.flush()
        began = perf_counter()
        try:
            fetch()
        except (
            pytest.skip.Exception,
            pytest.fail.Exception,
            SubprocessError,
            OSError,
            RuntimeError,
        ) as error:
            print(f"not to be had: {error}")
            continue
        took_s = perf_counter() - began
        print(f"fetched in {took_s:.0f} s" if took_s > WORTH_TELLING_S else "there")


if __name__ == "__main__":
    main()
