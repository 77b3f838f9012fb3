"""How the short-lived JVMs of Spark are set in tests: what a JVM does to be fast after minutes
takes a fifth of a test's time and more.
"""

from __future__ import annotations

JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
QUICK_START = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
}
"""Settings of a session."""
