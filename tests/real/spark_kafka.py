"""Spark's own Kafka source, for comparisons: jars of Maven, read by the session that is given them.

Spark's connector of one version runs on the next as well; these are the newest that Maven has.
"""

from __future__ import annotations

from tests.real.maven import fetch_jars

CONNECTOR_VERSION = "4.2.0"
TOKEN_PROVIDER_VERSION = "4.1.0-preview1"


def spark_kafka_jars() -> str:
    """A value for `spark.jars`: the connector, and what it needs that Spark does not bring."""
    folder = fetch_jars(
        f"spark-sql-kafka-{CONNECTOR_VERSION}",
        (
            f"org.apache.spark:spark-sql-kafka-0-10_2.13:{CONNECTOR_VERSION}",
            f"org.apache.spark:spark-token-provider-kafka-0-10_2.13:{TOKEN_PROVIDER_VERSION}",
            "org.apache.kafka:kafka-clients:3.9.2",
            "org.apache.commons:commons-pool2:2.13.1",
        ),
        alone=True,
    )
    return ",".join(sorted(str(path) for path in folder.glob("*.jar")))
