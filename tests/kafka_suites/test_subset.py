"""One of Kafka's own test classes on each `make test`; `make kafka-suites` runs them all."""

from __future__ import annotations

import pytest

from tests.kafka_suites.run import VERSIONS, Setup, fetch_suites, run
from tests.real.broker_plugin import plugin_jar
from tests.real.maven import require_java

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    "name",
    [
        "DeleteTopicTest",
        pytest.param(
            "TransactionsWithTieredStoreTest#testBasicTransactions*", marks=pytest.mark.soak
        ),
    ],
)
def test_kafkas_own_test_passes_with_both_managers_ours(name: str) -> None:
    require_java()
    fetch_suites()
    setup = Setup(VERSIONS[0], plugin_jar(), "minio")
    counts = run(name, setup)
    if counts.failed:  # Kafka's tests have deadlines, whatever else the machine does
        counts = run(name, setup)
    assert counts.failed == ()
    assert counts.passed == 2
